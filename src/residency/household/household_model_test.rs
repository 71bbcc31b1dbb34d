//! A host on which anything may happen, under the household's rules: whatever it does in answer, it never lets two
//! incarnations of one copy live, stops nothing that nobody wants stopped, and in calm weather has what is wanted.

use proptest::prelude::*;

use super::tests::{Given, address, name, status, stopped, wish};
use super::*;
use crate::residency::Told;
use crate::supervision::{StartFailure, State};
use crate::time::WallClock;

/// What is on disk of an incarnation, and what lives of it.
#[derive(Default)]
struct Replica {
    /// What its worker was given, as it stands in the folder.
    given: Option<Given>,
    status: Option<Status>,
    is_marked: bool,
    worker: Option<u32>,
    /// Whether its service has a process.
    runs: bool,
}

struct Host {
    rules: Household<Given>,
    replicas: BTreeMap<ReplicaName, Replica>,
    wanted: Option<BTreeMap<ReplicaName, Want>>,
    /// Ends that were told, and that the controller has not acknowledged.
    told: Vec<ReplicaName>,
    ended: Vec<(ReplicaName, u32)>,
    gathered: usize,
    now: u64,
    pids: u32,
    workers_answer: bool,
    workers_begin: bool,
    services_end: bool,
}

#[derive(Clone, Debug)]
enum Happening {
    Wanted(Vec<(u32, Want)>),
    WorkerDies(u32),
    ServiceEnds(u32),
    Passes(u64),
    WorkersAnswer(bool),
    WorkersBegin(bool),
    ServicesEnd(bool),
    AgentRestarts,
    Gather,
    Acknowledged,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let want = prop_oneof![
        Just(Want::Run),
        Just(Want::Run),
        Just(Want::Stop),
        Just(Want::Forget)
    ];
    let one = prop_oneof![
        4 => prop::collection::vec((0_u32..4, want), 0..4).prop_map(Happening::Wanted),
        3 => (0_u32..4).prop_map(Happening::WorkerDies),
        2 => (0_u32..4).prop_map(Happening::ServiceEnds),
        4 => (0_u64..70_000).prop_map(Happening::Passes),
        1 => any::<bool>().prop_map(Happening::WorkersAnswer),
        1 => any::<bool>().prop_map(Happening::WorkersBegin),
        1 => any::<bool>().prop_map(Happening::ServicesEnd),
        1 => Just(Happening::AgentRestarts),
        1 => Just(Happening::Gather),
        3 => Just(Happening::Acknowledged),
    ];
    prop::collection::vec(one, 1..40)
}

impl Host {
    fn new() -> Self {
        Self {
            rules: Self::rules(),
            replicas: BTreeMap::new(),
            wanted: None,
            told: Vec::new(),
            ended: Vec::new(),
            gathered: 0,
            now: 1_000,
            pids: 0,
            workers_answer: true,
            workers_begin: true,
            services_end: true,
        }
    }

    fn rules() -> Household<Given> {
        let mut rules = Household::new(Duration::from_secs(3600));
        rules.published(Some(address(1)));
        rules
    }

    fn now(&self) -> Now {
        Now {
            mono: Monotonic::from_millis(self.now),
            wall: WallClock::from_unix_millis(self.now),
        }
    }

    fn happens(&mut self, what: Happening) {
        match what {
            Happening::Wanted(set) => {
                let set = set.into_iter().map(|(one, want)| (name(one), want));
                self.want(set.collect());
            }
            Happening::WorkerDies(one) => self.worker_dies(&name(one)),
            Happening::ServiceEnds(one) => self.service_ends(&name(one)),
            Happening::Passes(ms) => self.now += ms,
            Happening::WorkersAnswer(answer) => self.workers_answer = answer,
            Happening::WorkersBegin(begin) => self.workers_begin = begin,
            Happening::ServicesEnd(end) => self.services_end = end,
            Happening::AgentRestarts => self.restart(),
            Happening::Gather => self.rules.gather(),
            Happening::Acknowledged => {
                let told = std::mem::take(&mut self.told);
                self.rules.reported(told);
            }
        }
        self.settle();
    }

