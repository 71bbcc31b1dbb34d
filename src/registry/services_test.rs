//! What owners ask for, and what they are told.

use crate::endpoints::EndpointState;
use crate::rights::{Caller, Rights};
use crate::supervision::{Final, State};

use super::rig::{Rig, alice, caller, exit, failure, name, submission, web, with_port};
use super::{Command, Refusal};

fn scale(service: &str, replicas: u32) -> Command {
    Command::Scale {
        service: name(service),
        replicas,
    }
}

fn start(service: &str) -> Command {
    Command::Start {
        service: name(service),
    }
}

fn stop(service: &str) -> Command {
    Command::Stop {
        service: name(service),
    }
}

fn delete(service: &str) -> Command {
    Command::Delete {
        service: name(service),
    }
}

fn kill(service: &str, index: u32) -> Command {
    Command::Kill {
        service: name(service),
        index,
    }
}

#[test]
fn a_submitted_service_is_placed_ordered_and_listed_once_ready() {
    let mut rig = Rig::new();
    rig.join("n1");
    let answer = rig.submit(&web("web", 2)).unwrap();
    assert!(answer.changed);
    assert_eq!(rig.states("web"), ["starting", "starting"]);
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run", "web.alice 1 0 run"]);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
    rig.ready("web", 0);
    let endpoint = rig.endpoint("web", 0).unwrap();
    assert_eq!(endpoint.state, EndpointState::Ready);
    assert_eq!(endpoint.address.unwrap().to_string(), "10.0.0.49");
    assert_eq!(endpoint.ports[0].numbers.to_string(), "20000");
    let replica = rig.replica("web", 0);
    assert_eq!((replica.job_state.as_str(), replica.ready), ("RUN", true));
    assert_eq!(replica.ports["http"].to_string(), "20000");
    assert_eq!(replica.pid, Some(4711));
    let view = rig.registry.view();
    let service = &view.services[&name("web")];
    assert_eq!((service.desired, service.ready), (2, 1));
    assert_eq!(rig.kinds("web"), ["submitted", "placed", "placed", "ready"]);
}

#[test]
fn the_same_profile_again_changes_nothing() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let (commits, effects, revision) = (rig.commits, rig.effects.len(), rig.registry.revision());
    let answer = rig.submit(&web("web", 1)).unwrap();
    assert!(!answer.changed);
    assert_eq!(rig.commits, commits);
    // The answer is all there is.
    assert_eq!(rig.effects.len(), effects + 1);
    assert_eq!(rig.registry.revision(), revision);
}

#[test]
fn another_profile_needs_the_word_replace() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let changed = web("web", 1).replace("\"serve\"", "\"serve\", \"--fast\"");
    let refused = rig.submit(&changed).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "web.alice runs with another profile (command); `portreeve submit --replace` replaces it"
    );
}

#[test]
fn scaling_down_ends_the_highest_index_and_up_gives_new_incarnations() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 3)).unwrap();
    rig.ready("web", 2);
    assert!(rig.ask(scale("web", 2)).unwrap().changed);
    assert_eq!(rig.states("web"), ["starting", "starting", "stopping"]);
    assert_eq!(rig.condition("web", 2), Some(EndpointState::Serving));
    assert_eq!(rig.orders("n1")[2], "web.alice 2 0 stop");
    rig.ends("web", 2, Final::Stopped);
    assert_eq!(rig.states("web").len(), 2);
    assert_eq!(rig.orders("n1")[2], "web.alice 2 0 forget");
    assert_eq!(rig.condition("web", 2), None);
    rig.ask(scale("web", 3)).unwrap();
    // Its names on hosts never come again.
    assert_eq!(rig.replica("web", 2).incarnation.0, 1);
    assert!(!rig.ask(scale("web", 3)).unwrap().changed);
}

#[test]
fn the_profile_again_says_that_its_number_was_scaled_and_a_replacement_restores_it() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 3)).unwrap();
    rig.ask(scale("web", 1)).unwrap();
    let again = rig.submit(&web("web", 3)).unwrap();
    assert!(!again.changed);
    assert_eq!(rig.registry.view().services[&name("web")].desired, 1);
    let said = again.notes.last().unwrap();
    assert!(
        said.contains("stays scaled to 1") && said.contains("says 3"),
        "{said}"
    );
    let before = rig.replica("web", 0);
    assert!(rig.replace(&web("web", 3)).unwrap().changed);
    assert_eq!(rig.registry.view().services[&name("web")].desired, 3);
    assert_eq!(
        rig.replica("web", 0),
        before,
        "it is not restarted for that"
    );
    assert!(!rig.replace(&web("web", 3)).unwrap().changed);
}

#[test]
fn an_order_is_answered_with_what_it_does() {
    let mut rig = Rig::new();
    rig.join("n1");
    let notes = |rig: &mut Rig, command| rig.ask(command).unwrap().notes;
    let created = rig.submit(&web("web", 2)).unwrap();
    assert_eq!(created.notes, ["created with 2 replicas"]);
    assert_eq!(
        notes(&mut rig, scale("web", 3)),
        ["scaled from 2 to 3 replicas"]
    );
    assert_eq!(
        notes(&mut rig, scale("web", 3)),
        ["nothing to change: it has 3 replicas already"]
    );
    assert_eq!(
        notes(&mut rig, stop("web")),
        ["stopping 3 replicas; `portreeve wait web.alice --gone` waits for the end"]
    );
    assert_eq!(
        notes(&mut rig, stop("web")),
        ["nothing to change: it is stopped already"]
    );
}

