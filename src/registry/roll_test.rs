//! Replacing and restarting, one replica after the other.

use crate::supervision::{Final, State};

use super::Command;
use super::rig::{Rig, exit, name, web, with_port};

fn faster(replicas: u32) -> String {
    web("web", replicas).replace("\"serve\"", "\"serve\", \"--fast\"")
}

fn running(replicas: u32) -> Rig {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", replicas)).unwrap();
    for index in 0..replicas {
        rig.ready("web", index);
    }
    rig
}

fn incarnations(rig: &Rig) -> Vec<u32> {
    let view = rig.registry.view();
    let replicas = view.services[&name("web")].replicas.iter();
    replicas.map(|it| it.incarnation.0).collect()
}

/// Whether the host runs replica `index` with the new profile.
fn is_fast(rig: &Rig, index: usize) -> bool {
    let (_, _, wanted) = rig.registry.desired(&"n1".parse().unwrap()).unwrap();
    let runs = |it: &&super::Desired| it.want == super::Want::Run;
    let it = wanted.iter().filter(runs).nth(index).unwrap();
    format!("{:?}", it.profile.command).contains("--fast")
}

#[test]
fn a_replacement_takes_the_highest_first_and_waits_for_ready() {
    let mut rig = running(3);
    let before = rig.replica("web", 2).ports;
    assert!(rig.replace(&faster(3)).unwrap().changed);
    assert_eq!(rig.states("web"), ["ready", "ready", "stopping"]);
    rig.ends("web", 2, Final::Stopped);
    assert_eq!(incarnations(&rig), [0, 0, 1]);
    // Back on its host it has its numbers again.
    assert_eq!(rig.replica("web", 2).ports, before);
    assert!(is_fast(&rig, 2) && !is_fast(&rig, 1));
    assert_eq!(rig.states("web"), ["ready", "ready", "starting"]);
    rig.ready("web", 2);
    assert_eq!(rig.states("web"), ["ready", "stopping", "ready"]);
    rig.ends("web", 1, Final::Stopped);
    rig.ready("web", 1);
    rig.ends("web", 0, Final::Stopped);
    rig.ready("web", 0);
    assert_eq!(incarnations(&rig), [1, 1, 1]);
    assert_eq!(rig.states("web"), ["ready", "ready", "ready"]);
    assert_eq!(rig.kinds("web").last().unwrap(), "rolled");
    // The former profile is forgotten with its last replica.
    let service = rig.registry.names[&name("web")];
    let profiles = &rig.registry.truth.services.find(&service).unwrap().profiles;
    assert_eq!(profiles.len(), 1);
}

#[test]
fn a_give_up_stops_the_roll() {
    let mut rig = running(3);
    rig.replace(&faster(3)).unwrap();
    rig.ends("web", 2, Final::Stopped);
    rig.ends(
        "web",
        2,
        Final::GaveUp {
            reason: exit(1),
            count: 10,
        },
    );
    assert_eq!(rig.states("web"), ["ready", "ready", "gave up"]);
    let last = rig.events("web").pop().unwrap();
    assert_eq!(
        last.text,
        "the replacement by alice stops at replica 2 with 2 to go: gave up after 10 restarts: exit 1 \
         (at most 10 within 10m6s)"
    );
    // A better profile rolls again, over all of them.
    let better = faster(3).replace("--fast", "--faster");
    rig.replace(&better).unwrap();
    assert_eq!(rig.states("web"), ["ready", "ready", "starting"]);
    rig.ready("web", 2);
    assert_eq!(rig.states("web"), ["ready", "stopping", "ready"]);
}

#[test]
fn another_number_of_replicas_alone_restarts_nothing() {
    let mut rig = running(2);
    rig.replace(&web("web", 3)).unwrap();
    assert_eq!(rig.states("web"), ["ready", "ready", "starting"]);
    assert_eq!(incarnations(&rig), [0, 0, 0]);
}

