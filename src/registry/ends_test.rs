//! How replicas end, and what hosts are told afterwards.

use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::supervision::{Final, State};

use super::rig::{Rig, alice, exit, facts, failure, incarnation, name, starting, web};
use super::{Command, HostFacts, Input, ReplicaReport};

fn with_policy(policy: &str) -> String {
    format!("{}[restart]\npolicy = \"{policy}\"\n", web("web", 1))
}

fn rebooted() -> HostFacts {
    HostFacts {
        boot_id: "boot-2".into(),
        ..facts("n1")
    }
}

fn ports(rig: &mut Rig) -> Vec<String> {
    let text = |it: super::PortView| format!("{}/{} {}", it.numbers, it.protocol, it.state);
    rig.ports("n1", &alice())
        .ports
        .into_iter()
        .map(text)
        .collect()
}

#[test]
fn an_end_frees_the_ports_only_when_it_is_final() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(ports(&mut rig), ["20000/tcp held"]);
    rig.status("web", 0, |status| status.state = State::Stuck);
    assert_eq!(rig.states("web"), ["stuck"]);
    assert_eq!(ports(&mut rig), ["20000/tcp held"]);
    rig.ask(Command::Stop {
        service: name("web"),
    })
    .unwrap();
    assert_eq!(ports(&mut rig), ["20000/tcp releasing"]);
    rig.ends("web", 0, Final::Stopped);
    assert_eq!(ports(&mut rig), ["20000/tcp cooling"]);
    let shown = rig.ports("n1", &alice()).ports[0].clone();
    assert_eq!((shown.service, shown.left_s), (Some(name("web")), Some(60)));
    rig.pass(Duration::from_millis(18_500));
    assert_eq!(rig.ports("n1", &alice()).ports[0].left_s, Some(42));
}

/// The story: a service took a number for TCP that rested for TCP and UDP. With the next refused commit, and with each
/// start, the rest for UDP was forgotten, so that another service could get it while old clients still sent there.
#[test]
fn a_number_that_is_given_for_one_protocol_rests_for_the_other_whatever_the_store_refuses() {
    let mut rig = Rig::new();
    rig.join("n1");
    let asks = |port: &str| super::rig::with_port("web", 1, port);
    rig.submit(&asks("{ fixed = 8000, protocol = \"tcp+udp\" }"))
        .unwrap();
    rig.replace(&asks("{ fixed = 8000, protocol = \"tcp\" }"))
        .unwrap();
    rig.ends("web", 0, Final::Stopped);
    let rests = ["8000/tcp held", "8000/udp cooling"];
    assert_eq!(ports(&mut rig), rests);
    rig.store.failing_commits = 1;
    rig.submit(&web("other", 1)).unwrap_err();
    assert_eq!(ports(&mut rig), rests);
    let mut rig = rig.restart();
    assert_eq!(ports(&mut rig), rests);
}

/// The story: a block rested, its service took the first number of it alone and gave that back: the record of that rest
/// took the place of the block's. With the next refused commit, and with each start, the others were free at once.
#[test]
fn a_block_rests_whole_also_when_the_first_of_its_numbers_rests_again_by_itself() {
    let mut rig = Rig::new();
    rig.join("n1");
    let asks = |port: &str| super::rig::with_port("web", 1, port);
    rig.submit(&asks("{ any = 3 }")).unwrap();
    assert_eq!(ports(&mut rig), ["20000-20002/tcp held"]);
    rig.replace(&asks("{ fixed = 20000 }")).unwrap();
    rig.ends("web", 0, Final::Stopped);
    rig.pass(Duration::from_secs(20));
    rig.ask(Command::Stop {
        service: name("web"),
    })
    .unwrap();
    rig.ends("web", 0, Final::Stopped);
    let rests = |rig: &mut Rig| {
        let all = rig.ports("n1", &alice()).ports;
        assert!(all.iter().all(|it| it.state == "cooling"), "{all:?}");
        let counts = all.iter().map(|it| it.numbers.count());
        counts.sum::<u32>()
    };
    assert_eq!(rests(&mut rig), 3);
    rig.store.failing_commits = 1;
    rig.submit(&web("other", 1)).unwrap_err();
    assert_eq!(rests(&mut rig), 3);
    let mut rig = rig.restart();
    assert_eq!(rests(&mut rig), 3);
    // The last record goes with the last rest, within a second.
    rig.pass(Duration::from_secs(61));
    assert_eq!(rig.restart().ports("n1", &alice()).ports, []);
}

