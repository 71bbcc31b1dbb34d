//! Operators' words about hosts that are gone, and what hosts run that nobody here knows.

use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::identity::{Run, ServiceId};
use crate::port_pool::PortGrant;
use crate::rights::{Caller, Rights};
use crate::supervision::{Final, State};

use super::loss_test::{at, back, cluster, graced, held, host_state, other, pass};
use super::rig::{Rig, alice, caller, facts, name, now, starting, web, with_port};
use super::{
    Answer, Command, Config, HostFacts, HostReplica, HostVerb, Input, MemoryStore, Refusal,
    ReplicaReport,
};

fn root() -> Caller {
    caller("root").with_rights(Rights::ADMIN)
}

fn order(rig: &mut Rig, host: &str, verb: HostVerb) -> Result<Answer, Refusal> {
    let host = host.parse().unwrap();
    rig.ask_as(&root(), Command::Host { host, verb })
}

fn of(service: &str, index: u32) -> HostReplica {
    HostReplica {
        service: name(service),
        index,
        incarnation: None,
    }
}

/// What a host tells of a replica that it runs with one number.
fn runs(host: &str, service: &str, incarnation: u32, number: u16) -> ReplicaReport {
    let mut grant: PortGrant = Default::default();
    grant.ports.push(crate::port_pool::GrantedPort {
        name: "http".parse().unwrap(),
        protocol: crate::port::Protocol::Tcp,
        numbers: crate::port::PortRange::single(number.try_into().unwrap()),
    });
    let mut status = starting();
    (status.state, status.ready, status.seq) = (State::Up, true, 9);
    ReplicaReport {
        host: host.parse().unwrap(),
        service: name(service),
        index: 0,
        incarnation: super::rig::incarnation(incarnation),
        service_id: Some(ServiceId(1)),
        grant: Some(grant),
        status,
    }
}

fn ended(of: &ReplicaReport) -> ReplicaReport {
    let mut ended = of.clone();
    ended.status.seq += 1;
    ended.status.ready = false;
    ended.status.state = State::Final(Final::Stopped);
    ended
}

fn tells(rig: &mut Rig, host: &str, replicas: &[ReplicaReport]) {
    rig.tell(Input::HostReport(HostFacts {
        replicas: replicas.to_vec(),
        ..facts(host)
    }));
}

fn warnings(rig: &Rig, host: &str) -> Vec<String> {
    let view = rig.registry.view();
    view.hosts[&host.parse().unwrap()].warnings.clone()
}

#[test]
fn a_host_that_is_declared_down_is_lost_at_once_and_its_numbers_stay_held() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    let done = order(&mut rig, &host, HostVerb::Down { fenced: false }).unwrap();
    assert!(
        done.changed && done.notes[0].contains("1 replica"),
        "{done:?}"
    );
    assert_eq!(host_state(&rig, &host), "lost");
    assert_eq!(at(&rig, "web", 0), rest);
    assert_eq!(held(&mut rig, &host), 1);
    let again = order(&mut rig, &host, HostVerb::Down { fenced: false }).unwrap();
    assert!(!again.changed);
    let mut rig = rig.restart();
    assert_eq!(host_state(&rig, &host), "lost");
    assert_eq!(held(&mut rig, &host), 1);
    // Alive after all, it is back with its report.
    back(&mut rig, &host, &[]);
    assert_eq!(host_state(&rig, &host), "up");
    assert_eq!(held(&mut rig, &host), 0);
}

#[test]
fn only_a_host_that_is_silent_can_be_declared_fenced_and_then_its_numbers_are_free() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    let refused = order(&mut rig, &host, HostVerb::Down { fenced: true }).unwrap_err();
    assert!(refused.to_string().contains("heard of 0s ago"), "{refused}");
    assert_eq!(host_state(&rig, &host), "up");
    pass(&mut rig, 95, &[&rest]);
    assert_eq!(held(&mut rig, &host), 1);
    let before = warnings(&rig, &host);
    assert!(before[0].contains("host down n1 --fenced"), "{before:?}");
    order(&mut rig, &host, HostVerb::Down { fenced: true }).unwrap();
    assert_eq!(held(&mut rig, &host), 0);
    assert_eq!(rig.ports(&host, &alice()).counts.cooling, 1);
    assert!(warnings(&rig, &host)[0].contains("its numbers are free"));
    let told = rig
        .events("web")
        .into_iter()
        .find(|it| it.kind == "released");
    assert!(told.unwrap().text.contains("root declared the host fenced"));
}

