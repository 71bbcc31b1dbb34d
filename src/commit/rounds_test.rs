//! The rules of the rounds, with a store that does what the test says.

use std::collections::BTreeMap;

use crate::identity::{HostName, Incarnation, Run, ServiceName};
use crate::registry::rig::{alice, config, exit, facts, name, now, starting, submission, web};
use crate::registry::{Answer, Config, HostVerb, MemoryStore, ReplicaReport, Store};
use crate::rights::Rights;
use crate::supervision::{Final, State};

use super::*;

/// What the store does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Commits,
    Refuses,
    Hangs,
}

/// Rounds whose steps are done at once, but for what hangs.
struct Play {
    rounds: Rounds<u32, u32>,
    table: EndpointTable,
    store: MemoryStore,
    mood: Mood,
    hanging: Option<Step<u32, u32>>,
    at: Now,
    answers: BTreeMap<u32, Result<Answer, Refusal>>,
    acknowledged: BTreeMap<u32, Result<(), String>>,
    ordered: BTreeMap<HostName, Arc<Orders>>,
    view: Arc<View>,
    /// The words of what was done, in order.
    done: Vec<&'static str>,
    asked: u32,
}

impl Play {
    /// Everything is shown at once.
    fn begun() -> Self {
        let mut play = Self::of(MemoryStore::default(), config());
        play.begin();
        assert!(play.rounds.has_begun());
        play
    }

    fn of(mut store: MemoryStore, config: Config) -> Self {
        let stored = store.load().unwrap();
        let registry = Registry::load(config, &stored, "e".into(), now(0)).unwrap();
        let rounds: Rounds<u32, u32> = Rounds::new(registry);
        Self {
            table: rounds.table(),
            view: rounds.registry().view(),
            rounds,
            store,
            mood: Mood::Commits,
            hanging: None,
            at: now(0),
            answers: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            ordered: BTreeMap::new(),
            done: Vec::new(),
            asked: 0,
        }
    }

    fn begin(&mut self) {
        let mut steps = Vec::new();
        self.rounds.begin(self.at, &mut steps);
        self.perform(steps);
    }

    fn perform(&mut self, steps: Vec<Step<u32, u32>>) {
        for step in steps {
            self.done.push(word(&step));
            match step {
                Step::Commit(_) | Step::Read => {
                    assert!(self.hanging.is_none(), "one thing at a time");
                    self.hanging = Some(step);
                }
                Step::Publish {
                    revision,
                    services,
                    removed,
                } => {
                    self.table.publish(revision, services, &removed);
                }
                Step::Show(view) => self.view = view,
                Step::Answer { to, answer } => {
                    assert!(self.answers.insert(to, answer).is_none());
                }
                Step::Order { host, orders } => {
                    self.ordered.insert(host, orders);
                }
                Step::Acknowledge { to, outcome } => {
                    assert!(self.acknowledged.insert(to, outcome).is_none());
                }
            }
        }
        if self.mood != Mood::Hangs {
            self.goes_on();
        }
    }

    /// The store does what it was asked.
    fn goes_on(&mut self) {
        let mut steps = Vec::new();
        match self.hanging.take() {
            Some(Step::Commit(batch)) => {
                self.store.failing_commits = u32::from(self.mood == Mood::Refuses);
                let result = self.store.commit(&batch);
                self.rounds.stored(self.at, &result, &mut steps);
            }
            Some(Step::Read) => self.rounds.was_read(&mut steps),
            _ => return,
        }
        self.perform(steps);
    }

    fn command(&mut self, command: Command) -> u32 {
        self.asked += 1;
        let mut by = alice();
        // Whom no limit holds.
        by.rights = Rights::ADMIN;
        let mut steps = Vec::new();
        self.rounds
            .command(self.at, by, command, self.asked, &mut steps);
        self.rounds.flush(self.at, &mut steps);
        self.perform(steps);
        self.asked
    }

    fn submit(&mut self, service: &str) -> u32 {
        self.command(submission(&web(service, 1), false))
    }

    fn tell(&mut self, told: Told) -> u32 {
        self.asked += 1;
        self.rounds.tell(self.at, told, self.asked);
        let mut steps = Vec::new();
        self.rounds.flush(self.at, &mut steps);
        self.perform(steps);
        self.asked
    }

