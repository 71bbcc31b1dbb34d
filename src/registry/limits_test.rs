//! Limits: what they keep from a place, what they refuse, and that they never end anything.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::rights::{Caller, Rights};
use crate::supervision::Final;

use super::drain_test::order;
use super::rig::{Rig, alice, caller, config, name, now, profile, submission, web, with_port};
use super::{
    Allowance, Answer, Attachment, Claimant, Command, Config, Explain, Input, LimitReached,
    Limited, Limits, MemoryStore, Refusal, Submission,
};
use super::{DrainPace, HostFacts, HostVerb};

fn allowed(change: impl FnOnce(&mut Allowance)) -> Limits {
    let mut user = Allowance::default();
    change(&mut user);
    Limits {
        user,
        ..Limits::default()
    }
}

fn rig(limits: Limits) -> Rig {
    let config = Config { limits, ..config() };
    Rig::at(MemoryStore::default(), now(0), config)
}

fn reason(rig: &Rig, service: &str, index: u32) -> String {
    rig.replica(service, index).reason.unwrap_or_default()
}

fn waits_for(rig: &Rig, service: &str) -> String {
    let view = rig.registry.view();
    let service = &view.services[&name(service)];
    service.waits_for.clone().unwrap_or_default()
}

fn placed(rig: &Rig, service: &str) -> usize {
    let states = rig.states(service);
    states.iter().filter(|it| *it != "pending").count()
}

fn scale(rig: &mut Rig, service: &str, replicas: u32) -> Result<Answer, Refusal> {
    let service = name(service);
    rig.ask(Command::Scale { service, replicas })
}

fn limit(refused: Result<Answer, Refusal>) -> LimitReached {
    match refused.unwrap_err() {
        Refusal::BeyondLimit { limit, .. } => *limit,
        other => panic!("{other}"),
    }
}

#[test]
fn who_holds_as_many_ports_as_it_may_waits_and_goes_on_once_one_is_freed() {
    let mut rig = rig(allowed(|it| it.ports = 3));
    rig.join("n1");
    rig.submit(&web("web", 3)).unwrap();
    rig.submit(&web("more", 1)).unwrap();
    assert_eq!(reason(&rig, "more", 0), "LIMIT: alice holds 3 of 3 ports");
    assert_eq!(
        waits_for(&rig, "more"),
        "1 replica waits: LIMIT: alice holds 3 of 3 ports"
    );
    let sums = rig.replica("more", 0).reason_sums.unwrap();
    assert_eq!((sums.hosts, sums.fitting), (1, 0));
    assert_eq!(sums.causes[0].code, "LIMIT");
    // Another user's services are not touched by it.
    rig.ask_as(&caller("bob"), of_bob()).unwrap();
    assert_eq!(placed(&rig, "web.bob"), 1);
    scale(&mut rig, "web", 2).unwrap();
    rig.ends("web", 2, Final::Stopped);
    assert_eq!(placed(&rig, "more"), 1);
}

fn of_bob() -> Command {
    Command::Submit(Submission {
        service: "web.bob".parse().unwrap(),
        profile: profile(&web("web", 1)),
        source: None,
        replace: false,
    })
}

#[test]
fn replicas_and_services_that_run_are_limited_alike() {
    let mut rig = rig(allowed(|it| (it.replicas, it.services) = (3, 2)));
    rig.join("n1");
    rig.submit(&web("a", 3)).unwrap();
    rig.submit(&web("b", 1)).unwrap();
    assert_eq!(reason(&rig, "b", 0), "LIMIT: alice has 3 of 3 replicas");
    scale(&mut rig, "a", 1).unwrap();
    rig.ends("a", 2, Final::Stopped);
    rig.ends("a", 1, Final::Stopped);
    assert_eq!(placed(&rig, "b"), 1);
    rig.submit(&web("c", 1)).unwrap();
    assert_eq!(reason(&rig, "c", 0), "LIMIT: alice has 2 of 2 services");
    // One more replica of a service that runs is no further service.
    scale(&mut rig, "b", 2).unwrap();
    assert_eq!(placed(&rig, "b"), 2);
}

#[test]
fn what_a_user_holds_on_one_host_keeps_it_from_that_host_only() {
    let mut rig = rig(allowed(|it| it.ports_per_host = 2));
    rig.join("n1");
    rig.submit(&web("web", 3)).unwrap();
    assert_eq!(placed(&rig, "web"), 2);
    assert_eq!(
        reason(&rig, "web", 2),
        "LIMIT: alice holds 2 of 2 ports on host n1"
    );
    let reasons = rig.replica("web", 2).reasons;
    assert_eq!(reasons[0].code, "LIMIT");
    rig.join("n2");
    assert_eq!(placed(&rig, "web"), 3);
    assert_eq!(
        rig.replica("web", 2).host.unwrap().to_string(),
        "n2".to_owned()
    );
}

