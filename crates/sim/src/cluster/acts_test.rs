//! What befalls controller, network and clocks, one thing at a time.

use super::super::act::{ControllerAct, HostAct, PersonAct, Planned};
use super::super::controller::Outcome;
use super::super::spec::{DiskSpec, Workload, WorkloadKind};
use super::tests::{MS, at, ready, spec, submitted, to_the_end};
use super::*;

fn person(seconds: u64, act: PersonAct) -> Planned {
    Planned {
        at: at(seconds),
        act: Act::Person(act),
    }
}

fn controller(seconds: u64, act: ControllerAct) -> Planned {
    Planned {
        at: at(seconds),
        act: Act::Controller(act),
    }
}

fn host(seconds: u64, no: HostNo, act: HostAct) -> Planned {
    Planned {
        at: at(seconds),
        act: Act::Host(no, act),
    }
}

/// Three hosts, `web` with three replicas submitted at 1 s, and these acts.
fn with(acts: Vec<Planned>) -> Spec {
    let mut spec = submitted(spec(3));
    spec.acts.extend(acts);
    spec
}

/// Plays it to the end: when each order was answered, and how.
fn answers(spec: Spec) -> (Cluster, Vec<(u64, Outcome)>) {
    let mut cluster = Cluster::in_words(Arc::new(spec));
    let mut all = Vec::new();
    while let Some(step) = cluster.step() {
        let at = step.at.as_millis();
        let answered = step.answered.into_iter();
        all.extend(answered.map(|answered| (at, answered.outcome)));
    }
    (cluster, all)
}

fn is_done((_, outcome): &(u64, Outcome)) -> bool {
    matches!(outcome, Outcome::Done(answer) if answer.changed)
}

#[test]
fn a_controller_that_is_killed_is_not_reached_and_knows_all_it_acknowledged_when_it_is_back() {
    let (cluster, answers) = answers(with(vec![
        controller(5, ControllerAct::Killed),
        person(6, PersonAct::Scale(0, 1)),
        controller(10, ControllerAct::Starts),
    ]));
    assert!(is_done(&answers[0]));
    assert_eq!(answers[1], (6_000, Outcome::Unreachable));
    assert_eq!(ready(&cluster), 3, "{}", cluster.trace().words());
    assert_eq!(cluster.controller().starts(), 2);
}

#[test]
fn a_controller_that_stands_still_answers_when_it_goes_on() {
    let (_, answers) = answers(with(vec![
        controller(5, ControllerAct::Halted),
        person(6, PersonAct::Scale(0, 1)),
        controller(9, ControllerAct::Continued),
    ]));
    assert!(is_done(&answers[1]), "{answers:?}");
    assert_eq!(answers[1].0, 9_000);
}