    fn want(&mut self, set: BTreeMap<ReplicaName, Want>) {
        let orders = set
            .iter()
            .map(|(name, want)| (name.clone(), (wish(*want), 7)));
        self.rules.wanted(orders.collect());
        self.wanted = Some(set);
    }

    fn worker_dies(&mut self, name: &ReplicaName) {
        let replica = self.replicas.get_mut(name);
        if let Some(pid) = replica.and_then(|one| one.worker.take()) {
            self.ended.push((name.clone(), pid));
        }
    }

    /// Seen by its worker; without one, nobody sees it.
    fn service_ends(&mut self, name: &ReplicaName) {
        if let Some(one) = self.replicas.get_mut(name)
            && one.worker.is_some()
            && std::mem::take(&mut one.runs)
        {
            one.status = Some(stopped(2));
        }
    }

    fn restart(&mut self) {
        self.rules = Self::rules();
        self.ended.clear();
        self.told.clear();
        let now = self.now();
        for (name, one) in &self.replicas {
            let found = Found {
                name: name.clone(),
                life: match one.is_marked {
                    true => Life::Ended,
                    false => Life::Orphaned,
                },
                assignment: one.given.clone(),
                status: one.status.clone(),
                worker: one.worker,
                had_worker: one.status.is_some(),
                ended_ago: Duration::ZERO,
            };
            self.rules.take_in(now, found);
        }
        self.rules.gather();
    }

