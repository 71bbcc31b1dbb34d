//! Who is listened to, and what of it is taken.

use std::sync::Arc;

use crate::registry::rig::{Rig, exit, facts, failure, name, now, starting, web};
use crate::registry::{Desired, Suspects};
use crate::supervision::Final;

use super::super::{Desk, Orders};
use super::*;

fn front(single_host: bool) -> Front {
    let terms = Terms::new(&Silence::default(), single_host).unwrap();
    Front::new(terms, &View::default(), now(0).mono)
}

fn host(text: &str) -> HostName {
    text.parse().unwrap()
}

fn report(front: &mut Front, facts: HostFacts, sent: Option<WallClock>) -> (HostFacts, bool) {
    let told = front.report(now(0), &host("n1"), facts, sent, &View::default());
    let told = told.unwrap();
    let Input::HostReport(facts) = told.input else {
        panic!("{:?}", told.input);
    };
    (facts, told.is_truth)
}

/// What `n1` tells of a replica in this state.
fn reported(status: Status) -> ReplicaReport {
    ReplicaReport {
        host: host("n1"),
        service: name("web.alice"),
        index: 0,
        incarnation: crate::identity::Incarnation(1),
        service_id: None,
        grant: None,
        status,
    }
}

fn ended() -> Status {
    Status {
        state: State::Final(Final::Failed(exit(1))),
        last_failure: Some(failure(exit(1), 1)),
        ..starting()
    }
}

#[test]
fn loopback_is_published_on_a_single_host_only_and_a_wildcard_nowhere() {
    for (address, alone, among_others) in [
        ("127.0.0.1", true, false),
        ("::1", true, false),
        ("0.0.0.0", false, false),
        ("224.0.0.1", false, false),
        ("10.0.0.1", true, true),
    ] {
        for (single_host, is_kept) in [(true, alone), (false, among_others)] {
            let mut told = facts("n1");
            told.published = Some(address.parse().unwrap());
            let rule = told.address_rule.len();
            let (taken, _) = report(&mut front(single_host), told, None);
            assert_eq!(taken.published.is_some(), is_kept, "{address}");
            assert_eq!(taken.address_rule.len() == rule, is_kept, "and says why");
        }
    }
}

#[test]
fn moments_of_a_clock_that_is_far_off_are_told_by_ours_and_of_a_near_one_as_they_are() {
    let told_at = |sent_ms: u64| {
        let mut told = facts("n1");
        told.replicas = vec![reported(ended())];
        let sent = WallClock::from_unix_millis(sent_ms);
        let (taken, _) = report(&mut front(false), told, Some(sent));
        taken.replicas[0].status.last_failure.as_ref().unwrap().at
    };
    let at = ended().last_failure.unwrap().at;
    let ours = now(0).wall.as_unix_millis();
    assert_eq!(told_at(ours + 2000), at);
    assert_eq!(told_at(ours - 2000), at);
    let ms = |ms| at.on_a_clock_behind(ms);
    assert_eq!(told_at(ours + 60_000), ms(60_000));
    assert_eq!(told_at(ours - 60_000), ms(-60_000));
}

#[test]
fn an_end_is_truth_and_everything_else_that_a_host_tells_is_news() {
    let mut told = facts("n1");
    told.replicas = vec![reported(starting())];
    assert!(!report(&mut front(false), told.clone(), None).1);
    told.replicas.push(reported(ended()));
    assert!(report(&mut front(false), told, None).1);
    let speaker = Speaker {
        name: reported(starting()).name(),
        service_id: ServiceId(1),
    };
    for (status, is_truth) in [(starting(), false), (ended(), true)] {
        let told = Told::status(now(0).wall, host("n1"), speaker.clone(), status, None);
        assert_eq!(told.is_truth, is_truth);
    }
    let lease = front(false).lease(now(0), host("n1"), None, None, &View::default());
    assert!(!lease.unwrap().is_truth);
}