#[test]
fn what_no_freed_number_would_make_possible_is_refused_with_the_numbers() {
    let mut rig = rig(Limits::default());
    rig.join("n1");
    let refused = rig.submit(&web("web", 1_001)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "web.alice: LIMIT: 1001 replicas are asked for; alice may have 1000: ask for fewer, or the site for more (`controller --limits`)"
    );
    let block = with_port("web", 999, "{ any = 6 }");
    let beyond = limit(rig.submit(&block));
    assert_eq!(beyond.what, Limited::Ports);
    assert_eq!((beyond.asks, beyond.most), (5_994, 5_000));
    let few = Input::Limits(Box::new(allowed(|it| it.ports_per_host = 5)));
    rig.tell(few);
    let beyond = limit(rig.submit(&with_port("web", 1, "{ any = 6 }")));
    assert_eq!(
        beyond.to_string(),
        "each replica asks for 6 ports; alice may hold 5 on one host"
    );
    assert!(rig.registry.view().services.is_empty(), "nothing is known");
    rig.submit(&web("web", 2)).unwrap();
    let beyond = limit(scale(&mut rig, "web", 1_001));
    assert_eq!(beyond.whose, Claimant::User("alice".into()));
    let replace = submission(&web("web", 1_001), true);
    assert_eq!(limit(rig.ask(replace)).asks, 1_001);
    assert_eq!(rig.registry.view().services[&name("web")].desired, 2);
    let what = Explain::Profile {
        service: name("other"),
        profile: Box::new(profile(&web("other", 1_001))),
    };
    let refused = rig.registry.explain(rig.now, &alice(), &what);
    assert!(matches!(refused, Err(Refusal::BeyondLimit { .. })));
}

#[test]
fn what_waits_and_what_ended_is_bounded_too() {
    let mut rig = rig(allowed(|it| (it.services, it.replicas) = (1, 2)));
    for nth in 0..10 {
        rig.submit(&web(&format!("web{nth}"), 1)).unwrap();
    }
    let beyond = limit(rig.submit(&web("web10", 1)));
    assert_eq!(beyond.what, Limited::KnownServices);
    assert_eq!(
        beyond.to_string(),
        "alice has 10 services, and 10 may be known; `portreeve delete NAME` forgets one that ended"
    );
    for nth in 0..10 {
        scale(&mut rig, &format!("web{nth}"), 2).unwrap();
    }
    assert_eq!(limit(scale(&mut rig, "web0", 3)).what, Limited::Replicas);
    rig.tell(Input::Limits(Box::new(allowed(|it| it.services = 1))));
    scale(&mut rig, "web0", 3).unwrap();
}

#[test]
fn a_service_in_a_group_s_namespace_counts_for_user_and_group() {
    let chem = Allowance {
        ports: 2,
        ..Allowance::default()
    };
    let mut rig = rig(Limits {
        groups: BTreeMap::from([("chem".into(), chem)]),
        ..Limits::default()
    });
    rig.join("n1");
    let of_chem = |user: &str, label: &str| {
        let command = Command::Submit(Submission {
            service: format!("{label}.chem").parse().unwrap(),
            profile: profile(&web(label, 1)),
            source: None,
            replace: false,
        });
        (caller(user), command)
    };
    for (by, command) in [
        of_chem("alice", "a"),
        of_chem("bob", "b"),
        of_chem("bob", "c"),
    ] {
        rig.ask_as(&by, command).unwrap();
    }
    assert_eq!(
        reason_of(&rig, "c.chem"),
        "LIMIT: group chem holds 2 of 2 ports"
    );
    // The user's own services are not the group's.
    rig.submit(&web("own", 1)).unwrap();
    assert_eq!(placed(&rig, "own"), 1);
}

fn reason_of(rig: &Rig, service: &str) -> String {
    let view = rig.registry.view();
    let service = &view.services[&service.parse().unwrap()];
    let first = service.replicas.iter().next().unwrap();
    first.reason.clone().unwrap_or_default()
}

#[test]
fn what_an_admin_submits_counts_for_nobody() {
    let mut rig = rig(allowed(|it| it.ports = 0));
    rig.join("n1");
    let root = Caller {
        rights: Rights::ADMIN,
        uid: Some(0),
        ..caller("root")
    };
    let command = Command::Submit(Submission {
        service: "web.root".parse().unwrap(),
        profile: profile(&web("web", 2)),
        source: None,
        replace: false,
    });
    rig.ask_as(&root, command).unwrap();
    assert_eq!(placed(&rig, "web.root"), 2);
    assert_eq!(limit(rig.submit(&web("web", 1))).most, 0);
}