#[test]
fn a_failure_told_together_with_the_restart_before_it_comes_after_it() {
    // A command that cannot start fails at once: restart and next failure reached the log in one report,
    // which listed the failure first.
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.status("web", 0, |status| {
        status.state = State::Backoff;
        status.last_failure = Some(failure(exit(1), 1));
    });
    rig.status("web", 0, |status| {
        status.state = State::Backoff;
        status.restarts = 1;
        status.last_failure = Some(failure(exit(1), 2));
    });
    assert_eq!(
        rig.kinds("web"),
        ["submitted", "placed", "failed", "restarted", "failed"]
    );
}

#[test]
fn a_replica_on_its_way_out_that_is_wanted_again_follows_as_a_new_incarnation() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.ask(scale("web", 1)).unwrap();
    rig.ask(scale("web", 2)).unwrap();
    assert_eq!(rig.states("web"), ["starting", "stopping"]);
    rig.ends("web", 1, Final::Stopped);
    let replica = rig.replica("web", 1);
    assert_eq!(
        (replica.incarnation.0, replica.state.as_str()),
        (1, "starting")
    );
}

#[test]
fn a_fixed_port_beyond_the_hosts_is_accepted_with_a_note() {
    let mut rig = Rig::new();
    rig.join("n1");
    let answer = rig.submit(&with_port("web", 2, "8080")).unwrap();
    assert_eq!(
        answer.notes,
        [
            "created with 2 replicas",
            "fixed port 8080/tcp: at most one replica per host; 1 host eligible"
        ]
    );
    assert_eq!(
        rig.replica("web", 1).reason.unwrap(),
        "fixed port 8080/tcp: at most one replica per host; 1 host eligible; \
         port 8080/tcp on host n1 is held by web.alice replica 0"
    );
}

#[test]
fn a_stopped_service_stays_known_and_starts_with_a_fresh_budget() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.status("web", 0, |status| status.restarts = 3);
    assert!(rig.ask(stop("web")).unwrap().changed);
    assert!(!rig.ask(stop("web")).unwrap().changed);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Serving));
    rig.ends("web", 0, Final::Stopped);
    let replica = rig.replica("web", 0);
    assert_eq!(replica.job_state, "EXIT");
    assert_eq!(replica.reason.as_deref(), Some("stopped by alice"));
    let view = rig.registry.view();
    assert_eq!(view.services[&name("web")].state, "stopped");
    assert!(rig.table[&name("web")].endpoints.is_empty());
    assert!(rig.ask(start("web")).unwrap().changed);
    let replica = rig.replica("web", 0);
    assert_eq!(replica.incarnation.0, 1);
    // The count of all its lives never falls.
    assert_eq!((replica.restarts, replica.restarts_total), (0, 3));
    assert!(!rig.ask(start("web")).unwrap().changed);
}

#[test]
fn a_killed_index_stays_empty_until_start_or_submit() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.ask(kill("web", 1)).unwrap();
    rig.ends("web", 1, Final::Stopped);
    assert_eq!(rig.states("web"), ["starting", "killed"]);
    rig.join("n2");
    assert_eq!(rig.states("web"), ["starting", "killed"]);
    assert!(rig.submit(&web("web", 2)).unwrap().changed);
    assert_eq!(rig.states("web"), ["starting", "starting"]);
    let refused = rig.ask(kill("web", 9)).unwrap_err();
    assert!(matches!(refused, Refusal::NoSuchReplica { index: 9, .. }));
}

#[test]
fn a_waiting_replica_stops_at_once() {
    let mut rig = Rig::new();
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(
        rig.replica("web", 0).reason.as_deref(),
        Some("no host has reported yet; a host does once its agent runs")
    );
    rig.ask(stop("web")).unwrap();
    assert_eq!(rig.states("web"), ["stopped"]);
}

#[test]
fn only_what_does_not_live_can_be_deleted_and_its_incarnations_never_come_again() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let refused = rig.ask(delete("web")).unwrap_err();
    assert!(matches!(refused, Refusal::StillRunning { live: 1, .. }));
    rig.ask(stop("web")).unwrap();
    rig.ends("web", 0, Final::Stopped);
    rig.ask(delete("web")).unwrap();
    assert!(rig.registry.view().services.is_empty());
    assert!(rig.table.is_empty());
    assert!(rig.events("web").is_empty());
    // The host still has what it was told to forget.
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(rig.replica("web", 0).incarnation.0, 1);
    assert_eq!(rig.kinds("web"), ["submitted", "placed"]);
}