#[test]
fn wherever_a_controller_dies_in_a_turn_what_it_answered_stays_true() {
    let mut outcomes = [0, 0];
    for effects in 0..16 {
        let (cluster, answers) = answers(with(vec![
            controller(5, ControllerAct::DiesAfter(effects)),
            person(6, PersonAct::Scale(0, 2)),
            controller(20, ControllerAct::Starts),
        ]));
        assert_eq!(cluster.controller().starts(), 2);
        match &answers[1].1 {
            Outcome::Done(_) => outcomes[0] += 1,
            Outcome::Lost | Outcome::Unreachable => outcomes[1] += 1,
            Outcome::Refused(why) => panic!("{why}"),
        }
        let wanted = ready(&cluster);
        match &answers[1].1 {
            Outcome::Done(_) => assert_eq!(wanted, 2),
            // Then it may be done or not.
            _ => assert!([2, 3].contains(&wanted), "{wanted}"),
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn who_waits_for_a_commit_in_which_the_controller_dies_learns_nothing_and_it_is_there_or_not() {
    for written in [true, false] {
        let (cluster, answers) = answers(with(vec![
            controller(5, ControllerAct::DiesInCommit { written }),
            person(6, PersonAct::Scale(0, 1)),
            controller(10, ControllerAct::Starts),
        ]));
        assert_eq!(answers[1].1, Outcome::Lost);
        let expected = if written { 1 } else { 3 };
        assert_eq!(ready(&cluster), expected, "{}", cluster.trace().words());
    }
}

#[test]
fn on_a_full_disk_orders_are_refused_and_nothing_is_changed_until_there_is_room() {
    let (cluster, answers) = answers(with(vec![
        controller(5, ControllerAct::DiskFull(true)),
        person(6, PersonAct::Scale(0, 1)),
        controller(10, ControllerAct::DiskFull(false)),
        person(12, PersonAct::Scale(0, 2)),
    ]));
    assert!(matches!(answers[1].1, Outcome::Refused(_)), "{answers:?}");
    assert!(is_done(&answers[2]));
    assert_eq!(ready(&cluster), 2);
}

#[test]
fn a_controller_that_finds_its_disk_full_at_the_start_is_started_again_until_there_is_room() {
    let (cluster, _) = answers(with(vec![
        controller(5, ControllerAct::Killed),
        controller(6, ControllerAct::DiskFull(true)),
        controller(7, ControllerAct::Starts),
        controller(20, ControllerAct::DiskFull(false)),
    ]));
    assert!(cluster.controller().starts() > 3);
    assert_eq!(ready(&cluster), 3);
}

#[test]
fn a_restored_controller_has_another_epoch_and_what_was_there_at_the_backup() {
    let mut cluster = Cluster::new(Arc::new(with(vec![
        controller(5, ControllerAct::Backup),
        person(6, PersonAct::Submit(1)),
        controller(10, ControllerAct::Restore),
        controller(15, ControllerAct::Killed),
        controller(16, ControllerAct::Starts),
    ])));
    let mut epochs = Vec::new();
    while cluster.step().is_some() {
        let table = cluster.controller().table();
        let epoch = table.map(|table| table.epoch().to_owned());
        if let Some(epoch) = epoch
            && epochs.last() != Some(&epoch)
        {
            epochs.push(epoch);
        }
    }
    assert_eq!(epochs, ["e1", "e2"], "a later start keeps the epoch");
    let view = cluster.controller().view().unwrap();
    assert_eq!(view.services.len(), 1);
    assert_eq!(ready(&cluster), 3);
}

#[test]
fn a_host_that_is_not_heard_is_suspect_then_lost_and_its_replicas_run_elsewhere() {
    for (from_host, to_host) in [(true, false), (true, true)] {
        let mut spec = with(vec![host(10, 1, HostAct::CutOff { from_host, to_host })]);
        spec.until = at(180);
        let cluster = to_the_end(spec);
        let view = cluster.controller().view().unwrap();
        let host = view.hosts.get(&"n2".parse().unwrap()).unwrap();
        assert_eq!(host.state, "lost");
        assert_eq!(ready(&cluster), 3);
        assert!(cluster.network().counts().cut_off > 0);
    }
}

#[test]
fn display_clocks_jump_and_are_right_again_when_everything_is() {
    let jump = |by| HostAct::ClockJumps(by);
    let mut cluster = Cluster::new(Arc::new(with(vec![
        host(5, 0, jump(-60_000)),
        controller(5, ControllerAct::ClockJumps(2_000)),
        Planned {
            at: at(20),
            act: Act::Heal,
        },
    ])));
    let off = |cluster: &Cluster, now: Now| {
        let true_wall = cluster.spec().wall.as_unix_millis() + cluster.now().as_millis();
        i128::from(now.wall.as_unix_millis()) - i128::from(true_wall)
    };
    while cluster.now() < at(15) {
        cluster.step().unwrap();
    }
    assert_eq!(off(&cluster, cluster.host_now(0)), -60_000);
    assert_eq!(off(&cluster, cluster.host_now(1)), 0);
    assert_eq!(off(&cluster, cluster.controller_now()), 2_000);
    while cluster.step().is_some() {}
    assert_eq!(off(&cluster, cluster.host_now(0)), 0);
    assert_eq!(off(&cluster, cluster.controller_now()), 0);
}

#[test]
fn healing_starts_whatever_is_down() {
    let cluster = to_the_end(with(vec![
        controller(5, ControllerAct::Killed),
        host(6, 1, HostAct::PowerLoss),
        Planned {
            at: at(20),
            act: Act::Heal,
        },
    ]));
    assert!(cluster.controller().is_up());
    assert_eq!(ready(&cluster), 3, "{}", cluster.trace().words());
}

#[test]
fn what_happens_to_the_host_of_a_replica_happens_where_it_is() {
    let whom = Whom {
        service: 0,
        index: 1,
    };
    let mut cluster = Cluster::in_words(Arc::new(with(vec![Planned {
        at: at(10),
        act: Act::HostOf(whom, HostAct::PowerLoss),
    }])));
    while cluster.step().is_some() {}
    let view = cluster.controller().view().unwrap();
    let service = view.services.get(cluster.people().service(0)).unwrap();
    let host = service.replicas.of(1).unwrap().host.clone().unwrap();
    let no = cluster.controller().telling().host_no(&host).unwrap();
    let down = cluster.hosts().iter().position(|host| !host.is_up());
    assert_eq!(down, Some(no));
}

#[test]
fn every_kind_of_workload_does_what_it_is_called_at_the_rate_it_says() {
    let kinds = [
        WorkloadKind::Churn,
        WorkloadKind::Scale { most: 5 },
        WorkloadKind::Restart,
        WorkloadKind::Replace,
        WorkloadKind::Crash,
    ];
    let mut spec = with(Vec::new());
    spec.until = at(700);
    spec.workloads = kinds
        .map(|kind| Workload {
            within: at(5)..at(605),
            per_minute: 6,
            kind,
            services: 0..2,
        })
        .to_vec();
    let mut cluster = Cluster::new(Arc::new(spec));
    let mut seen = [0; 9];
    while let Some(step) = cluster.step() {
        let Actor::Workload(_) = step.actor else {
            continue;
        };
        assert!(step.at > at(5) && step.at < at(605));
        let kind = match step.handed {
            Handed::Act(Act::Person(PersonAct::Submit(_))) => 0,
            Handed::Act(Act::Person(PersonAct::Stop(_))) => 1,
            Handed::Act(Act::Person(PersonAct::Delete(_))) => 2,
            Handed::Act(Act::Person(PersonAct::Scale(_, replicas))) => {
                assert!(replicas <= 5);
                3
            }
            Handed::Act(Act::Person(PersonAct::Restart(_, None))) => 4,
            Handed::Act(Act::Person(PersonAct::Restart(_, Some(_)))) => 5,
            Handed::Act(Act::Person(PersonAct::Replace(..))) => 6,
            Handed::Act(Act::Host(_, HostAct::ProcessEnds(..))) => 7,
            _ => 8,
        };
        seen[kind] += 1;
    }
    assert!(seen[..8].iter().all(|count| *count > 0), "{seen:?}");
    let all: u32 = seen.iter().sum();
    assert!((200..400).contains(&all), "300 are expected: {seen:?}");
}

#[test]
fn a_slow_disk_makes_orders_wait_and_readers_not() {
    let mut spec = with(vec![person(5, PersonAct::Scale(0, 1))]);
    spec.disk = DiskSpec {
        commit: 300 * MS..300 * MS,
        refusal: 0,
    };
    let (_, answers) = answers(spec);
    let (at, _) = answers[1];
    assert!((5_300..5_700).contains(&at), "{answers:?}");
}
