//! All services by name, the one writer, and the numbers of the whole table.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::endpoints::cell::Cell;
use crate::endpoints::journal::Journal;
use crate::endpoints::number::{Number, Watcher};
use crate::endpoints::sync::{Cached, Lock, Swap};
use crate::endpoints::{Endpoint, Entry, Handle, ServiceUpdate, Snapshot};
use crate::identity::ServiceName;

/// The endpoints of every known service. Shared between one writer and any number of readers.
///
/// A name leads to its place through an immutable map that is replaced when a service appears or goes;
/// so also the way to a service takes no lock. A change of readiness replaces one snapshot only.
#[derive(Debug)]
pub struct EndpointTable<E: Entry = Endpoint> {
    epoch: String,
    cells: Swap<CellsByName<E>>,
    changed: Arc<Number>,
    ready_changed: Arc<Number>,
    appeared: Arc<Number>,
    recent: Journal<Arc<ServiceName>>,
    removed: Journal<Arc<ServiceName>>,
    /// Serializes writers, who keep the newest revision there; no reader takes it.
    writing: Lock<u64>,
}

#[expect(
    clippy::disallowed_types,
    reason = "look-ups only; every list made from it is sorted by name"
)]
type CellsByName<E> =
    std::collections::HashMap<ServiceName, Arc<Cell<E>>, foldhash::fast::RandomState>;

impl<E: Entry> EndpointTable<E> {
    /// How many of the newest changes [`EndpointTable::recent`] tells at least.
    pub const MOST_RECENT: usize = 1_024;
    /// How many removed services are remembered at least, until they are [forgotten].
    ///
    /// [forgotten]: EndpointTable::forget_removed
    pub const MOST_REMOVED: usize = 10_000;

    /// An empty table on the number line `epoch`, at `revision`.
    #[must_use]
    pub fn new(epoch: String, revision: u64) -> Self {
        Self {
            epoch,
            cells: Swap::new(CellsByName::default()),
            changed: Number::new(revision),
            ready_changed: Number::new(revision),
            appeared: Number::new(revision),
            recent: Journal::new(Self::MOST_RECENT, revision),
            removed: Journal::new(Self::MOST_REMOVED, revision),
            writing: Lock::new(revision),
        }
    }

    /// With what an earlier table of the same epoch remembered: every service removed after
    /// `complete_after` with the revision of its removal, in ascending order.
    #[must_use]
    pub fn remembering(
        self,
        complete_after: u64,
        removed: impl IntoIterator<Item = (u64, ServiceName)>,
    ) -> Self {
        let journal = Journal::new(Self::MOST_REMOVED, complete_after);
        for (revision, service) in removed {
            journal.note(revision, Arc::new(service));
        }
        Self {
            removed: journal,
            ..self
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
        self.changed.value()
    }

    /// The revision of the newest change of any default answer; as [`EndpointTable::revision`].
    #[must_use]
    pub fn ready_revision(&self) -> u64 {
        self.ready_changed.value()
    }

    /// The place of a known service, to be kept; `None` for an unknown or removed one.
    #[must_use]
    pub fn service(&self, name: &ServiceName) -> Option<Handle<E>> {
        self.cells
            .read(|cells| cells.get(name).cloned())
            .map(Handle::new)
    }

    /// Looks once at a service's current snapshot; `None` for an unknown or removed one.
    ///
    /// Counts no holder of anything, so that readers on many cores do not meet on one cache line.
    pub fn read<R>(&self, name: &ServiceName, look: impl FnOnce(&Snapshot<E>) -> R) -> Option<R> {
        self.cells
            .read(|cells| cells.get(name).map(|cell| cell.read(look)))
    }

    /// For one who reads by name in a loop: spares most of the cost of the way to the name.
    #[must_use]
    pub fn reader(&self) -> Reader<'_, E> {
        Reader {
            cells: Cached::new(&self.cells),
        }
    }

    /// Every known service, by name. Cost: a sorted copy of the list.
    #[must_use]
    pub fn services(&self) -> Vec<Handle<E>> {
        let mut all: Vec<_> = self
            .cells
            .read(|cells| cells.values().cloned().map(Handle::new).collect());
        all.sort_unstable_by(|a: &Handle<E>, b| a.service().cmp(b.service()));
        all
    }

