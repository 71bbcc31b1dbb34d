//! All services by name, the one writer, and the numbers of the whole table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::endpoints::cell::Cell;
use crate::endpoints::{Handle, ServiceEndpoints, Snapshot};
use crate::identity::ServiceName;

/// The endpoints of every known service. Shared between one writer and any number of readers.
///
/// A name leads to its place through an immutable map that is replaced when a service appears or goes;
/// so also the way to a service takes no lock. A change of readiness replaces one snapshot only.
#[derive(Debug)]
pub struct EndpointTable {
    epoch: String,
    cells: ArcSwap<CellsByName>,
    /// Beside the channels, because reading a channel's value takes its lock.
    revision: AtomicU64,
    ready_revision: AtomicU64,
    changed: watch::Sender<u64>,
    ready_changed: watch::Sender<u64>,
    appeared: watch::Sender<u64>,
    /// Serializes writers; no reader takes it.
    writing: Mutex<()>,
}

#[expect(
    clippy::disallowed_types,
    reason = "look-ups only; every list made from it is sorted by name"
)]
type CellsByName = std::collections::HashMap<ServiceName, Arc<Cell>, foldhash::fast::RandomState>;

impl EndpointTable {
    /// An empty table on the number line `epoch`, at `revision`.
    #[must_use]
    pub fn new(epoch: String, revision: u64) -> Self {
        Self {
            epoch,
            cells: ArcSwap::default(),
            revision: AtomicU64::new(revision),
            ready_revision: AtomicU64::new(revision),
            changed: watch::Sender::new(revision),
            ready_changed: watch::Sender::new(revision),
            appeared: watch::Sender::new(revision),
            writing: Mutex::new(()),
        }
    }

    /// Which number line the revisions belong to: two revisions compare within one epoch only.
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The revision of the newest published change. Read it *before* the snapshots it shall stand
    /// for: they are then at least as new.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The revision of the newest change of any default answer; as [`EndpointTable::revision`].
    #[must_use]
    pub fn ready_revision(&self) -> u64 {
        self.ready_revision.load(Ordering::Acquire)
    }

    /// The place of a known service, to be kept; `None` for an unknown or removed one.
    #[must_use]
    pub fn service(&self, name: &ServiceName) -> Option<Handle> {
        self.cells.load().get(name).cloned().map(Handle::new)
    }

    /// Looks once at a service's current snapshot; `None` for an unknown or removed one.
    ///
    /// Counts no holder of anything, so that readers on many cores do not meet on one cache line.
    pub fn read<R>(&self, name: &ServiceName, look: impl FnOnce(&Snapshot) -> R) -> Option<R> {
        self.cells.load().get(name).map(|cell| cell.read(look))
    }

    /// Every known service, by name. Cost: a sorted copy of the list.
    #[must_use]
    pub fn services(&self) -> Vec<Handle> {
        let mut all: Vec<_> = self
            .cells
            .load()
            .values()
            .cloned()
            .map(Handle::new)
            .collect();
        all.sort_unstable_by(|a, b| a.service().cmp(b.service()));
        all
    }

    /// The table's number: moves once for each batch that changed anything shown.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Moves once for each batch that changed a default answer.
    #[must_use]
    pub fn subscribe_ready(&self) -> watch::Receiver<u64> {
        self.ready_changed.subscribe()
    }

    /// Moves when a name appears: what a reader of an unknown name waits on. Subscribe before the
    /// look-up.
    #[must_use]
    pub fn subscribe_names(&self) -> watch::Receiver<u64> {
        self.appeared.subscribe()
    }

    /// Shows a batch: each of `sets` replaces its service whole, those in `removed` go.
    ///
    /// One swap per service that differs; an equal set makes no swap, moves no number and wakes
    /// nobody. All services are swapped before any number moves. `revision` shall be greater than
    /// every earlier one, unless nothing waits yet (the first batch after a start).
    ///
    /// Returns whether anything shown changed. Cost: linear in the sets given, plus a copy of the
    /// map of names if a service appears or goes.
    pub fn publish(
        &self,
        revision: u64,
        sets: Vec<ServiceEndpoints>,
        removed: &[ServiceName],
    ) -> bool {
        let _only_writer = self.writing.lock();
        let current = self.revision();
        debug_assert!(revision >= current, "revision {revision} after {current}");
        let revision = revision.max(current);
        let before = self.cells.load_full();
        let mut names = Names::new(&before);
        let mut swapped = Vec::new();
        for set in sets {
            let set = in_order(set);
            if let Some(cell) = names.find(&set.service) {
                if let Some(next) = cell.read(|snapshot| snapshot.next(set, revision)) {
                    cell.swap(next);
                    swapped.push(Arc::clone(cell));
                }
            } else {
                let name = set.service.clone();
                let cell = Arc::new(Cell::new(Snapshot::first(set, revision)));
                names.change().insert(name, cell);
                names.appeared = true;
            }
        }
        for name in removed {
            if let Some(cell) = names.find(name).cloned() {
                cell.swap(cell.read(|snapshot| snapshot.tombstone(revision)));
                names.change().remove(name);
                swapped.push(cell);
            }
        }
        let appeared = names.appeared;
        if let Some(after) = names.changed {
            self.cells.store(Arc::new(after));
        }
        let mut changed = appeared;
        let mut ready = appeared;
        for cell in swapped {
            let woken = cell.wake();
            changed |= woken.changed;
            ready |= woken.ready;
        }
        if appeared {
            self.appeared.send_replace(revision);
        }
        if ready {
            self.ready_revision.store(revision, Ordering::Release);
            self.ready_changed.send_replace(revision);
        }
        if changed {
            self.revision.store(revision, Ordering::Release);
            self.changed.send_replace(revision);
        }
        changed
    }
}

/// The map of names during a batch: copied at the first change only.
struct Names<'a> {
    before: &'a CellsByName,
    changed: Option<CellsByName>,
    appeared: bool,
}

impl<'a> Names<'a> {
    const fn new(before: &'a CellsByName) -> Self {
        Self {
            before,
            changed: None,
            appeared: false,
        }
    }

    fn find(&self, name: &ServiceName) -> Option<&Arc<Cell>> {
        self.changed.as_ref().unwrap_or(self.before).get(name)
    }

    fn change(&mut self) -> &mut CellsByName {
        self.changed.get_or_insert_with(|| self.before.clone())
    }
}

/// The set as the table keeps it: by replica, one entry each; of two, the higher incarnation.
fn in_order(mut set: ServiceEndpoints) -> ServiceEndpoints {
    let ordered = set.endpoints.is_sorted_by(|a, b| a.replica < b.replica);
    if !ordered {
        set.endpoints
            .sort_by_key(|e| (e.replica, std::cmp::Reverse(e.incarnation)));
        set.endpoints.dedup_by_key(|e| e.replica);
    }
    set
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
