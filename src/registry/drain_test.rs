//! Hosts that are taken out of service.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::rights::{Caller, Rights};
use crate::supervision::{Final, State};

use super::rig::{Rig, caller, exit, facts, name, web, with_port};
use super::{
    Answer, Attachment, Command, DrainPace, HostFacts, HostVerb, HostView, Input, Refusal,
};

pub(super) fn root() -> Caller {
    caller("root").with_rights(Rights::ADMIN)
}

pub(super) fn order(rig: &mut Rig, host: &str, verb: HostVerb) -> Result<Answer, Refusal> {
    let host = host.parse().unwrap();
    rig.ask_as(&root(), Command::Host { host, verb })
}

fn drain(rig: &mut Rig, host: &str, pace: DrainPace) -> Answer {
    order(rig, host, HostVerb::Drain { pace }).unwrap()
}

fn slowly(rig: &mut Rig, host: &str) -> Answer {
    drain(rig, host, DrainPace::OneByOne)
}

pub(super) fn host(rig: &Rig, host: &str) -> HostView {
    HostView::clone(&rig.registry.view().hosts[&host.parse().unwrap()])
}

/// `3 of 7 left`.
fn progress(rig: &Rig, name: &str) -> String {
    let host = host(rig, name);
    let drain = host.drain.unwrap();
    format!("{}: {} of {} left", host.state, drain.left, drain.replicas)
}

fn stays(rig: &Rig, name: &str) -> Vec<String> {
    let drain = host(rig, name).drain.unwrap();
    let all = drain.stays.iter();
    all.map(|it| format!("{}/{} {}", it.service, it.replica, it.why))
        .collect()
}

fn hosts_of(rig: &Rig, service: &str) -> Vec<String> {
    let view = rig.registry.view();
    let replicas = view.services[&name(service)].replicas.iter();
    replicas
        .map(|it| it.host.as_ref().map_or("-".into(), ToString::to_string))
        .collect()
}

/// Replicas of a service that are told to stop.
fn stopping(rig: &Rig, service: &str) -> Vec<usize> {
    let states = rig.states(service).into_iter().enumerate();
    states
        .filter(|(_, state)| state == "stopping")
        .map(|(index, _)| index)
        .collect()
}

fn stopped(rig: &mut Rig, service: &str, index: u32) {
    rig.ends(service, index, Final::Stopped);
}

/// Two hosts, and three ready replicas of `web` on the first.
fn three_on_n1() -> Rig {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 3)).unwrap();
    rig.join("n2");
    (0..3).for_each(|index| rig.ready("web", index));
    rig
}

#[test]
fn a_drain_moves_one_replica_of_a_service_at_a_time_and_waits_until_it_is_ready() {
    let mut rig = three_on_n1();
    let answer = slowly(&mut rig, "n1");
    assert!(answer.changed);
    assert_eq!(answer.subject(), "host n1");
    assert_eq!(
        answer.notes,
        ["draining: 3 replicas are moved one of each service at a time"]
    );
    assert_eq!(progress(&rig, "n1"), "draining: 3 of 3 left");
    let mut listed = Vec::new();
    for index in [2, 1, 0] {
        assert_eq!(stopping(&rig, "web"), [index as usize]);
        assert_eq!(rig.condition("web", index), Some(EndpointState::Serving));
        assert_eq!(
            rig.replica("web", index).reason.as_deref(),
            Some("its host is drained by root")
        );
        stopped(&mut rig, "web", index);
        assert_eq!(rig.replica("web", index).host.unwrap().as_str(), "n2");
        // Placed is not ready: the next stays where it serves.
        assert_eq!(stopping(&rig, "web"), [0; 0]);
        listed.push(rig.states("web").iter().filter(|it| *it == "ready").count());
        rig.status("web", index, |status| status.state = State::Up);
        assert_eq!(stopping(&rig, "web"), [0; 0]);
        rig.ready("web", index);
    }
    assert_eq!(listed, [2, 2, 2]);
    assert_eq!(hosts_of(&rig, "web"), ["n2", "n2", "n2"]);
    assert_eq!(progress(&rig, "n1"), "drained: 0 of 3 left");
    // Not charged, and told.
    assert_eq!(rig.replica("web", 2).restarts_total, 0);
    let events = rig.events("web");
    let told = |text: &str| events.iter().any(|it| it.text == text);
    assert!(told("host n1 is drained by root"), "{events:?}");
}