// A start of the controller is no silence of hosts: the one before may have heard of them a moment ago.
#[test]
fn a_host_cannot_be_declared_fenced_just_because_the_controller_has_not_heard_of_it_yet() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let mut rig = rig.restart();
    pass(&mut rig, 3, &[]);
    let refused = order(&mut rig, &host, HostVerb::Down { fenced: true }).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("this controller was started 3s ago and cannot know how long"),
        "{refused}"
    );
    assert_eq!(held(&mut rig, &host), 1);
    pass(&mut rig, 20, &[]);
    order(&mut rig, &host, HostVerb::Down { fenced: true }).unwrap();
    assert_eq!(held(&mut rig, &host), 0);
}

#[test]
fn a_host_that_was_declared_fenced_and_lives_has_its_numbers_held_again_until_the_old_ended() {
    let mut rig = cluster(&["n1", "n2"]);
    let fixed = with_port("web", 1, "8443");
    rig.submit(&fixed).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    let old = runs(&host, "web", 0, 8443);
    pass(&mut rig, 30, &[&rest]);
    order(&mut rig, &host, HostVerb::Down { fenced: true }).unwrap();
    assert_eq!(at(&rig, "web", 0), rest);
    assert_eq!(held(&mut rig, &host), 0);
    back(&mut rig, &host, std::slice::from_ref(&old));
    assert_eq!(rig.orders(&host), ["web.alice 0 0 stop"]);
    assert_eq!(held(&mut rig, &host), 1);
    // Told to stop, it is nothing that anybody would have to adopt or fence.
    assert_eq!(warnings(&rig, &host), [""; 0]);
    rig.submit(&format!(
        "placement.hosts = [\"{host}\"]\n{}",
        with_port("other", 1, "8443")
    ))
    .unwrap();
    pass(&mut rig, 120, &[&host, &rest]);
    assert_eq!(at(&rig, "other", 0), "");
    rig.tell(Input::Status(ended(&old)));
    assert_eq!(held(&mut rig, &host), 0);
    pass(&mut rig, 120, &[&host, &rest]);
    assert_eq!(at(&rig, "other", 0), host);
}

#[test]
fn who_waits_for_the_word_of_a_down_still_sees_that_the_host_is_silent() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    pass(&mut rig, 30, &[&rest]);
    rig.store.failing_commits = 1;
    order(&mut rig, &host, HostVerb::Down { fenced: false }).unwrap_err();
    let unconfirmed = Some(EndpointState::Unconfirmed);
    assert_eq!(rig.condition("web", 0), unconfirmed);
    assert_eq!(at(&rig, "web", 0), host);
    assert!(rig.table.values().all(|it| it.endpoints.len() == 1));
}

// Promise 6: a withdrawal waits for no store.
#[test]
fn what_is_not_ready_any_more_is_not_listed_while_the_word_of_a_down_is_with_the_store() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let failing = rig.report("web", 0, |status| status.ready = false);
    rig.slow = true;
    rig.ask_later(
        &root(),
        Command::Host {
            host: host.parse().unwrap(),
            verb: HostVerb::Down { fenced: false },
        },
    );
    rig.settle();
    assert!(rig.condition("web", 0).unwrap().is_listed());
    rig.tell(Input::Status(failing));
    rig.pass(Duration::from_millis(20));
    assert!(!rig.condition("web", 0).unwrap().is_listed());
    // The same whatever becomes of the word.
    rig.store.failing_commits = 1;
    rig.slow = false;
    rig.land();
    rig.settle();
    assert!(!rig.condition("web", 0).unwrap().is_listed());
    assert_eq!(at(&rig, "web", 0), host);
}

#[test]
fn what_was_unknown_on_a_host_is_not_adopted_while_that_is_lost() {
    let mut rig = cluster(&[]);
    tells(&mut rig, "n1", &[runs("n1", "web", 3, 21_000)]);
    rig.submit(&web("web", 1)).unwrap();
    pass(&mut rig, 95, &[]);
    assert_eq!(host_state(&rig, "n1"), "lost");
    let adopt = HostVerb::Adopt {
        replica: of("web", 0),
    };
    let refused = order(&mut rig, "n1", adopt).unwrap_err();
    assert!(refused.to_string().contains("it is lost"), "{refused}");
}