#[test]
fn waiting_and_ended_replicas_take_the_new_profile_without_a_roll() {
    let mut rig = Rig::new();
    rig.submit(&web("web", 1)).unwrap();
    rig.replace(&faster(1)).unwrap();
    rig.join("n1");
    assert!(is_fast(&rig, 0));
    assert_eq!(incarnations(&rig), [0]);
}

/// A service was stopped and submitted changed while its last process still stopped: the replacement waited for the
/// highest, which found no place or ended by itself, and the others stayed "stopped by alice" for good.
#[test]
fn a_replacement_starts_everything_that_ended_at_once_and_what_still_stops_after_its_end() {
    let mut rig = running(3);
    rig.ask(Command::Stop {
        service: name("web"),
    })
    .unwrap();
    rig.ends("web", 2, Final::Stopped);
    rig.ends("web", 1, Final::Stopped);
    assert_eq!(rig.states("web"), ["stopping", "stopped", "stopped"]);
    rig.replace(&faster(3)).unwrap();
    assert_eq!(rig.states("web"), ["stopping", "starting", "starting"]);
    // The replacement ends here.
    rig.ends("web", 2, Final::Failed(exit(1)));
    assert_eq!(rig.kinds("web").last().unwrap(), "roll-stopped");
    rig.ends("web", 0, Final::Stopped);
    assert_eq!(rig.states("web"), ["starting", "starting", "failed"]);
}

#[test]
fn what_serves_is_replaced_once_one_that_had_ended_is_ready() {
    let mut rig = running(4);
    for index in [0, 2] {
        rig.ends("web", index, Final::Failed(exit(1)));
    }
    assert_eq!(rig.states("web"), ["failed", "ready", "failed", "ready"]);
    rig.replace(&faster(4)).unwrap();
    assert_eq!(
        rig.states("web"),
        ["starting", "ready", "starting", "ready"]
    );
    rig.ready("web", 0);
    assert_eq!(rig.states("web"), ["ready", "ready", "starting", "ready"]);
    rig.ready("web", 2);
    assert_eq!(rig.states("web"), ["ready", "ready", "ready", "stopping"]);
    rig.ends("web", 3, Final::Stopped);
    rig.ready("web", 3);
    rig.ends("web", 1, Final::Stopped);
    rig.ready("web", 1);
    assert_eq!(rig.kinds("web").last().unwrap(), "rolled");
}

#[test]
fn a_restart_of_all_goes_one_by_one_in_place() {
    let mut rig = running(2);
    let all = Command::Restart {
        service: name("web"),
        index: None,
    };
    rig.ask(all.clone()).unwrap();
    let numbers = |rig: &Rig| {
        let (_, _, wanted) = rig.registry.desired(&"n1".parse().unwrap()).unwrap();
        wanted.iter().map(|it| it.restart_no).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&rig), [0, 1]);
    let refused = rig.ask(all).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "web.alice: the restart by alice is under way with 2 replicas to go; wait for it, or restart one replica"
    );
    // Ready as before: the worker has not acted yet.
    rig.status("web", 1, |status| status.restarts = 1);
    assert_eq!(numbers(&rig), [0, 1]);
    rig.status("web", 1, |status| {
        status.restart_no = 1;
        status.ready = false;
        status.state = State::Stopping;
    });
    assert_eq!(numbers(&rig), [0, 1]);
    rig.ready("web", 1);
    assert_eq!(numbers(&rig), [1, 1]);
    rig.ready("web", 0);
    assert_eq!(rig.kinds("web").last().unwrap(), "rolled");
    assert_eq!(incarnations(&rig), [0, 0]);
}