#[test]
fn several_services_move_at_once_but_never_more_than_ten_of_a_host() {
    let mut rig = Rig::new();
    rig.join("n1");
    for service in 0..12 {
        rig.submit(&web(&format!("s{service}"), 1)).unwrap();
        rig.ready(&format!("s{service}"), 0);
    }
    rig.join("n2");
    slowly(&mut rig, "n1");
    let leaving = |rig: &Rig| {
        let all = (0..12).map(|it| format!("s{it}"));
        all.filter(|it| !stopping(rig, it).is_empty())
            .collect::<Vec<_>>()
    };
    let first = leaving(&rig);
    assert_eq!(first.len(), 10);
    stopped(&mut rig, &first[0], 0);
    assert_eq!(leaving(&rig).len(), 10);
    assert_eq!(progress(&rig, "n1"), "draining: 11 of 12 left");
}

#[test]
fn a_drained_host_takes_nothing_new_and_says_so() {
    let mut rig = Rig::new();
    rig.join("n1");
    let answer = slowly(&mut rig, "n1");
    assert_eq!(answer.notes, ["drained: it has no replica that could move"]);
    rig.submit(&web("web", 1)).unwrap();
    let replica = rig.replica("web", 0);
    assert_eq!(replica.reason.as_deref(), Some("host n1 is drained"));
    assert_eq!(replica.reasons[0].code, "HOST DRAINED");
    let attach = rig.ask(attachment("job", "n1"));
    let refused = attach.unwrap_err().to_string();
    assert!(refused.contains("host n1 is drained"), "{refused}");
    let answer = order(&mut rig, "n1", HostVerb::Undrain).unwrap();
    assert_eq!(
        answer.notes,
        ["in service again, drained by root before: 0 of 0 replicas stayed"]
    );
    assert_eq!(hosts_of(&rig, "web"), ["n1"]);
    assert_eq!(host(&rig, "n1").state, "up");
    let again = order(&mut rig, "n1", HostVerb::Undrain).unwrap();
    assert!(!again.changed);
    assert_eq!(again.notes, ["nothing to change: it is not drained"]);
}

fn attachment(service: &str, host: &str) -> Command {
    let profile = super::rig::profile(&web(service, 1));
    Command::Attach(Box::new(Attachment {
        service: name(service),
        profile,
        source: None,
        host: host.parse().unwrap(),
        index: None,
        key: "k".into(),
        job: Some("slurm 4711".into()),
    }))
}

#[test]
fn what_has_nowhere_to_go_is_told_beforehand_and_stays_until_it_has() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("web", 1, "8888")).unwrap();
    rig.ready("web", 0);
    let answer = slowly(&mut rig, "n1");
    assert_eq!(
        answer.notes,
        [
            "draining: 1 replica is moved one of each service at a time",
            "web.alice/0 has nowhere to go: host n1 is drained; it stays until it has, or until the deadline"
        ]
    );
    assert_eq!(rig.states("web"), ["ready"]);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert_eq!(
        stays(&rig, "n1"),
        ["web.alice/0 nowhere to go: HOST DRAINED on n1"]
    );
    // Its place comes with a host, and it goes.
    rig.join("n2");
    assert_eq!(stopping(&rig, "web"), [0]);
    stopped(&mut rig, "web", 0);
    assert_eq!(hosts_of(&rig, "web"), ["n2"]);
    assert_eq!(stays(&rig, "n1"), [""; 0]);
}

#[test]
fn one_place_is_promised_to_one_replica_only() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("a", 1, "8888")).unwrap();
    rig.ready("a", 0);
    rig.tell(Input::HostReport(facts("n3")));
    rig.submit(&with_port("b", 1, "8888")).unwrap();
    rig.ready("b", 0);
    assert_eq!(
        (hosts_of(&rig, "a"), hosts_of(&rig, "b")),
        (vec!["n1".into()], vec!["n3".into()])
    );
    slowly(&mut rig, "n1");
    slowly(&mut rig, "n3");
    assert!(stopping(&rig, "a").is_empty() && stopping(&rig, "b").is_empty());
    rig.join("n2");
    let moving = stopping(&rig, "a").len() + stopping(&rig, "b").len();
    assert_eq!(moving, 1, "n2 has the number once");
}

