//! The writer is stopped at every step of a batch, and readers still finish: none waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};

use crate::endpoints::plain::{Plain, name, parts, whole};
use crate::endpoints::sync::stops::stepping;
use crate::endpoints::{EndpointTable, Listing};

const OLD: u64 = 11;
const NEW: u64 = 12;

/// Big enough for a ring of retired versions, so that its lock is among the steps.
const REPLICAS: u32 = 70;

fn table() -> EndpointTable<Plain> {
    let table = EndpointTable::new("4f1c".to_owned(), 10);
    let ready = |key| Plain::ready(key, 0);
    let updates = ["flips.x", "stays.x", "grows.x", "goes.x"]
        .map(|service| whole(service, (0..REPLICAS).map(ready).collect()));
    table.publish(OLD, updates.to_vec(), &[]);
    table
}

/// A batch in which everything happens that can.
fn change(table: &EndpointTable<Plain>) {
    let updates = vec![
        parts("flips.x", vec![Plain::not_ready(3, 1)], vec![]),
        parts("grows.x", vec![Plain::ready(REPLICAS, 1)], vec![]),
        whole("comes.x", vec![Plain::ready(0, 1)]),
    ];
    assert!(table.publish(NEW, updates, &[name("goes.x")]));
}

/// Everything a reader can do. What it finds is either version, whole, and no older than promised.
fn read(table: &EndpointTable<Plain>) {
    let promised = table.revision();
    let ready_promised = table.ready_revision();
    for (service, old, new) in [
        ("flips.x", REPLICAS, REPLICAS - 1),
        ("grows.x", REPLICAS, REPLICAS + 1),
        ("stays.x", REPLICAS, REPLICAS),
    ] {
        let handle = table.service(&name(service)).unwrap();
        let mut sleeper = handle.subscribe();
        let snapshot = handle.snapshot();
        assert!(snapshot.mod_revision() >= promised || service == "stays.x");
        assert!(snapshot.ready_revision() >= ready_promised || service == "stays.x");
        let is_new = snapshot.mod_revision() == NEW;
        let ready = if is_new { new } else { old };
        assert_eq!(snapshot.ready(), ready as usize);
        assert_eq!(snapshot.listed().count(), ready as usize);
        let changes = snapshot.changes_since(OLD, Listing::Ready).unwrap();
        assert_eq!(changes.is_empty(), !is_new);
        let bytes = snapshot.rendered(|of| of.mod_revision().to_be_bytes().into());
        assert_eq!(*bytes, snapshot.mod_revision().to_be_bytes());
        // Lies down and rises again, as an answer does whose time is over.
        let _ = sleeper.poll_changed(&mut Context::from_waker(Waker::noop()));
    }
    let known = table.services().len();
    assert!((3..=5).contains(&known), "{known} services");
    let recent = table.recent(OLD).unwrap();
    let told = if recent.revision == NEW { 4 } else { 0 };
    assert_eq!(recent.services.len(), told);
    for (revision, service) in &recent.services {
        let seen = table.read(service, |seen| seen.mod_revision());
        // `None`: removed.
        assert!(seen.is_none_or(|seen| seen >= *revision));
    }
    assert!(table.removed_since(OLD).unwrap().len() <= 1);
    let mut names = table.subscribe_names();
    if table.service(&name("comes.x")).is_none() {
        let _ = names.poll_changed(&mut Context::from_waker(Waker::noop()));
    }
    drop((table.subscribe(), table.subscribe_ready()));
}

#[test]
fn readers_finish_wherever_the_writer_stopped() {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let counting = table();
    stepping(
        move || {
            counted.fetch_add(1, Ordering::Relaxed);
        },
        || change(&counting),
    );
    let steps = steps.load(Ordering::Relaxed);
    // Four services with two numbers each, three numbers of the table, the map: there is much to stop at.
    assert!(steps > 30, "{steps} steps");
    for stop in 0..steps {
        let table = table();
        let (stopped, is_stopped) = mpsc::channel();
        std::thread::scope(|scope| {
            // Gone with this closure: a failed reader must not leave the writer standing.
            let (go_on, may_go_on) = mpsc::channel::<()>();
            let mut left = stop;
            let at_step = move || {
                if left == 0 {
                    stopped.send(()).unwrap();
                    let _ = may_go_on.recv();
                }
                left = left.wrapping_sub(1);
            };
            let writer = scope.spawn(|| stepping(at_step, || change(&table)));
            is_stopped.recv().unwrap();
            let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| read(&table))).collect();
            for reader in readers {
                reader.join().unwrap();
            }
            assert!(!writer.is_finished());
            go_on.send(()).unwrap();
            writer.join().unwrap();
        });
        read(&table);
        assert_eq!(table.revision(), NEW);
    }
}