    /// The table's number: moves once for each batch that changed anything shown.
    #[must_use]
    pub fn subscribe(&self) -> Watcher {
        self.changed.subscribe()
    }

    /// Moves once for each batch that changed a default answer.
    #[must_use]
    pub fn subscribe_ready(&self) -> Watcher {
        self.ready_changed.subscribe()
    }

    /// Moves when a name appears: what a reader of an unknown name waits on. Subscribe before the
    /// look-up.
    #[must_use]
    pub fn subscribe_names(&self) -> Watcher {
        self.appeared.subscribe()
    }

    /// Which services changed, appeared or went after `since`: for who follows many of them with one
    /// number. `None` if that is too long ago; then the `mod_revision` of each tells.
    ///
    /// Cost: linear in what is told; takes no lock.
    #[must_use]
    pub fn recent(&self, since: u64) -> Option<Recent> {
        // First the number: what a batch notes before it moves the number is told with the next one, whole.
        let revision = self.revision();
        let mut services = self.recent.since(since)?;
        services.retain(|(noted, _)| *noted <= revision);
        Some(Recent { revision, services })
    }

    /// Which services were removed after `since`, in that order; `None` if some of them are forgotten: who
    /// was away for so long starts anew. One of them may be known again.
    #[must_use]
    pub fn removed_since(&self, since: u64) -> Option<Vec<Arc<ServiceName>>> {
        let removed = self.removed.since(since)?;
        Some(removed.into_iter().map(|(_, service)| service).collect())
    }

    /// Forgets, by the page of 64, services that were removed up to `revision`: because that is long ago,
    /// which the caller's clock tells. Of more than [`EndpointTable::MOST_REMOVED`] the oldest go anyway.
    pub fn forget_removed(&self, revision: u64) {
        self.writing.hold(|_| self.removed.forget(revision));
    }

    /// Shows a batch: each update changes its service, and those in `removed` go, whatever is said of them.
    ///
    /// One swap per service that differs; what equals what is shown makes no swap, moves no number and
    /// wakes nobody. All services are swapped before any number moves. `revision` shall be greater than
    /// every earlier one, unless nothing waits yet (the first batch after a start).
    ///
    /// Returns whether anything shown changed. Cost: linear in what the updates hold, whatever the size of
    /// their services, but for a copy of the list of a service whose members change, and of the map of
    /// names if a service appears or goes.
    pub fn publish(
        &self,
        revision: u64,
        updates: Vec<ServiceUpdate<E>>,
        removed: &[ServiceName],
    ) -> bool {
        self.writing.hold(|newest| {
            debug_assert!(revision >= *newest, "revision {revision} after {newest}");
            let revision = revision.max(*newest);
            let batch = self
                .cells
                .read(|cells| Batch::of(cells, revision, updates, removed));
            let changed = self.show(revision, batch);
            if changed {
                *newest = revision;
            }
            changed
        })
    }

    /// The order on which every reader relies: snapshots, names, what changed lately; then the numbers, the
    /// table's own last.
    fn show(&self, revision: u64, batch: Batch<E>) -> bool {
        let mut cells = SmallVec::<[_; 1]>::new();
        for (cell, next) in batch.next {
            if next.mod_revision() == revision {
                self.recent.note(revision, Arc::clone(&cell.service));
            }
            if next.is_removed() {
                self.removed.note(revision, Arc::clone(&cell.service));
            }
            let moves = cell.swap(next);
            cells.push((cell, moves));
        }
        let appears = !batch.appeared.is_empty();
        for service in batch.appeared {
            self.recent.note(revision, service);
        }
        if let Some(names) = batch.names {
            self.cells.replace(Arc::new(names));
        }
        let (mut changed, mut ready) = (appears, appears);
        for (cell, moves) in cells {
            cell.wake(moves);
            changed |= moves.changed.is_some();
            ready |= moves.ready.is_some();
        }
        if appears {
            self.appeared.move_to(revision);
        }
        if ready {
            self.ready_changed.move_to(revision);
        }
        if changed {
            self.changed.move_to(revision);
        }
        changed
    }
}