#[test]
fn after_the_deadline_the_rest_is_stopped_at_once_and_waits() {
    let mut rig = three_on_n1();
    rig.submit(&format!("placement.hosts = [\"n1\"]\n{}", web("here", 1)))
        .unwrap();
    rig.ready("here", 0);
    let within = DrainPace::Within(Duration::from_secs(3600));
    let answer = drain(&mut rig, "n1", within);
    assert_eq!(
        answer.notes[0],
        "draining: 4 replicas are moved one of each service at a time; what is left in 1h is stopped then"
    );
    assert_eq!(stopping(&rig, "web"), [2]);
    rig.pass(Duration::from_secs(3599));
    assert_eq!(stopping(&rig, "web"), [2]);
    // Also across a start of the controller, which takes a second.
    let mut rig = rig.restart();
    rig.join("n1");
    rig.join("n2");
    assert_eq!(stopping(&rig, "web"), [0, 1, 2]);
    assert_eq!(stopping(&rig, "here"), [0]);
    stopped(&mut rig, "here", 0);
    let here = rig.replica("here", 0);
    assert_eq!(here.job_state, "PEND");
    assert_eq!(
        here.reason.as_deref(),
        Some("host n1 is drained (host n1 is drained by root)")
    );
    order(&mut rig, "n1", HostVerb::Undrain).unwrap();
    assert_eq!(hosts_of(&rig, "here"), ["n1"]);
}

#[test]
fn a_deadline_passes_by_itself() {
    let mut rig = three_on_n1();
    drain(&mut rig, "n1", DrainPace::Within(Duration::from_secs(60)));
    rig.pass(Duration::from_secs(59));
    assert_eq!(stopping(&rig, "web"), [2]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(stopping(&rig, "web"), [0, 1, 2]);
}

#[test]
fn now_stops_everything_at_once_and_a_drain_under_way_takes_the_new_pace() {
    let mut rig = three_on_n1();
    slowly(&mut rig, "n1");
    let again = slowly(&mut rig, "n1");
    assert!(!again.changed);
    assert_eq!(
        again.notes,
        [
            "nothing to change: drained by root 0s ago: 3 of 3 replicas left, moved one of each service at a time"
        ]
    );
    let answer = drain(&mut rig, "n1", DrainPace::AtOnce);
    assert!(answer.changed);
    assert_eq!(
        answer.notes,
        ["drained by root 0s ago: 3 of 3 replicas left, stopped at once"]
    );
    assert_eq!(stopping(&rig, "web"), [0, 1, 2]);
    assert!(!drain(&mut rig, "n1", DrainPace::AtOnce).changed);
    // To look again takes no deadline away.
    assert!(!slowly(&mut rig, "n1").changed);
    for index in 0..3 {
        stopped(&mut rig, "web", index);
    }
    assert_eq!(hosts_of(&rig, "web"), ["n2", "n2", "n2"]);
}

#[test]
fn jobs_of_other_schedulers_are_shown_and_stay() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.ask(attachment("job", "n1")).unwrap();
    rig.ready("job", 0);
    rig.join("n2");
    let answer = drain(&mut rig, "n1", DrainPace::AtOnce);
    assert_eq!(
        answer.notes,
        [
            "drained: it has no replica that could move",
            "inside jobs of another scheduler, and not moved: job.alice/0 (slurm 4711); each ends with its job"
        ]
    );
    assert_eq!(rig.condition("job", 0), Some(EndpointState::Ready));
    let view = host(&rig, "n1");
    assert_eq!(
        (view.state.as_str(), view.drain.unwrap().attached),
        ("drained", 1)
    );
}

#[test]
fn what_is_not_rerunnable_stays_and_ends_at_the_deadline() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&format!("rerunnable = false\n{}", web("once", 1)))
        .unwrap();
    rig.ready("once", 0);
    rig.join("n2");
    let answer = slowly(&mut rig, "n1");
    assert_eq!(
        answer.notes[1],
        "not rerunnable: once.alice/0; it stays until it ends, or until the deadline ends it for good"
    );
    assert_eq!(rig.states("once"), ["ready"]);
    drain(&mut rig, "n1", DrainPace::AtOnce);
    stopped(&mut rig, "once", 0);
    let once = rig.replica("once", 0);
    assert_eq!(
        (once.job_state.as_str(), once.state.as_str()),
        ("EXIT", "host drained")
    );
    assert_eq!(once.reason.as_deref(), Some("host n1 is drained by root"));
}

