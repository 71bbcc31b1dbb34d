//! Every order in which the table's writer, its readers and its sleepers can meet, weak memory included.
//!
//! The first part runs the table as it is. The second plays orders that look right and lose something, on the
//! same primitives: loom must find the loss, else it would not find one in the first part either.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Wake, Waker};

use loom::thread;

use crate::endpoints::number::{Number, Watcher};
use crate::endpoints::sync::Swap;
use crate::endpoints::{Change, EndpointTable, Entry, ServiceUpdate};
use crate::identity::{Incarnation, ServiceName};

/// As little of an entry as there can be.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bare {
    key: u32,
    ready: bool,
}

impl Entry for Bare {
    type Key = u32;
    type Kept = Self;

    fn keep(self) -> Self {
        self
    }

    fn of(kept: &Self) -> &Self {
        kept
    }

    fn key(&self) -> u32 {
        self.key
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(0)
    }

    fn is_listed(&self) -> bool {
        self.ready
    }

    fn same_but_for_age(&self, other: &Self) -> bool {
        self == other
    }
}

fn name(text: &str) -> ServiceName {
    text.parse().unwrap()
}

fn update(service: &str, ready: bool) -> ServiceUpdate<Bare> {
    ServiceUpdate {
        service: name(service),
        desired: 1,
        change: Change::Whole(vec![Bare { key: 0, ready }]),
    }
}

