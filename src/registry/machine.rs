//! The registry itself: what the driver calls, and the order in which things leave it.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::{HostName, ServiceName};
use crate::time::{Monotonic, Now};

use super::{BatchNumber, Desired, Effect, EventView, Input, PortView, Stored, View};

/// Site settings of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a freed number rests before somebody else gets it.
    pub cooling: Duration,
    /// How long a number rests on which a stranger was met at a start.
    pub foreign_rest: Duration,
    /// How long news may wait for a commit.
    pub news_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cooling: Duration::from_secs(60),
            foreign_rest: Duration::from_secs(60),
            news_delay: Duration::from_secs(1),
        }
    }
}

/// Why stored records could not be taken up. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A record cannot be read.
    #[error("record {key:?} of table {table} is damaged: {reason}; restore a backup")]
    Damaged {
        /// Its table.
        table: String,
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer version wrote it.
    #[error(
        "record {key:?} of table {table} has format {found}, this version reads up to {known}; use the newer portreeve"
    )]
    Newer {
        /// Its table.
        table: String,
        /// Its key.
        key: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
}

/// Services, replicas and hosts. One owner; every call returns at once.
///
/// The driver's round: [`Registry::handle`] for everything that waits, then [`Registry::flush`], which settles,
/// places, publishes news and emits at most one [`Effect::Commit`]; then the store; then
/// [`Registry::committed`] or [`Registry::commit_failed`], and [`Registry::flush`] again. While a batch is
/// with the store, `handle` and `flush` may be called: news passes, everything else waits inside.
#[derive(Debug)]
pub struct Registry {
    view: Arc<View>,
    epoch: String,
    revision: u64,
}

impl Registry {
    /// Takes up what is stored. `epoch` is the name of a new revision line, used if the store holds none.
    ///
    /// # Errors
    ///
    /// [`LoadError`] names the record.
    pub fn load(
        _config: Config,
        _stored: &Stored,
        epoch: String,
        now: Now,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            view: Arc::default(),
            epoch,
            revision: (now.wall.as_unix_millis() / 1000) << 20,
        })
    }

    /// Takes in one thing that happened.
    pub fn handle(&mut self, _now: Now, _input: Input, _out: &mut Vec<Effect>) {}

    /// Ends a round of [`Registry::handle`] calls; emits at most one [`Effect::Commit`].
    pub fn flush(&mut self, _now: Now, _out: &mut Vec<Effect>) {}

    /// The batch is durable: publishes, answers and orders what waited for it.
    pub fn committed(&mut self, _batch: BatchNumber, _out: &mut Vec<Effect>) {}

    /// The batch is not durable: everything is as before it, and its askers are told so.
    pub fn commit_failed(&mut self, _batch: BatchNumber, _reason: &str, _out: &mut Vec<Effect>) {}

    /// When [`Registry::on_deadline`] is to be called, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        None
    }

    /// Does what is due at `now`, then flushes.
    pub fn on_deadline(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.flush(now, out);
    }

    /// What readers see: durable truth and the newest news. The same `Arc` as long as nothing changed.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// What happened to a service, oldest first; at most 1,000.
    #[must_use]
    pub fn events(&self, _service: &ServiceName) -> Vec<EventView> {
        Vec::new()
    }

    /// The wanted set of a host: its revision, whether a full report is wanted first, and the replicas by
    /// service and index. `None`: no such host has reported yet.
    #[must_use]
    pub fn desired(&self, _host: &HostName) -> Option<(u64, bool, Vec<Desired>)> {
        None
    }

    /// Every number of a host that is not free, ascending. `None`: an unknown host.
    #[must_use]
    pub fn host_ports(&self, _host: &HostName) -> Option<Vec<PortView>> {
        None
    }

    /// The life of the revision line.
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The newest revision given.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }
}
