//! Losses that meet something else: another loss, a change under way, a crash, a clock that is set.

use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::rights::{Caller, Rights};
use crate::supervision::{Final, State};
use crate::time::WallClock;

use super::loss_test::{at, back, cluster, graced, held, host_state, lease, other, pass};
use super::rig::{Rig, alice, caller, facts, name, now, web};
use super::unknown::{UNKNOWN_KEPT, UNKNOWN_NAMED};
use super::{Command, DrainPace, HostFacts, HostVerb, Input, ReplicaReport};

fn root() -> Caller {
    caller("root").with_rights(Rights::ADMIN)
}

fn ended(of: &ReplicaReport) -> ReplicaReport {
    let mut ended = of.clone();
    ended.status.seq += 1;
    ended.status.ready = false;
    ended.status.state = State::Final(Final::Stopped);
    ended
}

fn booted(rig: &mut Rig, host: &str) {
    rig.tell(Input::HostReport(HostFacts {
        boot_id: "boot-2".into(),
        ..facts(host)
    }));
}

// P19
#[test]
fn several_hosts_that_are_lost_together_leave_the_lists_in_one_revision() {
    let mut rig = cluster(&["n1", "n2", "n3"]);
    rig.submit(&web("web", 3)).unwrap();
    for index in 0..3 {
        rig.ready("web", index);
    }
    rig.pass(Duration::from_secs(2));
    rig.slow = true;
    let revision = rig.registry.revision();
    pass(&mut rig, 95, &["n3"]);
    assert_eq!(rig.registry.revision(), revision + 1);
    let listed = rig.table.values().flat_map(|it| &it.endpoints);
    let listed = listed.filter(|it| it.state == EndpointState::Ready);
    assert_eq!(listed.count(), 1);
    rig.slow = false;
    rig.land();
    rig.settle();
    for index in 0..3 {
        assert_eq!(at(&rig, "web", index), "n3");
    }
}

#[test]
fn a_service_on_each_host_waits_for_its_lost_host_and_goes_on_there() {
    let mut rig = cluster(&["n1", "n2"]);
    let text = web("web", 1).replace("replicas = 1", "replicas = \"per-host\"");
    rig.submit(&text).unwrap();
    for index in 0..2 {
        rig.ready("web", index);
    }
    let lost = (0..2).find(|it| at(&rig, "web", *it) == "n1").unwrap();
    let alive = rig.report("web", lost, |_| ());
    pass(&mut rig, 95, &["n2"]);
    assert_eq!(rig.replica("web", lost).job_state, "PEND");
    assert_eq!(rig.replica("web", 1 - lost).state, "ready");
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    let replica = rig.replica("web", lost);
    assert_eq!(
        (replica.incarnation, replica.state.as_str()),
        (alive.incarnation, "ready")
    );
    // Lost again, and back with another boot: a new one begins there.
    pass(&mut rig, 95, &["n2"]);
    booted(&mut rig, "n1");
    assert_eq!(at(&rig, "web", lost), "n1");
    assert!(rig.replica("web", lost).incarnation > alive.incarnation);
    assert_eq!(held(&mut rig, "n1"), 1);
}

#[test]
fn a_host_that_is_lost_in_the_midst_of_a_roll_does_not_end_the_roll() {
    let mut rig = cluster(&["n1", "n2", "n3"]);
    rig.submit(&web("web", 2)).unwrap();
    for index in 0..2 {
        rig.ready("web", index);
    }
    let changed = web("web", 2).replace("\"serve\"", "\"serve\", \"anew\"");
    rig.replace(&changed).unwrap();
    let (first, second) = (at(&rig, "web", 1), at(&rig, "web", 0));
    let old = rig.report("web", 1, |_| ());
    let rest: Vec<&str> = ["n1", "n2", "n3"]
        .into_iter()
        .filter(|it| **it != first)
        .collect();
    // It was told to stop, and its host is silent from then on.
    assert_eq!(rig.orders(&first), ["web.alice 1 0 stop"]);
    pass(&mut rig, 95, &rest);
    assert_ne!(at(&rig, "web", 1), first);
    assert_eq!(at(&rig, "web", 0), second, "the next waits for READY");
    rig.ready("web", 1);
    rig.ends("web", 0, Final::Stopped);
    rig.ready("web", 0);
    assert!(rig.kinds("web").contains(&"rolled".to_owned()));
    // The old one still runs there: it is stopped, and never taken back.
    back(&mut rig, &first, std::slice::from_ref(&old));
    assert!(
        rig.orders(&first)
            .contains(&"web.alice 1 0 stop".to_owned())
    );
    rig.tell(Input::Status(ended(&old)));
    let others = (0..2).filter(|it| at(&rig, "web", *it) == first).count();
    assert_eq!(held(&mut rig, &first) as usize, others);
}

