//! Tells a sleeper that there is something to look at, and loses nothing.
//!
//! Who has news puts it where it is read, then tells. Who reads hushes the ring, takes the mark, and looks then; who
//! leaves something says so before it goes. Every other order loses a wake-up: `loom_test` finds each of them.

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

    /// Who took the mark leaves something unseen at `place`: the ring is awake once this returns.
    ///
    /// Rings whether there is a mark or not: whose it is may have been stopped between the mark and its ring.
    pub(in crate::plugin_abi) fn leave(&self, place: u64) {
        self.unseen.fetch_min(place, Ordering::AcqRel);
        self.ring.ring();
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::*;

    /// A ring whose next caller is stopped on its way: something else happens before it rings.
    #[derive(Default)]
    struct Wire {
        is_awake: Cell<bool>,
        before: RefCell<Option<Box<dyn FnOnce()>>>,
    }

    impl Ring for Rc<Wire> {
        fn ring(&self) {
            let before = self.before.borrow_mut().take();
            before.into_iter().for_each(|before| before());
            self.is_awake.set(true);
        }

        fn hush(&self) {
            self.is_awake.set(false);
        }
    }

    /// A watch that had told less than there was promised that its descriptor stays readable. A writer that was stopped
    /// after it made its mark and before it rang left it silent until the writer went on.
    #[test]
    fn who_leaves_something_is_awake_also_while_a_writer_is_stopped_before_its_ring() {
        let wire = Rc::new(Wire::default());
        let bell = Rc::new(Bell::new(Rc::clone(&wire)));
        bell.tell(0);
        assert_eq!(bell.take(), Some(0));
        // It looks, and there is no room for all. Meanwhile:
        let (reader, seen) = (Rc::clone(&bell), Rc::new(Cell::new(false)));
        let is_seen = Rc::clone(&seen);
        *wire.before.borrow_mut() = Some(Box::new(move || {
            reader.leave(1);
            is_seen.set(reader.ring().is_awake.get());
        }));
        bell.tell(2);
        assert!(seen.get(), "more, and silent");
        assert_eq!(bell.take(), Some(1));
    }
}
