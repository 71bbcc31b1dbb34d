//! Class R: what happened outside, reported by any thread, and who waits for numbers.

pub(super) mod report;
pub(super) mod waits;
#[cfg(test)]
pub(super) mod waits_test;
