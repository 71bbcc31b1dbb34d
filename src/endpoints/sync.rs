//! The few primitives on which the table's protocol stands, so that a checker can take their place.
//!
//! Neither `arc-swap` nor a foreign lock can be seen by `loom`. So the table uses these alone: in a build
//! with `--cfg loom` they are stand-ins that loom explores, weak memory included; see `loom_test`.

#[cfg(loom)]
pub(super) use model::{AtomicU64, Cached, Lock, Swap};
#[cfg(not(loom))]
pub(super) use real::{AtomicU64, Cached, Lock, Swap};

#[cfg(not(loom))]
mod real {
    use std::sync::Arc;

    use arc_swap::{ArcSwap, Cache};

    pub(in crate::endpoints) use std::sync::atomic::AtomicU64;

    /// A value that is replaced whole; readers take it without a lock.
    #[derive(Debug)]
    pub(in crate::endpoints) struct Swap<T>(ArcSwap<T>);

    impl<T> Swap<T> {
        pub(in crate::endpoints) fn new(first: T) -> Self {
            Self(ArcSwap::from_pointee(first))
        }

        /// Looks at the current value without counting a holder of it.
        pub(in crate::endpoints) fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
            look(&self.0.load())
        }

        /// The current value, to keep.
        pub(in crate::endpoints) fn take(&self) -> Arc<T> {
            self.0.load_full()
        }

        /// Replaces the value; what stood there before comes back.
        pub(in crate::endpoints) fn replace(&self, next: Arc<T>) -> Arc<T> {
            super::step();
            let before = self.0.swap(next);
            super::step();
            before
        }
    }

    /// The value last seen by one reader, who looks for a newer one each time: cheaper than to take it.
    #[derive(Debug)]
    pub(in crate::endpoints) struct Cached<'a, T>(Cache<&'a ArcSwap<T>, Arc<T>>);

    impl<'a, T> Cached<'a, T> {
        pub(in crate::endpoints) fn new(swap: &'a Swap<T>) -> Self {
            Self(Cache::new(&swap.0))
        }

        pub(in crate::endpoints) fn current(&mut self) -> &T {
            self.0.load()
        }
    }

    /// A short lock.
    #[derive(Debug, Default)]
    pub(in crate::endpoints) struct Lock<T>(parking_lot::Mutex<T>);

    impl<T> Lock<T> {
        pub(in crate::endpoints) fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(in crate::endpoints) fn hold<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
            super::step();
            let done = work(&mut self.0.lock());
            super::step();
            done
        }
    }
}

/// Where a test may stop the writer: between any two things that a reader can see.
#[cfg(all(not(test), not(loom)))]
const fn step() {}
#[cfg(all(test, not(loom)))]
pub(super) use stops::step;

#[cfg(all(test, not(loom)))]
pub(crate) mod stops {
    use std::cell::RefCell;

    thread_local! {
        static AT_STEP: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    /// Calls `at_step` at each step of `work` on this thread.
    pub(crate) fn stepping<R>(at_step: impl FnMut() + 'static, work: impl FnOnce() -> R) -> R {
        AT_STEP.set(Some(Box::new(at_step)));
        let done = work();
        AT_STEP.set(None);
        done
    }

    pub(in crate::endpoints) fn step() {
        // Out of its place while it runs: a step inside of a step is none.
        if let Some(mut at_step) = AT_STEP.take() {
            at_step();
            AT_STEP.set(Some(at_step));
        }
    }
}

#[cfg(loom)]
mod model {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicUsize, Ordering};

    pub(in crate::endpoints) use loom::sync::atomic::AtomicU64;

    /// A stand-in of the swap that orders no more than it must: a store releases, a load acquires, and
    /// a load that nothing orders may find an older value.
    #[derive(Debug)]
    pub(in crate::endpoints) struct Swap<T> {
        newest: AtomicUsize,
        /// Not seen by loom, and so ordering nothing: its threads take turns on one real thread.
        values: std::sync::Mutex<Vec<Arc<T>>>,
    }

    impl<T> Swap<T> {
        pub(in crate::endpoints) fn new(first: T) -> Self {
            Self {
                newest: AtomicUsize::new(0),
                values: std::sync::Mutex::new(vec![Arc::new(first)]),
            }
        }

        pub(in crate::endpoints) fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
            look(&self.take())
        }

        pub(in crate::endpoints) fn take(&self) -> Arc<T> {
            let at = self.newest.load(Ordering::Acquire);
            Arc::clone(&self.values.lock().expect("no holder panics")[at])
        }

        pub(in crate::endpoints) fn replace(&self, next: Arc<T>) -> Arc<T> {
            let (at, before) = {
                let mut values = self.values.lock().expect("no holder panics");
                values.push(next);
                let at = values.len() - 1;
                (at, Arc::clone(&values[at - 1]))
            };
            self.newest.store(at, Ordering::Release);
            before
        }
    }

    /// Looks each time.
    #[derive(Debug)]
    pub(in crate::endpoints) struct Cached<'a, T> {
        swap: &'a Swap<T>,
        seen: Arc<T>,
    }

    impl<'a, T> Cached<'a, T> {
        pub(in crate::endpoints) fn new(swap: &'a Swap<T>) -> Self {
            Self {
                seen: swap.take(),
                swap,
            }
        }

        pub(in crate::endpoints) fn current(&mut self) -> &T {
            self.seen = self.swap.take();
            &self.seen
        }
    }

    /// The lock as loom sees it.
    #[derive(Debug, Default)]
    pub(in crate::endpoints) struct Lock<T>(loom::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(in crate::endpoints) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(in crate::endpoints) fn hold<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
            work(&mut self.0.lock().expect("no holder panics"))
        }
    }
}