#[test]
fn a_number_is_shown_as_its_holders_until_the_release_is_on_disk() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("other", 1)).unwrap();
    rig.submit(&web("web", 2)).unwrap();
    rig.slow = true;
    let stop = Command::Stop {
        service: name("web"),
    };
    rig.ask_later(&alice(), stop);
    rig.settle();
    let all = |state: &str| {
        let web = [20001, 20002].map(|port| format!("{port}/tcp {state}"));
        [vec!["20000/tcp held".to_owned()], web.to_vec()].concat()
    };
    assert_eq!(ports(&mut rig), all("held"));
    rig.land();
    assert_eq!(ports(&mut rig), all("releasing"));
    for index in 0..2 {
        let end = rig.report("web", index, |status| {
            status.state = State::Final(Final::Stopped);
        });
        rig.take(Input::Status(end));
    }
    rig.settle();
    assert!(rig.with_store.is_some());
    assert_eq!(ports(&mut rig), all("releasing"));
    let holder = rig.ports("n1", &alice()).ports[1].clone();
    assert_eq!(
        (holder.service, holder.replica),
        (Some(name("web")), Some(0))
    );
    rig.land();
    assert_eq!(
        ports(&mut rig),
        ["20000/tcp held", "20001-20002/tcp cooling"]
    );
}

#[test]
fn every_end_has_its_job_state_and_a_reason_in_words() {
    for (policy, end, state, detail, reason) in [
        (
            "never",
            Final::Succeeded,
            "DONE",
            "completed",
            "completed: exit 0",
        ),
        (
            "on-failure",
            Final::Succeeded,
            "EXIT",
            "completed",
            "completed: exit 0 under on-failure",
        ),
        (
            "never",
            Final::Failed(exit(3)),
            "EXIT",
            "failed",
            "failed: exit 3",
        ),
        (
            "always",
            Final::GaveUp {
                reason: exit(1),
                count: 10,
            },
            "EXIT",
            "gave up",
            "gave up after 10 restarts: exit 1 (at most 10 within 10m6s)",
        ),
        (
            "always",
            Final::Stopped,
            "EXIT",
            "stopped",
            "stopped on host n1",
        ),
    ] {
        let mut rig = Rig::new();
        rig.join("n1");
        rig.submit(&with_policy(policy)).unwrap();
        rig.ends("web", 0, end);
        let replica = rig.replica("web", 0);
        assert_eq!(replica.job_state, state, "{reason}");
        assert_eq!(replica.state, detail, "{reason}");
        assert_eq!(replica.reason.as_deref(), Some(reason));
        assert_eq!(replica.host.unwrap().as_str(), "n1");
        assert_eq!(rig.registry.view().services[&name("web")].state, "ended");
        assert_eq!(rig.condition("web", 0), None);
        assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    }
}

#[test]
fn what_a_full_report_leaves_out_is_forgotten() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_policy("never")).unwrap();
    rig.ends("web", 0, Final::Failed(exit(1)));
    let mut status = starting();
    status.state = State::Final(Final::Failed(exit(1)));
    let ended = ReplicaReport {
        host: "n1".parse().unwrap(),
        service: name("web"),
        index: 0,
        incarnation: incarnation(0),
        service_id: None,
        grant: None,
        status,
    };
    let still = HostFacts {
        replicas: vec![ended],
        ..facts("n1")
    };
    // Also after a start of the controller, which forgot what it had the host forget.
    let mut rig = rig.restart();
    assert!(rig.orders("n1").is_empty());
    rig.tell(Input::HostReport(still.clone()));
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    rig.tell(Input::HostReport(HostFacts {
        full: false,
        replicas: Vec::new(),
        ..still
    }));
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    rig.tell(Input::HostReport(facts("n1")));
    assert!(rig.orders("n1").is_empty());
}

#[test]
fn a_host_that_gives_signs_of_life_is_told_to_forget_for_ten_minutes() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_policy("never")).unwrap();
    rig.ends("web", 0, Final::Failed(exit(1)));
    let lease = || Input::Lease {
        host: "n1".parse().unwrap(),
        skew_ms: None,
    };
    rig.pass(Duration::from_secs(599));
    rig.tell(lease());
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    rig.pass(Duration::from_secs(1));
    // Silence proves nothing.
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    rig.tell(lease());
    assert!(rig.orders("n1").is_empty());
}

