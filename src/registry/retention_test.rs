//! What is over is forgotten by itself, in its time.

use std::time::Duration;

use crate::supervision::Final;

use super::rig::{Rig, exit, name, web};
use super::{Command, Refusal, View};

const DAY: Duration = Duration::from_secs(86_400);

fn is_known(rig: &Rig, service: &str) -> bool {
    let view: std::sync::Arc<View> = rig.registry.view();
    view.services.contains_key(&name(service))
}

fn ended() -> Rig {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&format!("{}[restart]\npolicy = \"never\"\n", web("web", 1)))
        .unwrap();
    rig.ends("web", 0, Final::Failed(exit(3)));
    assert_eq!(rig.states("web"), ["failed"]);
    rig
}

#[test]
fn a_service_that_ended_is_kept_for_7_days_and_then_forgotten_like_a_deleted_one() {
    let mut rig = ended();
    rig.pass(6 * DAY);
    assert!(is_known(&rig, "web"));
    rig.pass(DAY + Duration::from_secs(7_200));
    assert!(!is_known(&rig, "web"));
    assert!(rig.events("web").is_empty());
    assert_eq!(rig.registry.removed().services.len(), 1);
    rig.pass(Duration::from_secs(2));
    let mut rig = rig.restart();
    assert!(!is_known(&rig, "web"));
    // Its incarnations never come again.
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(rig.replica("web", 0).incarnation.0, 1);
}

#[test]
fn starts_of_the_controller_do_not_begin_the_7_days_anew_and_forget_nothing_at_once() {
    let mut rig = ended();
    for _ in 0..6 {
        rig.pass(DAY);
        rig = rig.restart();
        assert!(is_known(&rig, "web"));
    }
    rig.pass(2 * DAY);
    let mut late = rig.restart();
    // The clock of a machine that was just booted may say anything.
    assert!(!is_known(&late, "web"));
    late.pass(DAY);
    let mut rig = ended();
    rig.now.wall = crate::time::WallClock::from_unix_millis(
        rig.now.wall.as_unix_millis() + u64::try_from((9 * DAY).as_millis()).unwrap(),
    );
    let mut rig = rig.restart();
    rig.pass(Duration::from_secs(500));
    assert!(is_known(&rig, "web"));
    rig.pass(Duration::from_secs(200));
    assert!(!is_known(&rig, "web"));
}

#[test]
fn what_its_owner_stopped_or_scaled_to_none_or_still_runs_in_part_is_kept() {
    let mut rig = Rig::new();
    rig.join("n1");
    for (service, replicas) in [("stopped", 1), ("none", 0), ("part", 2), ("web", 1)] {
        rig.submit(&web(service, replicas)).unwrap();
    }
    let stop = Command::Stop {
        service: name("stopped"),
    };
    rig.ask(stop).unwrap();
    rig.ends("stopped", 0, Final::Stopped);
    for service in ["part", "web"] {
        rig.ends(service, 0, Final::Failed(exit(1)));
    }
    rig.pass(400 * DAY);
    for service in ["stopped", "none", "part"] {
        assert!(is_known(&rig, service), "{service}");
    }
    assert!(!is_known(&rig, "web"));
}

#[test]
fn one_that_is_started_again_in_time_stays() {
    let mut rig = ended();
    rig.pass(6 * DAY);
    let start = Command::Start {
        service: name("web"),
    };
    rig.ask(start).unwrap();
    rig.ready("web", 0);
    rig.pass(30 * DAY);
    assert!(is_known(&rig, "web"));
}

#[test]
fn on_a_full_disk_it_is_kept_and_forgotten_when_there_is_room_again() {
    let mut rig = ended();
    rig.pass(7 * DAY - Duration::from_secs(600));
    rig.store.failing_commits = u32::MAX;
    rig.pass(Duration::from_secs(7_200));
    assert!(is_known(&rig, "web"));
    let start = Command::Start {
        service: name("web"),
    };
    let refused = rig.ask(start);
    assert!(matches!(refused, Err(Refusal::NotStored { .. })));
    rig.store.failing_commits = 0;
    rig.pass(Duration::from_secs(7_200));
    assert!(!is_known(&rig, "web"));
}
