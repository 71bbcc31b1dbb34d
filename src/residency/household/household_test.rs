use super::*;
use crate::identity::{Incarnation, Run};
use crate::residency::Told;
use crate::supervision::{Final, StartFailure, State};
use crate::time::WallClock;

const KEPT: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    pub(super) told: Told,
    pub(super) addresses: BTreeMap<crate::port::PortName, IpAddr>,
    pub(super) last_status: Option<Status>,
    pub(super) lacks: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub(super) order: Wish,
    pub(super) tokens: u32,
    pub(super) address: IpAddr,
}

impl Order for Wish {
    fn told(&self) -> Told {
        self.told
    }

    fn set_told(&mut self, told: Told) {
        self.told = told;
    }

    fn addresses(&self) -> &BTreeMap<crate::port::PortName, IpAddr> {
        &self.addresses
    }

    fn extend_addresses(&mut self, more: &BTreeMap<crate::port::PortName, IpAddr>) {
        self.addresses.extend(more.clone());
    }

    fn last_status(&self) -> Option<&Status> {
        self.last_status.as_ref()
    }

    fn lacks(&self) -> Option<String> {
        self.lacks.clone()
    }
}

impl Assigned for Given {
    type Order = Wish;
    type Tokens = u32;

    fn order(&self) -> &Wish {
        &self.order
    }

    fn order_mut(&mut self) -> &mut Wish {
        &mut self.order
    }

    fn tokens(&self) -> &u32 {
        &self.tokens
    }

    fn set_tokens(&mut self, tokens: u32) {
        self.tokens = tokens;
    }

    fn host_address(&self) -> IpAddr {
        self.address
    }
}

pub(super) fn name(incarnation: u32) -> ReplicaName {
    ReplicaName {
        service: "web.alice".parse().unwrap(),
        index: 0,
        incarnation: Incarnation(incarnation),
    }
}

fn told(want: Want, restart_no: u64) -> Told {
    Told { want, restart_no }
}

pub(super) fn wish(want: Want) -> Wish {
    Wish {
        told: told(want, 0),
        addresses: BTreeMap::new(),
        last_status: None,
        lacks: None,
    }
}

pub(super) fn status(seq: u64, state: State) -> Status {
    Status {
        run: Run(1),
        seq,
        state,
        ..Status::silent()
    }
}

pub(super) fn stopped(seq: u64) -> Status {
    status(seq, State::Final(Final::Stopped))
}

pub(super) fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// A host: what its workers answer, whether they start, and what was done.
struct Rig {
    rules: Household<Given>,
    now: u64,
    pids: u32,
    /// What a worker answers to anything; `None`: nothing.
    answer: Option<Answer>,
    hindrance: Option<Hindrance>,
    forced: Option<bool>,
    done: Vec<String>,
    gathered: Vec<(ReplicaName, Status)>,
}

impl Rig {
    fn new() -> Self {
        let mut rules = Household::new(KEPT);
        rules.published(Some(address(1)));
        Self {
            rules,
            now: 1_000,
            pids: 0,
            answer: Some(Answer::default()),
            hindrance: None,
            forced: None,
            done: Vec::new(),
            gathered: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: Monotonic::from_millis(self.now),
            wall: WallClock::from_unix_millis(self.now),
        }
    }

    fn want(&mut self, orders: impl IntoIterator<Item = (u32, Wish, u32)>) {
        let orders = orders.into_iter();
        let orders = orders.map(|(incarnation, wish, tokens)| (name(incarnation), (wish, tokens)));
        self.rules.wanted(orders.collect());
    }

    /// Does everything that is due and tells what it was, shortly: the incarnation and what of it.
    fn settle(&mut self) -> Vec<String> {
        for _ in 0..200 {
            let Some(errand) = self.rules.next(self.now()) else {
                return std::mem::take(&mut self.done);
            };
            self.run(errand);
        }
        panic!("no end of it: {:?}", self.done);
    }

    fn note(&mut self, name: &ReplicaName, what: impl std::fmt::Display) {
        let which = name.incarnation;
        self.done.push(format!("{which} {what}"));
    }