#[test]
fn an_older_incarnation_that_still_lives_is_wanted_to_stop() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let old = rig.report("web", 0, |status| status.state = State::Up);
    rig.ends("web", 0, Final::Failed(exit(1)));
    rig.ask(Command::Start {
        service: name("web"),
    })
    .unwrap();
    rig.join("n1");
    assert_eq!(rig.orders("n1"), ["web.alice 0 1 run"]);
    rig.tell(Input::Status(old));
    assert_eq!(
        rig.orders("n1"),
        ["web.alice 0 0 stop", "web.alice 0 1 run"]
    );
    assert_eq!(rig.replica("web", 0).state, "starting");
}

#[test]
fn an_unknown_replica_is_shown_and_left_alone() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let mut report = rig.report("web", 0, |status| status.state = State::Up);
    report.service = name("ghost");
    rig.tell(Input::Status(report));
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run"]);
    let view = rig.registry.view();
    assert_eq!(
        view.hosts[&"n1".parse().unwrap()].warnings,
        [
            "ghost.alice replica 0 incarnation 0 runs here and is not known to this controller; it is left alone \
             (`portreeve host adopt n1 ghost.alice/0` takes it in, `portreeve host fence n1 ghost.alice/0` stops it)"
        ]
    );
}

#[test]
fn the_newest_status_wins_whatever_the_order_of_arrival() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let older = rig.report("web", 0, |status| status.state = State::Startup);
    let newer = rig.report("web", 0, |status| {
        status.state = State::Up;
        status.ready = true;
    });
    rig.tell(Input::Status(newer.clone()));
    rig.tell(Input::Status(older));
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    let mut second_run = newer;
    second_run.status.run = second_run.status.run.next();
    second_run.status.seq = 0;
    second_run.status.ready = false;
    rig.tell(Input::Status(second_run));
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
}

#[test]
fn a_crash_is_told_with_its_reason_and_counted() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let killed = crate::supervision::Reason::Exit(crate::supervision::ExitStatus::Signal {
        signal: 9,
        core: false,
        oom: false,
    });
    rig.status("web", 0, |status| {
        status.ready = false;
        status.state = State::Backoff;
        status.last_failure = Some(failure(killed, 1));
    });
    assert_eq!(
        rig.endpoint("web", 0).unwrap().reason.as_deref(),
        Some("waits to be started again: signal 9 (KILL)")
    );
    rig.status("web", 0, |status| {
        status.run = status.run.next();
        status.restarts = 1;
        status.state = State::Up;
        status.ready = true;
    });
    let replica = rig.replica("web", 0);
    assert_eq!(replica.restarts, 1);
    assert_eq!(replica.last_failure.as_deref(), Some("signal 9 (KILL)"));
    let events: Vec<String> = rig
        .events("web")
        .into_iter()
        .skip(2)
        .map(|it| format!("{}: {}", it.kind, it.text))
        .collect();
    assert_eq!(
        events,
        [
            "ready: ready",
            "not-ready: signal 9 (KILL)",
            "failed: signal 9 (KILL)",
            "restarted: restart 1 after signal 9 (KILL)",
            "ready: ready",
        ]
    );
}

// hosts 4: same host and numbers first, also where another one would be taken by the rule of placement.
#[test]
fn a_rebooted_host_is_preferred_to_an_emptier_one_for_what_ran_there() {
    let mut rig = Rig::new();
    rig.join("n1");
    for service in ["first", "second", "web"] {
        rig.submit(&web(service, 1)).unwrap();
    }
    rig.join("n2");
    let before = rig.replica("web", 0).ports;
    rig.tell(Input::HostReport(rebooted()));
    for service in ["first", "second", "web"] {
        let replica = rig.replica(service, 0);
        assert_eq!(replica.incarnation.0, 1);
        assert_eq!(replica.host.unwrap().as_str(), "n1", "{service}");
    }
    assert_eq!(rig.replica("web", 0).ports, before);
}

#[test]
fn a_reboot_ends_every_run_there_and_charges_nothing() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.submit(&format!("rerunnable = false\n{}", web("once", 1)))
        .unwrap();
    rig.ready("web", 0);
    let ports = rig.replica("web", 0).ports;
    rig.tell(Input::HostReport(rebooted()));
    let replica = rig.replica("web", 0);
    assert_eq!((replica.incarnation.0, replica.restarts_total), (1, 0));
    assert_eq!(replica.ports, ports, "same host and numbers first");
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
    let once = rig.replica("once", 0);
    assert_eq!(
        (once.job_state.as_str(), once.state.as_str()),
        ("EXIT", "host rebooted")
    );
    assert_eq!(once.reason.as_deref(), Some("host n1 rebooted"));
    assert_eq!(rig.orders("n1"), ["web.alice 0 1 run"]);
}