#[test]
fn a_shared_number_is_shared_no_more_once_one_of_both_ended() {
    let mut rig = cluster(&[]);
    let (first, second) = (runs("n1", "a", 0, 21_000), runs("n1", "b", 0, 21_000));
    for _ in 0..3 {
        tells(&mut rig, "n1", &[first.clone(), second.clone()]);
        let shared = warnings(&rig, "n1");
        let shared = shared.iter().filter(|it| it.contains("both keep it"));
        assert_eq!(shared.count(), 1);
        tells(&mut rig, "n1", std::slice::from_ref(&first));
        assert_eq!(rig.registry.conflicts, []);
        assert_eq!(held(&mut rig, "n1"), 1);
    }
}

#[test]
fn a_word_that_the_store_refuses_changes_nothing() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    rig.store.failing_commits = 1;
    let refused = order(&mut rig, &host, HostVerb::Down { fenced: false }).unwrap_err();
    assert!(matches!(refused, Refusal::NotStored { .. }));
    assert_eq!(at(&rig, "web", 0), host);
    rig.join(&host);
    assert_eq!(host_state(&rig, &host), "up");
    assert_eq!(rig.states("web"), ["ready"]);
}

// hosts.md 4: a reported replica that the store does not know.
#[test]
fn an_unknown_replica_is_named_holds_its_numbers_and_is_left_alone() {
    let mut rig = cluster(&[]);
    let stray = runs("n1", "stray", 3, 20_000);
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    let told = warnings(&rig, "n1");
    assert!(
        told[0].starts_with("stray.alice replica 0 incarnation 3 runs here, with http 20000"),
        "{told:?}"
    );
    assert_eq!(held(&mut rig, "n1"), 1);
    assert!(rig.orders("n1").is_empty());
    rig.submit(&with_port("web", 1, "20000")).unwrap();
    assert_eq!(rig.replica("web", 0).reasons[0].code, "HELD");
    // Whatever is undone, it stays held.
    rig.store.failing_commits = 1;
    rig.submit(&web("other", 0)).unwrap_err();
    assert_eq!(held(&mut rig, "n1"), 1);
    assert_eq!(rig.replica("web", 0).job_state, "PEND");
    // It is freed when the host does not run it any more.
    tells(&mut rig, "n1", &[]);
    assert_eq!(held(&mut rig, "n1"), 0);
    assert!(warnings(&rig, "n1").is_empty());
    pass(&mut rig, 65, &["n1"]);
    assert_eq!(rig.replica("web", 0).job_state, "RUN");
}

#[test]
fn a_service_of_the_name_of_an_unknown_replica_begins_above_it_and_does_not_stop_it() {
    let mut rig = cluster(&[]);
    let stray = runs("n1", "web", 3, 20_000);
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(rig.replica("web", 0).incarnation.0, 4);
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    assert_eq!(rig.orders("n1"), ["web.alice 0 4 run"]);
    let mut rig = rig.restart();
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    assert_eq!(rig.orders("n1"), ["web.alice 0 4 run"]);
}

#[test]
fn an_unknown_replica_can_be_adopted_and_goes_on_as_ours() {
    let mut rig = cluster(&[]);
    let stray = runs("n1", "web", 3, 20_000);
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    let adopt = HostVerb::Adopt {
        replica: of("web", 0),
    };
    let refused = order(&mut rig, "n1", adopt.clone()).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("no service web.alice is known"),
        "{refused}"
    );
    // It waits for a host that is not there, so its place is free.
    let pinned = format!("placement.hosts = [\"n9\"]\n{}", web("web", 1));
    rig.submit(&pinned).unwrap();
    assert_eq!(rig.states("web"), ["pending"]);
    assert!(order(&mut rig, "n1", adopt).unwrap().changed);
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.state.as_str(), replica.incarnation.0),
        ("ready", 3)
    );
    assert_eq!(rig.orders("n1"), ["web.alice 0 3 run"]);
    assert_eq!(held(&mut rig, "n1"), 1);
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    assert!(warnings(&rig, "n1").is_empty());
    let mut rig = rig.restart();
    assert_eq!(held(&mut rig, "n1"), 1);
    rig.ends("web", 0, Final::Stopped);
    assert_eq!(held(&mut rig, "n1"), 0);
    let nothing = HostVerb::Adopt {
        replica: of("web", 7),
    };
    let refused = order(&mut rig, "n1", nothing).unwrap_err();
    assert!(
        refused.to_string().contains("no unknown replica"),
        "{refused}"
    );
}