    fn run(&mut self, errand: Errand<Given>) {
        let now = self.now();
        match errand {
            Errand::Turn => {}
            Errand::Talk(talks) => {
                for (name, talk) in talks {
                    let word = match &talk {
                        Talk::Want(told) => format!("told {:?} {}", told.want, told.restart_no),
                        Talk::Address((host, _)) => format!("told {host}"),
                        Talk::Renew(tokens) => format!("renewed {tokens}"),
                        Talk::Leave(_) => "told to leave".to_owned(),
                        Talk::Ask | Talk::Newest => "asked".to_owned(),
                    };
                    self.note(&name, word);
                    let answer = self.answer.clone();
                    self.rules.answered(now, &name, talk, answer);
                }
            }
            Errand::Start(start) => {
                let what = if start.again { "taken over" } else { "started" };
                self.note(
                    &start.name,
                    format!("{what} to {:?}", start.order.told.want),
                );
                if let Some(why) = self.hindrance.clone() {
                    return self.rules.not_started(now, &start.name, why);
                }
                self.pids += 1;
                let given = Given {
                    order: start.order,
                    tokens: start.tokens,
                    address: start.host_address,
                };
                self.rules.started(now, &start.name, self.pids, given);
            }
            Errand::EndByForce(name) => {
                self.note(&name, "forced");
                self.rules.forced(now, &name, self.forced);
            }
            Errand::Hopeless(name, workers) => {
                self.note(&name, format!("hopeless after {workers}"));
                let why = StartFailure::Prepare("no word".to_owned());
                self.rules.hopeless(now, &name, why);
            }
            Errand::StoreStatus(name) => self.note(&name, "status stored"),
            Errand::WriteAssignment(name) => {
                let given = self.rules.assignment(&name).unwrap();
                let words = format!("written {:?} {}", given.order.told.want, given.tokens);
                self.note(&name, words);
            }
            Errand::MarkEnded(name) => self.note(&name, "ended"),
            Errand::Clear(name) => self.note(&name, "cleared"),
            Errand::LetGo(_) => {}
            Errand::Remove(name) => self.note(&name, "removed"),
            Errand::Report(name, status) => {
                self.note(&name, format!("reported {}", status.seq));
            }
            Errand::Gathered(all) => self.gathered = all,
            Errand::Word(name, word) => {
                let word = format!("{word:?}");
                self.note(&name, word.split(['(', ' ']).next().unwrap());
            }
        }
    }

    /// At the next deadline; how long that took, in milliseconds.
    fn wait(&mut self) -> u64 {
        let deadline = self.rules.next_deadline().expect("something is due");
        let deadline = deadline.as_millis();
        let waited = deadline.saturating_sub(self.now);
        self.now = self.now.max(deadline);
        waited
    }

    fn worker_ends(&mut self, incarnation: u32, status: Option<Status>) -> Vec<String> {
        let pid = self.pids;
        self.rules
            .worker_ended(name(incarnation), pid, Remains::Folder(status));
        self.settle()
    }

    fn life(&self, incarnation: u32) -> Option<Life> {
        let resident = self.rules.residents().get(&name(incarnation));
        resident.map(|resident| resident.life)
    }
}

fn up() -> Option<Answer> {
    Some(Answer {
        status: Some(status(1, State::Up)),
        refused: None,
    })
}

fn ended() -> Option<Answer> {
    Some(Answer {
        status: Some(stopped(2)),
        refused: None,
    })
}

#[test]
fn a_wanted_replica_is_started_once_and_then_there_is_silence() {
    let mut rig = Rig::new();
    assert_eq!(rig.settle(), [""; 0]);
    rig.want([(0, wish(Want::Run), 7)]);
    assert_eq!(rig.settle(), ["0 started to Run"]);
    rig.want([(0, wish(Want::Run), 7)]);
    assert_eq!(rig.settle(), [""; 0]);
    assert_eq!(rig.rules.next_deadline(), None);
    assert_eq!(rig.rules.living().count(), 1);
}

#[test]
fn nothing_else_is_done_while_an_answer_is_due() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    let start = loop {
        match rig.rules.next(rig.now()).unwrap() {
            Errand::Start(start) => break start,
            other => rig.run(other),
        }
    };
    rig.want([]);
    rig.rules.close();
    assert!(rig.rules.next(rig.now()).is_none());
    rig.run(Errand::Start(start));
    assert!(rig.rules.next(rig.now()).is_some());
}

#[test]
fn a_replica_waits_for_an_address_of_the_host_and_of_its_networks() {
    let mut rig = Rig::new();
    rig.rules.published(None);
    let lacking = Wish {
        lacks: Some("address in network data".to_owned()),
        ..wish(Want::Run)
    };
    rig.want([(0, lacking, 7)]);
    assert_eq!(rig.settle(), ["0 NoAddress"]);
    rig.rules.published(Some(address(2)));
    assert_eq!(rig.settle(), ["0 Lacks"]);
    rig.want([(0, wish(Want::Run), 7)]);
    assert_eq!(rig.settle(), ["0 started to Run"]);
    assert_eq!(rig.rules.assignment(&name(0)).unwrap().address, address(2));
}