#[test]
fn a_host_that_is_lost_while_it_is_drained_is_still_drained_when_it_is_back() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 2)).unwrap();
    for index in 0..2 {
        rig.ready("web", index);
    }
    let drain = Command::Host {
        host: "n1".parse().unwrap(),
        verb: HostVerb::Drain {
            pace: DrainPace::OneByOne,
        },
    };
    let mine = (0..2).find(|it| at(&rig, "web", *it) == "n1").unwrap();
    let old = rig.report("web", mine, |_| ());
    rig.ask_as(&root(), drain).unwrap();
    assert_eq!(rig.orders("n1"), [format!("web.alice {mine} 0 stop")]);
    pass(&mut rig, 95, &["n2"]);
    assert_eq!(at(&rig, "web", mine), "n2");
    rig.ready("web", mine);
    let mut rig = rig.restart();
    rig.join("n2");
    back(&mut rig, "n1", std::slice::from_ref(&old));
    assert_eq!(rig.orders("n1"), [format!("web.alice {mine} 0 stop")]);
    rig.tell(Input::Status(ended(&old)));
    assert_eq!(held(&mut rig, "n1"), 0);
    assert!(
        host_state(&rig, "n1").contains("drain"),
        "{}",
        host_state(&rig, "n1")
    );
}

#[test]
fn a_scale_down_and_a_deletion_do_not_wait_for_a_lost_host_and_give_no_number_away() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 2)).unwrap();
    for index in 0..2 {
        rig.ready("web", index);
    }
    let host = at(&rig, "web", 1);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    let old = rig.report("web", 1, |_| ());
    pass(&mut rig, 30, &[&rest]);
    let service = name("web");
    rig.ask(Command::Scale {
        service: service.clone(),
        replicas: 1,
    })
    .unwrap();
    assert_eq!(rig.states("web").len(), 2, "nobody knows whether it ended");
    pass(&mut rig, 65, &[&rest]);
    assert_eq!(rig.states("web").len(), 1);
    assert_eq!(held(&mut rig, &host), 1);
    // Its index is used again, and never its incarnation.
    rig.ask(Command::Scale {
        service: service.clone(),
        replicas: 2,
    })
    .unwrap();
    assert_eq!(
        (at(&rig, "web", 1), rig.replica("web", 1).incarnation.0),
        (rest.clone(), 1)
    );
    rig.ask(Command::Stop {
        service: service.clone(),
    })
    .unwrap();
    for index in 0..2 {
        rig.ends("web", index, Final::Stopped);
    }
    rig.ask(Command::Delete { service }).unwrap();
    rig.submit(&web("web", 2)).unwrap();
    let mut rig = rig.restart();
    rig.join(&rest);
    back(&mut rig, &host, std::slice::from_ref(&old));
    assert_eq!(rig.orders(&host), ["web.alice 1 0 stop"]);
    assert_eq!(held(&mut rig, &host), 1);
    rig.tell(Input::Status(ended(&old)));
    assert_eq!(held(&mut rig, &host), 0);
}

#[test]
fn another_boot_that_was_told_just_before_a_crash_frees_what_is_stranded_all_the_same() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    pass(&mut rig, 95, &[&rest]);
    assert_eq!(at(&rig, "web", 0), rest);
    rig.slow = true;
    booted(&mut rig, &host);
    let mut rig = rig.restart();
    assert_eq!(held(&mut rig, &host), 1);
    booted(&mut rig, &host);
    assert_eq!(held(&mut rig, &host), 0);
    assert_eq!(
        at(&rig, "web", 0),
        rest,
        "what was replaced stays where it is"
    );
    assert_eq!(rig.orders(&host), [""; 0]);
}

#[test]
fn a_clock_that_is_set_neither_loses_a_host_nor_keeps_one() {
    const YEAR: u64 = 365 * 86_400_000;
    for back in [true, false] {
        let mut rig = cluster(&["n1", "n2"]);
        rig.submit(&web("web", 1)).unwrap();
        rig.ready("web", 0);
        let host = at(&rig, "web", 0);
        let rest = other(&host, ["n1", "n2"]).to_owned();
        pass(&mut rig, 30, &[&host, &rest]);
        let wall = rig.now.wall.as_unix_millis();
        let wall = if back { wall - YEAR } else { wall + YEAR };
        rig.now.wall = WallClock::from_unix_millis(wall);
        pass(&mut rig, 15, &[]);
        assert_eq!(
            [host_state(&rig, &host), host_state(&rig, &rest)],
            ["up", "up"]
        );
        assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
        pass(&mut rig, 80, &[&rest]);
        assert_eq!(host_state(&rig, &host), "lost");
        let view = rig.registry.view();
        let lost = &view.hosts[&host.parse().unwrap()].warnings[0];
        // By the clock as it is now, not by one of another year.
        let year = if back { "2022-11-14T" } else { "2024-11-13T" };
        assert!(lost.contains(year), "{lost}");
        assert_eq!(at(&rig, "web", 0), rest);
    }
}