#[test]
fn a_lowered_limit_ends_nothing_and_a_raised_one_wakes_who_waits() {
    let mut rig = rig(Limits::default());
    rig.join("n1");
    rig.submit(&web("web", 3)).unwrap();
    rig.tell(Input::Limits(Box::new(allowed(|it| it.replicas = 1))));
    assert_eq!(placed(&rig, "web"), 3);
    rig.submit(&web("more", 1)).unwrap();
    assert_eq!(reason(&rig, "more", 0), "LIMIT: alice has 3 of 1 replicas");
    rig.tell(Input::Limits(Box::new(allowed(|it| it.replicas = 4))));
    assert_eq!(placed(&rig, "more"), 1);
}

#[test]
fn a_start_and_a_refused_commit_count_what_is_stored() {
    let mut rig = rig(allowed(|it| it.ports = 3));
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.store.failing_commits = 1;
    assert!(rig.submit(&web("lost", 1)).is_err());
    // What was refused holds nothing.
    rig.pass(Duration::from_secs(2));
    rig.submit(&web("third", 1)).unwrap();
    assert_eq!(placed(&rig, "third"), 1);
    let mut rig = rig.restart();
    rig.join("n1");
    rig.submit(&web("fourth", 1)).unwrap();
    assert_eq!(reason(&rig, "fourth", 0), "LIMIT: alice holds 3 of 3 ports");
}

