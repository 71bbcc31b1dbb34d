//! Counts the heap bytes of the thread that asks.
//!
//! Counted by thread, without a shared counter: the rows that run two threads would measure it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// The system's allocator, with a count of what the thread has.
struct Counted;

impl Counted {
    fn changed(by: isize) {
        // A thread that is ending has no counters any more, and nobody asks for them.
        let _ = NOW.try_with(|now| {
            now.set(now.get() + by);
            PEAK.with(|peak| peak.set(peak.get().max(now.get())));
        });
    }
}

// SAFETY: every call is handed to `System` with the caller's own arguments; the count neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::changed(layout.size().cast_signed());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Self::changed(-layout.size().cast_signed());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::changed(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Bytes that a piece of work left on the heap, and the most that it had at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    /// What is left.
    pub(crate) kept: isize,
    /// The most at once.
    pub(crate) peak: isize,
}

/// Does `work` and says what it holds on the heap beside its result.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Bytes) {
    let before = NOW.get();
    PEAK.set(before);
    let made = work();
    let bytes = Bytes {
        kept: NOW.get() - before,
        peak: PEAK.get() - before,
    };
    (made, bytes)
}
