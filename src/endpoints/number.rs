//! A number that only grows, and those who sleep until it moves.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use crate::endpoints::sync::{AtomicU64, Lock};

/// A number that one writer moves and any number of tasks wait on.
///
/// To read it takes no lock. Only who goes to sleep takes one, for a few instructions. Whoever sleeps is
/// woken once for any number of moves.
#[derive(Debug)]
pub(super) struct Number {
    value: AtomicU64,
    asleep: Lock<Asleep>,
}

impl Number {
    pub(super) fn new(value: u64) -> Arc<Self> {
        Arc::new(Self {
            value: AtomicU64::new(value),
            asleep: Lock::new(Asleep::default()),
        })
    }

    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Moves it and wakes who sleeps. Kept also while nobody does: who comes later compares with it.
    pub(super) fn move_to(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        // Whoever is not in the list yet takes the lock after this, and so finds the new value.
        let woken = self.asleep.hold(Asleep::rouse);
        for waker in woken.into_iter().flatten() {
            waker.wake();
        }
    }

    /// Waits from the present value on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Watcher {
        Watcher {
            seen: self.value(),
            number: Arc::clone(self),
            bed: None,
        }
    }
}

/// Waits for one number of the table to move. Subscribe first, then look at what the number speaks of.
///
/// It costs nothing while nothing moves. Dropping it at any time is harmless.
#[derive(Debug)]
pub struct Watcher {
    number: Arc<Number>,
    seen: u64,
    /// Where its waker lies.
    bed: Option<Bed>,
}

impl Watcher {
    /// The number as it is now.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number.value()
    }

    /// Whether it moved since it was subscribed or last marked.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.number.value() != self.seen
    }

    /// Takes the number as seen. Do so before you look at what it speaks of, never after.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.number.value();
    }

    /// Waits until the number is another than the one last seen, marks it as seen and gives it.
    ///
    /// Needs no runtime, never fails, and loses nothing when it is dropped halfway.
    pub async fn changed(&mut self) -> u64 {
        poll_fn(|context| self.poll_changed(context)).await
    }

    /// As [`Watcher::changed`], for who polls by hand: the waker of the last poll is woken, once.
    pub fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<u64> {
        if let Some(moved) = self.moved() {
            return Poll::Ready(moved);
        }
        let bed = self.bed.take();
        let number = Arc::clone(&self.number);
        let (bed, moved) = number.asleep.hold(|asleep| {
            let bed = asleep.lie_down(bed, context.waker());
            // Again under the lock: a move since the look above may have roused the list before.
            (bed, self.moved())
        });
        self.bed = Some(bed);
        moved.map_or(Poll::Pending, Poll::Ready)
    }

    fn moved(&mut self) -> Option<u64> {
        let value = self.number.value();
        (value != self.seen).then(|| {
            self.seen = value;
            value
        })
    }
}

impl Clone for Watcher {
    fn clone(&self) -> Self {
        Self {
            number: Arc::clone(&self.number),
            seen: self.seen,
            bed: None,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // A model that has failed is taken apart, and its locks cannot be held any more.
        let fails = cfg!(loom) && std::thread::panicking();
        if let Some(bed) = self.bed.take().filter(|_| !fails) {
            // The waker itself is dropped after the lock: it is foreign code.
            drop(self.number.asleep.hold(|asleep| asleep.rise(bed)));
        }
    }
}

/// Wakers by place, so that who leaves early takes its own with it.
#[derive(Debug, Default)]
struct Asleep {
    beds: Vec<Option<Waker>>,
    free: Vec<usize>,
    /// How often all were roused: a bed of an earlier night is no longer one's own.
    night: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bed {
    place: usize,
    night: u64,
}

impl Asleep {
    fn lie_down(&mut self, own: Option<Bed>, waker: &Waker) -> Bed {
        if let Some(bed) = own.filter(|bed| bed.night == self.night) {
            if let Some(before) = &mut self.beds[bed.place] {
                before.clone_from(waker);
            }
            return bed;
        }
        let waker = Some(waker.clone());
        let place = if let Some(place) = self.free.pop() {
            self.beds[place] = waker;
            place
        } else {
            self.beds.push(waker);
            self.beds.len() - 1
        };
        Bed {
            place,
            night: self.night,
        }
    }

    fn rise(&mut self, bed: Bed) -> Option<Waker> {
        if bed.night != self.night {
            return None;
        }
        self.free.push(bed.place);
        self.beds[bed.place].take()
    }

    fn rouse(&mut self) -> Vec<Option<Waker>> {
        if self.beds.is_empty() {
            return Vec::new();
        }
        self.night += 1;
        self.free.clear();
        std::mem::take(&mut self.beds)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "number_test.rs"]
mod tests;