#[test]
fn a_service_of_every_host_leaves_last_and_comes_back_with_the_host() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    let per_host = web("node", 1).replace("replicas = 1", "replicas = \"per-host\"");
    rig.submit(&per_host).unwrap();
    rig.submit(&format!(
        "placement.hosts = [\"n1\", \"n3\"]\n{}",
        web("web", 1)
    ))
    .unwrap();
    for service in ["node", "web"] {
        rig.ready(service, 0);
    }
    rig.ready("node", 1);
    let here = hosts_of(&rig, "node")
        .iter()
        .position(|it| it == "n1")
        .unwrap();
    let index = u32::try_from(here).unwrap();
    rig.join("n3");
    rig.ready("node", 2);
    let answer = slowly(&mut rig, "n1");
    let note = format!(
        "node.alice/{index}: one runs on each host, so it ends here last and comes back with the host"
    );
    assert!(answer.notes.contains(&note), "{:?}", answer.notes);
    assert_eq!(
        (stopping(&rig, "web"), stopping(&rig, "node")),
        (vec![0], vec![])
    );
    stopped(&mut rig, "web", 0);
    assert_eq!(stopping(&rig, "node"), [here]);
    stopped(&mut rig, "node", index);
    let node = rig.replica("node", index);
    assert_eq!(node.job_state, "PEND");
    assert!(node.reason.unwrap().contains("host n1 is drained"));
    assert_eq!(progress(&rig, "n1"), "drained: 0 of 2 left");
    order(&mut rig, "n1", HostVerb::Undrain).unwrap();
    assert_eq!(hosts_of(&rig, "node")[here], "n1");
}

#[test]
fn a_moved_replica_that_does_not_come_up_keeps_the_others_where_they_serve() {
    let mut rig = three_on_n1();
    slowly(&mut rig, "n1");
    stopped(&mut rig, "web", 2);
    rig.ends(
        "web",
        2,
        Final::GaveUp {
            reason: exit(1),
            count: 10,
        },
    );
    assert_eq!(stopping(&rig, "web"), [0; 0]);
    assert_eq!(
        stays(&rig, "n1")[0],
        "web.alice/0 web.alice/2 was moved before it and ended"
    );
    rig.ask(Command::Start {
        service: name("web"),
    })
    .unwrap();
    rig.ready("web", 2);
    assert_eq!(stopping(&rig, "web"), [1]);
}

#[test]
fn a_replica_that_was_moved_to_a_host_that_is_drained_before_it_is_ready_is_moved_on() {
    let mut rig = three_on_n1();
    slowly(&mut rig, "n1");
    stopped(&mut rig, "web", 2);
    assert_eq!(hosts_of(&rig, "web")[2], "n2");
    rig.join("n3");
    slowly(&mut rig, "n2");
    assert_eq!(stopping(&rig, "web"), [2]);
    stopped(&mut rig, "web", 2);
    assert_eq!(hosts_of(&rig, "web")[2], "n3");
    assert_eq!(progress(&rig, "n2"), "drained: 0 of 1 left");
    rig.ready("web", 2);
    assert_eq!(stopping(&rig, "web"), [1]);
}

#[test]
fn a_roll_and_a_drain_never_take_two_replicas_of_a_service_at_once() {
    let mut rig = three_on_n1();
    rig.ask(Command::Restart {
        service: name("web"),
        index: None,
    })
    .unwrap();
    slowly(&mut rig, "n1");
    assert_eq!(stopping(&rig, "web"), [0; 0]);
    for index in [2, 1, 0] {
        rig.ready("web", index);
    }
    assert_eq!(stopping(&rig, "web"), [2]);
    // And the other way round.
    rig.ask(Command::Restart {
        service: name("web"),
        index: None,
    })
    .unwrap();
    let told = |rig: &Rig| rig.replica("web", 1).reason;
    stopped(&mut rig, "web", 2);
    assert_eq!(told(&rig), None);
    assert_eq!(stopping(&rig, "web"), [0; 0]);
    rig.ready("web", 2);
    assert_eq!(stopping(&rig, "web"), [0; 0], "the restart goes on first");
}

#[test]
fn a_drain_survives_a_restart_between_any_two_steps() {
    let mut rig = three_on_n1();
    slowly(&mut rig, "n1");
    for index in [2, 1, 0] {
        for step in 0..3 {
            rig = rig.restart();
            rig.join("n1");
            rig.join("n2");
            match step {
                0 => {
                    assert_eq!(stopping(&rig, "web"), [index as usize]);
                    stopped(&mut rig, "web", index);
                }
                1 => assert_eq!(stopping(&rig, "web"), [0; 0]),
                _ => rig.ready("web", index),
            }
        }
    }
    assert_eq!(progress(&rig, "n1"), "drained: 0 of 3 left");
    assert_eq!(hosts_of(&rig, "web"), ["n2", "n2", "n2"]);
}

