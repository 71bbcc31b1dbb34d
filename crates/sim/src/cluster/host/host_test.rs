//! A host with a controller of a few lines, which says what it is told to want and takes everything that is reported.

use std::collections::BTreeMap;
use std::time::Duration;

use portreeve::identity::{Incarnation, ServiceId};
use portreeve::port::{Port, PortRange, PortRanges, Protocol};
use portreeve::port_pool::{GrantedPort, PortGrant};
use portreeve::profile::Profile;
use portreeve::registry::{Config, Desired, HostFacts, Want};
use portreeve::rights::{Caller, Rights};
use portreeve::supervision::{ExitStatus, Final, State};
use portreeve::time::WallClock;

use super::ports::Holder;
use super::*;
use crate::cluster::act::{HostAct, StrangerPort};
use crate::cluster::spec::{DiskSpec, HostSpec, NetworkSpec, ServiceSpec};
use crate::cluster::wire::{Lease, WantedOfHost};
use crate::scenario::{Binds, RunScript, Scripts};

struct Yard {
    host: Host,
    now: u64,
    instance: &'static str,
    revision: u64,
    wanted: Vec<Desired>,
    /// The question for the wanted set that is held.
    held: Option<Asker>,
    /// Whether the controller answers.
    is_there: bool,
    reports: Vec<HostFacts>,
    statuses: BTreeMap<ReplicaName, Status>,
    messages: u64,
    seen: Vec<(u64, String)>,
}

const WHOM: Whom = Whom {
    service: 0,
    index: 0,
};

fn service(more: &str, script: RunScript) -> ServiceSpec {
    let text = format!(
        "kind = \"service\"\nname = \"web\"\ncommand = [\"web\"]\n\
         [ports]\nhttp = \"any\"\n[restart.backoff]\njitter = 0.0\n{more}"
    );
    let profile = Profile::from_toml(&text).unwrap().profile;
    let scripts = Arc::new(Scripts::new(vec![script]));
    ServiceSpec {
        profile: Arc::new(profile),
        owner: Caller::new("alice".to_owned(), Some(1000), Vec::new(), Rights::USER),
        scripts: BTreeMap::from([(None, scripts)]),
    }
}

impl Yard {
    fn of(service: ServiceSpec) -> Self {
        let ranges = |text: &str| text.parse::<PortRanges>().unwrap();
        let spec = Arc::new(Spec {
            seed: 7,
            until: Monotonic::default(),
            wall: WallClock::from_unix_millis(1_700_000_000_000),
            config: Config::default(),
            hosts: vec![HostSpec {
                name: "n1".parse().unwrap(),
                dynamic: ranges("20000-20099"),
                fixed: ranges("8000-8099"),
                reserved: PortRanges::default(),
                labels: BTreeMap::new(),
            }],
            services: vec![service],
            network: NetworkSpec::default(),
            disk: DiskSpec::default(),
            acts: Vec::new(),
            workloads: Vec::new(),
        });
        Self {
            host: Host::new(0, &spec, 7, now(0)),
            now: 0,
            instance: "one",
            revision: 0,
            wanted: Vec::new(),
            held: None,
            is_there: true,
            reports: Vec::new(),
            statuses: BTreeMap::new(),
            messages: 0,
            seen: Vec::new(),
        }
    }

    /// The controller wants a replica with the port 20000 + its incarnation.
    fn want(&mut self, incarnation: u32, want: Want) {
        let profile = Arc::clone(&self.host.spec.services[0].profile);
        let number = Port::new(20_000 + u16::try_from(incarnation).unwrap()).unwrap();
        let named = profile.ports.iter().map(|port| GrantedPort {
            name: port.name.clone(),
            protocol: port.protocol,
            numbers: PortRange::single(number),
        });
        let one = Desired {
            service: "web.alice".parse().unwrap(),
            service_id: ServiceId(1),
            index: 0,
            incarnation: Incarnation(incarnation),
            want,
            restart_no: 0,
            grant: PortGrant {
                ports: named.collect(),
            },
            addresses: BTreeMap::new(),
            profile,
            user: "alice".to_owned(),
            uid: 1000,
            last_status: None,
            attached: false,
        };
        self.wanted
            .retain(|other| other.incarnation != one.incarnation);
        self.wanted.push(one);
        self.revision += 1;
        self.answer_held();
    }

