//! A descriptor that C polls: readable while it was written and not read since.
//!
//! The one thing of the operating system that a context holds. Who polls it is the scheduler; who reads and writes it
//! is this core alone.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::constants::PR_EIO;
use crate::plugin_abi::watch::bell::Ring;

/// Closed across `exec`, never waited on by us, and closed for good with its last holder: whoever writes holds it, so
/// that a number which the process uses anew meanwhile is never written to.
#[derive(Debug)]
pub(crate) struct Eventfd(OwnedFd);

impl Eventfd {
    /// # Errors
    ///
    /// `PR_EIO` if the process or the machine has no descriptor left.
    pub(crate) fn new() -> Result<Self, Failure> {
        // SAFETY: no pointer is passed; the call makes a descriptor or answers -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Failure::said(PR_EIO, "there is no descriptor left"));
        }
        // SAFETY: made above, open, and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Its number, for C to poll.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Ring for Eventfd {
    fn ring(&self) {
        let once = 1_u64;
        let at = (&raw const once).cast();
        // SAFETY: the descriptor is open while `self` lives, and 8 bytes may be read from a live local.
        let _written = unsafe { libc::write(self.number(), at, size_of::<u64>()) };
        // It fails only where the count is full, and then it is readable anyway.
    }

    fn hush(&self) {
        let mut count = 0_u64;
        let at = (&raw mut count).cast();
        // SAFETY: as above, and 8 bytes may be written to a live local.
        let _read = unsafe { libc::read(self.number(), at, size_of::<u64>()) };
        // It fails only where nothing was written since the last time.
    }
}
