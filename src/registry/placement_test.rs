//! Who gets a place, who waits, and for what.

use std::time::Duration;

use crate::supervision::{Final, State};

use super::rig::{Rig, alice, caller, exit, facts, foreign, name, submission, web, with_port};
use super::{Command, HostFacts, Input};

fn hosts(rig: &Rig, service: &str) -> Vec<String> {
    let view = rig.registry.view();
    let replicas = view.services[&name(service)].replicas.iter();
    let host =
        |it: &super::ReplicaView| it.host.as_ref().map_or("-".to_owned(), ToString::to_string);
    replicas.map(host).collect()
}

fn reason(rig: &Rig, service: &str, index: u32) -> String {
    rig.replica(service, index).reason.unwrap()
}

fn conflict(port: u16, comm: &str) -> Final {
    Final::PortConflict {
        port: port.try_into().unwrap(),
        protocol: crate::port::Protocol::Tcp,
        pid: Some(811),
        comm: Some(comm.into()),
    }
}

#[test]
fn replicas_spread_over_hosts_then_over_load_then_by_name() {
    let mut rig = Rig::new();
    for host in ["n2", "n1", "n3"] {
        rig.join(host);
    }
    rig.submit(&web("web", 4)).unwrap();
    assert_eq!(hosts(&rig, "web"), ["n1", "n2", "n3", "n1"]);
    rig.submit(&web("db", 1)).unwrap();
    assert_eq!(hosts(&rig, "db"), ["n2"]);
}

#[test]
fn a_host_is_found_also_where_it_comes_last_of_many() {
    let mut rig = Rig::new();
    for no in 0..300 {
        rig.join(&format!("n{no:03}"));
    }
    let mut gpu = facts("x1");
    gpu.labels.insert("gpu".into(), "h100".into());
    rig.tell(Input::HostReport(gpu));
    let rule = "[placement]\nlabels = { gpu = \"h100\" }\n";
    rig.submit(&format!("{}{rule}", web("model", 1))).unwrap();
    assert_eq!(hosts(&rig, "model"), ["x1"]);
    rig.submit(&web("web", 2)).unwrap();
    assert_eq!(hosts(&rig, "web"), ["n000", "n001"]);
    rig.submit(&web("db", 1)).unwrap();
    assert_eq!(hosts(&rig, "db"), ["n002"]);
}

#[test]
fn the_placement_rule_is_honoured() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    let mut gpu = facts("n3");
    gpu.labels.insert("gpu".into(), "h100".into());
    rig.tell(Input::HostReport(gpu));
    let rule = |rule: &str, name: &str| format!("{}[placement]\n{rule}\n", web(name, 2));
    rig.submit(&rule("hosts = \"n[1-2]\"\nexclude = \"n1\"", "a"))
        .unwrap();
    assert_eq!(hosts(&rig, "a"), ["n2", "n2"]);
    rig.submit(&rule("labels = { gpu = \"h100\" }", "b"))
        .unwrap();
    assert_eq!(hosts(&rig, "b"), ["n3", "n3"]);
    rig.submit(&rule("hosts = \"x1\"", "c")).unwrap();
    assert_eq!(
        reason(&rig, "c", 0),
        "no host matches the profile's placement"
    );
}

#[test]
fn who_waits_for_a_number_names_its_holder_and_gets_it_in_order_of_submission() {
    // P36
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("nb", 1, "8888")).unwrap();
    rig.submit(&with_port("second", 1, "8888")).unwrap();
    rig.submit(&with_port("third", 1, "8888")).unwrap();
    let held = "port 8888/tcp on host n1 is held by nb.alice replica 0";
    assert_eq!(reason(&rig, "second", 0), held);
    assert_eq!(rig.replica("second", 0).job_state, "PEND");
    rig.ask(Command::Stop {
        service: name("nb"),
    })
    .unwrap();
    assert_eq!(
        reason(&rig, "second", 0),
        "port 8888/tcp on host n1 is held by nb.alice replica 0 until that has stopped"
    );
    rig.ends("nb", 0, Final::Stopped);
    assert_eq!(
        reason(&rig, "second", 0),
        "port 8888/tcp on host n1 was just freed and rests 1m"
    );
    rig.pass(Duration::from_secs(59));
    assert_eq!(rig.states("second"), ["pending"]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.states("second"), ["starting"]);
    assert_eq!(
        reason(&rig, "third", 0),
        "port 8888/tcp on host n1 is held by second.alice replica 0"
    );
}