    fn forget(&mut self, incarnation: u32) {
        self.wanted.retain(|one| one.incarnation.0 != incarnation);
        self.revision += 1;
        self.answer_held();
    }

    fn answer_held(&mut self) {
        if let Some(held) = self.held.take() {
            let set = self.set();
            self.reply(&held, Reply::Wanted(set));
        }
    }

    fn set(&self) -> Arc<WantedOfHost> {
        Arc::new(WantedOfHost {
            instance: self.instance.into(),
            revision: self.revision,
            report_first: false,
            replicas: self.wanted.clone().into(),
        })
    }

    fn reply(&mut self, to: &Asker, reply: Reply) {
        let mut out = Vec::new();
        self.host.reply(now(self.now), to, reply, &mut out);
        self.take(out);
    }

    fn act(&mut self, act: &HostAct) {
        let mut out = Vec::new();
        self.host.act(now(self.now), act, &mut out);
        self.take(out);
    }

    fn take(&mut self, out: Vec<HostOut>) {
        for one in out {
            match one {
                HostOut::Saw(sight) => {
                    let words = match sight.what {
                        What::Report(report) => report.to_string(),
                        What::Exited(status) => format!("exited: {status}"),
                        What::Worker(what) => format!("worker {what}"),
                        What::Agent(what) => format!("agent {what}"),
                        What::Befell(what) | What::User(what) => what,
                        other => format!("{other:?}").to_lowercase(),
                    };
                    self.seen.push((sight.at.as_millis(), words));
                }
                HostOut::Ask(asker, question) => self.ask(&asker, question),
                HostOut::Passed(_) | HostOut::Stopped(..) => {}
            }
        }
    }

    fn ask(&mut self, asker: &Asker, question: Question) {
        self.messages += 1;
        if !self.is_there {
            return self.reply(asker, Reply::Unreachable);
        }
        match question {
            Question::Report(facts) => {
                for report in &facts.replicas {
                    self.statuses.insert(report.name(), report.status.clone());
                }
                self.reports.push(*facts);
            }
            Question::Wanted { since, .. } => {
                if since == Some(self.revision) {
                    self.held = Some(asker.clone());
                } else {
                    let set = self.set();
                    self.reply(asker, Reply::Wanted(set));
                }
                return;
            }
            Question::Status { name, status, .. } => {
                self.statuses.insert(name, *status);
            }
            Question::Lease { .. } | Question::Shutdown { .. } => {}
        }
        let lease = Lease {
            instance: self.instance.into(),
            now: now(self.now).wall,
            host_grace: Duration::from_secs(90),
            period: Duration::from_secs(5),
        };
        self.reply(asker, Reply::Lease(lease));
    }

    /// Everything until then, in milliseconds.
    fn until(&mut self, end: u64) -> &mut Self {
        let mut steps = 0;
        while let Some(next) = self.host.next_deadline().map(Monotonic::as_millis)
            && next <= end
        {
            self.now = self.now.max(next);
            let mut out = Vec::new();
            self.host.on_deadline(now(self.now), &mut out);
            self.take(out);
            steps += 1;
            assert!(steps < 100_000, "time stands still at {next}");
        }
        self.now = end;
        self
    }

    fn status(&self, incarnation: u32) -> &Status {
        let mut all = self.statuses.iter();
        let found = all.find(|(name, _)| name.incarnation.0 == incarnation);
        found.unwrap().1
    }

    fn saw(&self, words: &str) -> Vec<u64> {
        let seen = self.seen.iter();
        let seen = seen.filter(|(_, what)| what.contains(words));
        seen.map(|(at, _)| *at).collect()
    }

    fn living(&self) -> Vec<(u32, u32)> {
        let living = self.host.living(now(self.now).mono);
        living
            .map(|one| (one.name.incarnation.0, one.run.0))
            .collect()
    }
}

fn now(ms: u64) -> Now {
    Now {
        mono: Monotonic::from_millis(ms),
        wall: WallClock::from_unix_millis(1_700_000_000_000 + ms),
    }
}

fn obedient() -> Yard {
    Yard::of(service("", RunScript::default()))
}