    fn pass(&mut self, span: Duration) {
        self.at.mono = self.at.mono + span;
        let mut steps = Vec::new();
        self.rounds.on_deadline(self.at, &mut steps);
        self.perform(steps);
    }

    fn names(&self) -> Vec<String> {
        self.view.services.keys().map(ToString::to_string).collect()
    }

    /// Host n1 with a replica of `web.alice` that is starting; a status of it.
    fn placed(&mut self) -> impl Fn(u64, State, bool) -> Told + use<> {
        self.tell(Told::news(Input::HostReport(facts("n1"))));
        self.submit("web");
        let incarnation = self.incarnation();
        let of_web = move |seq, state, ready| {
            let is_truth = matches!(state, State::Final(_));
            let mut status = starting();
            (status.run, status.seq) = (Run(1), seq);
            (status.state, status.ready) = (state, ready);
            let input = Input::Status(ReplicaReport {
                host: "n1".parse().unwrap(),
                service: name("web.alice"),
                index: 0,
                incarnation,
                service_id: None,
                grant: None,
                status,
            });
            Told { input, is_truth }
        };
        self.done.clear();
        of_web
    }

    fn incarnation(&self) -> Incarnation {
        self.view.services[&name("web.alice")].replicas[0].incarnation
    }

    fn listed(&self) -> usize {
        let web: ServiceName = name("web.alice");
        self.table
            .read(&web, |seen| seen.listed().len())
            .unwrap_or_default()
    }
}

fn word(step: &Step<u32, u32>) -> &'static str {
    match step {
        Step::Commit(_) => "commit",
        Step::Read => "read",
        Step::Publish { .. } => "publish",
        Step::Show(_) => "show",
        Step::Answer { .. } => "answer",
        Step::Order { .. } => "order",
        Step::Acknowledge { .. } => "acknowledge",
    }
}

fn failed() -> State {
    State::Final(Final::Failed(exit(1)))
}

#[test]
fn truth_is_shown_answered_and_ordered_in_this_order_and_only_when_it_is_durable() {
    let mut play = Play::begun();
    play.tell(Told::news(Input::HostReport(facts("n1"))));
    play.done.clear();
    play.mood = Mood::Hangs;
    let asked = play.submit("web");
    assert_eq!(play.done, ["commit"]);
    assert!(play.names().is_empty() && play.answers.is_empty());
    play.done.clear();
    play.mood = Mood::Commits;
    play.goes_on();
    assert!(play.answers[&asked].as_ref().unwrap().changed);
    assert_eq!(play.names(), ["web.alice"]);
    assert_eq!(play.ordered[&"n1".parse().unwrap()].replicas.len(), 1);
    let of = |word| play.done.iter().position(|done| *done == word).unwrap();
    assert!(of("show") < of("answer") && of("answer") < of("order"));
}

#[test]
fn a_refused_commit_is_told_to_who_asked_and_changes_nothing() {
    let mut play = Play::begun();
    play.mood = Mood::Refuses;
    let asked = play.submit("web");
    assert!(matches!(
        play.answers[&asked],
        Err(Refusal::NotStored { .. })
    ));
    assert!(play.names().is_empty());
    play.mood = Mood::Commits;
    let asked = play.submit("web");
    assert!(play.answers[&asked].as_ref().unwrap().changed);
}

#[test]
fn news_is_listed_and_acknowledged_while_a_commit_hangs() {
    let mut play = Play::begun();
    let of_web = play.placed();
    play.mood = Mood::Hangs;
    let hanging = play.submit("other");
    let told = play.tell(of_web(2, State::Up, true));
    assert_eq!(play.acknowledged[&told], Ok(()));
    assert_eq!(play.listed(), 1, "listed although the disk hangs");
    assert!(!play.answers.contains_key(&hanging));
    play.mood = Mood::Commits;
    play.goes_on();
    assert!(play.answers[&hanging].is_ok());
}

