use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::endpoints::{Change, EndpointState};
use crate::identity::Incarnation;

fn name(text: &str) -> ServiceName {
    text.parse().unwrap()
}

fn endpoint(replica: u32, state: EndpointState) -> Endpoint {
    Endpoint {
        replica,
        incarnation: Incarnation(0),
        job: None,
        host: "n1".parse().unwrap(),
        address: Some([10, 0, 0, 1].into()),
        ports: Vec::new(),
        state,
        reason: None,
        ready_since: None,
        restarts: 0,
        labels: Arc::default(),
    }
}

fn whole(service: &str, endpoints: Vec<Endpoint>) -> ServiceUpdate {
    ServiceUpdate {
        service: name(service),
        desired: 2,
        change: Change::Whole(endpoints),
    }
}

fn set(service: &str, states: &[EndpointState]) -> ServiceUpdate {
    let endpoints = (0..).zip(states);
    let endpoints = endpoints.map(|(index, state)| endpoint(index, *state));
    whole(service, endpoints.collect())
}

use EndpointState::{NotReady, Ready, Serving, Unconfirmed};

fn table() -> EndpointTable {
    EndpointTable::new("4f1c".to_owned(), 10)
}

#[test]
fn an_unknown_service_is_distinct_from_an_empty_one() {
    let table = table();
    assert!(table.service(&name("web.alice")).is_none());
    assert!(table.publish(11, vec![set("web.alice", &[])], &[]));
    let known = table.read(&name("web.alice"), |s| s.listed().len());
    assert_eq!(known, Some(0));
    assert!(table.service(&name("web.bob")).is_none());
}

#[test]
fn an_equal_set_makes_no_swap_and_moves_no_number() {
    // P41
    let table = table();
    table.publish(11, vec![set("web.alice", &[Ready])], &[]);
    let web = table.service(&name("web.alice")).unwrap();
    let before = web.snapshot();
    let (number, whole) = (web.subscribe(), table.subscribe());
    assert!(!table.publish(12, vec![set("web.alice", &[Ready])], &[]));
    assert!(Arc::ptr_eq(&before, &web.snapshot()));
    assert!(!number.has_changed());
    assert!(!whole.has_changed());
    assert_eq!(table.revision(), 11);
}

#[test]
fn what_is_not_listed_moves_only_the_number_of_everything_shown() {
    let table = table();
    table.publish(11, vec![set("web.alice", &[Ready, NotReady])], &[]);
    let web = table.service(&name("web.alice")).unwrap();
    let (all, ready) = (web.subscribe(), web.subscribe_ready());
    let ready_of_all = table.subscribe_ready();
    table.publish(12, vec![set("web.alice", &[Ready, Serving])], &[]);
    assert_eq!((all.number(), ready.number()), (12, 11));
    assert!(!ready_of_all.has_changed());
    let snapshot = web.snapshot();
    assert_eq!(
        (snapshot.mod_revision(), snapshot.ready_revision()),
        (12, 11)
    );
    let revisions: Vec<_> = snapshot.entries().map(|(_, revision)| revision).collect();
    assert_eq!(revisions, [11, 12]);
    table.publish(13, vec![set("web.alice", &[Ready, Ready])], &[]);
    assert_eq!((all.number(), ready.number()), (13, 13));
}

#[test]
fn a_silent_host_is_shown_but_wakes_nobody() {
    let table = table();
    table.publish(11, vec![set("web.alice", &[Ready])], &[]);
    let web = table.service(&name("web.alice")).unwrap();
    let number = web.subscribe();
    assert!(!table.publish(12, vec![set("web.alice", &[Unconfirmed])], &[]));
    assert!(!number.has_changed());
    let snapshot = web.snapshot();
    assert_eq!(snapshot.entry(&0).unwrap().0.state, Unconfirmed);
    assert_eq!(snapshot.listed().len(), 1);
    assert_eq!(snapshot.mod_revision(), 11);
}