#[test]
fn a_wanted_replica_runs_at_once_and_is_ready_when_it_listens() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(0);
    assert_eq!(yard.living(), [(1, 1)]);
    let number = Port::new(20_001).unwrap();
    let holder = yard.host.listeners.of(Protocol::Tcp, number);
    assert!(matches!(holder, Some(Holder::Process(_, Run(1)))));
    assert_eq!(yard.saw("spawned"), [0]);
    yard.until(5_000);
    assert_eq!(yard.saw("READY"), [0]);
    assert!(yard.status(1).ready);
    // Its own listener is no stranger.
    yard.until(20_000);
    assert!(yard.reports.iter().all(|facts| facts.foreign.is_empty()));
}

#[test]
fn a_host_at_rest_sends_its_lease_and_holds_one_question() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(10_000);
    let before = yard.messages;
    yard.until(110_000);
    // Two questions were not answered in time, for this controller holds them for ever.
    assert_eq!(yard.messages - before, 20 + 2);
    assert!(yard.held.is_some());
    assert_eq!(yard.reports.len(), 1);
}

#[test]
fn a_stop_ends_it_and_only_logs_are_kept_once_it_may_be_forgotten() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(5_000);
    yard.want(1, Want::Stop);
    yard.until(6_000);
    assert_eq!(yard.status(1).state, State::Final(Final::Stopped));
    assert_eq!((yard.living(), yard.saw("term")), (vec![], vec![5_000]));
    assert_eq!(yard.host.attended().count(), 1);
    yard.want(1, Want::Forget);
    yard.until(7_000);
    assert_eq!(yard.host.attended().count(), 0);
    yard.forget(1);
    yard.want(2, Want::Run);
    yard.until(8_000);
    assert_eq!(yard.living(), [(2, 1)]);
    assert!(yard.host.replicas[&Place(0)].folder.is_ended());
}

#[test]
fn a_worker_that_is_killed_is_followed_by_one_that_takes_the_run_over() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(70_000);
    yard.act(&HostAct::WorkerKilled(WHOM));
    yard.until(80_000);
    assert_eq!(yard.living(), [(1, 1)]);
    assert_eq!(yard.saw("worker took over"), [70_000]);
    // Soon after its start a worker that ends is not followed at once.
    yard.act(&HostAct::WorkerKilled(WHOM));
    yard.until(81_000);
    assert_eq!(yard.saw("worker took over"), [70_000, 80_200]);
    assert!(yard.status(1).ready);
    assert_eq!(yard.saw("spawned"), [0]);
}

#[test]
fn a_worker_may_begin_late_and_then_finds_what_happened_meanwhile() {
    let mut yard = Yard::of(service(
        "",
        RunScript {
            exit: Some((Duration::from_secs(75), ExitStatus::Code(3))),
            ..RunScript::default()
        },
    ));
    yard.want(1, Want::Run);
    yard.until(70_000);
    let begins = Monotonic::from_millis(100_000);
    yard.act(&HostAct::NextWorkerBegins(WHOM, begins));
    yard.act(&HostAct::WorkerKilled(WHOM));
    yard.until(99_999);
    assert_eq!((yard.living(), yard.saw("BACKOFF")), (vec![], vec![]));
    yard.until(110_000);
    assert_eq!(yard.saw("exited: exit 3"), [100_000]);
    assert_eq!(yard.saw("BACKOFF 1s: exit 3"), [100_000]);
    assert_eq!(yard.saw("RESTARTED 1"), [101_000]);
}

#[test]
fn an_agent_that_is_killed_finds_its_workers_again() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(10_000);
    yard.act(&HostAct::AgentKilled);
    yard.until(20_000);
    yard.act(&HostAct::AgentStarts);
    yard.until(30_000);
    assert_eq!(yard.living(), [(1, 1)]);
    let facts = yard.reports.last().unwrap();
    assert!(facts.full && facts.replicas[0].status.ready);
    assert_eq!(facts.replicas[0].grant.as_ref().unwrap().ports.len(), 1);
    yard.want(1, Want::Stop);
    yard.until(31_000);
    assert_eq!(yard.living(), []);
}

