//! Tells a sleeper that there is something to look at, and loses nothing.
//!
//! Who has news puts it where it is read, then tells. Who reads hushes the ring, takes the mark, and looks then; who
//! leaves something tells it anew. Every other order loses a wake-up: `loom_test` finds each of them.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plugin_abi::border::eventfd::Eventfd;

/// What a sleeper sleeps on.
pub(in crate::plugin_abi) trait Ring {
    /// Wakes it; it stays awake until the ring is hushed.
    fn ring(&self);
    /// Lets it sleep again.
    fn hush(&self);
}

/// A ring with a mark of where the unseen begins. Rings only when the mark is made, not when it is moved, so that any
/// amount of news costs one system call until somebody looks.
#[derive(Debug)]
pub(in crate::plugin_abi) struct Bell<R = Eventfd> {
    unseen: AtomicU64,
    ring: R,
}

/// Nothing is unseen.
const NOTHING: u64 = u64::MAX;

impl<R: Ring> Bell<R> {
    pub(in crate::plugin_abi) fn new(ring: R) -> Self {
        Self {
            unseen: AtomicU64::new(NOTHING),
            ring,
        }
    }

    /// There is something unseen at `place`, and readers find it there already.
    ///
    /// Always a write, also where it changes nothing: only so does the next to take the mark see what was put there.
    pub(in crate::plugin_abi) fn tell(&self, place: u64) {
        if self.unseen.fetch_min(place, Ordering::AcqRel) == NOTHING {
            self.ring.ring();
        }
    }

    /// Where the unseen begins, if anything was told since the last time. Look after this, never before.
    pub(in crate::plugin_abi) fn take(&self) -> Option<u64> {
        self.ring.hush();
        let first = self.unseen.swap(NOTHING, Ordering::AcqRel);
        (first != NOTHING).then_some(first)
    }

    pub(in crate::plugin_abi) const fn ring(&self) -> &R {
        &self.ring
    }
}