#[test]
fn what_one_may_not_see_is_answered_like_what_does_not_exist() {
    let mut rig = Rig::new();
    rig.submit(&web("web", 1)).unwrap();
    let bob = caller("bob");
    let hidden = rig.ask_as(&bob, stop("web")).unwrap_err();
    let unknown = rig.ask_as(&bob, stop("nothing")).unwrap_err();
    assert!(matches!(hidden, Refusal::NoSuchService { .. }));
    assert_eq!(
        hidden.to_string().replace("web", "nothing"),
        unknown.to_string()
    );
    let hidden = rig
        .ask_as(&bob, submission(&web("web", 1), true))
        .unwrap_err();
    let unknown = rig
        .ask_as(&bob, submission(&web("other", 1), true))
        .unwrap_err();
    assert_eq!(
        hidden.to_string().replace("web", "other"),
        unknown.to_string()
    );
    rig.submit(&format!("visibility = \"cluster\"\n{}", web("open", 1)))
        .unwrap();
    let refused = rig.ask_as(&bob, scale("open", 0)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "bob may not scale open.alice: it belongs to alice"
    );
    let admin = caller("root").with_rights(Rights::ADMIN);
    assert!(rig.ask_as(&admin, scale("open", 0)).unwrap().changed);
}

#[test]
fn refused_means_unchanged() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let before = rig.everything();
    let (commits, revision) = (rig.commits, rig.registry.revision());
    let bob = caller("bob");
    let nobody = Caller {
        uid: None,
        ..alice()
    };
    for (by, command) in [
        (&bob, stop("web")),
        (&bob, submission(&web("web", 3), true)),
        (&nobody, submission(&web("new", 3), true)),
        (&alice(), scale("web", 100_001)),
        (&alice(), submission(&web("web", 2), false)),
        (&alice(), delete("web")),
        (&alice(), kill("web", 7)),
        (&alice(), start("none")),
        (
            &alice(),
            Command::Restart {
                service: name("web"),
                index: Some(4),
            },
        ),
    ] {
        let text = format!("{command:?}");
        rig.ask_as(by, command).expect_err(&text);
        assert_eq!(rig.everything(), before, "{text}");
    }
    assert_eq!((rig.commits, rig.registry.revision()), (commits, revision));
}

#[test]
fn namespaces_that_differ_in_case_only_are_refused() {
    let mut rig = Rig::new();
    rig.submit(&web("web", 1)).unwrap();
    let shouting = caller("ALICE");
    let Command::Submit(mut submission) = submission(&web("web", 1), false) else {
        unreachable!()
    };
    submission.service = "web.ALICE".parse().unwrap();
    let refused = rig
        .ask_as(&shouting, Command::Submit(submission))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "web.ALICE: namespace ALICE differs from alice in upper and lower case only"
    );
}

#[test]
fn a_restart_of_one_replica_is_ordered_in_place() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let restart = Command::Restart {
        service: name("web"),
        index: Some(0),
    };
    rig.ask(restart.clone()).unwrap();
    let (_, _, wanted) = rig.registry.desired(&"n1".parse().unwrap()).unwrap();
    assert_eq!((wanted[0].restart_no, wanted[0].incarnation.0), (1, 0));
    rig.ends("web", 0, Final::Failed(exit(1)));
    let refused = rig.ask(restart).unwrap_err();
    assert!(matches!(refused, Refusal::Unfit { .. }), "{refused}");
}

#[test]
fn a_stop_of_a_failing_replica_is_told_as_a_stop() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.status("web", 0, |status| status.state = State::Backoff);
    assert_eq!(rig.states("web"), ["backoff"]);
    rig.ask(stop("web")).unwrap();
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Terminating));
    rig.ends(
        "web",
        0,
        Final::GaveUp {
            reason: exit(1),
            count: 10,
        },
    );
    assert_eq!(
        rig.replica("web", 0).reason.as_deref(),
        Some("stopped by alice")
    );
}

#[test]
fn a_port_on_a_network_that_nobody_configured_is_refused_with_its_name() {
    let mut rig = Rig::new();
    rig.join("n1");
    let refused = rig.submit(&with_port("web", 1, "{ any = 1, network = \"data\" }"));
    let words = refused.unwrap_err().to_string();
    assert!(
        words.contains("\"data\"") && words.contains("no network"),
        "{words}"
    );
    assert!(rig.registry.view().services.is_empty());
}

#[test]
fn a_replica_that_leaves_by_a_scale_down_is_wanted_again_although_the_service_was_stopped_meanwhile()
 {
    // The stop once took the place of the scale-down, and the next scale-up found a replica that it did not begin again.
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.ask(scale("web", 0)).unwrap();
    rig.ask(stop("web")).unwrap();
    rig.ask(start("web")).unwrap();
    rig.ask(scale("web", 1)).unwrap();
    rig.ends("web", 0, Final::Stopped);
    rig.ends("web", 1, Final::Stopped);
    assert_eq!(rig.states("web"), ["starting"]);
    // Where the service is stopped still, it is not.
    rig.ask(scale("web", 0)).unwrap();
    rig.ask(stop("web")).unwrap();
    rig.ask(scale("web", 1)).unwrap();
    rig.ends("web", 0, Final::Stopped);
    assert_eq!(rig.states("web"), ["stopped"]);
}
