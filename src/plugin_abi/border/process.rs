//! Whether this is still the process that made a context.
//!
//! After a fork the child has the parent's memory but none of its threads: a lock may be held for ever,
//! and the numbers belong to the parent. One page that the kernel wipes in the child tells it without a
//! system call, which a hot call must not make.

use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Which process a context was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessMark(u64);

impl ProcessMark {
    /// This process's mark; makes one if there is none.
    pub(crate) fn make() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(word) = WIPED.word().or_else(|| WIPED.map()) else {
            return Self::by_id();
        };
        // The child inherits `NEXT`, so its mark differs from each of its ancestors'.
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        match word.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Self(fresh),
            Err(present) => Self(present),
        }
    }

    /// Never 0.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Whether this process is the one that made it.
    pub(crate) fn is_here(self) -> bool {
        match WIPED.word() {
            Some(word) => word.load(Ordering::Acquire) == self.0,
            None => self == Self::by_id(),
        }
    }

    /// Where the kernel cannot wipe (before Linux 4.14, some sandboxes): costs a system call.
    fn by_id() -> Self {
        Self(u64::from(std::process::id()))
    }
}

static WIPED: WipedPage = WipedPage {
    at: AtomicPtr::new(null_mut()),
};

/// What stands for the page where there cannot be one.
static NOWHERE: AtomicU64 = AtomicU64::new(0);

/// A page of zeroes in each new process, for one word. Mapped once and kept until the process ends.
///
/// No lock and no `Once`: a child would for ever wait for a thread of its parent's that was here at the fork.
struct WipedPage {
    /// Null until the kernel was asked, then the same for ever: the page, or [`NOWHERE`].
    at: AtomicPtr<AtomicU64>,
}

impl WipedPage {
    const SIZE: usize = 4096;

    fn word(&self) -> Option<&'static AtomicU64> {
        let at = self.at.load(Ordering::Acquire);
        // SAFETY: null, or a static, or the beginning of a page that is zeroed by the kernel, readable and
        // writable, and never unmapped.
        let word = unsafe { at.as_ref() };
        word.filter(|word| !ptr::eq(*word, &raw const NOWHERE))
    }

    /// Maps it, unless another thread is quicker; `None` where the kernel cannot.
    fn map(&self) -> Option<&'static AtomicU64> {
        if self.at.load(Ordering::Acquire).is_null() {
            let fresh = fresh_page();
            let at = fresh.unwrap_or((&raw const NOWHERE).cast_mut());
            let kept =
                self.at
                    .compare_exchange(null_mut(), at, Ordering::AcqRel, Ordering::Acquire);
            if let (Err(_), Some(fresh)) = (kept, fresh) {
                // SAFETY: exactly the mapping made for us, which nothing refers to.
                unsafe { libc::munmap(fresh.cast(), Self::SIZE) };
            }
        }
        self.word()
    }
}

/// A new page that a child sees as zeroes.
fn fresh_page() -> Option<*mut AtomicU64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let at = unsafe { libc::mmap(null_mut(), WipedPage::SIZE, access, private, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: exactly the mapping made above; the advice changes what a child sees, not us.
    let wiped = unsafe { libc::madvise(at, WipedPage::SIZE, libc::MADV_WIPEONFORK) };
    if wiped != 0 {
        // SAFETY: exactly the mapping made above, which nothing refers to yet.
        unsafe { libc::munmap(at, WipedPage::SIZE) };
        return None;
    }
    Some(at.cast())
}
