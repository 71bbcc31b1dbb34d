//! The core behind a C table: `include/portreeve.h` in Rust, for schedulers that load the plugin.
//!
//! Promises kept here, whatever C passes:
//! * An id is never followed blindly: it names a slot and a generation, and what has ended is `PR_ESTALE`.
//! * Nothing unwinds into C. A caught panic poisons its context, which then only lets itself be destroyed.
//! * The caller's memory is read and written during the call only, by value, after checks of null,
//!   alignment, size and count.
//! * No thread, no clock, no file, no environment: time and reports are arguments.
//!
//! This is the only place with unsafe code, and most of it is in `memory`. The decisions are elsewhere:
//! pools in [`crate::allocator`], endpoints in [`crate::endpoints`], names of variables in
//! [`crate::variables`].

#[cfg(test)]
mod agreement_test;
#[cfg(test)]
mod asking_warm_test;
mod board;
#[cfg(test)]
mod caller_test;
pub mod constants;
mod context;
mod contexts;
mod cushion;
mod dump;
#[cfg(test)]
mod dump_test;
mod entered;
mod entry;
mod eventfd;
mod explain;
#[cfg(test)]
mod explain_test;
mod export;
#[cfg(test)]
mod export_test;
mod failure;
#[cfg(test)]
mod flow_test;
mod gang;
mod grants;
mod handle;
mod host;
mod injected;
mod key_index;
mod memory;
#[cfg(test)]
mod misuse_test;
mod network;
#[cfg(test)]
mod network_test;
mod process;
mod profile;
mod queue;
#[cfg(test)]
mod readers_test;
mod register;
mod release;
mod report;
mod reserve;
mod resolve;
mod restore;
mod room;
mod scratch;
mod snap;
#[cfg(test)]
mod snap_test;
mod supervision;
mod table;
mod text;
#[cfg(test)]
mod text_test;
mod trial;
mod txn;
pub mod types;
mod waiting;
mod waits;
#[cfg(test)]
mod waits_test;
#[cfg(test)]
mod warm_test;
mod watch;
#[cfg(test)]
mod what_if_test;
mod words;

pub use cushion::Cushioned;
#[cfg(feature = "panic-injection")]
pub use injected::pr_panic_at;
pub use table::pr_get_api;