#[test]
fn a_host_that_is_silent_again_wakes_nobody_either() {
    // It was heard of, and fell silent anew, within one window of changes: the second silence was shown as a change.
    let unknown_since = |moment: &str| Endpoint {
        reason: Some(format!("unknown since {moment}: host n1 is silent")),
        ..endpoint(0, Unconfirmed)
    };
    let table = table();
    table.publish(11, vec![set("web.alice", &[Ready])], &[]);
    let web = table.service(&name("web.alice")).unwrap();
    let number = web.subscribe();
    for moment in ["10:00", "10:07"] {
        assert!(!table.publish(
            12,
            vec![whole("web.alice", vec![unknown_since(moment)])],
            &[]
        ));
        let reason = web.snapshot().entry(&0).unwrap().0.reason.clone();
        assert!(reason.unwrap().contains(moment));
    }
    assert!(!number.has_changed());
}

#[test]
fn an_endpoint_without_address_is_never_listed() {
    let table = table();
    let homeless = Endpoint {
        address: None,
        ..endpoint(0, Ready)
    };
    table.publish(11, vec![whole("web.alice", vec![homeless])], &[]);
    assert_eq!(
        table.read(&name("web.alice"), |s| s.listed().len()),
        Some(0)
    );
}

#[test]
fn one_replica_never_has_two_entries_and_order_is_by_index() {
    let table = table();
    let mixed = [(2, 0), (0, 1), (0, 3), (1, 0), (0, 2)].map(|(replica, incarnation)| Endpoint {
        incarnation: Incarnation(incarnation),
        ..endpoint(replica, Ready)
    });
    table.publish(11, vec![whole("web.alice", mixed.to_vec())], &[]);
    let web = table.service(&name("web.alice")).unwrap().snapshot();
    let kept: Vec<_> = web.listed().map(|e| (e.replica, e.incarnation.0)).collect();
    assert_eq!(kept, [(0, 3), (1, 0), (2, 0)]);
}

#[test]
fn removal_wakes_whoever_waits_and_the_name_is_unknown_again() {
    let table = table();
    table.publish(11, vec![set("web.alice", &[Ready])], &[]);
    let web = table.service(&name("web.alice")).unwrap();
    let (all, ready) = (web.subscribe(), web.subscribe_ready());
    assert!(table.publish(12, vec![], &[name("web.alice"), name("no.body")]));
    assert!(all.has_changed() && ready.has_changed());
    assert!(web.snapshot().is_removed());
    assert!(table.service(&name("web.alice")).is_none());
    assert_eq!(table.revision(), 12);
    // Removed twice is harmless.
    assert!(!table.publish(13, vec![], &[name("web.alice")]));
    assert_eq!(table.revision(), 12);
    // A later service of that name has a place of its own.
    table.publish(14, vec![set("web.alice", &[Ready])], &[]);
    assert!(web.snapshot().is_removed());
    assert_eq!(
        table.read(&name("web.alice"), Snapshot::is_removed),
        Some(false)
    );
}

#[test]
fn who_waits_for_an_unknown_name_is_woken_when_a_name_appears() {
    let table = table();
    let names = table.subscribe_names();
    table.publish(11, vec![set("web.alice", &[Ready])], &[]);
    assert!(names.has_changed());
    let names = table.subscribe_names();
    table.publish(12, vec![set("web.alice", &[NotReady])], &[]);
    assert!(!names.has_changed());
}

#[test]
fn services_are_listed_by_name() {
    let table = table();
    let sets = ["web.bob", "db.alice", "web.alice"].map(|service| set(service, &[]));
    table.publish(11, sets.to_vec(), &[]);
    let all: Vec<_> = table
        .services()
        .iter()
        .map(|h| h.service().to_string())
        .collect();
    assert_eq!(all, ["db.alice", "web.alice", "web.bob"]);
}

