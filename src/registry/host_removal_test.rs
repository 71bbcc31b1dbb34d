//! Hosts that are forgotten for good.

use std::time::Duration;

use crate::supervision::Final;

use super::drain_test::{order, root};
use super::rig::{Rig, facts, name, web, with_port};
use super::{Command, HostVerb, Input, Refusal};

fn remove(rig: &mut Rig, host: &str) -> Result<Vec<String>, String> {
    let answer = order(rig, host, HostVerb::Remove);
    answer.map(|it| it.notes).map_err(|it| it.to_string())
}

fn names(rig: &Rig) -> Vec<String> {
    let view = rig.registry.view();
    view.hosts.keys().map(ToString::to_string).collect()
}

/// Two hosts, of which the second has been silent.
fn with_a_silent_one() -> Rig {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    rig.pass(Duration::from_secs(30));
    rig.tell(Input::Lease {
        host: "n1".parse().unwrap(),
        skew_ms: None,
    });
    rig
}

#[test]
fn a_host_that_is_up_or_has_something_is_not_removed() {
    let mut rig = with_a_silent_one();
    let refused = remove(&mut rig, "n1").unwrap_err();
    assert_eq!(
        refused,
        "host n1: it is up, or was within the last 20s: stop its agent first, and remove it then"
    );
    rig.submit(&format!("placement.hosts = [\"n2\"]\n{}", web("web", 2)))
        .unwrap();
    let refused = remove(&mut rig, "n2").unwrap_err();
    assert_eq!(
        refused,
        "host n2: 2 replicas may still live there: web.alice/0, web.alice/1; `portreeve host down n2 --fenced` \
         says that nothing of it runs any more"
    );
    assert_eq!(names(&rig), ["n1", "n2"]);
}

#[test]
fn a_removed_host_is_gone_everywhere_and_new_when_it_comes_back() {
    let mut rig = with_a_silent_one();
    rig.submit(&format!(
        "placement.hosts = [\"n2\"]\n{}",
        with_port("web", 1, "8888")
    ))
    .unwrap();
    let ended = rig.report("web", 0, |status| {
        status.state = crate::supervision::State::Final(Final::Failed(super::rig::exit(1)));
    });
    rig.ask(Command::Stop {
        service: name("web"),
    })
    .unwrap();
    rig.tell(Input::Status(ended));
    rig.pass(Duration::from_secs(30));
    let old = rig.registry.host_names[&"n2".parse().unwrap()];
    assert_eq!(
        remove(&mut rig, "n2").unwrap(),
        ["removed; an agent that reports under this name makes it a new host"]
    );
    assert_eq!(names(&rig), ["n1"]);
    assert!(rig.registry.desired(&"n2".parse().unwrap()).is_none());
    let gone = order(&mut rig, "n2", HostVerb::Remove).unwrap_err();
    assert!(matches!(gone, Refusal::NoSuchHost { .. }));
    // What ended there still says where.
    assert_eq!(rig.replica("web", 0).host.unwrap().as_str(), "n2");
    let mut rig = rig.restart();
    assert_eq!(names(&rig), ["n1"]);
    assert_eq!(rig.replica("web", 0).host.unwrap().as_str(), "n2");
    rig.tell(Input::HostReport(facts("n2")));
    let new = rig.registry.host_names[&"n2".parse().unwrap()];
    assert!(new > old, "the number is never another host's");
    assert_eq!(names(&rig), ["n1", "n2"]);
    // Its numbers rest no more: they are another machine's.
    assert!(rig.ports("n2", &root()).ports.is_empty());
}

#[test]
fn a_host_that_reports_while_its_removal_is_with_the_store_is_known_or_new_but_never_both() {
    for refused in [false, true] {
        let mut rig = with_a_silent_one();
        rig.slow = true;
        let host = "n2".parse().unwrap();
        let verb = HostVerb::Remove;
        rig.ask_later(&root(), Command::Host { host, verb });
        rig.take(Input::HostReport(facts("n2")));
        rig.settle();
        rig.tell(Input::HostReport(facts("n2")));
        assert_eq!(
            names(&rig),
            ["n1", "n2"],
            "nothing is shown before it is on disk"
        );
        if refused {
            rig.store.failing_commits = 1;
        }
        rig.slow = false;
        rig.land();
        rig.settle();
        rig.pass(Duration::from_secs(3));
        assert_eq!(names(&rig), ["n1", "n2"]);
        let of_name = |it: &&super::records::Host| it.name().as_str() == "n2";
        let hosts = rig.registry.truth.known_hosts().map(|(_, it)| it);
        assert_eq!(hosts.filter(of_name).count(), 1);
        let rig = rig.restart();
        assert_eq!(names(&rig), ["n1", "n2"]);
    }
}

#[test]
fn a_service_of_every_host_has_one_replica_less() {
    let mut rig = with_a_silent_one();
    let per_host = web("node", 1).replace("replicas = 1", "replicas = \"per-host\"");
    rig.submit(&per_host).unwrap();
    let on = |rig: &Rig, index| rig.replica("node", index).host.unwrap().to_string();
    let there = (0..2).find(|index| on(&rig, *index) == "n2").unwrap();
    let drain = HostVerb::Drain {
        pace: super::DrainPace::AtOnce,
    };
    order(&mut rig, "n2", drain).unwrap();
    rig.ends("node", there, Final::Stopped);
    rig.pass(Duration::from_secs(30));
    remove(&mut rig, "n2").unwrap();
    let view = rig.registry.view();
    assert_eq!(view.services[&name("node")].desired, 1);
}

#[test]
fn a_name_that_nothing_speaks_of_is_dropped_after_ninety_days() {
    let mut rig = with_a_silent_one();
    rig.join("n3");
    remove(&mut rig, "n2").unwrap();
    let known = |rig: &Rig| rig.registry.truth.hosts.len();
    rig.pass(Duration::from_secs(89 * 86_400));
    let mut rig = rig.restart();
    assert_eq!(known(&rig), 3);
    rig.pass(Duration::from_secs(86_400));
    let rig = rig.restart();
    assert_eq!(known(&rig), 2);
}
