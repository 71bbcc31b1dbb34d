//! Class A: readers of any thread. None of them waits for a writer.

pub(super) mod dump;
#[cfg(test)]
mod dump_test;
#[cfg(test)]
mod readers_test;
pub(super) mod resolve;
pub(super) mod snap;
#[cfg(test)]
mod snap_test;
pub(super) mod text;
#[cfg(test)]
mod text_test;