#[test]
fn a_worker_is_told_of_a_new_address_until_it_knows() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.answer = None;
    rig.rules.published(Some(address(2)));
    assert_eq!(rig.settle(), ["0 told 10.0.0.2"]);
    // One that does not answer is left in peace for a while, whatever comes.
    rig.want([(0, wish(Want::Stop), 7)]);
    assert_eq!(rig.settle(), [""; 0]);
    rig.answer = up();
    assert_eq!(rig.wait(), 500);
    assert_eq!(
        rig.settle(),
        ["0 told 10.0.0.2", "0 told Stop 0", "0 written Stop 7"]
    );
    assert_eq!(rig.rules.next_deadline(), None);
}

#[test]
fn an_older_incarnation_ends_before_a_newer_one_begins() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.want([(1, wish(Want::Run), 8)]);
    rig.answer = up();
    // Told, it is asked whether it is done.
    assert_eq!(
        rig.settle(),
        ["0 told Stop 0", "0 written Stop 7", "0 asked"]
    );
    rig.answer = ended();
    assert_eq!(rig.wait(), 500);
    assert_eq!(rig.settle(), ["0 asked", "0 reported 2"]);
    rig.rules.reported(vec![name(0)]);
    rig.answer = Some(Answer::default());
    assert_eq!(
        rig.settle(),
        ["0 told Forget 0", "0 written Forget 7", "0 asked"]
    );
    rig.rules.worker_ended(name(0), 1, Remains::Ended);
    assert_eq!(
        rig.settle(),
        ["0 cleared", "0 Forgotten", "1 started to Run"]
    );
    assert_eq!(rig.life(0), Some(Life::Ended));
}

#[test]
fn what_ends_before_it_begins_is_told_once_to_each_controller() {
    let mut rig = Rig::new();
    let wish = Wish {
        last_status: Some(status(4, State::Up)),
        ..wish(Want::Stop)
    };
    rig.want([(0, wish, 7)]);
    assert_eq!(rig.settle(), ["0 status stored", "0 reported 5"]);
    rig.want([]);
    assert_eq!(rig.settle(), [""; 0]);
    rig.rules.gather();
    assert_eq!(rig.settle(), ["0 reported 5"]);
    assert_eq!(rig.gathered, [(name(0), stopped(5))]);
    rig.rules.reported(vec![name(0)]);
    assert_eq!(rig.settle(), ["0 ended", "0 Forgotten"]);
}

#[test]
fn what_cannot_be_started_has_ended_and_what_cannot_now_is_tried_again() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.hindrance = Some(Hindrance::NotNow);
    assert_eq!(rig.settle(), ["0 started to Run"]);
    assert_eq!(rig.wait(), 5_000);
    rig.hindrance = Some(Hindrance::Failed(StartFailure::Errno(2)));
    assert_eq!(
        rig.settle(),
        [
            "0 started to Run",
            "0 NotStarted",
            "0 status stored",
            "0 reported 1"
        ]
    );
    let end = rig.rules.status(&name(0)).unwrap();
    assert!(matches!(end.state, State::Final(Final::Failed(_))));
    assert_eq!(end.first_failure, end.last_failure);
    assert_eq!(end.last_failure.as_ref().unwrap().at, rig.now().wall);
}

#[test]
fn another_worker_takes_over_at_once_and_after_twice_the_wait_each_time() {
    let mut rig = Rig::new();
    rig.answer = up();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let ended = rig.worker_ends(0, Some(status(1, State::Up)));
        assert_eq!(ended[0], "0 WorkerGone");
        waits.push(rig.wait());
        assert_eq!(rig.settle()[0], "0 taken over to Run");
    }
    assert_eq!(waits, [200, 400, 800, 1600]);
    // It goes by what its predecessor wrote down, and so is told where clients are sent.
    rig.now += 60_000;
    let ended = rig.worker_ends(0, Some(status(1, State::Up)));
    assert_eq!(
        ended,
        ["0 WorkerGone", "0 taken over to Run", "0 told 10.0.0.1"]
    );
    // The end of an earlier one says nothing about it.
    rig.rules.worker_ended(name(0), 1, Remains::Nothing);
    assert_eq!(rig.settle(), [""; 0]);
    assert_eq!(rig.life(0), Some(Life::Watched));
}