#[test]
fn a_restart_is_shown_as_under_way_until_it_is_through() {
    let mut rig = running(2);
    let under_way = |rig: &Rig| rig.registry.view().services[&name("web")].under_way.clone();
    let restart = |index| Command::Restart {
        service: name("web"),
        index,
    };
    assert_eq!(under_way(&rig), None);
    // Told, not acted: it is ready as before, but not for those who wait for the restart.
    rig.ask(restart(Some(0))).unwrap();
    assert_eq!(rig.states("web"), ["ready", "ready"]);
    assert_eq!(under_way(&rig).unwrap(), "restart of 1 replica");
    rig.status("web", 0, |status| status.restart_no = 1);
    assert_eq!(under_way(&rig), None);

    rig.ask(restart(None)).unwrap();
    assert_eq!(
        under_way(&rig).unwrap(),
        "restart by alice, 2 replicas to go"
    );
    rig.ready("web", 1);
    assert_eq!(
        under_way(&rig).unwrap(),
        "restart by alice, 1 replica to go"
    );
    rig.ready("web", 0);
    assert_eq!(under_way(&rig), None);
}

#[test]
fn a_roll_goes_on_after_the_controller_died() {
    let mut rig = running(2);
    rig.replace(&faster(2)).unwrap();
    rig.ends("web", 1, Final::Stopped);
    let mut rig = rig.restart();
    rig.join("n1");
    assert_eq!(rig.states("web"), ["ready", "starting"]);
    rig.ready("web", 1);
    assert_eq!(rig.states("web"), ["stopping", "ready"]);
}

#[test]
fn a_roll_goes_on_when_the_replica_it_waits_for_is_killed_without_a_process() {
    // The property test found it: nothing else touched the service, so the roll waited for ever.
    let mut rig = running(3);
    // Replica 1 holds 20001 until its own turn.
    rig.replace(&with_port("web", 3, "20001")).unwrap();
    rig.ends("web", 2, Final::Stopped);
    assert_eq!(rig.states("web"), ["ready", "ready", "pending"]);
    rig.ask(Command::Kill {
        service: name("web"),
        index: 2,
    })
    .unwrap();
    assert_eq!(rig.states("web"), ["ready", "stopping", "killed"]);
}

#[test]
fn a_replica_that_is_killed_while_a_replacement_is_on_its_way_to_it_stays_empty() {
    // The replacement once renewed what its owner had just killed.
    let mut rig = running(2);
    rig.replace(&faster(2)).unwrap();
    let kill = Command::Kill {
        service: name("web"),
        index: 0,
    };
    assert!(rig.ask(kill).unwrap().changed);
    rig.ends("web", 1, Final::Stopped);
    rig.ready("web", 1);
    rig.ends("web", 0, Final::Stopped);
    assert_eq!(rig.states("web"), ["killed", "ready"]);
    assert_eq!(rig.kinds("web").last().unwrap(), "killed");
    let start = Command::Start {
        service: name("web"),
    };
    assert!(rig.ask(start).unwrap().changed);
    assert!(is_fast(&rig, 0));
}

/// A process that nothing can end was to be restarted with all others, and was scaled down then: the restart was under
/// way for ever, `wait` waited with it, and another was refused.
#[test]
fn a_roll_does_not_wait_for_the_end_of_what_its_owner_ended() {
    let mut rig = running(2);
    rig.ask(Command::Restart {
        service: name("web"),
        index: None,
    })
    .unwrap();
    rig.status("web", 1, |status| {
        status.ready = false;
        status.state = State::Stuck;
    });
    rig.ask(Command::Scale {
        service: name("web"),
        replicas: 1,
    })
    .unwrap();
    rig.ready("web", 0);
    assert_eq!(rig.kinds("web").last().unwrap(), "rolled");
    assert_eq!(rig.states("web"), ["ready", "stuck"]);
}

/// The story: a replica was restarted by hand at its host. A restart that its owner ordered then had a number that its
/// worker had reached already: it was not done, and nothing was told that would have ended the roll.
#[test]
fn a_restart_is_done_also_after_others_by_hand() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.status("web", 0, |status| status.restart_no = 2);
    rig.ask(Command::Restart {
        service: name("web"),
        index: None,
    })
    .unwrap();
    let (.., wanted) = rig.registry.desired(&"n1".parse().unwrap()).unwrap();
    assert_eq!(wanted[0].restart_no, 3);
    rig.ready("web", 0);
    let view = rig.registry.view();
    assert_eq!(view.services[&name("web")].under_way, None);
}