/// Reads by name for one thread; as fresh as [`EndpointTable::read`].
///
/// It keeps the map of names as it last found it, so one that rests for long keeps removed services in memory.
#[derive(Debug)]
pub struct Reader<'a, E: Entry = Endpoint> {
    cells: Cached<'a, CellsByName<E>>,
}

impl<E: Entry> Reader<'_, E> {
    /// As [`EndpointTable::read`].
    pub fn read<R>(
        &mut self,
        name: &ServiceName,
        look: impl FnOnce(&Snapshot<E>) -> R,
    ) -> Option<R> {
        let cell = self.cells.current().get(name)?;
        Some(cell.read(look))
    }
}

/// What changed lately in the whole table.
#[derive(Clone, Debug)]
pub struct Recent {
    /// Up to which revision everything is told: what to ask from next time.
    pub revision: u64,
    /// Each with the revision of its change, ascending; a service may stand there more than once. One that
    /// the table does not know any more was removed.
    pub services: Vec<(u64, Arc<ServiceName>)>,
}

/// A batch made ready, so that nothing but swaps is left to do.
struct Batch<E: Entry> {
    /// Mostly one, which then needs no list of its own.
    next: SmallVec<[Swapped<E>; 1]>,
    /// The map with those that appear and without those that go, if there are any.
    names: Option<CellsByName<E>>,
    appeared: Vec<Arc<ServiceName>>,
}

/// A place and the version that comes there.
type Swapped<E> = (Arc<Cell<E>>, Snapshot<E>);

impl<E: Entry> Batch<E> {
    fn of(
        cells: &CellsByName<E>,
        revision: u64,
        mut updates: Vec<ServiceUpdate<E>>,
        removed: &[ServiceName],
    ) -> Self {
        let mut batch = Self {
            next: SmallVec::new(),
            names: None,
            appeared: Vec::new(),
        };
        let gone: BTreeSet<&ServiceName> = removed.iter().collect();
        updates.retain(|update| !gone.contains(&update.service));
        // Of one service all at once, in the order given: one swap.
        updates.sort_by(|a, b| a.service.cmp(&b.service));
        let mut updates = updates.into_iter().peekable();
        while let Some(first) = updates.next() {
            let Some(cell) = cells.get(&first.service) else {
                let service = first.service.clone();
                let more = std::iter::from_fn(|| updates.next_if(|next| next.service == service));
                batch.appear(cells, first, more, revision);
                continue;
            };
            let more = std::iter::from_fn(|| updates.next_if(|next| next.service == *cell.service));
            let next = cell.read(|now| folded(now, [first].into_iter().chain(more), revision));
            batch.next.extend(next.map(|next| (Arc::clone(cell), next)));
        }
        for name in gone {
            if let Some(cell) = cells.get(name) {
                let end = cell.read(|now| now.tombstone(revision));
                batch.next.push((Arc::clone(cell), end));
                batch.names(cells).remove(name);
            }
        }
        batch
    }

    fn appear(
        &mut self,
        cells: &CellsByName<E>,
        first: ServiceUpdate<E>,
        more: impl Iterator<Item = ServiceUpdate<E>>,
        revision: u64,
    ) {
        let name = Arc::new(first.service);
        let first = Snapshot::first(Arc::clone(&name), first.desired, first.change, revision);
        let snapshot = folded(&first, more, revision).unwrap_or(first);
        let cell = Arc::new(Cell::new(snapshot));
        self.names(cells).insert(ServiceName::clone(&name), cell);
        self.appeared.push(name);
    }

    fn names(&mut self, cells: &CellsByName<E>) -> &mut CellsByName<E> {
        self.names.get_or_insert_with(|| cells.clone())
    }
}

/// One version from several updates; `None` if they change nothing.
fn folded<E: Entry>(
    now: &Snapshot<E>,
    updates: impl Iterator<Item = ServiceUpdate<E>>,
    revision: u64,
) -> Option<Snapshot<E>> {
    updates.fold(None, |next, update| {
        let base = next.as_ref().unwrap_or(now);
        base.next(update.desired, update.change, revision).or(next)
    })
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "table_test.rs"]
mod tests;