#[test]
fn an_end_is_acknowledged_with_the_batch_that_holds_it() {
    let mut play = Play::begun();
    let of_web = play.placed();
    play.mood = Mood::Hangs;
    play.submit("other");
    // That batch has left: the end is in the next one.
    let end = play.tell(of_web(9, failed(), false));
    play.goes_on();
    assert!(!play.acknowledged.contains_key(&end));
    play.goes_on();
    assert_eq!(play.acknowledged[&end], Ok(()));
    assert_eq!(play.done.last(), Some(&"acknowledge"), "after all else");
    let view = &play.view.services[&name("web.alice")];
    assert_eq!(view.replicas[0].job_state, "EXIT");
}

#[test]
fn an_end_told_after_a_refused_commit_is_acknowledged_only_when_it_is_durable() {
    let mut play = Play::begun();
    let of_web = play.placed();
    play.mood = Mood::Refuses;
    play.submit("other");
    // The registry rests now: nothing is with the store, and still nothing of the end is on disk.
    let end = play.tell(of_web(9, failed(), false));
    assert!(!play.acknowledged.contains_key(&end));
    play.pass(config().news_delay);
    assert!(play.acknowledged[&end].is_err());
    play.mood = Mood::Commits;
    play.pass(config().news_delay);
    let again = play.tell(of_web(9, failed(), false));
    assert_eq!(play.acknowledged[&again], Ok(()));
    let view = &play.view.services[&name("web.alice")];
    assert_eq!(view.replicas[0].job_state, "EXIT");
}

#[test]
fn commands_do_not_pile_up_without_bound_before_a_store_that_hangs() {
    let mut play = Play::begun();
    let of_web = play.placed();
    play.mood = Mood::Hangs;
    let first = play.asked + 1;
    for number in 0..Rounds::<u32, u32>::MOST_UNANSWERED {
        play.submit(&format!("s{number}"));
    }
    let late = play.submit("late");
    assert!(matches!(
        play.answers[&late],
        Err(Refusal::NotStored { .. })
    ));
    let told = play.tell(of_web(2, State::Up, false));
    assert_eq!(play.acknowledged[&told], Ok(()), "news passes all the same");
    play.mood = Mood::Commits;
    play.goes_on();
    for asked in first..late {
        assert!(play.answers[&asked].as_ref().unwrap().changed);
    }
}

#[test]
fn what_a_window_holds_is_shown_when_it_ends_although_a_commit_hangs() {
    let config = Config {
        coalesce: Duration::from_millis(20),
        ..config()
    };
    let mut play = Play::of(MemoryStore::default(), config);
    play.begin();
    let of_web = play.placed();
    play.mood = Mood::Hangs;
    let hanging = play.submit("other");
    for seq in 2..6 {
        play.tell(of_web(seq, State::Up, seq == 5));
    }
    play.pass(Duration::from_millis(20));
    assert_eq!(play.listed(), 1);
    assert_eq!(play.view.services[&name("web.alice")].ready, 1);
    assert_eq!(play.names(), ["web.alice"]);
    play.mood = Mood::Commits;
    play.goes_on();
    assert!(play.answers[&hanging].is_ok());
}

#[test]
fn who_wants_to_read_the_store_comes_before_the_next_batch_and_one_at_a_time() {
    let mut play = Play::begun();
    play.mood = Mood::Hangs;
    play.submit("first");
    let mut steps = Vec::new();
    assert!(play.rounds.ask_for_stored(&mut steps));
    assert!(!play.rounds.ask_for_stored(&mut steps));
    assert!(steps.is_empty(), "the store is at work");
    let second = play.submit("second");
    play.done.clear();
    play.goes_on();
    assert!(play.done.ends_with(&["read"]) || play.done.contains(&"read"));
    assert!(!play.done.contains(&"commit"), "{:?}", play.done);
    play.done.clear();
    play.goes_on();
    assert_eq!(play.done, ["commit"]);
    play.goes_on();
    assert!(play.answers[&second].is_ok());
    let mut steps = Vec::new();
    assert!(play.rounds.ask_for_stored(&mut steps), "the next one may");
}

#[test]
fn a_start_orders_what_is_stored_and_does_not_begin_while_its_commit_is_refused() {
    let mut play = Play::begun();
    let _ = play.placed();
    let orders = Arc::clone(&play.ordered[&"n1".parse::<HostName>().unwrap()]);
    let mut again = Play::of(play.store.clone(), config());
    again.mood = Mood::Refuses;
    again.begin();
    assert!(!again.rounds.has_begun() && again.ordered.is_empty());
    let mut again = Play::of(play.store, config());
    again.begin();
    assert!(again.rounds.has_begun());
    assert_eq!(again.names(), ["web.alice"]);
    let found = &again.ordered[&"n1".parse().unwrap()];
    assert_eq!(found.replicas, orders.replicas);
    assert!(found.report_first, "nobody heard of the host since");
}

