//! Service name to snapshot: one writer, lock-free readers, changes for watchers.
//!
//! Invariant: a reader sees one version of a service, whole; and whoever has seen a number move finds
//! at least that version behind it. The order that keeps it: the writer swaps the snapshots of a batch,
//! then moves the numbers; a reader subscribes, then loads, compares, waits, and loads again.
//!
//! This module knows nothing of transports: what an answer looks like is its reader's business.

#[cfg(test)]
#[cfg(not(loom))]
mod cases_test;
mod cell;
mod endpoint;
mod journal;
mod leaves;
mod log;
#[cfg(test)]
#[cfg(loom)]
mod loom_test;
#[cfg(test)]
#[cfg(not(loom))]
mod model_test;
mod next;
mod number;
#[cfg(test)]
#[cfg(not(loom))]
mod plain;
mod snapshot;
#[cfg(test)]
#[cfg(not(loom))]
mod stopped_test;
mod sync;
mod table;
mod update;

pub use cell::Handle;
pub use endpoint::{Endpoint, EndpointPort, EndpointState, Entry, ServiceEndpoints};
pub(crate) use journal::Journal;
pub use leaves::{Entries, Listed};
pub use number::Watcher;
pub use snapshot::{Changes, Listing, Snapshot};
#[cfg(test)]
#[cfg(not(loom))]
pub(crate) use sync::stops::stepping;
pub use table::{EndpointTable, Reader, Recent};
pub use update::{Change, ServiceUpdate};