#[test]
fn the_holder_is_named_only_to_who_may_see_it() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("nb", 1, "8888")).unwrap();
    let Command::Submit(mut bobs) = submission(&with_port("web", 1, "8888"), false) else {
        unreachable!()
    };
    bobs.service = "web.bob".parse().unwrap();
    rig.ask_as(&caller("bob"), Command::Submit(bobs)).unwrap();
    assert_eq!(
        reason(&rig, "web.bob", 0),
        "port 8888/tcp on host n1 is held by a service of another user"
    );
}

#[test]
fn a_strangers_port_is_named_with_its_process() {
    let mut rig = Rig::new();
    let with = |listeners| HostFacts {
        foreign: listeners,
        ..facts("n1")
    };
    rig.tell(Input::HostReport(with(vec![foreign(52365, 811, "nc")])));
    rig.submit(&with_port("ray", 1, "52365")).unwrap();
    assert_eq!(
        reason(&rig, "ray", 0),
        "port 52365/tcp on host n1 is in use by a process outside portreeve (pid 811, nc)"
    );
    // It went: that is a report, and wakes who waits.
    rig.tell(Input::HostReport(with(Vec::new())));
    assert_eq!(rig.states("ray"), ["starting"]);
}

#[test]
fn a_full_range_is_told_with_its_size() {
    let mut rig = Rig::new();
    rig.join("n1");
    let narrow = "{ any = 1, range = \"20040-20044\" }";
    rig.submit(&with_port("five", 6, narrow)).unwrap();
    assert_eq!(
        reason(&rig, "five", 5),
        "no free port in 20040-20044 on host n1 (5 of 5 held)"
    );
    rig.submit(&with_port("block", 1, "{ any = 100 }")).unwrap();
    assert_eq!(
        reason(&rig, "block", 0),
        "no 100 consecutive free ports in 20000-20099 on host n1"
    );
}

#[test]
fn a_host_that_has_not_told_everything_takes_nothing() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let mut rig = rig.restart();
    let (_, report_first, _) = rig.registry.desired(&"n1".parse().unwrap()).unwrap();
    assert!(report_first);
    rig.submit(&web("db", 1)).unwrap();
    assert_eq!(
        reason(&rig, "db", 0),
        "host n1 has not reported since the controller started"
    );
    let waits_for = rig.registry.view().services[&name("db")].waits_for.clone();
    assert_eq!(
        waits_for.as_deref(),
        Some("1 replica waits: HOST NOT REPORTED on n1")
    );
    rig.join("n2");
    assert_eq!(hosts(&rig, "db"), ["n2"]);
    rig.submit(&with_port("third", 2, "8080")).unwrap();
    assert_eq!(
        reason(&rig, "third", 1),
        "host n1 has not reported since the controller started; port 8080/tcp on host n2 is held by third.alice replica 0"
    );
    rig.join("n1");
    let (_, report_first, _) = rig.registry.desired(&"n1".parse().unwrap()).unwrap();
    assert!(!report_first);
    assert_eq!(hosts(&rig, "third"), ["n2", "n1"]);
}

#[test]
fn one_replica_per_host_grows_as_hosts_join() {
    let mut rig = Rig::new();
    rig.join("n1");
    let each = web("node", 1).replace("replicas = 1", "replicas = \"per-host\"");
    rig.submit(&each).unwrap();
    assert_eq!(hosts(&rig, "node"), ["n1"]);
    rig.join("n2");
    assert_eq!(hosts(&rig, "node"), ["n1", "n2"]);
    let refused = rig.ask(Command::Scale {
        service: name("node"),
        replicas: 5,
    });
    refused.unwrap_err();
}

#[test]
fn any_leaves_alone_what_a_waiting_replica_fixes() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("first", 1, "20001")).unwrap();
    rig.submit(&with_port("waits", 1, "20001")).unwrap();
    rig.ask(Command::Stop {
        service: name("first"),
    })
    .unwrap();
    rig.ends("first", 0, Final::Stopped);
    rig.submit(&web("any", 3)).unwrap();
    let taken: Vec<String> = (0..3)
        .map(|index| rig.replica("any", index).ports["http"].to_string())
        .collect();
    assert!(!taken.contains(&"20001".to_owned()), "{taken:?}");
}

