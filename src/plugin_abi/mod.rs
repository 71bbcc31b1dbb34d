//! The core behind a C table: `include/portreeve.h` in Rust, for schedulers that load the plugin.
//!
//! Promises kept here, whatever C passes:
//! * An id is never followed blindly: it names a slot and a generation, and what has ended is `PR_ESTALE`.
//! * Nothing unwinds into C. A caught panic poisons its context, which then only lets itself be destroyed.
//! * The caller's memory is read and written during the call only, by value, after checks of null,
//!   alignment, size and count.
//! * No thread, no clock, no file, no environment: time and reports are arguments.
//!
//! This is the only place with unsafe code, and most of it is in `border::memory`. The decisions are elsewhere:
//! pools in [`crate::allocator`], endpoints in [`crate::endpoints`], names of variables in
//! [`crate::variables`].
//!
//! `table`, `types`, `constants` and `words` are the header in Rust; `border` stands between C and the rest; `state` is
//! what a context keeps. Then the calls, by their class: `control`, `cycle`, `reports`, `reading` with `watch`, and
//! `supervision`.

#[cfg(test)]
mod agreement_test;
#[cfg(test)]
mod asking_warm_test;
mod border;
#[cfg(test)]
mod caller_test;
pub mod constants;
#[cfg(test)]
mod contract_test;
mod control;
mod cycle;
#[cfg(test)]
mod flow_test;
#[cfg(test)]
mod lives_test;
#[cfg(test)]
mod misuse_test;
mod reading;
mod reports;
mod state;
mod supervision;
mod table;
pub mod types;
#[cfg(test)]
mod warm_test;
mod watch;
mod words;

pub use border::cushion::Cushioned;
#[cfg(feature = "panic-injection")]
pub use border::injected::pr_panic_at;
pub use table::pr_get_api;