#[test]
fn readers_see_one_version_and_at_least_what_the_number_promised() {
    const REPLICAS: u32 = 40;
    const VERSIONS: u64 = 2_000;
    let table = table();
    let version = |revision: u64| {
        let marked = |replica| Endpoint {
            restarts: u32::try_from(revision).unwrap(),
            ..endpoint(replica, Ready)
        };
        whole("web.alice", (0..REPLICAS).map(marked).collect())
    };
    table.publish(11, vec![version(11)], &[]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let service = name("web.alice");
                let handle = table.service(&service).unwrap();
                let mut newest = 0;
                let mut ended = false;
                while !ended {
                    // One more look after the end, which must find the last version.
                    ended = done.load(Ordering::Acquire);
                    let promised = table.revision();
                    let seen = handle.read(|snapshot| {
                        let marks: BTreeSet<_> = snapshot.listed().map(|e| e.restarts).collect();
                        assert_eq!(marks.len(), 1, "a torn snapshot: {marks:?}");
                        assert_eq!(snapshot.listed().len(), REPLICAS as usize);
                        assert!(marks.contains(&u32::try_from(snapshot.mod_revision()).unwrap()));
                        snapshot.mod_revision()
                    });
                    assert!(seen >= promised, "{seen} is older than {promised}");
                    assert!(seen >= newest, "{seen} came after {newest}");
                    newest = seen;
                }
                assert_eq!(newest, 10 + VERSIONS);
            });
        }
        for revision in 12..=10 + VERSIONS {
            table.publish(revision, vec![version(revision)], &[]);
        }
        done.store(true, Ordering::Release);
    });
}

/// What the model knows of one service: states, both numbers.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    states: Vec<EndpointState>,
    changed: u64,
    ready: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<(usize, Vec<EndpointState>)>),
    Remove(usize),
}

const SERVICES: [&str; 3] = ["a.x", "b.x", "c.y"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop::sample::select(vec![NotReady, Ready, Serving, Unconfirmed]);
    let one = (0..SERVICES.len(), prop::collection::vec(state, 0..4));
    let step = prop_oneof![
        4 => prop::collection::vec(one, 1..4).prop_map(Step::Publish),
        1 => (0..SERVICES.len()).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 1..40)
}

/// What a default answer shows of these states, and what `state=all` shows, whatever the age.
fn shown(states: &[EndpointState]) -> (Vec<usize>, Vec<EndpointState>) {
    let listed = (0..states.len())
        .filter(|i| states[*i].is_listed())
        .collect();
    let all = states
        .iter()
        .map(|s| if s.is_listed() { Ready } else { *s });
    (listed, all.collect())
}

proptest! {
    #[test]
    fn the_table_tells_what_a_plain_map_tells(steps in steps()) {
        let table = table();
        let mut model: BTreeMap<&str, Plain> = BTreeMap::new();
        let mut newest = 10;
        for (step, revision) in steps.into_iter().zip(11..) {
            let before = table.revision();
            let mut moved = false;
            match step {
                Step::Publish(batch) => {
                    for (service, states) in &batch {
                        let entry = model.entry(SERVICES[*service]);
                        let known = entry.or_insert_with(|| {
                            moved = true;
                            Plain { states: states.clone(), changed: revision, ready: revision }
                        });
                        let (old, new) = (shown(&known.states), shown(states));
                        if old.0 != new.0 { known.ready = revision; }
                        if old.1 != new.1 { known.changed = revision; moved = true; }
                        known.states.clone_from(states);
                    }
                    let sets = batch.iter().map(|(service, states)| set(SERVICES[*service], states));
                    prop_assert_eq!(table.publish(revision, sets.collect(), &[]), moved);
                }
                Step::Remove(service) => {
                    moved = model.remove(SERVICES[service]).is_some();
                    let gone = [name(SERVICES[service])];
                    prop_assert_eq!(table.publish(revision, vec![], &gone), moved);
                }
            }
            if moved { newest = revision; }
            prop_assert!(table.revision() >= before);
            prop_assert_eq!(table.revision(), newest);
            for service in SERVICES {
                let told = table.read(&name(service), |snapshot| Plain {
                    states: snapshot.entries().map(|(e, _)| e.state).collect(),
                    changed: snapshot.mod_revision(),
                    ready: snapshot.ready_revision(),
                });
                prop_assert_eq!(told.as_ref(), model.get(service));
                if let (Some(handle), Some(told)) = (table.service(&name(service)), told) {
                    prop_assert_eq!(handle.subscribe().number(), told.changed);
                    prop_assert_eq!(handle.subscribe_ready().number(), told.ready);
                }
            }
        }
    }
}
