//! Whole runs: the same spec is the same run, whatever it is made of, and acts do what they say.

use std::collections::BTreeMap;
use std::time::Duration;

use portreeve::profile::Profile;
use portreeve::registry::Config;
use portreeve::rights::{Caller, Rights};

use super::super::act::{ControllerAct, HostAct, PersonAct, Planned};
use super::super::sight::{FIRST_WORDS, first_word};
use super::super::spec::{DiskSpec, HostSpec, NetworkSpec, ServiceSpec, Workload, WorkloadKind};
use super::*;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MS: Duration = Duration::from_millis(1);

pub(super) fn at(seconds: u64) -> Monotonic {
    Monotonic::from_millis(seconds * 1000)
}

pub(super) fn service(name: &str, replicas: u32) -> ServiceSpec {
    let text = format!(
        "kind = \"service\"\nname = \"{name}\"\nreplicas = {replicas}\ncommand = [\"{name}\"]\n\n[ports]\nhttp = \"any\"\n"
    );
    let profile: Profile = Profile::from_toml(&text).unwrap().profile;
    ServiceSpec {
        profile: Arc::new(profile),
        owner: Caller::new("alice".to_owned(), Some(1000), Vec::new(), Rights::USER),
        scripts: BTreeMap::new(),
    }
}

pub(super) fn host(name: &str) -> HostSpec {
    HostSpec {
        name: name.parse().unwrap(),
        dynamic: "20000-20019".parse().unwrap(),
        fixed: "8000-8099".parse().unwrap(),
        reserved: portreeve::port::PortRanges::default(),
        labels: BTreeMap::new(),
    }
}

pub(super) fn spec(seed: u64) -> Spec {
    Spec {
        seed,
        until: at(60),
        wall: WallClock::from_unix_millis(1_800_000_000_000),
        config: Config::default(),
        hosts: vec![host("n1"), host("n2"), host("n3")],
        services: vec![service("web", 3), service("db", 2)],
        network: NetworkSpec::default(),
        disk: DiskSpec::default(),
        acts: Vec::new(),
        workloads: Vec::new(),
    }
}

/// One in which a lot goes wrong.
fn rough(seed: u64) -> Spec {
    let span = at(1)..at(200);
    let workload = |kind, per_minute| Workload {
        within: span.clone(),
        per_minute,
        kind,
        services: 0..2,
    };
    let controller = |seconds, act| Planned {
        at: at(seconds),
        act: Act::Controller(act),
    };
    let host = |seconds, no, act| Planned {
        at: at(seconds),
        act: Act::Host(no, act),
    };
    let cut_off = HostAct::CutOff {
        from_host: true,
        to_host: false,
    };
    Spec {
        until: at(300),
        network: NetworkSpec {
            delay: MS..40 * MS,
            loss: 20_000,
            duplication: 10_000,
            reordering: (10_000, 3 * SECOND),
        },
        disk: DiskSpec {
            commit: MS..30 * MS,
            refusal: 50_000,
        },
        acts: vec![
            controller(10, ControllerAct::Killed),
            controller(15, ControllerAct::Starts),
            host(20, 1, cut_off),
            controller(30, ControllerAct::Backup),
            host(40, 2, HostAct::PowerLoss),
            controller(50, ControllerAct::DiesAfter(7)),
            controller(60, ControllerAct::Starts),
            host(70, 2, HostAct::Boot),
            host(75, 0, HostAct::ClockJumps(-90_000)),
            controller(80, ControllerAct::Halted),
            controller(95, ControllerAct::Continued),
            host(100, 1, HostAct::Rejoin),
            controller(110, ControllerAct::DiesInCommit { written: true }),
            controller(120, ControllerAct::Starts),
            controller(130, ControllerAct::DiesInCommit { written: false }),
            controller(140, ControllerAct::Starts),
            controller(150, ControllerAct::DiskFull(true)),
            controller(160, ControllerAct::DiskFull(false)),
            controller(170, ControllerAct::Restore),
            controller(180, ControllerAct::ClockJumps(5_000)),
            Planned {
                at: at(200),
                act: Act::Heal,
            },
        ],
        workloads: vec![
            workload(WorkloadKind::Churn, 10),
            workload(WorkloadKind::Scale { most: 6 }, 10),
            workload(WorkloadKind::Restart, 5),
            workload(WorkloadKind::Replace, 5),
            workload(WorkloadKind::Crash, 5),
        ],
        ..spec(seed)
    }
}