#[test]
fn a_report_that_speaks_of_another_host_is_not_taken_and_takes_no_seat() {
    let agent = |text: &str| Some(text.parse::<AgentIdentity>().unwrap());
    let mut front = front(false);
    let mut wrong = facts("n1");
    wrong.agent = agent("m/b/f");
    wrong.replicas = vec![ReplicaReport {
        host: host("n2"),
        ..reported(starting())
    }];
    let view = View::default();
    let refused = front.report(now(0), &host("n1"), wrong, None, &view);
    let refused = refused.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the path speaks of host n1, the body of n2"
    );
    assert_eq!(refused.http_status(), 400);
    let other = agent("m2/b/f");
    front
        .asks(now(1), &host("n1"), other.as_ref(), &view)
        .unwrap();
}

#[test]
fn every_question_of_a_second_agent_is_refused_with_the_place_of_the_first() {
    let mut rig = Rig::new();
    rig.join("n1");
    let view = rig.registry.view();
    let mut front = front(false);
    let first: AgentIdentity = "m1/b/f".parse().unwrap();
    let second: AgentIdentity = "m2/b/f".parse().unwrap();
    let n1 = host("n1");
    front.asks(now(0), &n1, Some(&first), &view).unwrap();
    let mut told = facts("n1");
    told.agent = Some(second.clone());
    let later = now(1000);
    let refused = [
        front.report(later, &n1, told, None, &view).unwrap_err(),
        front.asks(later, &n1, Some(&second), &view).unwrap_err(),
        front
            .lease(later, n1.clone(), Some(&second), None, &view)
            .unwrap_err(),
        front
            .shutdown(later, n1.clone(), Some(&second), &view)
            .unwrap_err(),
    ];
    for refused in refused {
        assert_eq!(refused.http_status(), 409);
        let words = refused.to_string();
        assert!(
            words.contains("has another agent, on machine m1"),
            "{words}"
        );
        let address = view.hosts[&n1].address.unwrap();
        assert!(words.ends_with(&format!("; it is at {address}")), "{words}");
    }
}

#[test]
fn a_worker_speaks_where_its_incarnation_is_or_was_told_to_go_and_nowhere_else() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let (revision, report_first, replicas) = rig.registry.desired(&host("n1")).unwrap();
    let desired: &Desired = &replicas[0];
    let speaker = Speaker {
        name: desired.name(),
        service_id: desired.service_id,
    };
    let view = rig.registry.view();
    assert_eq!(speaker.place(&view, |_| None), Ok(host("n1")));
    let mut desk = Desk::<()>::default();
    assert!(!desk.was_told_of(&speaker));
    desk.put(Arc::new(Orders {
        revision,
        report_first,
        replicas: replicas.clone().into(),
    }));
    assert!(desk.was_told_of(&speaker));
    let empty = View::default();
    let told_of = |_: &Speaker| Some(host("n7"));
    assert_eq!(speaker.place(&empty, told_of), Ok(host("n7")));
    let mut others = [speaker.clone(), speaker.clone(), speaker];
    others[0].name.incarnation.0 += 1;
    others[1].name.index += 1;
    others[2].service_id.0 += 1;
    for other in others {
        assert!(!desk.was_told_of(&other));
        let refused = other.place(&view, |_| None).unwrap_err();
        assert_eq!(refused.http_status(), 404);
    }
}

#[test]
fn terms_that_would_give_up_hosts_that_are_well_are_refused() {
    let seconds = Duration::from_secs;
    let silence = |suspect, grace| {
        Silence::new(seconds(suspect), seconds(grace), Suspects::default()).unwrap()
    };
    let terms = Terms::new(&silence(20, 90), false).unwrap();
    assert_eq!(terms.lease_period, seconds(5));
    assert_eq!(terms.host_grace, seconds(90));
    let refused = Terms::new(&silence(20, 25), false).unwrap_err();
    assert_eq!(refused.host_grace, seconds(25));
    assert!(
        Terms::new(&silence(2, 25), false).is_ok(),
        "signs come more often"
    );
}