#[test]
fn a_drain_that_could_not_be_stored_changes_nothing_and_its_steps_are_decided_again() {
    let mut rig = three_on_n1();
    rig.store.failing_commits = 1;
    let verb = HostVerb::Drain {
        pace: DrainPace::OneByOne,
    };
    let refused = order(&mut rig, "n1", verb);
    assert!(
        matches!(refused, Err(Refusal::NotStored { .. })),
        "{refused:?}"
    );
    assert_eq!(host(&rig, "n1").state, "up");
    rig.pass(Duration::from_secs(2));
    assert_eq!(stopping(&rig, "web"), [0; 0]);
    slowly(&mut rig, "n1");
    rig.store.failing_commits = 2;
    // The end that frees the place, and with it the next step, is refused twice and decided again.
    stopped(&mut rig, "web", 2);
    rig.pass(Duration::from_secs(5));
    assert_eq!(hosts_of(&rig, "web")[2], "n2");
    rig.store.failing_commits = 1;
    rig.ready("web", 2);
    rig.pass(Duration::from_secs(5));
    assert_eq!(stopping(&rig, "web"), [1]);
}

#[test]
fn nothing_is_shown_of_a_drain_before_it_is_on_disk() {
    let mut rig = three_on_n1();
    rig.slow = true;
    let host_name = "n1".parse().unwrap();
    let verb = HostVerb::Drain {
        pace: DrainPace::OneByOne,
    };
    let drain = Command::Host {
        host: host_name,
        verb,
    };
    rig.ask_later(&root(), drain);
    rig.settle();
    rig.tell(Input::Lease {
        host: "n1".parse().unwrap(),
        skew_ms: None,
    });
    assert_eq!(host(&rig, "n1").state, "up");
    assert!(host(&rig, "n1").drain.is_none());
    rig.land();
    assert_eq!(progress(&rig, "n1"), "draining: 3 of 3 left");
}

#[test]
fn a_report_of_the_host_leaves_its_drain_alone() {
    let mut rig = three_on_n1();
    slowly(&mut rig, "n1");
    let mut changed = rig.facts("n1");
    changed.labels = BTreeMap::from([("gpu".into(), "h100".into())]);
    rig.tell(Input::HostReport(changed));
    assert_eq!(progress(&rig, "n1"), "draining: 3 of 3 left");
    // While the drain is with the store too: news is told to both forms.
    let mut rig = three_on_n1();
    rig.slow = true;
    let verb = HostVerb::Drain {
        pace: DrainPace::OneByOne,
    };
    let host_name = "n1".parse().unwrap();
    rig.ask_later(
        &root(),
        Command::Host {
            host: host_name,
            verb,
        },
    );
    rig.settle();
    rig.take(Input::HostReport(HostFacts {
        labels: BTreeMap::from([("gpu".into(), "h100".into())]),
        ..rig.facts("n1")
    }));
    rig.land();
    rig.slow = false;
    rig.settle();
    let view = host(&rig, "n1");
    assert_eq!((view.state.as_str(), view.labels.len()), ("draining", 1));
}

#[test]
fn orders_about_hosts_are_for_operators_and_known_hosts() {
    let mut rig = three_on_n1();
    let n1 = || "n1".parse().unwrap();
    for verb in [
        HostVerb::Drain {
            pace: DrainPace::AtOnce,
        },
        HostVerb::Undrain,
        HostVerb::Down { fenced: true },
        HostVerb::Remove,
        HostVerb::Fence { replica: None },
    ] {
        let refused = rig
            .ask(Command::Host {
                host: n1(),
                verb: verb.clone(),
            })
            .unwrap_err();
        assert!(
            matches!(refused, Refusal::OperatorsOnly { .. }),
            "{refused}"
        );
        let unknown = order(&mut rig, "n9", verb).unwrap_err();
        assert!(matches!(unknown, Refusal::NoSuchHost { .. }), "{unknown}");
    }
    assert_eq!(host(&rig, "n1").state, "up");
    assert_eq!(
        rig.ask(Command::Host {
            host: n1(),
            verb: HostVerb::Undrain
        })
        .unwrap_err()
        .to_string(),
        "alice may not undrain host n1: that is for operators and admins, such as root and the controller's account"
    );
}