#[test]
fn an_unknown_replica_can_be_fenced_also_over_a_start_and_frees_its_numbers_with_its_end() {
    let mut rig = cluster(&[]);
    let stray = runs("n1", "stray", 3, 20_000);
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    let fence = HostVerb::Fence { replica: None };
    assert!(order(&mut rig, "n1", fence.clone()).unwrap().changed);
    assert_eq!(rig.orders("n1"), ["stray.alice 0 3 stop"]);
    let again = order(&mut rig, "n1", fence.clone()).unwrap();
    assert!(!again.changed && again.notes[0].starts_with("nothing to change"));
    let mut rig = rig.restart();
    assert!(rig.orders("n1").is_empty(), "it has not told of it yet");
    tells(&mut rig, "n1", std::slice::from_ref(&stray));
    assert_eq!(rig.orders("n1"), ["stray.alice 0 3 stop"]);
    assert!(warnings(&rig, "n1")[0].ends_with("it is ordered to stop"));
    rig.tell(Input::Status(ended(&stray)));
    assert_eq!(rig.orders("n1"), ["stray.alice 0 3 forget"]);
    assert_eq!(held(&mut rig, "n1"), 0);
    tells(&mut rig, "n1", &[]);
    assert!(rig.orders("n1").is_empty());
    assert!(!order(&mut rig, "n1", fence).unwrap().changed);
}

// controller.md 2: a restored backup does not know what was placed after it was made.
#[test]
fn after_a_restore_no_incarnation_is_given_that_a_host_may_still_run() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    let backup: MemoryStore = rig.store.clone();
    // What the backup does not know: it went elsewhere, and a service was added.
    order(&mut rig, &host, HostVerb::Down { fenced: false }).unwrap();
    assert_eq!(at(&rig, "web", 0), rest);
    let restored = Config {
        begin_epoch: true,
        ..graced()
    };
    let mut rig = Rig::at(backup, now(1_000_000), restored);
    let moved = runs(&rest, "web", 1, 20_050);
    let later = runs(&rest, "later", 0, 20_051);
    tells(&mut rig, &rest, &[moved.clone(), later.clone()]);
    assert_eq!(warnings(&rig, &rest).len(), 2);
    tells(&mut rig, &host, &[]);
    rig.submit(&web("later", 1)).unwrap();
    assert!(rig.replica("later", 0).incarnation.0 >= 1000);
    rig.ends("web", 0, Final::Stopped);
    rig.ask(Command::Start {
        service: name("web"),
    })
    .unwrap();
    assert!(rig.replica("web", 0).incarnation.0 >= 1000);
    tells(&mut rig, &rest, &[moved, later]);
    let orders = rig.orders(&rest);
    assert!(orders.iter().all(|it| !it.ends_with("stop")), "{orders:?}");
}

/// The story: a replica waited for a place when the backup was made, and got it after. Restored, it got the same
/// incarnation once more, on another host, while the first may still run.
#[test]
fn after_a_restore_what_waited_is_placed_as_an_incarnation_that_was_never_given() {
    let mut rig = Rig::at(MemoryStore::default(), now(0), graced());
    rig.submit(&web("web", 1)).unwrap();
    let backup: MemoryStore = rig.store.clone();
    rig.join("n1");
    rig.ready("web", 0);
    let given = rig.replica("web", 0).incarnation;
    let restored = Config {
        begin_epoch: true,
        ..graced()
    };
    let mut rig = Rig::at(backup, now(1_000_000), restored);
    let runs_on = runs("n1", "web", given.0, 20_000);
    tells(&mut rig, "n1", &[runs_on]);
    assert_eq!(warnings(&rig, "n1").len(), 1, "it is not known here");
    tells(&mut rig, "n2", &[]);
    let placed = rig.replica("web", 0);
    assert!(placed.host.is_some() && placed.incarnation.0 >= 1000);
    // Refused or not, the first batch takes nothing of that back.
    let again = rig.restart().replica("web", 0);
    assert_eq!(again.incarnation, placed.incarnation);
}

/// The story: one backup was restored twice. What had been placed after the first time was given the same incarnation
/// once more after the second, on another host, while the first of that name ran on: each was taken for the other.
#[test]
fn a_backup_that_is_restored_again_gives_no_incarnation_that_it_gave_before() {
    let mut rig = Rig::at(MemoryStore::default(), now(0), graced());
    rig.submit(&web("web", 1)).unwrap();
    let backup: MemoryStore = rig.store.clone();
    let restored = |at| {
        let config = Config {
            begin_epoch: true,
            ..graced()
        };
        Rig::at(backup.clone(), now(at), config)
    };
    let mut rig = restored(60_000);
    rig.join("n1");
    rig.ready("web", 0);
    let given = rig.replica("web", 0).incarnation;
    let mut rig = restored(63_000);
    tells(&mut rig, "n2", &[]);
    let placed = rig.replica("web", 0);
    assert!(placed.host.is_some() && placed.incarnation > given);
    // The other one is nobody's here, and is left alone with its numbers.
    let runs_on = runs("n1", "web", given.0, 20_000);
    tells(&mut rig, "n1", &[runs_on]);
    assert_eq!(warnings(&rig, "n1").len(), 1, "it is not known here");
    let orders = rig.orders("n1");
    assert!(orders.iter().all(|it| !it.ends_with("stop")), "{orders:?}");
}

