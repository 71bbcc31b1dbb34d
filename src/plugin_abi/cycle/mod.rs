//! Class H: a scheduling cycle. Ask, take, go back or commit, and give back; once warm, no call here allocates, makes
//! a system call or waits for a reader.

pub(super) mod explain;
#[cfg(test)]
pub(super) mod explain_test;
pub(super) mod gang;
pub(super) mod grants;
pub(super) mod release;
pub(super) mod reserve;
pub(super) mod trial;
pub(super) mod txn;
#[cfg(test)]
mod what_if_test;
