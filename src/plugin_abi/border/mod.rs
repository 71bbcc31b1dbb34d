//! Between C and the rest: what comes in is looked at here first, and what goes out last.
//!
//! * [`entry`]: nothing unwinds out, and a refusal is remembered; [`failure`] is that refusal.
//! * [`handle`]: ids that are never followed blindly; [`process`]: a forked child has none of them.
//! * [`memory`]: the caller's memory, touched nowhere else; [`eventfd`]: the descriptors that it polls.
//! * [`cushion`]: what is refused when the system has no memory left; [`injected`]: defects on demand, for tests.

pub(super) mod cushion;
pub(super) mod entry;
pub(super) mod eventfd;
pub(super) mod failure;
#[cfg(test)]
mod failure_test;
pub(super) mod handle;
pub(super) mod injected;
pub(super) mod memory;
pub(super) mod process;