pub(super) fn submitted(mut spec: Spec) -> Spec {
    let submit = |no| Planned {
        at: at(1),
        act: Act::Person(PersonAct::Submit(no)),
    };
    spec.acts.insert(0, submit(0));
    spec
}

pub(super) fn to_the_end(spec: Spec) -> Cluster {
    let mut cluster = Cluster::in_words(Arc::new(spec));
    while cluster.step().is_some() {}
    assert!(!cluster.stands_still());
    cluster
}

fn digest(seed: u64) -> u64 {
    let mut cluster = Cluster::new(Arc::new(rough(seed)));
    while cluster.step().is_some() {}
    cluster.trace().digest()
}

#[test]
fn what_is_submitted_is_placed_begun_and_listed() {
    let cluster = to_the_end(submitted(spec(1)));
    let name = cluster.people().service(0).clone();
    let view = cluster.controller().view().unwrap();
    assert_eq!(view.services.get(&name).unwrap().ready, 3);
    let listed = cluster.controller().table().unwrap();
    let listed = listed.read(&name, |snapshot| snapshot.listed().len());
    assert_eq!(listed, Some(3), "{}", cluster.trace().words());
}

#[test]
fn the_same_spec_is_the_same_run_to_the_byte() {
    let (one, other) = (to_the_end(rough(5)), to_the_end(rough(5)));
    assert!(one.steps() > 1_000, "{}", one.steps());
    assert_eq!(one.trace().words(), other.trace().words());
    assert_eq!(one.trace().digest(), digest(5));
    assert_ne!(digest(6), digest(5));
}

/// A scenario that never wants to see something that begins otherwise would be kept by every run.
#[test]
fn whatever_is_seen_begins_with_a_word_that_is_known_to_begin_something() {
    let seeds = (0..8).map(Spec::of_seed);
    for spec in seeds.chain([rough(5)]) {
        let mut cluster = Cluster::new(Arc::new(spec));
        while let Some(step) = cluster.step().filter(|step| step.number < 5_000) {
            for sight in &step.sights {
                let said = sight.what.to_string();
                assert!(FIRST_WORDS.contains(&first_word(&said)), "{said}");
            }
        }
    }
}

/// How many replicas of the first service are listed.
pub(super) fn ready(cluster: &Cluster) -> u32 {
    let view = cluster.controller().view().unwrap();
    let service = view.services.get(cluster.people().service(0));
    service.map_or(0, |service| service.ready)
}

/// Threads and processes, one beside the other, on a machine that does other things too.
#[test]
fn a_run_is_the_same_in_any_thread_and_in_another_process() {
    let here: Vec<u64> = (1..=3).map(digest).collect();
    let in_threads: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=3)
            .map(|seed| scope.spawn(move || digest(seed)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    });
    assert_eq!(in_threads, here);
    let other = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1", CHILD])
        .env(SEED, "2")
        .output()
        .unwrap();
    let told = String::from_utf8(other.stdout).unwrap();
    let line = format!("digest {:016x}", here[1]);
    assert!(told.contains(&line), "{line} is not in {told}");
}

const CHILD: &str = "cluster::run::tests::as_the_other_process";
/// Set for the other process alone: the seed that it plays.
const SEED: &str = "PORTREEVE_SIM_SEED_OF_ANOTHER_PROCESS";

#[test]
fn as_the_other_process() {
    if let Ok(seed) = std::env::var(SEED) {
        println!("digest {:016x}", digest(seed.parse().unwrap()));
    }
}

/// The runs of three seeds on every machine. Whoever changes what is decided, told or stored changes them: the test says
/// what they are now, and that belongs here.
const GOLDEN: [(u64, u64); 3] = [
    (11, 0xd9d1_7e4e_6e1a_4e45),
    (12, 0xb0c3_cb4c_c140_a8da),
    (13, 0xfa2a_e91f_b5f0_4bc0),
];

#[test]
fn a_run_is_the_same_on_every_machine() {
    let told = |(seed, digest): (u64, u64)| format!("{seed}: {digest:016x}");
    let runs = GOLDEN.map(|(seed, _)| told((seed, digest(seed))));
    assert_eq!(
        runs,
        GOLDEN.map(told),
        "another decision, or a run that depends on the machine"
    );
}