/// A table at revision 1 that knows these services.
fn table(services: &[&str]) -> Arc<EndpointTable<Bare>> {
    let table = EndpointTable::new("loom".to_owned(), 0);
    let updates = services.iter().map(|service| update(service, false));
    table.publish(1, updates.collect(), &[]);
    Arc::new(table)
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Every bug of such protocols that was ever reported needs two; three keep the run short.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A writer in a thread of its own, and who sleeps until it wakes them. Said with plain atomics, which order
/// nothing: loom's threads take turns on one real thread.
struct Writer {
    thread: thread::JoinHandle<()>,
    is_through: Arc<AtomicBool>,
}

impl Writer {
    fn start(write: impl FnOnce() + 'static) -> Self {
        let is_through = Arc::new(AtomicBool::new(false));
        let through = Arc::clone(&is_through);
        let thread = thread::spawn(move || {
            write();
            through.store(true, Relaxed);
        });
        Self { thread, is_through }
    }

    /// Sleeps until `look` finds something. Subscribed before, as the rule is.
    fn await_news<T>(&self, sleeper: &mut Watcher, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            sleeper.mark_unchanged();
            if let Some(found) = look() {
                return found;
            }
            self.sleep(sleeper);
        }
    }

    /// Sleeps until woken. Nobody wakes a sleeper once the writer is through.
    fn sleep(&self, sleeper: &mut Watcher) {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        if sleeper
            .poll_changed(&mut Context::from_waker(&waker))
            .is_ready()
        {
            return;
        }
        while !bell.0.load(Relaxed) {
            assert!(!self.is_through.load(Relaxed), "left asleep for ever");
            thread::yield_now();
        }
    }

    fn join(self) {
        self.thread.join().unwrap();
    }
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn who_waits_on_a_service_is_never_left_asleep() {
    explore(|| {
        let table = table(&["a.x"]);
        let written = Arc::clone(&table);
        let writer = Writer::start(move || {
            written.publish(2, vec![update("a.x", true)], &[]);
        });
        let handle = table.service(&name("a.x")).unwrap();
        let mut sleeper = handle.subscribe_ready();
        let ready = writer.await_news(&mut sleeper, || {
            handle.read(|seen| (seen.ready_revision() > 1).then(|| seen.ready()))
        });
        assert_eq!(ready, 1);
        writer.join();
    });
}

#[test]
fn who_is_late_or_slow_still_ends_with_the_last_version() {
    explore(|| {
        let table = table(&["a.x"]);
        let written = Arc::clone(&table);
        let writer = Writer::start(move || {
            written.publish(2, vec![update("a.x", true)], &[]);
            written.publish(3, vec![update("a.x", false)], &[]);
        });
        let handle = table.service(&name("a.x")).unwrap();
        let mut sleeper = handle.subscribe();
        let mut newest = 1;
        writer.await_news(&mut sleeper, || {
            let seen = handle.read(|seen| seen.mod_revision());
            assert!(seen >= newest, "{seen} came after {newest}");
            newest = seen;
            (seen == 3).then_some(())
        });
        writer.join();
    });
}

#[test]
fn the_tables_number_never_runs_ahead_of_what_it_promises() {
    explore(|| {
        let table = table(&["a.x", "b.x"]);
        let written = Arc::clone(&table);
        let writer = Writer::start(move || {
            written.publish(2, vec![update("a.x", true), update("b.x", true)], &[]);
        });
        let promised = (table.revision(), table.ready_revision());
        for service in ["a.x", "b.x"] {
            let seen = table.read(&name(service), |seen| {
                (seen.mod_revision(), seen.ready_revision())
            });
            let seen = seen.unwrap();
            assert!(seen.0 >= promised.0 && seen.1 >= promised.1);
        }
        writer.join();
    });
}

#[test]
fn a_stream_over_many_services_misses_none() {
    explore(|| {
        let table = table(&["a.x", "b.x"]);
        let written = Arc::clone(&table);
        let writer = Writer::start(move || {
            written.publish(2, vec![update("a.x", true), update("b.x", true)], &[]);
        });
        let mut sleeper = table.subscribe();
        let told = writer.await_news(&mut sleeper, || {
            let recent = table.recent(1).unwrap();
            (recent.revision > 1).then_some(recent)
        });
        let services: Vec<_> = told.services.iter().map(|(_, it)| it.to_string()).collect();
        assert_eq!(services, ["a.x", "b.x"]);
        for (revision, service) in told.services {
            let seen = table.read(&service, |seen| seen.mod_revision());
            assert!(seen >= Some(revision));
        }
        writer.join();
    });
}

#[test]
fn who_waits_for_a_name_finds_it_with_its_entries() {
    explore(|| {
        let table = table(&[]);
        let written = Arc::clone(&table);
        let writer = Writer::start(move || {
            written.publish(2, vec![update("a.x", true)], &[]);
        });
        let mut sleeper = table.subscribe_names();
        let ready = writer.await_news(&mut sleeper, || {
            table.read(&name("a.x"), |seen| seen.ready())
        });
        assert_eq!(ready, 1);
        writer.join();
    });
}

#[test]
fn who_holds_a_handle_hears_of_the_end() {
    explore(|| {
        let table = table(&["a.x"]);
        let handle = table.service(&name("a.x")).unwrap();
        let written = Arc::clone(&table);
        let writer = Writer::start(move || {
            written.publish(2, vec![], &[name("a.x")]);
        });
        let mut sleeper = handle.subscribe();
        writer.await_news(&mut sleeper, || {
            handle.read(|seen| seen.is_removed().then_some(()))
        });
        let mut sleeper = table.subscribe();
        writer.await_news(&mut sleeper, || (table.revision() == 2).then_some(()));
        assert!(table.service(&name("a.x")).is_none());
        assert_eq!(table.removed_since(1).unwrap().len(), 1);
        writer.join();
    });
}

#[test]
fn a_sleeper_that_leaves_takes_nobody_elses_wake_with_it() {
    explore(|| {
        let number = Number::new(1);
        let mut stays = number.subscribe();
        let leaves = number.subscribe();
        let leaver = thread::spawn(move || {
            let mut leaves = leaves;
            let _ = leaves.poll_changed(&mut Context::from_waker(Waker::noop()));
        });
        let moved = Arc::clone(&number);
        let writer = Writer::start(move || moved.move_to(2));
        writer.await_news(&mut stays, || (number.value() == 2).then_some(()));
        leaver.join().unwrap();
        writer.join();
    });
}

/// A service's place as a writer or reader with a wrong order would use it: the value stands for a snapshot.
struct Place {
    snapshot: Swap<u64>,
    number: Arc<Number>,
}

impl Place {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            snapshot: Swap::new(1),
            number: Number::new(1),
        })
    }

    fn see(&self) -> u64 {
        self.snapshot.read(|seen| *seen)
    }

    fn swap(&self, to: u64) {
        self.snapshot.replace(Arc::new(to));
    }
}

/// A writer against a reader, in every order.
fn play(
    write: impl Fn(&Place) + Clone + Send + Sync + 'static,
    read: impl Fn(&Place, &Writer) + Send + Sync + 'static,
) {
    explore(move || {
        let place = Place::new();
        let (write, written) = (write.clone(), Arc::clone(&place));
        let writer = Writer::start(move || write(&written));
        read(&place, &writer);
        writer.join();
    });
}

fn swap_then_move(place: &Place) {
    place.swap(2);
    place.number.move_to(2);
}

fn subscribe_then_load(place: &Place, writer: &Writer) {
    let mut sleeper = place.number.subscribe();
    writer.await_news(&mut sleeper, || (place.see() == 2).then_some(()));
}