#[test]
fn a_host_that_runs_more_unknown_replicas_than_are_remembered_names_some_and_counts_the_rest() {
    let mut rig = cluster(&[]);
    rig.join("n2");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let known = rig.report("web", 0, |_| ());
    let replicas: Vec<ReplicaReport> = (0..10_000)
        .map(|index| ReplicaReport {
            host: "n1".parse().unwrap(),
            service: name("strange"),
            index,
            ..known.clone()
        })
        .collect();
    rig.tell(Input::HostReport(HostFacts {
        replicas,
        ..facts("n1")
    }));
    let view = rig.registry.view();
    let warnings = &view.hosts[&"n1".parse().unwrap()].warnings;
    assert!(warnings.len() <= UNKNOWN_NAMED + 2, "{}", warnings.len());
    let life = rig
        .registry
        .lives
        .values()
        .find(|it| !it.unknown.is_empty());
    assert_eq!(life.unwrap().unknown.len(), UNKNOWN_KEPT);
    // Whose numbers are not all held gives none to others, until it tells of fewer.
    assert!(
        warnings.last().unwrap().contains("takes nothing new"),
        "{warnings:?}"
    );
    rig.submit(&format!("placement.hosts = [\"n1\"]\n{}", web("next", 1)))
        .unwrap();
    assert_eq!(rig.orders("n1"), [""; 0]);
    rig.tell(Input::HostReport(facts("n1")));
    assert_eq!(at(&rig, "next", 0), "n1");
}

#[test]
fn an_agent_that_does_not_tell_numbers_is_treated_like_any_other() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    let old = ReplicaReport {
        grant: None,
        service_id: None,
        ..rig.report("web", 0, |_| ())
    };
    pass(&mut rig, 95, &[&rest]);
    back(&mut rig, &host, std::slice::from_ref(&old));
    assert_eq!(rig.orders(&host), ["web.alice 0 0 stop"]);
    assert_eq!(held(&mut rig, &host), 1);
    rig.tell(Input::Status(ended(&old)));
    assert_eq!(held(&mut rig, &host), 0);
}

#[test]
fn a_host_that_reports_and_never_gives_a_sign_of_life_else_is_lost_by_its_last_report() {
    let mut rig = Rig::at(super::MemoryStore::default(), now(0), graced());
    rig.join("n1");
    rig.pass(Duration::from_secs(60));
    rig.join("n1");
    rig.pass(Duration::from_secs(60));
    assert_eq!(host_state(&rig, "n1"), "suspect");
    rig.pass(Duration::from_secs(31));
    assert_eq!(host_state(&rig, "n1"), "lost");
    assert_eq!(rig.ports("n1", &alice()).counts.held, 0);
}

#[test]
fn what_is_started_again_while_its_end_is_not_settled_runs_again() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 3)).unwrap();
    for index in 0..3 {
        rig.ready("web", index);
    }
    rig.slow = true;
    rig.ask_later(
        &alice(),
        Command::Scale {
            service: name("web"),
            replicas: 4,
        },
    );
    rig.settle();
    assert!(rig.with_store.is_some());
    // It waits for the store, and meanwhile one ends by itself.
    rig.ask_later(
        &alice(),
        Command::Start {
            service: name("web"),
        },
    );
    rig.ends("web", 1, Final::Stopped);
    rig.slow = false;
    rig.land();
    rig.settle();
    let replica = rig.replica("web", 1);
    assert_eq!(
        (replica.incarnation.0, replica.job_state.as_str()),
        (1, "RUN")
    );
}

// A sign of life is no report, so nothing else asks those who wait again.
#[test]
fn who_waits_gets_a_place_as_soon_as_a_suspect_host_is_heard_of() {
    let mut rig = cluster(&["n1"]);
    pass(&mut rig, 25, &[]);
    assert_eq!(host_state(&rig, "n1"), "suspect");
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(rig.replica("web", 0).job_state, "PEND");
    lease(&mut rig, "n1");
    assert_eq!(at(&rig, "web", 0), "n1");
}

#[test]
fn who_waits_is_told_of_the_loss_of_a_host_that_it_waits_for() {
    let mut rig = cluster(&["n1"]);
    pass(&mut rig, 25, &[]);
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(rig.replica("web", 0).reasons[0].code, "HOST SUSPECT");
    pass(&mut rig, 70, &[]);
    assert_eq!(host_state(&rig, "n1"), "lost");
    assert_eq!(rig.replica("web", 0).reasons[0].code, "HOST LOST");
}
