//! Hosts that go down in order.

use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::supervision::Final;

use super::drain_test::host;
use super::rig::{Rig, alice, facts, name, web};
use super::{Attachment, Command, HostFacts, Input};

fn shutdown(host: &str) -> Input {
    Input::HostShutdown {
        host: host.parse().unwrap(),
    }
}

fn ready_on_n1() -> Rig {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.submit(&format!("rerunnable = false\n{}", web("once", 1)))
        .unwrap();
    (0..2).for_each(|index| rig.ready("web", index));
    rig.ready("once", 0);
    rig
}

#[test]
fn a_shutdown_stops_everything_there_and_it_follows_elsewhere() {
    let mut rig = ready_on_n1();
    rig.join("n2");
    rig.tell(shutdown("n1"));
    assert_eq!(host(&rig, "n1").state, "shutting down");
    for index in 0..2 {
        assert_eq!(rig.condition("web", index), Some(EndpointState::Serving));
        assert_eq!(
            rig.replica("web", index).reason.as_deref(),
            Some("host shutting down")
        );
    }
    assert_eq!(
        rig.orders("n1"),
        [
            "once.alice 0 0 stop",
            "web.alice 0 0 stop",
            "web.alice 1 0 stop"
        ]
    );
    for (service, index) in [("web", 0), ("web", 1), ("once", 0)] {
        rig.ends(service, index, Final::Stopped);
    }
    for index in 0..2 {
        assert_eq!(rig.replica("web", index).host.unwrap().as_str(), "n2");
    }
    let once = rig.replica("once", 0);
    assert_eq!(
        (once.job_state.as_str(), once.state.as_str()),
        ("EXIT", "host shut down")
    );
    assert_eq!(once.reason.as_deref(), Some("host shutting down"));
    assert_eq!(rig.kinds("once").last().unwrap(), "host-shutdown");
}

#[test]
fn a_full_disk_keeps_no_endpoint_of_a_host_that_shuts_down_listed() {
    let mut rig = ready_on_n1();
    rig.store.failing_commits = 100;
    rig.tell(shutdown("n1"));
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Serving));
    assert_eq!(rig.condition("once", 0), Some(EndpointState::Serving));
    assert_eq!(rig.orders("n1")[0], "once.alice 0 0 run", "stops are truth");
    rig.store.failing_commits = 0;
    rig.pass(Duration::from_secs(3));
    assert_eq!(rig.orders("n1")[0], "once.alice 0 0 stop");
}

#[test]
fn nothing_new_comes_until_the_host_is_back_from_its_boot() {
    let mut rig = ready_on_n1();
    rig.tell(shutdown("n1"));
    for index in 0..2 {
        rig.ends("web", index, Final::Stopped);
    }
    let web = rig.replica("web", 0);
    assert_eq!(web.job_state, "PEND");
    assert_eq!(
        web.reason.as_deref(),
        Some("host n1 is shutting down (host shutting down)")
    );
    // A report of less than everything, and a start of the controller, leave that as it is.
    let part = HostFacts {
        full: false,
        ..rig.facts("n1")
    };
    rig.tell(Input::HostReport(HostFacts {
        shutting_down: false,
        ..part
    }));
    assert_eq!(host(&rig, "n1").state, "shutting down");
    rig.pass(Duration::from_secs(2));
    let mut rig = rig.restart();
    let still = rig.facts("n1");
    assert!(still.shutting_down);
    rig.tell(Input::HostReport(still));
    assert_eq!(host(&rig, "n1").state, "shutting down");
    assert_eq!(rig.replica("web", 0).job_state, "PEND");
    rig.tell(Input::HostReport(HostFacts {
        boot_id: "boot-2".into(),
        ..facts("n1")
    }));
    assert_eq!(host(&rig, "n1").state, "up");
    let web = rig.replica("web", 0);
    assert_eq!(web.host.unwrap().as_str(), "n1");
    assert_eq!(web.restarts_total, 0, "nothing is charged");
}

#[test]
fn a_shutdown_that_was_called_off_is_over_with_the_full_report_of_the_next_agent() {
    let mut rig = ready_on_n1();
    rig.tell(shutdown("n1"));
    rig.ends("web", 0, Final::Stopped);
    let fresh = HostFacts {
        shutting_down: false,
        ..rig.facts("n1")
    };
    rig.tell(Input::HostReport(fresh));
    assert_eq!(host(&rig, "n1").state, "up");
    assert_eq!(rig.replica("web", 0).host.unwrap().as_str(), "n1");
}

#[test]
fn what_the_agent_stopped_before_it_was_told_to_follows_all_the_same() {
    let mut rig = ready_on_n1();
    rig.join("n2");
    rig.slow = true;
    rig.tell(shutdown("n1"));
    let end = rig.report("web", 0, |status| {
        status.state = crate::supervision::State::Final(Final::Stopped);
    });
    rig.take(Input::Status(end));
    rig.store.failing_commits = 1;
    rig.slow = false;
    rig.land();
    rig.settle();
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.replica("web", 0).host.unwrap().as_str(), "n2");
}

#[test]
fn jobs_of_other_schedulers_leave_the_lists_and_are_ended_by_those() {
    let mut rig = Rig::new();
    rig.join("n1");
    let profile = super::rig::profile(&web("job", 1));
    let attach = Command::Attach(Box::new(Attachment {
        service: name("job"),
        profile,
        source: None,
        host: "n1".parse().unwrap(),
        index: None,
        key: "k".into(),
        job: None,
    }));
    rig.ask_as(&alice(), attach).unwrap();
    rig.ready("job", 0);
    rig.tell(shutdown("n1"));
    assert_eq!(rig.condition("job", 0), Some(EndpointState::Serving));
    assert_eq!(rig.orders("n1"), ["job.alice 0 0 run"]);
    // Called off, it is listed again.
    let fresh = HostFacts {
        shutting_down: false,
        ..rig.facts("n1")
    };
    rig.tell(Input::HostReport(fresh));
    assert_eq!(rig.condition("job", 0), Some(EndpointState::Ready));
}

// It was booted, and is told to go down again before its first report.
#[test]
fn what_a_boot_ended_is_told_as_that_although_the_host_goes_down_again() {
    let mut rig = ready_on_n1();
    rig.tell(Input::HostReport(HostFacts {
        boot_id: "boot-2".into(),
        shutting_down: true,
        ..facts("n1")
    }));
    assert_eq!(host(&rig, "n1").state, "shutting down");
    let once = rig.replica("once", 0);
    assert_eq!(
        (once.job_state.as_str(), once.state.as_str()),
        ("EXIT", "host rebooted")
    );
    // Nothing is left there that could be told to stop.
    assert!(!rig.kinds("once").contains(&"stopping".to_owned()));
    assert_eq!(rig.orders("n1"), [""; 0]);
    assert_eq!(rig.replica("web", 0).job_state, "PEND");
}
