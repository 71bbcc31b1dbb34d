//! Every order in which one who tells and one who reads can meet, weak memory included; and orders that look right and
//! lose a wake-up, which loom must find.

use std::sync::Arc;

use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::thread;

use crate::plugin_abi::watch::bell::{Bell, Ring};

/// A descriptor as the kernel keeps it: what is written or read is ordered, and who polls sees it.
struct Wire(AtomicBool);

impl Ring for Wire {
    fn ring(&self) {
        self.0.swap(true, AcqRel);
    }

    fn hush(&self) {
        self.0.swap(false, AcqRel);
    }
}

/// A feed of numbers, of which the first `noted` are there; and a bell.
struct Line {
    noted: AtomicU64,
    bell: Bell<Wire>,
}

impl Line {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            noted: AtomicU64::new(0),
            bell: Bell::new(Wire(AtomicBool::new(false))),
        })
    }

    fn is_readable(&self) -> bool {
        self.bell.ring().0.load(Acquire)
    }

    /// Notes, then tells.
    fn write(&self, count: u64) {
        for place in 0..count {
            self.noted.store(place + 1, Release);
            self.bell.tell(place);
        }
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Two notes by `write`, against a reader that looks by `look` whenever the descriptor is readable: once the writer is
/// through and it is silent, the reader has seen both.
fn play(
    write: impl Fn(&Line) + Clone + Send + Sync + 'static,
    look: impl Fn(&Line, &mut u64) + Send + Sync + 'static,
) {
    explore(move || {
        let line = Line::new();
        let (write, written) = (write.clone(), Arc::clone(&line));
        let writer = thread::spawn(move || write(&written));
        let mut seen = 0;
        // What a poll loop would do meanwhile, for two rounds.
        for _ in 0..2 {
            if line.is_readable() {
                look(&line, &mut seen);
            }
            thread::yield_now();
        }
        writer.join().unwrap();
        for _ in 0..3 {
            if line.is_readable() {
                look(&line, &mut seen);
            }
        }
        assert!(!line.is_readable(), "never silent");
        assert_eq!(seen, 2, "left asleep for ever");
    });
}

fn write(line: &Line) {
    line.write(2);
}

/// The right order: hush, take, look.
fn look(line: &Line, seen: &mut u64) {
    if line.bell.take().is_some() {
        *seen = line.noted.load(Acquire);
    }
}

#[test]
fn the_right_order_loses_nothing() {
    play(write, look);
}

/// Reads a piece, and leaves the rest so; who says that there is more is not silent.
fn look_at_a_piece(line: &Line, seen: &mut u64, leave: impl Fn(&Bell<Wire>, u64)) {
    if line.bell.take().is_some() && *seen < line.noted.load(Acquire) {
        *seen += 1;
        if *seen < line.noted.load(Acquire) {
            leave(&line.bell, *seen);
            assert!(line.is_readable(), "more, and silent");
        }
    }
}

#[test]
fn who_reads_in_pieces_and_leaves_the_rest_loses_nothing() {
    play(write, |line, seen| look_at_a_piece(line, seen, Bell::leave));
}

#[test]
#[should_panic(expected = "more, and silent")]
fn who_only_tells_what_is_left_trusts_a_writer_that_may_be_stopped_before_it_rings() {
    play(write, |line, seen| look_at_a_piece(line, seen, Bell::tell));
}

#[test]
fn two_who_read_in_turn_lose_nothing() {
    explore(|| {
        let line = Line::new();
        let seen = Arc::new(loom::sync::Mutex::new(0));
        let (written, other, shared) = (Arc::clone(&line), Arc::clone(&line), Arc::clone(&seen));
        let writer = thread::spawn(move || written.write(1));
        let reader = thread::spawn(move || look(&other, &mut shared.lock().unwrap()));
        look(&line, &mut seen.lock().unwrap());
        writer.join().unwrap();
        reader.join().unwrap();
        if line.is_readable() {
            look(&line, &mut seen.lock().unwrap());
        }
        assert_eq!(*seen.lock().unwrap(), 1, "left asleep for ever");
    });
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn who_tells_before_the_note_is_there_loses_it() {
    play(
        |line| {
            for place in 0..2 {
                line.bell.tell(place);
                line.noted.store(place + 1, Release);
            }
        },
        look,
    );
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn who_looks_before_the_mark_is_taken_loses_it() {
    play(write, |line, seen| {
        let noted = line.noted.load(Acquire);
        if line.bell.take().is_some() {
            *seen = noted;
        }
    });
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn who_leaves_something_and_says_nothing_loses_it() {
    play(write, |line, seen| {
        if line.bell.take().is_some() && *seen < line.noted.load(Acquire) {
            *seen += 1;
        }
    });
}

/// A bell in parts, for orders that [`Bell`] does not have.
struct Parts {
    noted: AtomicU64,
    is_unseen: AtomicBool,
    wire: Wire,
}

fn play_parts(
    tell: impl Fn(&Parts) + Clone + Send + Sync + 'static,
    take: impl Fn(&Parts) -> bool + Send + Sync + 'static,
) {
    explore(move || {
        let parts = Arc::new(Parts {
            noted: AtomicU64::new(0),
            is_unseen: AtomicBool::new(false),
            wire: Wire(AtomicBool::new(false)),
        });
        let (tell, written) = (tell.clone(), Arc::clone(&parts));
        let writer = thread::spawn(move || {
            for place in 0..NOTES {
                written.noted.store(place + 1, Relaxed);
                tell(&written);
            }
        });
        let mut seen = 0;
        let mut look = || {
            if parts.wire.0.load(Acquire) && take(&parts) {
                seen = parts.noted.load(Relaxed);
            }
        };
        look();
        thread::yield_now();
        look();
        writer.join().unwrap();
        look();
        look();
        assert_eq!(seen, NOTES, "left asleep for ever");
    });
}

/// The third finds a mark whose ring was hushed.
const NOTES: u64 = 3;

fn tell(parts: &Parts) {
    if !parts.is_unseen.swap(true, AcqRel) {
        parts.wire.ring();
    }
}

#[test]
fn the_same_in_parts_loses_nothing() {
    play_parts(tell, |parts| {
        parts.wire.hush();
        parts.is_unseen.swap(false, AcqRel)
    });
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn a_ring_that_is_hushed_after_the_mark_is_taken_stays_silent() {
    play_parts(tell, |parts| {
        let is_unseen = parts.is_unseen.swap(false, AcqRel);
        parts.wire.hush();
        is_unseen
    });
}

#[test]
#[should_panic(expected = "left asleep for ever")]
fn a_mark_that_is_only_looked_at_hides_the_note_behind_it() {
    play_parts(
        |parts| {
            // No write where the mark is there already: nothing orders this note before the next take.
            if !parts.is_unseen.load(Acquire) {
                tell(parts);
            }
        },
        |parts| {
            parts.wire.hush();
            parts.is_unseen.swap(false, AcqRel)
        },
    );
}
