//! Where the truth is kept: the border to the disk, and the form in memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One number per batch, rising.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchNumber(pub u64);

/// Writes that become durable together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number.
    pub number: BatchNumber,
    /// The writes, in order.
    pub writes: Vec<Write>,
}

/// One record set or forgotten. Values are JSON of the registry's own records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which table: one of [`tables::ALL`].
    pub table: &'static str,
    /// The key, ordered as bytes.
    pub key: String,
    /// The record, or `None` to forget it.
    pub value: Option<Vec<u8>>,
}

/// Everything a store holds, by table and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// How many batches made it.
    pub commits: u64,
    /// Table, then key, then record.
    pub tables: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
}

/// A durable place for the truth. One writer.
pub trait Store: Send {
    /// Reads everything back.
    ///
    /// # Errors
    ///
    /// [`StoreError`] names the file and what is wrong with it; nothing was changed.
    fn load(&mut self) -> Result<Stored, StoreError>;

    /// Makes `batch` durable. Returns only when it would survive a power loss.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing of the batch is kept.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;
}

/// The tables of the store.
pub mod tables {
    /// Revision ceiling, epoch, counters.
    pub const META: &str = "meta";
    /// Services with their effective profiles.
    pub const SERVICES: &str = "services";
    /// Replicas with placement, grant and newest news.
    pub const REPLICAS: &str = "replicas";
    /// Hosts as last reported.
    pub const HOSTS: &str = "hosts";
    /// Numbers that rest.
    pub const COOLING: &str = "cooling";
    /// What happened, per service, bounded.
    pub const EVENTS: &str = "events";
    /// What happened, per host, bounded.
    pub const HOST_EVENTS: &str = "host-events";
    /// Who had which numbers of which host, and when; bounded.
    pub const PORT_HISTORY: &str = "port-history";
    /// Numbers of lost hosts that stay held.
    pub const STRANDED: &str = "stranded";
    /// Tokens of people and hosts, by what their secrets hash to.
    pub const TOKENS: &str = "tokens";
    /// All of them.
    pub const ALL: [&str; 10] = [
        META,
        SERVICES,
        REPLICAS,
        HOSTS,
        COOLING,
        EVENTS,
        HOST_EVENTS,
        PORT_HISTORY,
        STRANDED,
        TOKENS,
    ];
}

/// Why the store could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has it.
    #[error(
        "{place} is in use by another controller; stop that one or name another directory with --data"
    )]
    InUse {
        /// Where.
        place: String,
    },
    /// It cannot be read as ours.
    #[error("{place} is damaged: {reason}; restore a backup or move it away")]
    Damaged {
        /// Where.
        place: String,
        /// What was found.
        reason: String,
    },
    /// A newer version wrote it.
    #[error(
        "{place} has format {found}, this version reads up to {known}; use the newer portreeve"
    )]
    Newer {
        /// Where.
        place: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The system refused.
    #[error("{place}: {reason}")]
    Io {
        /// Where.
        place: String,
        /// The system's words.
        reason: String,
    },
}

/// A store that forgets with its process: for tests and the virtual cluster.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    stored: Stored,
    /// The next commits that shall fail, for tests of the refusal.
    pub failing_commits: u32,
}

impl MemoryStore {
    /// What it holds.
    #[must_use]
    pub const fn stored(&self) -> &Stored {
        &self.stored
    }

    /// What it holds, to be damaged by tests.
    #[cfg(test)]
    pub(super) const fn stored_mut(&mut self) -> &mut Stored {
        &mut self.stored
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        Ok(self.stored.clone())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if let Some(left) = self.failing_commits.checked_sub(1) {
            self.failing_commits = left;
            return Err(StoreError::Io {
                place: "memory".into(),
                reason: "a commit that shall fail".into(),
            });
        }
        self.stored.commits += 1;
        for write in &batch.writes {
            let table = self
                .stored
                .tables
                .entry(write.table.to_owned())
                .or_default();
            match &write.value {
                Some(value) => table.insert(write.key.clone(), value.clone()),
                None => table.remove(&write.key),
            };
        }
        Ok(())
    }
}