/// The story: a replica ended after the backup was made, and its host forgot it. Restored, it was listed as ready, and
/// what its new runs told was older than what the backup held of the earlier ones: it stayed listed while it crashed.
#[test]
fn after_a_restore_what_its_host_does_not_run_any_more_is_not_ready_and_is_heard_when_it_begins_anew()
 {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.status("web", 0, |status| {
        (status.run, status.restarts) = (Run(5), 4);
    });
    rig.pass(Duration::from_secs(1));
    let restored = Config {
        begin_epoch: true,
        ..graced()
    };
    let mut rig = Rig::at(rig.store, now(1_000_000), restored);
    assert_eq!(rig.states("web"), ["ready"]);
    let mut begins = rig.report("web", 0, |status| {
        *status = starting();
        status.seq = 1;
    });
    tells(&mut rig, "n1", &[]);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.states("web"), ["starting"]);
    assert_eq!(rig.replica("web", 0).restarts_total, 4);
    rig.tell(Input::Status(begins.clone()));
    begins.status.seq = 2;
    (begins.status.state, begins.status.ready) = (State::Up, true);
    rig.tell(Input::Status(begins));
    assert_eq!(rig.states("web"), ["ready"]);
    // Said once more without it, it is a report that crossed its start.
    tells(&mut rig, "n1", &[]);
    assert_eq!(rig.states("web"), ["ready"]);
}

/// The story: a service was scaled up after the backup was made. Restored, the controller took the new copy for one that
/// it had forgotten, and had it stopped at once.
#[test]
fn after_a_restore_a_copy_that_the_backup_does_not_know_is_left_alone() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let backup: MemoryStore = rig.store.clone();
    let scale = Command::Scale {
        service: name("web"),
        replicas: 2,
    };
    rig.ask(scale).unwrap();
    let given = rig.replica("web", 1).incarnation;
    let restored = Config {
        begin_epoch: true,
        ..graced()
    };
    let mut rig = Rig::at(backup, now(1_000_000), restored);
    let first = runs("n1", "web", rig.replica("web", 0).incarnation.0, 20_000);
    let mut second = runs("n1", "web", given.0, 20_001);
    second.index = 1;
    tells(&mut rig, "n1", &[first, second]);
    let orders = rig.orders("n1");
    assert!(orders.iter().all(|it| !it.ends_with("stop")), "{orders:?}");
    assert_eq!(warnings(&rig, "n1").len(), 1, "it is not known here");
}

#[test]
fn only_admins_speak_about_hosts() {
    let mut rig = cluster(&["n1"]);
    let verb = HostVerb::Down { fenced: false };
    let host = "n1".parse().unwrap();
    let refused = rig.ask(Command::Host { host, verb }).unwrap_err();
    assert!(matches!(refused, Refusal::OperatorsOnly { .. }));
}

/// Found by the model: what was told of a replica that was about to be given up was kept for its return alone, so that
/// it stayed listed, not ready any more, until the store had taken the loss of its host.
#[test]
fn a_withdrawal_waits_for_no_store_that_is_about_to_take_the_loss_of_the_host() {
    for refused in [0, 1] {
        let mut rig = Rig::new();
        rig.join("n1");
        rig.submit(&web("web", 1)).unwrap();
        rig.ready("web", 0);
        let sick = rig.report("web", 0, |status| status.ready = false);
        rig.slow = true;
        let (host, verb) = ("n1".parse().unwrap(), HostVerb::Down { fenced: false });
        rig.ask_later(&root(), Command::Host { host, verb });
        assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
        rig.tell(Input::Status(sick));
        assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
        rig.store.failing_commits = refused;
        rig.slow = false;
        rig.land();
        rig.settle();
        let is_there = rig.condition("web", 0) == Some(EndpointState::NotReady);
        assert_eq!(is_there, refused == 1);
    }
}