/// A worker on a full disk told that its replica had ended, and died: by its folder the replica was to go on.
#[test]
fn what_a_worker_said_counts_also_where_its_folder_says_less() {
    let mut rig = Rig::new();
    rig.answer = up();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.answer = Some(Answer {
        status: Some(status(2, State::Final(Final::Stopped))),
        refused: None,
    });
    rig.want([(0, wish(Want::Stop), 7)]);
    rig.settle();
    let ended = rig.worker_ends(0, Some(status(1, State::Up)));
    assert_eq!(ended, ["0 reported 2"]);
}

#[test]
fn a_replica_of_which_no_worker_says_a_word_has_failed() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    for _ in 0..4 {
        rig.worker_ends(0, None);
        rig.wait();
        assert_eq!(rig.settle()[0], "0 taken over to Run");
    }
    assert_eq!(
        rig.worker_ends(0, None),
        [
            "0 WorkerGone",
            "0 forced",
            "0 hopeless after 5",
            "0 NotStarted",
            "0 status stored",
            "0 reported 1"
        ]
    );
}

#[test]
fn one_that_is_to_end_and_that_no_worker_can_take_over_is_ended_by_force() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    for _ in 0..5 {
        rig.worker_ends(0, Some(status(1, State::Up)));
        rig.wait();
        rig.settle();
    }
    rig.want([(0, wish(Want::Stop), 7)]);
    rig.answer = None;
    rig.settle();
    rig.forced = Some(false);
    let ended = rig.worker_ends(0, Some(status(1, State::Up)));
    assert_eq!(ended, ["0 WorkerGone", "0 forced"]);
    assert_eq!(rig.wait(), 100);
    rig.forced = Some(true);
    assert_eq!(
        rig.settle(),
        ["0 forced", "0 Forced", "0 status stored", "0 reported 2"]
    );
}

#[test]
fn a_worker_that_could_not_be_started_at_all_is_tried_again_for_ever() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.hindrance = Some(Hindrance::Failed(StartFailure::Errno(11)));
    rig.worker_ends(0, Some(status(1, State::Up)));
    for _ in 0..20 {
        let waited = rig.wait();
        assert!(waited <= 60_000, "{waited}");
        assert_eq!(rig.settle(), ["0 taken over to Run"]);
    }
    assert_eq!(rig.life(0), Some(Life::Orphaned));
}

#[test]
fn new_tokens_are_told_first_and_a_refusal_holds_up_nothing_else() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.answer = Some(Answer {
        refused: Some("no".to_owned()),
        ..Answer::default()
    });
    rig.want([(0, wish(Want::Run), 8)]);
    assert_eq!(rig.settle(), ["0 renewed 8"]);
    rig.answer = up();
    rig.want([(0, wish(Want::Stop), 8)]);
    assert_eq!(rig.settle(), ["0 told Stop 0", "0 written Stop 7"]);
    assert_eq!(rig.wait(), 5_000);
    assert_eq!(rig.settle(), ["0 renewed 8", "0 written Stop 8"]);
}

#[test]
fn a_gathering_takes_the_newest_of_what_is_known() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.rules.gather();
    rig.answer = None;
    assert_eq!(rig.settle(), ["0 asked"]);
    // It is there although it has not said a word.
    assert_eq!(rig.gathered, [(name(0), Status::silent())]);
    for (told, known) in [(5, 5), (3, 5), (6, 6)] {
        rig.answer = Some(Answer {
            status: Some(status(told, State::Up)),
            refused: None,
        });
        rig.rules.gather();
        assert_eq!(rig.settle(), ["0 asked"]);
        assert_eq!(rig.gathered, [(name(0), status(known, State::Up))]);
    }
}

/// A host that was back told everything, and the numbers of what it had not begun were freed and given away; half a minute
/// later it began that, as an earlier set said, beside what had them by then.
#[test]
fn what_had_not_begun_when_everything_was_told_waits_for_another_set() {
    let mut rig = Rig::new();
    rig.rules.published(None);
    rig.want([(0, wish(Want::Run), 7)]);
    assert_eq!(rig.settle(), ["0 NoAddress"]);
    rig.rules.gather();
    rig.settle();
    assert!(rig.gathered.is_empty());
    rig.rules.published(Some(address(2)));
    assert_eq!(rig.settle(), [""; 0]);
    rig.want([(0, wish(Want::Run), 7)]);
    assert_eq!(rig.settle(), ["0 started to Run"]);
}

