//! Hosts whose numbers a plugin gives: nothing of them is granted here, by whatever way.

use super::loss_test::{at, cluster};
use super::rig::{Rig, alice, facts, name, profile, web};
use super::{Attachment, Command, Explain, HostFacts, HostOwner, Input, Refusal};

fn plugin(host: &str) -> HostFacts {
    HostFacts {
        owner: HostOwner::Plugin,
        ..facts(host)
    }
}

fn of_plugin(hosts: &[&str]) -> Rig {
    let mut rig = cluster(&[]);
    for host in hosts {
        rig.tell(Input::HostReport(plugin(host)));
    }
    rig
}

// design/README: one owner per host's pool.
#[test]
fn nothing_is_placed_on_the_host_of_a_plugin_and_the_reason_says_so() {
    let mut rig = of_plugin(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(at(&rig, "web", 0), "");
    assert_eq!(
        rig.replica("web", 0).reason.as_deref(),
        Some("host n1 belongs to another scheduler's plugin, which gives its ports")
    );
    let asked = Explain::Service {
        service: name("web"),
        replica: None,
    };
    let explained = rig.registry.explain(rig.now, &alice(), &asked);
    let sums = explained.unwrap().sums.causes;
    assert_eq!((sums[0].code.as_str(), sums[0].hosts), ("OTHER OWNER", 1));
    let view = rig.registry.view();
    assert_eq!(view.hosts[&"n1".parse().unwrap()].owner, HostOwner::Plugin);
    // Ours again, it takes what waits.
    rig.join("n2");
    assert_eq!(at(&rig, "web", 0), "n2");
    rig.submit(&format!("placement.hosts = [\"n1\"]\n{}", web("pinned", 1)))
        .unwrap();
    rig.tell(Input::HostReport(facts("n1")));
    assert_eq!(at(&rig, "pinned", 0), "n1");
}

#[test]
fn a_job_on_the_host_of_a_plugin_is_given_no_ports_here() {
    let mut rig = of_plugin(&["n1"]);
    let attachment = Attachment {
        service: name("job"),
        profile: profile(&web("job", 1)),
        source: None,
        host: "n1".parse().unwrap(),
        index: None,
        key: "k".into(),
        job: None,
    };
    let refused = rig.ask(Command::Attach(Box::new(attachment))).unwrap_err();
    assert!(matches!(refused, Refusal::NoRoom { .. }), "{refused}");
    assert!(
        refused.to_string().contains("another scheduler's plugin"),
        "{refused}"
    );
}

#[test]
fn what_runs_when_a_plugin_takes_the_host_over_goes_on_until_it_ends() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let told = HostFacts {
        owner: HostOwner::Plugin,
        ..rig.facts("n1")
    };
    rig.tell(Input::HostReport(told));
    assert_eq!(rig.states("web"), ["ready"]);
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run"]);
    rig.pass(std::time::Duration::from_secs(2));
    let mut rig = rig.restart();
    let told = rig.facts("n1");
    assert_eq!(told.owner, HostOwner::Plugin);
    rig.tell(Input::HostReport(told));
    assert_eq!(rig.states("web"), ["ready"]);
}

#[test]
fn a_service_on_each_host_counts_no_host_of_a_plugin() {
    let mut rig = of_plugin(&["n1", "n2"]);
    rig.join("n3");
    let text = web("web", 1).replace("replicas = 1", "replicas = \"per-host\"");
    rig.submit(&text).unwrap();
    assert_eq!(rig.states("web").len(), 1);
    assert_eq!(at(&rig, "web", 0), "n3");
}