/// The story: a host was cut off, an operator removed it, and its agent came back with a change. The set that was put up
/// for the host that was removed did not ask for everything, so the agent never told it, and the new host took no grant
/// for ever.
#[test]
fn an_agent_of_a_host_that_was_removed_is_to_tell_everything_until_it_did() {
    let mut play = Play::begun();
    let host: HostName = "n1".parse().unwrap();
    let report = |full| {
        let mut facts = facts("n1");
        facts.full = full;
        Told::news(Input::HostReport(facts))
    };
    play.tell(report(true));
    assert!(!play.ordered[&host].report_first);
    play.pass(Duration::from_secs(30));
    let verb = HostVerb::Remove;
    let asked = play.command(Command::Host {
        host: host.clone(),
        verb,
    });
    assert!(play.answers[&asked].as_ref().unwrap().changed);
    let orders = Arc::clone(&play.ordered[&host]);
    assert_eq!((orders.revision, orders.report_first), (0, true));
    play.tell(report(false));
    assert!(play.view.hosts.contains_key(&host));
    assert!(play.ordered[&host].report_first, "it told a change only");
    play.tell(report(true));
    assert!(!play.ordered[&host].report_first);
}

/// The story: a host rebooted, its agent told everything and asked at once what is wanted. It found the set of before,
/// since the end of what ran there was not on disk yet, and began it anew with numbers that were about to be free.
#[test]
fn an_agent_that_comes_back_from_a_reboot_finds_nothing_that_ended_with_the_boot() {
    for mood in [Mood::Hangs, Mood::Refuses] {
        let mut play = Play::begun();
        let _ = play.placed();
        let host: HostName = "n1".parse().unwrap();
        let runs = |play: &Play| {
            let all = play.ordered[&host].replicas.iter();
            all.filter(|it| it.incarnation == Incarnation(0)).count()
        };
        assert_eq!(runs(&play), 1);
        play.mood = mood;
        let mut rebooted = facts("n1");
        rebooted.boot_id = "boot-2".into();
        let told = play.tell(Told::news(Input::HostReport(rebooted)));
        assert_eq!(runs(&play), 0, "{mood:?}");
        assert_eq!(play.acknowledged[&told], Ok(()));
        let of = |word| play.done.iter().rposition(|done| *done == word);
        assert!(of("order") < of("acknowledge"), "{:?}", play.done);
    }
}

#[test]
fn a_round_is_full_after_a_bounded_number_of_facts_and_begins_anew_when_it_ended() {
    let mut play = Play::begun();
    let lease = || {
        Told::news(Input::Lease {
            host: "n1".parse().unwrap(),
            skew_ms: None,
        })
    };
    for number in 0..256 {
        assert!(!play.rounds.is_full());
        play.rounds.tell(play.at, lease(), 1000 + number);
    }
    assert!(play.rounds.is_full());
    let mut steps = Vec::new();
    play.rounds.flush(play.at, &mut steps);
    let acknowledged = steps.iter().filter(|step| word(step) == "acknowledge");
    assert_eq!(acknowledged.count(), 256);
    assert!(!play.rounds.is_full());
}

#[test]
fn a_stop_waits_for_news_that_is_due_soon_and_for_nothing_else() {
    let mut play = Play::begun();
    let of_web = play.placed();
    play.pass(Duration::from_secs(5));
    play.tell(of_web(2, State::Up, true));
    let since = play.at.mono;
    let LastNews::Due(due) = play.rounds.last_news(since) else {
        panic!("news waits");
    };
    assert!(due <= since + Rounds::<u32, u32>::LAST_NEWS);
    play.mood = Mood::Hangs;
    play.pass(due.since(since));
    assert_eq!(play.rounds.last_news(since), LastNews::WithStore);
    play.mood = Mood::Commits;
    play.goes_on();
    assert_eq!(play.rounds.last_news(since), LastNews::Written);
}
