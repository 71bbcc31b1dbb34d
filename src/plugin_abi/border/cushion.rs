//! Memory for the moment in which the system has none: how `create` can say `PR_ENOMEM`.
//!
//! What is large in a context is taken by fallible reservations. What is small (a lock's box, a name) is
//! taken as everywhere in Rust, where a refusal ends the process. While a context is made, such a refusal
//! is answered from a small static room instead, and noted: then `create` drops all it made and refuses.
//!
//! The room is never returned to anybody, so that whatever should outlive `create` there (what a thread
//! keeps for good and took just then) stays valid; the room begins anew when nothing of it is left.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::constants::PR_ENOMEM;

/// The plugin's allocator: the system's, behind which `create` has a cushion.
///
/// Costs a comparison per block that is given back, and nothing per block that is taken.
#[derive(Debug)]
pub struct Cushioned;

// SAFETY: every block is the system's or the cushion's, told apart by its address; each gets back what it
// gave. The cushion's blocks are distinct, aligned, inside static memory, and reused only when none is left.
unsafe impl GlobalAlloc for Cushioned {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() {
            return CUSHION.take(layout);
        }
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        let block = unsafe { System.alloc_zeroed(layout) };
        if block.is_null() {
            let block = CUSHION.take(layout);
            if !block.is_null() {
                // SAFETY: a block of this size that nobody else has.
                unsafe { block.write_bytes(0, layout.size()) };
            }
            return block;
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if CUSHION.holds(block) {
            CUSHION.give_back();
        } else {
            // SAFETY: the caller's promise, and the system gave it.
            unsafe { System.dealloc(block, layout) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !CUSHION.holds(block) {
            // SAFETY: the caller's promise, and the system gave it.
            let moved = unsafe { System.realloc(block, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return std::ptr::null_mut();
        };
        let moved = CUSHION.take(wanted);
        if !moved.is_null() {
            // SAFETY: both are at least so long, and the new one is nobody else's.
            unsafe { moved.copy_from_nonoverlapping(block, layout.size().min(size)) };
            // SAFETY: the caller's promise; a block that could not be moved is still there.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

/// Makes something of many small blocks; the caller sees to it that no other thread does so now.
///
/// # Errors
///
/// `PR_ENOMEM` if the system refused any of them; what was made of the others is dropped.
pub(crate) fn cushioned<T>(make: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let lent = CUSHION.lend();
    let made = make();
    if CUSHION.was_used() {
        drop(made);
        return Err(Failure::said(PR_ENOMEM, "nothing was made"));
    }
    drop(lent);
    made
}

static CUSHION: Cushion = Cushion::new();

/// Several times what a context takes in small blocks.
const SIZE: usize = 512 << 10;
/// More than the largest block that is not reserved fallibly: others must not eat the room of the small ones.
const MOST: usize = 64 << 10;

struct Cushion {
    room: Room,
    /// The thread that may take, or 0.
    owner: AtomicUsize,
    /// Where the next block may begin. Its owner's.
    next: AtomicUsize,
    /// How many blocks were not given back.
    out: AtomicUsize,
    used: AtomicBool,
}

/// Zero until it is needed, so that it costs addresses only.
#[repr(align(64))]
struct Room(UnsafeCell<[u8; SIZE]>);

// SAFETY: no reference into it is ever made; its blocks are handed to one owner each.
unsafe impl Sync for Room {}

/// While this is kept, the thread that made it may take.
struct Lent<'a>(&'a Cushion);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.owner.store(0, Ordering::Release);
    }
}

impl Cushion {
    const fn new() -> Self {
        Self {
            room: Room(UnsafeCell::new([0; SIZE])),
            owner: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            out: AtomicUsize::new(0),
            used: AtomicBool::new(false),
        }
    }

    fn lend(&self) -> Lent<'_> {
        // Whoever gave the last one back is done with it: its write is seen here.
        if self.out.load(Ordering::Acquire) == 0 {
            self.next.store(0, Ordering::Relaxed);
        }
        self.used.store(false, Ordering::Relaxed);
        self.owner.store(this_thread(), Ordering::Release);
        Lent(self)
    }

    fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// A block for the thread that it is lent to; null for others, and when it is full.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        if self.owner.load(Ordering::Acquire) != this_thread() {
            return std::ptr::null_mut();
        }
        self.used.store(true, Ordering::Relaxed);
        let start = self.room.0.get().cast::<u8>();
        let next = self.next.load(Ordering::Relaxed);
        let padding = start.wrapping_add(next).align_offset(layout.align());
        let begin = next.saturating_add(padding);
        match begin.checked_add(layout.size()) {
            Some(end) if end <= SIZE && layout.size() <= MOST => {
                self.next.store(end, Ordering::Relaxed);
                self.out.fetch_add(1, Ordering::Relaxed);
                start.wrapping_add(begin)
            }
            _ => std::ptr::null_mut(),
        }
    }

    /// Whether a block came from here.
    #[inline]
    fn holds(&self, block: *const u8) -> bool {
        block.addr().wrapping_sub(self.room.0.get().addr()) < SIZE
    }

    fn give_back(&self) {
        self.out.fetch_sub(1, Ordering::Release);
    }
}

/// A number of this thread alone while it lives; asks nothing of the system.
fn this_thread() -> usize {
    // SAFETY: asks for a number only.
    let thread = unsafe { libc::pthread_self() };
    usize::try_from(thread).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One for each test; too large for a stack.
    static CUSHIONS: [Cushion; 3] = [const { Cushion::new() }; 3];

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn a_cushion_gives_only_to_whom_it_is_lent() {
        let cushion = &CUSHIONS[0];
        assert!(cushion.take(layout(8, 8)).is_null());
        assert!(!cushion.was_used());
        let _lent = cushion.lend();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| cushion.take(layout(8, 8)).is_null());
            assert!(other.join().unwrap());
        });
        assert!(!cushion.take(layout(8, 8)).is_null());
        assert!(cushion.was_used());
    }

    #[test]
    fn its_blocks_are_aligned_and_apart_and_end_with_it() {
        let cushion = &CUSHIONS[1];
        let _lent = cushion.lend();
        let mut end = 0;
        for (size, align) in [(1, 1), (24, 8), (3, 1), (100, 64), (MOST, 16)] {
            let block = cushion.take(layout(size, align));
            assert!(cushion.holds(block) && block.addr().is_multiple_of(align));
            assert!(block.addr() >= end);
            end = block.addr() + size;
        }
        assert!(cushion.take(layout(MOST + 1, 1)).is_null());
        assert!(cushion.take(layout(isize::MAX.unsigned_abs(), 1)).is_null());
        let mut blocks = 0;
        while !cushion.take(layout(MOST, 1)).is_null() {
            blocks += 1;
        }
        assert_eq!(blocks, SIZE / MOST - 2);
        let local = 0_u8;
        assert!(!cushion.holds(&raw const local));
    }

    #[test]
    fn what_is_left_in_it_is_not_given_again() {
        let cushion = &CUSHIONS[2];
        let kept = cushion.lend();
        let first = cushion.take(layout(64, 64));
        let second = cushion.take(layout(64, 64));
        cushion.give_back();
        drop(kept);
        let lent = cushion.lend();
        let third = cushion.take(layout(64, 64));
        assert!(third != first && third != second);
        cushion.give_back();
        cushion.give_back();
        drop(lent);
        let _lent = cushion.lend();
        assert_eq!(cushion.take(layout(64, 64)), first);
        cushion.give_back();
    }
}