#[test]
fn whoever_dies_in_the_middle_of_a_turn_is_followed_by_one_that_ends_the_same() {
    for things in 0..12 {
        for agent in [true, false] {
            let mut yard = obedient();
            yard.until(1_000);
            if agent {
                yard.act(&HostAct::AgentDiesAfter(things));
            }
            yard.want(1, Want::Run);
            yard.until(1_000);
            yard.act(&HostAct::WorkerDiesAfter(WHOM, things));
            yard.until(5_000);
            yard.act(&HostAct::AgentStarts);
            yard.until(60_000);
            assert_eq!(yard.living().len(), 1, "{agent} {things}");
            yard.act(&HostAct::WorkerDiesAfter(WHOM, things));
            yard.want(1, Want::Stop);
            yard.until(61_000);
            yard.act(&HostAct::AgentStarts);
            yard.until(120_000);
            assert_eq!(yard.living(), [], "{agent} {things}");
            let end = &yard.status(1).state;
            assert_eq!(*end, State::Final(Final::Stopped), "{agent} {things}");
        }
    }
}

#[test]
fn a_boot_ends_everything_and_power_that_goes_takes_the_ports_with_it() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(10_000);
    yard.act(&HostAct::PowerLoss);
    assert!(!yard.host.is_up());
    assert_eq!((yard.living(), yard.host.next_deadline()), (vec![], None));
    assert_eq!(yard.host.listeners.iter().count(), 0);
    yard.until(60_000);
    yard.act(&HostAct::Boot);
    yard.until(61_000);
    let facts = yard.reports.last().unwrap();
    assert_eq!((facts.boot_id.as_str(), facts.full), ("boot-0-2", true));
    assert!(facts.replicas.is_empty());
    assert_eq!(yard.living(), []);
}

#[test]
fn a_host_that_is_shut_down_ends_what_runs_and_is_off_once_that_is_told() {
    let mut yard = Yard::of(service(
        "",
        RunScript {
            on_term: Some((Duration::from_secs(3), ExitStatus::Code(0))),
            ..RunScript::default()
        },
    ));
    yard.want(1, Want::Run);
    yard.until(10_000);
    yard.act(&HostAct::Shutdown);
    yard.until(12_000);
    assert!(yard.host.is_up());
    yard.until(14_000);
    let left = State::Final(Final::Left(portreeve::supervision::Leaving::Shutdown));
    assert_eq!(yard.status(1).state, left);
    yard.want(1, Want::Forget);
    yard.until(20_000);
    assert!(!yard.host.is_up());
    // Without an agent there is nobody to wait for.
    let mut yard = obedient();
    yard.until(1_000);
    yard.act(&HostAct::AgentKilled);
    yard.act(&HostAct::Shutdown);
    assert!(!yard.host.is_up());
}

#[test]
fn a_stranger_is_reported_and_ends_a_replica_whose_number_it_has() {
    let mut yard = obedient();
    yard.until(1_000);
    let number = StrangerPort::Number(Port::new(20_001).unwrap(), Protocol::Tcp);
    yard.act(&HostAct::StrangerTakes(number));
    yard.until(2_000);
    let facts = yard.reports.last().unwrap();
    assert_eq!((facts.full, facts.foreign.len()), (false, 1));
    yard.want(1, Want::Run);
    yard.until(2_000);
    assert_eq!(yard.saw("PORT_CONFLICT"), [2_000]);
    yard.act(&HostAct::StrangerLeaves(number));
    yard.until(5_000);
    assert!(yard.reports.last().unwrap().foreign.is_empty());
}

#[test]
fn a_stranger_that_waits_for_a_port_has_it_when_the_run_ends() {
    let mut yard = Yard::of(service(
        "[readiness]\ntcp = {}\n",
        RunScript {
            exit: Some((Duration::from_millis(50), ExitStatus::Code(1))),
            binds: Binds::Never,
            ..RunScript::default()
        },
    ));
    yard.want(1, Want::Run);
    yard.act(&HostAct::StrangerTakes(StrangerPort::Of(WHOM)));
    yard.until(5_000);
    assert_eq!(yard.saw("PORT_CONFLICT").len(), 1, "{:?}", yard.seen);
}

