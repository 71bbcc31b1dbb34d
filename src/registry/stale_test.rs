//! What is known of a service after a start, and how old that is.

use std::collections::BTreeSet;
use std::time::Duration;

use super::rig::{Rig, config, facts, name, now, web};
use super::show_test::{gathering, turns};
use super::{Config, HostFacts, Input};

fn stale(rig: &Rig) -> BTreeSet<String> {
    let view = rig.registry.view();
    let stale = view.services.keys().filter(|name| view.is_stale(name));
    stale.map(ToString::to_string).collect()
}

fn two_hosts() -> Rig {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    rig.submit(&web("both", 2)).unwrap();
    rig.submit(&web("one", 1)).unwrap();
    rig.submit("name = \"none\"\nreplicas = 0\ncommand = [\"serve\"]\n")
        .unwrap();
    for (service, index) in [("both", 0), ("both", 1), ("one", 0)] {
        rig.ready(service, index);
    }
    rig.pass(Duration::from_secs(2));
    assert!(stale(&rig).is_empty());
    rig
}

// endpoints point 5: shown as stored, and said to be so, until each host has told everything.
#[test]
fn after_a_start_a_service_is_stale_until_each_of_its_hosts_reported() {
    let mut rig = two_hosts().restart();
    let before = rig.table.clone();
    let name = |text: &str| format!("{text}.alice");
    assert_eq!(stale(&rig), [name("both"), name("one")].into());
    let (revision, synced) = (rig.registry.revision(), rig.registry.view().synced);
    let at = rig.replica("one", 0).host.unwrap();
    let other = if at.as_str() == "n1" { "n2" } else { "n1" };
    let told = rig.facts(other);
    rig.tell(Input::HostReport(told));
    assert_eq!(stale(&rig).len(), 2, "one host of two");
    assert_eq!(rig.registry.view().synced, synced);
    let told = rig.facts(at.as_str());
    rig.tell(Input::HostReport(told));
    assert!(stale(&rig).is_empty());
    assert!(rig.registry.view().synced > synced);
    let services = &rig.registry.view().services;
    assert!(services.values().all(|it| it.revision <= revision));
    assert_eq!(rig.table, before);
}

#[test]
fn a_service_whose_host_told_of_a_change_stays_stale_until_that_is_shown() {
    let mut rig = gathering(Duration::from_secs(1), 1);
    turns(&mut rig, 0, true);
    rig.pass(Duration::from_secs(2));
    let report = rig.report("web", 0, |status| status.restarts = 1);
    let mut rig = rig.restart();
    rig.tell(Input::HostReport(HostFacts {
        replicas: vec![report],
        dynamic: "20000-29999".parse().unwrap(),
        ..facts("n1")
    }));
    // The start opened a window.
    assert_eq!((rig.replica("web", 0).restarts, stale(&rig).len()), (0, 1));
    rig.pass(Duration::from_secs(1));
    assert_eq!((rig.replica("web", 0).restarts, stale(&rig).len()), (1, 0));
}

#[test]
fn a_host_that_never_comes_back_keeps_nothing_stale_beyond_its_grace() {
    let rig = two_hosts();
    let mut forever = Rig::at(rig.store.clone(), now(0), config());
    forever.pass(Duration::from_secs(86_400));
    assert_eq!(stale(&forever).len(), 2);
    let graced = Config {
        stale_for: Some(Duration::from_secs(90)),
        ..config()
    };
    let mut rig = Rig::at(rig.store, now(0), graced);
    let (revision, synced) = (rig.registry.revision(), rig.registry.view().synced);
    rig.pass(Duration::from_millis(89_999));
    assert_eq!(stale(&rig).len(), 2);
    rig.pass(Duration::from_millis(1));
    assert!(stale(&rig).is_empty());
    assert_eq!(rig.registry.view().synced, synced + 1);
    assert_eq!(rig.registry.revision(), revision);
    assert_eq!(rig.registry.next_deadline(), None);
}

#[test]
fn the_age_of_a_service_is_that_of_its_most_silent_host() {
    let mut rig = two_hosts();
    let age = |rig: &Rig, service: &str| {
        let view = rig.registry.view();
        view.services[&name(service)].age(rig.now.mono)
    };
    let lease = |rig: &mut Rig, host: &str| {
        rig.tell(Input::Lease {
            host: host.parse().unwrap(),
            skew_ms: None,
        });
    };
    let view = rig.registry.view();
    rig.pass(Duration::from_secs(8));
    lease(&mut rig, "n1");
    rig.pass(Duration::from_secs(1));
    lease(&mut rig, "n2");
    rig.pass(Duration::from_secs(1));
    assert_eq!(age(&rig, "both"), Duration::from_secs(2));
    assert_eq!(age(&rig, "none"), Duration::ZERO);
    // A reader that kept its view knows it too.
    let kept = &view.services[&name("both")];
    assert_eq!(kept.age(rig.now.mono), Duration::from_secs(2));
}
