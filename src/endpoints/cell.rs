//! The place of one service: its current snapshot and the numbers its watchers wait on.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::endpoints::Snapshot;
use crate::identity::ServiceName;

/// A service's place in the table, found by name once and then kept.
///
/// Reading through it takes no lock and never waits for the writer. It stays valid after the service
/// is removed; its snapshot then says so.
#[derive(Clone, Debug)]
pub struct Handle {
    cell: Arc<Cell>,
}

impl Handle {
    pub(super) const fn new(cell: Arc<Cell>) -> Self {
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
    pub fn read<R>(&self, look: impl FnOnce(&Snapshot) -> R) -> R {
        self.cell.read(look)
    }

    /// The current snapshot, to keep for as long as it is needed, also across an await.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.cell.snapshot.load_full()
    }

    /// The number of the newest change of anything shown. Subscribe, then take the snapshot: what
    /// changes in between is seen as a change of the number.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.cell.changed.subscribe()
    }

    /// The number of the newest change of the default answer; as [`Handle::subscribe`].
    #[must_use]
    pub fn subscribe_ready(&self) -> watch::Receiver<u64> {
        self.cell.ready_changed.subscribe()
    }
}

/// One service's snapshot with its two numbers. Written by the table's one writer only.
#[derive(Debug)]
pub(super) struct Cell {
    service: ServiceName,
    snapshot: ArcSwap<Snapshot>,
    changed: watch::Sender<u64>,
    ready_changed: watch::Sender<u64>,
}

impl Cell {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self {
            service: snapshot.set().service.clone(),
            changed: watch::Sender::new(snapshot.mod_revision()),
            ready_changed: watch::Sender::new(snapshot.ready_revision()),
            snapshot: ArcSwap::from_pointee(snapshot),
        }
    }

    pub(super) fn read<R>(&self, look: impl FnOnce(&Snapshot) -> R) -> R {
        look(&self.snapshot.load())
    }

    /// The first half of a change: readers see it, waiters sleep on.
    pub(super) fn swap(&self, next: Snapshot) {
        self.snapshot.store(Arc::new(next));
    }

    /// The second half: moves the numbers that the current snapshot moved. Says which did.
    pub(super) fn wake(&self) -> Woken {
        let (changed, ready) = self.read(|s| (s.mod_revision(), s.ready_revision()));
        // `send_replace` always, never `send`: that one drops the value while nobody listens, and the
        // next subscriber would compare with an old number.
        let moved = |number: &watch::Sender<u64>, to: u64| {
            let moves = *number.borrow() != to;
            if moves {
                number.send_replace(to);
            }
            moves
        };
        Woken {
            changed: moved(&self.changed, changed),
            ready: moved(&self.ready_changed, ready),
        }
    }
}

/// Which numbers of a cell moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Woken {
    pub(super) changed: bool,
    pub(super) ready: bool,
}