#[test]
fn a_probe_finds_what_really_listens() {
    for (binds, after, ready) in [
        (Binds::Granted, 0, Some(0)),
        (Binds::Granted, 7, Some(10_000)),
        (Binds::Beside(10), 0, None),
        (Binds::Never, 0, None),
    ] {
        let mut yard = Yard::of(service(
            "[readiness]\ntcp = {}\ninterval = \"5s\"\n",
            RunScript {
                binds,
                binds_after: Duration::from_secs(after),
                ..RunScript::default()
            },
        ));
        yard.want(1, Want::Run);
        yard.until(30_000);
        assert_eq!(yard.saw("READY").first().copied(), ready, "{binds:?}");
        // Who listens beside what was granted is a stranger like any other.
        let foreign = yard.reports.last().unwrap().foreign.len();
        assert_eq!(foreign, usize::from(binds == Binds::Beside(10)));
    }
}

#[test]
fn a_controller_that_comes_back_is_told_everything_and_a_full_disk_is_no_end() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(10_000);
    yard.is_there = false;
    yard.held = None;
    yard.act(&HostAct::DiskFull(true));
    let crash = ExitStatus::Code(9);
    yard.act(&HostAct::ProcessEnds(WHOM, crash));
    yard.until(20_000);
    assert_eq!(yard.living(), [(1, 2)]);
    yard.act(&HostAct::WorkerKilled(WHOM));
    yard.until(30_000);
    assert_eq!(yard.host.attended().count(), 0);
    yard.act(&HostAct::DiskFull(false));
    yard.instance = "two";
    yard.is_there = true;
    yard.until(60_000);
    // The second run was not written down: it is ended, and another begins.
    assert_eq!(yard.living(), [(1, 3)]);
    assert!(yard.status(1).ready);
    assert_eq!(yard.status(1).restarts, 1);
}

/// Found by seed 327.
#[test]
fn an_end_that_was_told_on_a_full_disk_is_one_although_worker_and_agent_die_before_it_is_written() {
    let mut yard = obedient();
    yard.want(1, Want::Run);
    yard.until(10_000);
    yard.act(&HostAct::DiskFull(true));
    yard.want(1, Want::Stop);
    yard.until(20_000);
    assert!(yard.status(1).has_ended());
    yard.act(&HostAct::WorkerKilled(WHOM));
    yard.act(&HostAct::AgentKilled);
    yard.act(&HostAct::DiskFull(false));
    // Nobody says what is wanted.
    yard.is_there = false;
    yard.held = None;
    yard.act(&HostAct::AgentStarts);
    yard.until(60_000);
    assert_eq!(yard.living(), []);
    yard.is_there = true;
    yard.until(120_000);
    assert!(yard.status(1).has_ended());
}

#[test]
fn a_worker_that_stands_still_judges_nothing_by_the_time_it_lost() {
    let mut yard = Yard::of(service(
        "[liveness]\nhttp = {}\ninterval = \"5s\"\nfailure_threshold = 1\n",
        RunScript::default(),
    ));
    yard.want(1, Want::Run);
    yard.until(12_000);
    yard.act(&HostAct::WorkerHalted(WHOM));
    yard.until(60_000);
    yard.act(&HostAct::WorkerContinued(WHOM));
    yard.until(90_000);
    assert_eq!(yard.living(), [(1, 1)]);
    assert!(yard.saw("term").is_empty());
}

#[test]
fn whatever_is_wrong_with_a_host_is_right_again_when_it_heals() {
    let mut yard = obedient();
    yard.until(1_000);
    yard.act(&HostAct::DiskFull(true));
    yard.act(&HostAct::AddressBecomes(None));
    let number = StrangerPort::Number(Port::new(20_001).unwrap(), Protocol::Tcp);
    yard.act(&HostAct::StrangerTakes(number));
    yard.act(&HostAct::AgentHalted);
    yard.until(2_000);
    yard.act(&HostAct::Heals);
    yard.until(3_000);
    yard.want(1, Want::Run);
    yard.until(4_000);
    assert!(yard.status(1).ready);
    yard.act(&HostAct::WorkerHalted(WHOM));
    yard.act(&HostAct::AgentKilled);
    yard.act(&HostAct::Heals);
    yard.want(1, Want::Stop);
    yard.until(5_000);
    assert!(yard.living().is_empty());
    yard.act(&HostAct::PowerLoss);
    yard.act(&HostAct::Heals);
    assert!(yard.host.is_up());
}