#[test]
fn the_right_order_alone_loses_nothing() {
    play(swap_then_move, subscribe_then_load);
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn a_number_that_moves_before_the_swap_loses_the_version() {
    play(
        |place| {
            place.number.move_to(2);
            place.swap(2);
        },
        subscribe_then_load,
    );
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn a_reader_that_loads_before_it_subscribes_sleeps_for_ever() {
    play(swap_then_move, |place, writer| {
        if place.see() == 1 {
            let mut sleeper = place.number.subscribe();
            writer.sleep(&mut sleeper);
        }
    });
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn a_reader_that_marks_after_it_looked_sleeps_for_ever() {
    play(swap_then_move, |place, writer| {
        let mut sleeper = place.number.subscribe();
        while place.see() == 1 {
            sleeper.mark_unchanged();
            writer.sleep(&mut sleeper);
        }
    });
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn a_number_that_is_dropped_while_nobody_listens_is_missed_by_who_comes_later() {
    play(
        |place| {
            place.swap(2);
            // As a channel's `send` does: nobody holds the number but its place.
            if Arc::strong_count(&place.number) > 1 {
                place.number.move_to(2);
            }
        },
        |place, writer| {
            // Who follows many services looks at them only when the number says so.
            let mut sleeper = place.number.subscribe();
            let number = || place.number.value();
            writer.await_news(&mut sleeper, || (number() > 1).then_some(()));
        },
    );
}

#[test]
#[should_panic(expected = "older than promised")]
fn a_number_read_after_the_snapshot_promises_too_much() {
    play(swap_then_move, |place, _| {
        let seen = place.see();
        let promised = place.number.value();
        assert!(seen >= promised, "older than promised");
    });
}

#[test]
fn a_number_read_before_the_snapshot_promises_no_more_than_there_is() {
    play(swap_then_move, |place, _| {
        let promised = place.number.value();
        assert!(place.see() >= promised, "older than promised");
    });
}

/// Two services with one number for both.
fn play_batch(write: impl Fn(&Place, &Place) + Clone + Send + Sync + 'static) {
    explore(move || {
        let (one, other) = (Place::new(), Place::new());
        let (write, of_one, of_other) = (write.clone(), Arc::clone(&one), Arc::clone(&other));
        let writer = Writer::start(move || write(&of_one, &of_other));
        let promised = one.number.value();
        assert!(one.see() >= promised, "older than promised");
        assert!(other.see() >= promised, "older than promised");
        writer.join();
    });
}

#[test]
fn a_tables_number_that_moves_last_speaks_for_the_whole_batch() {
    play_batch(|one, other| {
        one.swap(2);
        other.swap(2);
        one.number.move_to(2);
    });
}

#[test]
#[should_panic(expected = "older than promised")]
fn a_tables_number_that_moves_before_the_last_cell_promises_too_much() {
    play_batch(|one, other| {
        one.swap(2);
        one.number.move_to(2);
        other.swap(2);
    });
}

/// A map of names whose cells hold a number of entries; 0 would be a known service without any.
type Names = BTreeMap<&'static str, Arc<Swap<u64>>>;

fn play_names(write: impl Fn(&Swap<Names>) + Clone + Send + Sync + 'static) {
    explore(move || {
        let names = Arc::new(Swap::new(Names::new()));
        let appeared = Number::new(1);
        let (write, map, number) = (write.clone(), Arc::clone(&names), Arc::clone(&appeared));
        let writer = Writer::start(move || {
            write(&map);
            number.move_to(2);
        });
        let mut sleeper = appeared.subscribe();
        let found = writer.await_news(&mut sleeper, || {
            names.read(|names| names.get("a.x").cloned())
        });
        let entries = found.read(|entries| *entries);
        assert_eq!(entries, 1, "a placeholder was taken for a service");
        writer.join();
    });
}

#[test]
fn a_name_that_appears_with_its_cell_is_found_whole() {
    play_names(|names| {
        let cell = Arc::new(Swap::new(1));
        names.replace(Arc::new(BTreeMap::from([("a.x", cell)])));
    });
}

#[test]
#[should_panic(expected = "a placeholder was taken for a service")]
fn a_name_that_appears_before_its_cell_is_found_empty() {
    play_names(|names| {
        let cell = Arc::new(Swap::new(0));
        names.replace(Arc::new(BTreeMap::from([("a.x", Arc::clone(&cell))])));
        cell.replace(Arc::new(1));
    });
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn a_name_looked_up_before_its_number_is_subscribed_is_missed() {
    explore(|| {
        let (names, appeared) = (Arc::new(Swap::new(Names::new())), Number::new(1));
        let (map, number) = (Arc::clone(&names), Arc::clone(&appeared));
        let writer = Writer::start(move || {
            let cell = Arc::new(Swap::new(1));
            map.replace(Arc::new(BTreeMap::from([("a.x", cell)])));
            number.move_to(2);
        });
        if names.read(|names| names.get("a.x").is_none()) {
            let mut sleeper = appeared.subscribe();
            writer.sleep(&mut sleeper);
        }
        writer.join();
    });
}