#[test]
fn a_host_that_is_shut_down_begins_nothing_and_asks_until_all_is_done() {
    let mut rig = Rig::new();
    rig.answer = up();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    assert_eq!(rig.rules.closing(), None);
    rig.rules.close();
    assert_eq!(rig.settle(), ["0 told to leave", "0 asked"]);
    assert_eq!(rig.rules.closing(), Some((1, 0)));
    let mut other = name(0);
    other.index = 1;
    let orders = [
        (name(0), (wish(Want::Run), 7)),
        (other, (wish(Want::Run), 7)),
    ];
    rig.rules.wanted(orders.into());
    assert_eq!(rig.settle(), ["0 Closing"]);
    rig.answer = ended();
    assert_eq!(rig.wait(), 500);
    assert_eq!(rig.settle(), ["0 Closing", "0 asked", "0 Closing"]);
    assert_eq!(rig.rules.closing(), Some((0, 1)));
}

#[test]
fn folders_are_taken_in_as_what_they_are() {
    let mut rig = Rig::new();
    let given = Given {
        order: wish(Want::Run),
        tokens: 7,
        address: address(1),
    };
    let found = |incarnation, life| Found {
        name: name(incarnation),
        life,
        assignment: Some(given.clone()),
        status: None,
        worker: None,
        had_worker: false,
        ended_ago: Duration::ZERO,
    };
    let empty = Found {
        assignment: None,
        ..found(0, Life::Orphaned)
    };
    let adopted = Found {
        worker: Some(70),
        ..found(4, Life::Orphaned)
    };
    let long_ago = Found {
        ended_ago: KEPT / 2,
        assignment: None,
        ..found(1, Life::Ended)
    };
    let now = rig.now();
    assert!(!rig.rules.take_in(now, empty));
    assert!(rig.rules.take_in(now, long_ago));
    assert!(rig.rules.take_in(now, found(2, Life::Rebooted)));
    assert!(rig.rules.take_in(now, found(3, Life::Orphaned)));
    assert!(rig.rules.take_in(now, adopted));
    let lives = [
        None,
        Some(Life::Ended),
        Some(Life::Rebooted),
        Some(Life::Orphaned),
        Some(Life::Watched),
    ];
    for (incarnation, life) in (0..).zip(lives) {
        assert_eq!(rig.life(incarnation), life, "{incarnation}");
    }
    // As long as nothing is known of what is wanted, only what may run is seen to.
    assert_eq!(
        rig.settle(),
        [
            "1 cleared",
            "2 Rebooted",
            "3 taken over to Run",
            "4 told 10.0.0.1",
            "3 told 10.0.0.1"
        ]
    );
}

#[test]
fn the_logs_of_the_newest_that_ended_are_kept_for_their_time_unless_its_end_is_waited_for() {
    let mut rig = Rig::new();
    let found = Found {
        name: name(0),
        life: Life::Ended,
        assignment: None,
        status: Some(stopped(2)),
        worker: None,
        had_worker: true,
        ended_ago: KEPT / 2,
    };
    rig.rules.take_in(rig.now(), found);
    rig.want([(0, wish(Want::Stop), 7)]);
    assert_eq!(rig.settle(), ["0 cleared", "0 reported 2"]);
    assert_eq!(rig.wait(), 1_800_000);
    assert_eq!(rig.settle(), [""; 0]);
    assert_eq!(rig.wait(), 3_600_000);
    rig.want([(0, wish(Want::Forget), 7)]);
    assert_eq!(rig.settle(), ["0 Expired", "0 removed"]);
    assert_eq!(rig.rules.next_deadline(), None);
}

#[test]
fn a_folder_that_went_with_its_worker_is_forgotten() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.want([]);
    rig.rules.worker_ended(name(0), 1, Remains::Nothing);
    assert_eq!(rig.settle(), [""; 0]);
    assert!(rig.rules.residents().is_empty());
}

#[test]
fn the_numbers_of_what_lives_and_of_what_is_wanted_are_held() {
    let mut rig = Rig::new();
    rig.want([(0, wish(Want::Run), 7)]);
    rig.settle();
    rig.want([(1, wish(Want::Forget), 7)]);
    rig.settle();
    assert_eq!(rig.rules.held().count(), 1);
    rig.want([(1, wish(Want::Run), 7)]);
    rig.answer = None;
    rig.settle();
    assert_eq!(rig.rules.held().count(), 2);
}