    /// Does all that is due.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            if let Some(errand) = self.rules.next(self.now()) {
                self.run(errand);
            } else if let Some((name, pid)) = self.ended.pop() {
                let remains = match self.replicas.get(&name) {
                    None => Remains::Nothing,
                    Some(one) if one.is_marked => Remains::Ended,
                    Some(one) => Remains::Folder(one.status.clone()),
                };
                self.rules.worker_ended(name, pid, remains);
            } else {
                return;
            }
        }
        panic!("no end of it");
    }

    fn run(&mut self, errand: Errand<Given>) {
        let now = self.now();
        match errand {
            Errand::Talk(talks) => {
                for (name, talk) in talks {
                    let answer = self.hear(&name, &talk);
                    self.rules.answered(now, &name, talk, answer);
                }
            }
            Errand::Start(start) => self.start(*start),
            Errand::EndByForce(name) => {
                let held = self.replicas.get_mut(&name).map(|one| one.runs = false);
                self.rules.forced(now, &name, held.map(|()| true));
            }
            Errand::Hopeless(name, _) => {
                let why = StartFailure::Prepare("no word".to_owned());
                self.rules.hopeless(now, &name, why);
            }
            Errand::StoreStatus(name) => {
                let status = self.rules.status(&name).cloned();
                self.replicas.entry(name).or_default().status = status;
            }
            Errand::WriteAssignment(name) => {
                let given = self.rules.assignment(&name).cloned();
                self.replicas.entry(name).or_default().given = given;
            }
            Errand::MarkEnded(name) | Errand::Clear(name) => {
                let one = self.replicas.entry(name.clone()).or_default();
                assert!(!one.runs, "{name} runs and is forgotten");
                one.is_marked = true;
                one.given = None;
            }
            Errand::Remove(name) => {
                let gone = self.replicas.remove(&name);
                assert!(
                    !gone.is_some_and(|one| one.runs),
                    "{name} runs and is removed"
                );
            }
            Errand::Report(name, status) => {
                assert!(matches!(status.state, State::Final(_)));
                self.told.push(name);
            }
            Errand::Gathered(all) => {
                self.gathered += 1;
                for (name, one) in &self.replicas {
                    let is_told = all.iter().any(|(told, _)| told == name);
                    assert!(is_told || !one.runs, "{name} runs and is not told");
                }
            }
            Errand::Turn | Errand::LetGo(_) | Errand::Word(..) => {}
        }
    }

    fn start(&mut self, start: Start<Given>) {
        let now = self.now();
        let Start {
            name, order, again, ..
        } = start;
        for (other, one) in &self.replicas {
            assert!(again || !one.runs, "{name} is to begin while {other} runs");
            assert!(
                *other != name || one.worker.is_none(),
                "{name} has a worker"
            );
        }
        let one = self.replicas.entry(name.clone()).or_default();
        let stood = one.given.take();
        let given = Given {
            order,
            tokens: 7,
            address: start.host_address,
        };
        one.given = Some(given.clone());
        if !self.workers_begin {
            let why = Hindrance::Failed(StartFailure::Errno(11));
            return self.rules.not_started(now, &name, why);
        }
        self.pids += 1;
        one.worker = Some(self.pids);
        if !again {
            one.runs = true;
            one.status = Some(status(1, State::Up));
        }
        let (told, pid) = (given.order.told(), self.pids);
        self.rules.started(now, &name, pid, given);
        self.act(&name, told, stood.as_ref());
    }

    fn hear(&mut self, name: &ReplicaName, talk: &Talk<u32>) -> Option<Answer> {
        self.replicas.get(name)?.worker?;
        if !self.workers_answer {
            return None;
        }
        if let Talk::Want(told) = talk {
            let stood = self.replicas[name].given.clone();
            self.act(name, *told, stood.as_ref());
        }
        Some(Answer {
            status: self.replicas[name].status.clone(),
            refused: None,
        })
    }

    /// What a worker does about what it is told, whose assignment was this before.
    fn act(&mut self, name: &ReplicaName, told: Told, stood: Option<&Given>) {
        if told.want == Want::Run {
            return;
        }
        let wanted = self.wanted.iter().flatten();
        let is_meant = wanted
            .clone()
            .any(|(one, want)| one == name && *want != Want::Run);
        let is_replaced = wanted
            .clone()
            .any(|(one, want)| one > name && *want == Want::Run);
        let was_told = stood.is_some_and(|given| given.order.told().want != Want::Run);
        assert!(
            is_meant || is_replaced || was_told,
            "nobody wants {name} stopped"
        );
        if self.services_end {
            self.service_ends(name);
        }
        let one = self.replicas.get_mut(name).expect("it was told");
        if told.want == Want::Forget && !one.runs {
            one.is_marked = true;
            self.worker_dies(name);
        }
    }

    /// As long as there is something to be done, and no longer than `steps` waits.
    fn calm(&mut self, steps: usize) {
        for _ in 0..steps {
            let told = std::mem::take(&mut self.told);
            self.rules.reported(told);
            let stopping = self.replicas.iter().filter(|(_, one)| {
                let told = one.given.as_ref().map(|given| given.order.told().want);
                told.is_some_and(|want| want != Want::Run)
            });
            let stopping: Vec<_> = stopping.map(|(name, _)| name.clone()).collect();
            stopping.iter().for_each(|name| self.service_ends(name));
            self.settle();
            match self.rules.next_deadline() {
                Some(deadline) => self.now = self.now.max(deadline.as_millis()),
                None if self.told.is_empty() => return,
                None => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_one_incarnation_lives_and_calm_brings_what_is_wanted(
        happenings in happenings()
    ) {
        let mut host = Host::new();
        for happening in happenings {
            host.happens(happening);
        }
        (host.workers_answer, host.workers_begin, host.services_end) = (true, true, true);
        // A newer one than any before: what the controller wants once it has sorted everything out.
        host.want([(name(9), Want::Run)].into());
        host.calm(60);
        let running = host.replicas.iter().filter(|(_, one)| one.runs);
        let running: Vec<_> = running.map(|(name, _)| name.clone()).collect();
        prop_assert_eq!(running, [name(9)]);
        prop_assert!(host.replicas[&name(9)].worker.is_some());
        let logs = host.rules.residents().values();
        prop_assert!(logs.filter(|one| one.life == Life::Ended).count() <= 1);
        host.rules.gather();
        host.settle();
        prop_assert!(host.gathered > 0);
    }
}