#[test]
fn a_port_conflict_on_any_is_not_charged_and_takes_another_number_on_the_same_host() {
    // P41
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(rig.replica("web", 0).ports["http"].to_string(), "20000");
    rig.ends("web", 0, conflict(20000, "nc"));
    let replica = rig.replica("web", 0);
    assert_eq!((replica.incarnation.0, replica.restarts_total), (1, 0));
    assert_eq!(hosts(&rig, "web"), ["n1"]);
    assert_ne!(replica.ports["http"].to_string(), "20000");
    let event = rig
        .events("web")
        .into_iter()
        .find(|it| it.kind == "requeued");
    assert_eq!(
        event.unwrap().text,
        "port 20000/tcp is taken by nc (pid 811) on host n1"
    );
}

#[test]
fn conflicts_without_end_make_it_rest() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    for _ in 0..6 {
        let port = rig.replica("web", 0).ports["http"].first().number();
        rig.ends("web", 0, conflict(port, "nc"));
    }
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.job_state.as_str(), replica.state.as_str()),
        ("PEND", "port conflict")
    );
    assert!(replica.reason.unwrap().ends_with("on host n1; rests 10m"));
    rig.pass(Duration::from_secs(599));
    assert_eq!(rig.states("web"), ["port conflict"]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.states("web"), ["starting"]);
}

#[test]
fn a_conflict_on_a_fixed_port_waits_until_the_number_is_free_or_its_rest_is_over() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("web", 1, "8080")).unwrap();
    rig.ends("web", 0, conflict(8080, "nc"));
    assert_eq!(
        reason(&rig, "web", 0),
        "port 8080/tcp on host n1 is in use by a process outside portreeve (pid 811, nc) \
         (port 8080/tcp is taken by nc (pid 811) on host n1)"
    );
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.states("web"), ["starting"]);
}

#[test]
fn a_give_up_that_requeues_rests_and_prefers_another_host() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    let toml = format!(
        "{}[restart]\ngive_up = {{ max_restarts = 1, then = \"requeue\", rest = \"1m\", max_requeues = 2 }}\n",
        web("web", 1)
    );
    rig.submit(&toml).unwrap();
    let gave_up = || Final::GaveUp {
        reason: exit(1),
        count: 1,
    };
    rig.ends("web", 0, gave_up());
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.job_state.as_str(), replica.state.as_str()),
        ("PEND", "resting")
    );
    assert_eq!(
        replica.reason.unwrap(),
        "gave up after 1 restart: exit 1; rests 1m"
    );
    rig.pass(Duration::from_secs(60));
    assert_eq!(hosts(&rig, "web"), ["n2"]);
    rig.ends("web", 0, gave_up());
    rig.pass(Duration::from_secs(119));
    assert_eq!(rig.states("web"), ["resting"]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(hosts(&rig, "web"), ["n1"]);
    rig.ends("web", 0, gave_up());
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.job_state.as_str(), replica.state.as_str()),
        ("EXIT", "gave up")
    );
    assert_eq!(
        replica.reason.unwrap(),
        "gave up after 1 restart: exit 1 (at most 1 within 10m); it was placed again 2 times before"
    );
}

#[test]
fn a_rest_begins_anew_when_the_controller_does() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("nb", 1, "8888")).unwrap();
    rig.submit(&with_port("next", 1, "8888")).unwrap();
    rig.ask_as(
        &alice(),
        Command::Stop {
            service: name("nb"),
        },
    )
    .unwrap();
    rig.ends("nb", 0, Final::Stopped);
    rig.pass(Duration::from_secs(30));
    let mut rig = rig.restart();
    rig.join("n1");
    assert_eq!(
        reason(&rig, "next", 0),
        "port 8888/tcp on host n1 was just freed and rests 1m"
    );
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.states("next"), ["starting"]);
    assert_eq!(rig.registry.truth.resting.iter().count(), 0);
}

#[test]
fn a_host_without_an_address_takes_nothing_that_publishes() {
    let mut rig = Rig::new();
    rig.tell(Input::HostReport(HostFacts {
        published: None,
        ..facts("n1")
    }));
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(
        reason(&rig, "web", 0),
        "host n1 has no address to publish; `portreeve host n1` says why"
    );
    rig.tell(Input::HostReport(facts("n1")));
    assert_eq!(rig.states("web"), ["starting"]);
    rig.status("web", 0, |status| status.state = State::Up);
    assert_eq!(rig.states("web"), ["not ready"]);
}
