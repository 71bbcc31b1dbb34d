//! Whether this is still the process that made a context.
//!
//! After a fork the child has the parent's memory but none of its threads: a lock may be held for ever,
//! and the numbers belong to the parent. One page that the kernel wipes in the child tells it without a
//! system call, which a hot call must not make.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which process a context was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessMark(u64);

impl ProcessMark {
    /// This process's mark; makes one if there is none.
    pub(super) fn make() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(page) = WIPED.get_or_init(WipedPage::map) else {
            return Self::by_id();
        };
        // The child inherits `NEXT`, so its mark differs from each of its ancestors'.
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        let word = page.word();
        match word.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Self(fresh),
            Err(present) => Self(present),
        }
    }

    /// Never 0.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// Whether this process is the one that made it.
    pub(super) fn is_here(self) -> bool {
        match WIPED.get() {
            Some(Some(page)) => page.word().load(Ordering::Acquire) == self.0,
            _ => self == Self::by_id(),
        }
    }

    /// Where the kernel cannot wipe (before Linux 4.14, some sandboxes): costs a system call.
    fn by_id() -> Self {
        Self(u64::from(std::process::id()))
    }
}

static WIPED: OnceLock<Option<WipedPage>> = OnceLock::new();

/// A page of zeroes in each new process. Mapped once and kept until the process ends.
struct WipedPage(NonNull<AtomicU64>);

// SAFETY: the page is mapped for the life of the process and used through an atomic only.
unsafe impl Send for WipedPage {}
// SAFETY: as above.
unsafe impl Sync for WipedPage {}

impl WipedPage {
    const SIZE: usize = 4096;

    fn map() -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), Self::SIZE, access, private, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: exactly the mapping made above; the advice changes what a child sees, not us.
        let wiped = unsafe { libc::madvise(at, Self::SIZE, libc::MADV_WIPEONFORK) };
        if wiped != 0 {
            // SAFETY: exactly the mapping made above, which nothing refers to yet.
            unsafe { libc::munmap(at, Self::SIZE) };
            return None;
        }
        NonNull::new(at.cast()).map(Self)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: mapped readable and writable, page-aligned, zeroed by the kernel, never unmapped while
        // `self` exists.
        unsafe { self.0.as_ref() }
    }
}