#[test]
fn a_reboot_while_the_controller_was_down_is_seen_in_the_first_report() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(2));
    let mut rig = rig.restart();
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    rig.tell(Input::HostReport(rebooted()));
    assert_eq!(rig.replica("web", 0).incarnation.0, 1);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
}

#[test]
fn an_address_change_moves_all_endpoints_in_one_revision() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.submit(&web("db", 1)).unwrap();
    for (service, index) in [("web", 0), ("web", 1), ("db", 0)] {
        rig.ready(service, index);
    }
    rig.effects.clear();
    rig.tell(Input::HostReport(HostFacts {
        published: Some([10, 1, 1, 1].into()),
        ..facts("n1")
    }));
    let published = |effect: &super::Effect| matches!(effect, super::Effect::Publish { services, .. } if services.len() == 2);
    assert_eq!(rig.effects.iter().filter(|it| published(it)).count(), 1);
    for (service, index) in [("web", 0), ("web", 1), ("db", 0)] {
        let endpoint = rig.endpoint(service, index).unwrap();
        assert_eq!(endpoint.address.unwrap().to_string(), "10.1.1.1");
        assert_eq!(endpoint.state, EndpointState::Ready);
    }
}

#[test]
fn an_ephemeral_range_in_the_pool_is_warned_of_with_its_cure() {
    let mut rig = Rig::new();
    rig.tell(Input::HostReport(HostFacts {
        dynamic: "32000-40000".parse().unwrap(),
        ..facts("n1")
    }));
    let view = rig.registry.view();
    assert_eq!(
        view.hosts[&"n1".parse().unwrap()].warnings,
        [
            "the pool 32000-40000 overlaps the kernel's ephemeral range 32768-60999 at 32768-40000: \
             `sysctl -w net.ipv4.ip_local_reserved_ports=32768-40000` keeps the kernel off"
        ]
    );
}

#[test]
fn a_service_has_no_run_limit_and_nothing_cleans_it_up_while_it_runs() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(120));
    let (replica, orders, stored) = (rig.replica("web", 0), rig.orders("n1"), rig.everything());
    let commits = rig.commits;
    // Past every default: rests, windows, graces, the days that ended services and events are kept.
    for _day in 0..400 {
        rig.pass(Duration::from_secs(86_400));
    }
    assert_eq!(rig.replica("web", 0), replica);
    assert_eq!(rig.orders("n1"), orders);
    assert_eq!(rig.everything(), stored);
    assert_eq!(rig.commits, commits);
}

// P33: what happens after a give-up.
#[test]
fn a_replica_that_gave_up_says_the_rule_and_its_last_failure_frees_its_ports_and_begins_anew_with_one_command()
 {
    let mut rig = Rig::new();
    rig.join("n1");
    let rule = "[restart]\ngive_up = { max_restarts = 2, window = \"5m\" }\n";
    rig.submit(&format!("{}{rule}", web("web", 1))).unwrap();
    rig.ready("web", 0);
    rig.status("web", 0, |status| {
        status.restarts = 2;
        status.last_failure = Some(failure(exit(1), 3));
        status.ready = false;
        status.state = State::Final(Final::GaveUp {
            reason: exit(1),
            count: 2,
        });
    });
    let replica = rig.replica("web", 0);
    assert_eq!(replica.job_state, "EXIT");
    assert_eq!(replica.state, "gave up");
    assert_eq!(
        replica.reason.as_deref(),
        Some("gave up after 2 restarts: exit 1 (at most 2 within 5m)")
    );
    assert_eq!(
        (replica.restarts, replica.last_failure.as_deref()),
        (2, Some("exit 1"))
    );
    let states: Vec<_> = rig.ports("n1", &alice()).ports;
    assert!(
        states.iter().all(|port| port.state == "cooling"),
        "{states:?}"
    );
    // The one command: a new incarnation with no restart counted against it, the total goes on.
    rig.ask(Command::Start {
        service: name("web"),
    })
    .unwrap();
    let anew = rig.replica("web", 0);
    assert_eq!(
        (anew.incarnation.0, anew.restarts, anew.restarts_total),
        (1, 0, 2)
    );
    assert_eq!(rig.orders("n1").last().unwrap(), "web.alice 0 1 run");
}
