//! The place of one service: its current snapshot and the numbers its watchers wait on.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::endpoints::number::{Number, Watcher};
use crate::endpoints::sync::{Lock, Swap};
use crate::endpoints::{Endpoint, Entry, Snapshot};
use crate::identity::ServiceName;

/// A service's place in the table, found by name once and then kept.
///
/// Reading through it takes no lock and never waits for the writer. It stays valid after the service
/// is removed; its snapshot then says so.
#[derive(Debug)]
pub struct Handle<E: Entry = Endpoint> {
    cell: Arc<Cell<E>>,
}

impl<E: Entry> Handle<E> {
    pub(super) const fn new(cell: Arc<Cell<E>>) -> Self {
        Self { cell }
    }

    /// Whose place it is.
    #[must_use]
    pub fn service(&self) -> &ServiceName {
        &self.cell.service
    }

    /// Looks at the current snapshot without touching its count of holders.
    ///
    /// For loops and hot paths. `look` must be short: the snapshot lives at least as long as it runs.
    pub fn read<R>(&self, look: impl FnOnce(&Snapshot<E>) -> R) -> R {
        self.cell.read(look)
    }

    /// The current snapshot, to keep for as long as it is needed, also across an await.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot<E>> {
        self.cell.snapshot.take()
    }

    /// The number of the newest change of anything shown. Subscribe, then take the snapshot: what
    /// changes in between is seen as a change of the number.
    #[must_use]
    pub fn subscribe(&self) -> Watcher {
        self.cell.changed.subscribe()
    }

    /// The number of the newest change of the default answer; as [`Handle::subscribe`].
    #[must_use]
    pub fn subscribe_ready(&self) -> Watcher {
        self.cell.ready_changed.subscribe()
    }
}

impl<E: Entry> Clone for Handle<E> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.cell))
    }
}

/// One service's snapshot with its two numbers. Written by the table's one writer only.
#[derive(Debug)]
pub(super) struct Cell<E: Entry> {
    pub(super) service: Arc<ServiceName>,
    snapshot: Swap<Snapshot<E>>,
    changed: Arc<Number>,
    ready_changed: Arc<Number>,
    /// The newest versions that were replaced. The last holder of a version frees it: this way that is the
    /// writer, unless a reader stays on one for longer than these last. No reader takes the lock.
    retired: Lock<VecDeque<Arc<Snapshot<E>>>>,
}

impl<E: Entry> Cell<E> {
    /// How many replaced versions of a service are kept a while.
    const RETIRED: usize = 4;
    /// The freeing of fewer entries is not worth being spared.
    const BIG: usize = 64;

    pub(super) fn new(snapshot: Snapshot<E>) -> Self {
        Self {
            service: Arc::clone(&snapshot.service),
            changed: Number::new(snapshot.mod_revision()),
            ready_changed: Number::new(snapshot.ready_revision()),
            snapshot: Swap::new(snapshot),
            retired: Lock::default(),
        }
    }

    pub(super) fn read<R>(&self, look: impl FnOnce(&Snapshot<E>) -> R) -> R {
        self.snapshot.read(look)
    }

    /// The first half of a change: readers see it, waiters sleep on. Gives what the second half is to move.
    pub(super) fn swap(&self, next: Snapshot<E>) -> Moves {
        let is_removed = next.removed;
        let (changed, ready) = (next.mod_revision, next.ready_revision);
        let before = self.snapshot.replace(Arc::new(next));
        let moves = Moves {
            changed: (before.mod_revision != changed).then_some(changed),
            ready: (before.ready_revision != ready).then_some(ready),
        };
        let freed = self.retired.hold(|retired| {
            if is_removed {
                // Nothing replaces a removed version, so nothing would ever empty the ring.
                retired.clear();
                return Some(before);
            }
            if before.leaves.len() < Self::BIG {
                return Some(before);
            }
            retired.push_back(before);
            let is_full = retired.len() > Self::RETIRED;
            is_full.then(|| retired.pop_front()).flatten()
        });
        drop(freed);
        moves
    }

    /// The second half: wakes who waits.
    pub(super) fn wake(&self, moves: Moves) {
        if let Some(changed) = moves.changed {
            self.changed.move_to(changed);
        }
        if let Some(ready) = moves.ready {
            self.ready_changed.move_to(ready);
        }
    }
}

/// Which numbers of a cell move, and where to. The writer knows them by the versions it swapped: that it never
/// reads a number is also what lets the checker see every meeting with those who do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moves {
    pub(super) changed: Option<u64>,
    pub(super) ready: Option<u64>,
}