#[test]
fn a_job_of_another_scheduler_is_told_the_limit_and_may_ask_again() {
    let mut rig = rig(allowed(|it| it.ports = 1));
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let attach = |rig: &mut Rig| {
        rig.ask(Command::Attach(Box::new(Attachment {
            service: name("job"),
            profile: profile(&web("job", 1)),
            source: None,
            host: "n1".parse().unwrap(),
            index: None,
            key: "ask-1".into(),
            job: None,
        })))
    };
    let refused = attach(&mut rig).unwrap_err();
    let Refusal::NoRoom { reason, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(reason, "LIMIT: alice holds 1 of 1 ports");
    let service = name("web");
    rig.ask(Command::Stop { service }).unwrap();
    rig.ends("web", 0, Final::Stopped);
    attach(&mut rig).unwrap();
}

fn replace_one_port_profile(rig: &mut Rig, service: &str, replicas: u32) {
    let changed = format!("{}\n[env]\nVERSION = \"2\"\n", web(service, replicas));
    rig.replace(&changed).unwrap();
}

/// `old` has three of three ports, and `first`, which was submitted before it, waits.
fn full_with_one_who_waits() -> Rig {
    let mut rig = rig(allowed(|it| it.ports = 3));
    rig.join("n1");
    rig.submit(&web("first", 1)).unwrap();
    rig.ask(Command::Stop {
        service: name("first"),
    })
    .unwrap();
    rig.ends("first", 0, Final::Stopped);
    rig.submit(&web("old", 3)).unwrap();
    rig.ask(Command::Start {
        service: name("first"),
    })
    .unwrap();
    (0..3).for_each(|index| rig.ready("old", index));
    assert_eq!(reason(&rig, "first", 0), "LIMIT: alice holds 3 of 3 ports");
    rig
}

/// A service that was replaced at the limit lost a replica for each step to one that had waited longer, and its
/// replacement never came to an end.
#[test]
fn a_replacement_at_the_limit_keeps_its_places_from_what_waited_before_it() {
    let mut rig = full_with_one_who_waits();
    replace_one_port_profile(&mut rig, "old", 3);
    for index in [2, 1, 0] {
        rig.ends("old", index, Final::Stopped);
        assert_eq!(placed(&rig, "old"), 3, "step {index}");
        assert_eq!(placed(&rig, "first"), 0, "step {index}");
        rig.ready("old", index);
    }
    assert!(rig.kinds("old").contains(&"rolled".to_owned()));
}

#[test]
fn a_move_off_a_drained_host_at_a_lowered_limit_is_no_loss() {
    let mut rig = full_with_one_who_waits();
    rig.tell(Input::Limits(Box::new(allowed(|it| {
        (it.ports, it.replicas, it.services) = (1, 1, 0);
    }))));
    let pace = DrainPace::OneByOne;
    order(&mut rig, "n1", HostVerb::Drain { pace }).unwrap();
    rig.join("n2");
    for index in [2, 1, 0] {
        rig.ends("old", index, Final::Stopped);
        assert_eq!(rig.replica("old", index).host.unwrap().as_str(), "n2");
        rig.ready("old", index);
    }
    assert_eq!(placed(&rig, "first"), 0);
}

#[test]
fn what_goes_on_keeps_its_share_while_it_waits_also_over_a_start() {
    let mut rig = full_with_one_who_waits();
    // In its new boot the host offers nothing at first: all three wait.
    let nothing = HostFacts {
        boot_id: "boot-2".into(),
        dynamic: "20000".parse().unwrap(),
        ..rig.facts("n1")
    };
    rig.tell(Input::HostReport(nothing));
    assert_eq!((placed(&rig, "old"), placed(&rig, "first")), (1, 0));
    assert_eq!(reason(&rig, "first", 0), "LIMIT: alice holds 3 of 3 ports");
    let mut rig = rig.restart();
    assert_eq!((placed(&rig, "old"), placed(&rig, "first")), (1, 0));
    let room = HostFacts {
        boot_id: "boot-2".into(),
        ..super::rig::facts("n1")
    };
    rig.tell(Input::HostReport(room));
    assert_eq!((placed(&rig, "old"), placed(&rig, "first")), (3, 0));
}

#[test]
fn two_that_leave_a_drained_host_are_not_sent_to_the_room_of_one() {
    let mut rig = rig(allowed(|it| it.ports_per_host = 2));
    rig.join("n1");
    rig.submit(&web("a", 1)).unwrap();
    rig.submit(&web("b", 1)).unwrap();
    rig.join("n2");
    rig.submit(&web("c", 1)).unwrap();
    for service in ["a", "b", "c"] {
        rig.ready(service, 0);
    }
    assert_eq!(rig.replica("c", 0).host.unwrap().as_str(), "n2");
    let pace = DrainPace::OneByOne;
    order(&mut rig, "n1", HostVerb::Drain { pace }).unwrap();
    let states = |rig: &Rig| ["a", "b"].map(|it| rig.states(it).remove(0));
    assert_eq!(states(&rig), ["ready", "stopping"]);
    rig.ends("b", 0, Final::Stopped);
    rig.ready("b", 0);
    assert_eq!(
        states(&rig),
        ["ready", "ready"],
        "the other stays where it serves"
    );
    let view = rig.registry.view();
    let drain = view.hosts[&"n1".parse().unwrap()].drain.clone().unwrap();
    assert_eq!(drain.stays.len(), 1);
    assert!(drain.stays[0].why.contains("LIMIT"), "{drain:?}");
}

#[test]
fn who_may_not_manage_a_service_is_told_nothing_of_what_its_owner_holds() {
    let mut rig = rig(allowed(|it| it.ports = 1));
    rig.join("n1");
    let in_chem = |by: &str, replicas: u32| {
        let command = Command::Submit(Submission {
            service: "web.chem".parse().unwrap(),
            profile: profile(&web("web", replicas)),
            source: None,
            replace: true,
        });
        (caller(by), command)
    };
    let (by, command) = in_chem("alice", 1);
    rig.ask_as(&by, command).unwrap();
    rig.tell(Input::Limits(Box::new(allowed(|it| it.ports = 0))));
    let what = |service: &str| Explain::Profile {
        service: service.parse().unwrap(),
        profile: Box::new(profile(&web("web", 1))),
    };
    let refused = rig
        .registry
        .explain(rig.now, &caller("bob"), &what("web.chem"));
    let refused = refused.unwrap_err().to_string();
    let absent = rig
        .registry
        .explain(rig.now, &caller("bob"), &what("other.chem"));
    let absent = absent.unwrap_err().to_string();
    assert_eq!(refused.replace("web.", "other."), absent);
    assert!(!refused.contains("alice"), "{refused}");
}

#[test]
fn replicas_of_a_job_s_service_that_ended_are_bounded_too() {
    let mut rig = rig(allowed(|it| it.replicas = 1));
    rig.join("n1");
    let attach = |rig: &mut Rig, index: u32| {
        rig.ask(Command::Attach(Box::new(Attachment {
            service: name("job"),
            profile: profile(&web("job", 1)),
            source: None,
            host: "n1".parse().unwrap(),
            index: Some(index),
            key: format!("ask-{index}"),
            job: None,
        })))
    };
    for index in 0..10 {
        attach(&mut rig, index).unwrap();
        rig.ends("job", index, Final::Succeeded);
    }
    assert_eq!(limit(attach(&mut rig, 10)).what, Limited::KnownReplicas);
    attach(&mut rig, 3).unwrap();
}
