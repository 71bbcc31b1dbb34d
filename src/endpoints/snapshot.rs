//! One version of one service, as readers see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::endpoints::leaves::{Entries, Leaves, Listed};
use crate::endpoints::log::{Log, Shown};
use crate::endpoints::{Endpoint, Entry};
use crate::identity::ServiceName;

/// One version of a service: immutable, so that a reader's view is never torn.
///
/// It shares with the version before whatever did not change: of N entries one change copies a chunk, not N.
#[derive(Debug)]
pub struct Snapshot<E: Entry = Endpoint> {
    pub(super) service: Arc<ServiceName>,
    pub(super) desired: u32,
    pub(super) mod_revision: u64,
    pub(super) ready_revision: u64,
    pub(super) removed: bool,
    /// The keys of `leaves` in the same order.
    pub(super) keys: Arc<[E::Key]>,
    pub(super) leaves: Leaves<E>,
    pub(super) log: Log<E::Key>,
    pub(super) body: Body,
}

impl<E: Entry> Snapshot<E> {
    /// Whose version it is.
    #[must_use]
    pub fn service(&self) -> &ServiceName {
        &self.service
    }

    /// How many replicas there shall be.
    #[must_use]
    pub const fn desired(&self) -> u32 {
        self.desired
    }

    /// How many entries a default answer lists.
    #[must_use]
    pub const fn ready(&self) -> usize {
        self.leaves.listed_len()
    }

    /// When anything shown last changed.
    #[must_use]
    pub const fn mod_revision(&self) -> u64 {
        self.mod_revision
    }

    /// When the default answer last changed: the listed entries, or how many there shall be.
    #[must_use]
    pub const fn ready_revision(&self) -> u64 {
        self.ready_revision
    }

    /// Whether the service was removed. A handle that finds this has ended; a later service of the
    /// same name is found by looking the name up again.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.removed
    }

    /// The entries of a default answer, by key.
    #[must_use]
    pub fn listed(&self) -> Listed<'_, E> {
        self.leaves.listed()
    }

    /// Every entry, by key, with the revision of its last change: what `state=all` shows.
    #[must_use]
    pub fn entries(&self) -> Entries<'_, E> {
        self.leaves.iter()
    }

    /// The entry of one key with the revision of its last change. Cost: one binary search.
    #[must_use]
    pub fn entry(&self, key: &E::Key) -> Option<(&E, u64)> {
        let place = self.place(key).ok()?;
        let detail = self.leaves.at(place);
        Some((E::of(&detail.entry), detail.revision))
    }

    /// How many entries there are, whatever their state.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at a place of [`Snapshot::entries`], with the revision of its last change. Cost: constant.
    #[must_use]
    pub fn entry_at(&self, place: usize) -> Option<(&E, u64)> {
        let detail = (place < self.len()).then(|| self.leaves.at(place))?;
        Some((E::of(&detail.entry), detail.revision))
    }

    /// What differs from the version that `since` spoke of; `None` if the log of the last 64 changes does
    /// not reach back so far, or to before the service: then the whole set is the answer.
    ///
    /// Applied to the list as it was at `since`, or at any version from then on, it gives the list of this version;
    /// so a key may be removed that was not there at `since`. How many there shall be ([`Snapshot::desired`]) is not
    /// part of it. Cost: the changes told, whatever the size.
    #[must_use]
    pub fn changes_since(&self, since: u64, listing: Listing) -> Option<Changes<'_, E>> {
        let mut changes = Changes {
            upsert: Vec::new(),
            remove: Vec::new(),
        };
        for change in self.log.since(since)? {
            let is_told = |shown: Shown| match listing {
                Listing::Ready => shown == Shown::Listed,
                Listing::All => shown != Shown::Absent,
            };
            let now = self.entry(&change.key);
            if let Some(now) = now.filter(|(entry, _)| is_told(Shown::of(*entry))) {
                changes.upsert.push(now);
            } else if is_told(change.was) {
                changes.remove.push(change.key.clone());
            }
        }
        Some(changes)
    }

    /// The answer for the whole default list as bytes: rendered by who asks first, kept for the others.
    ///
    /// Give the same `render` always: only one rendering is kept. No reader waits for another that renders;
    /// two that begin at once both do.
    pub fn rendered(&self, render: impl FnOnce(&Self) -> Arc<[u8]>) -> Arc<[u8]> {
        self.body.or_render(|| render(self))
    }

    pub(super) fn place(&self, key: &E::Key) -> Result<usize, usize> {
        self.keys.binary_search(key)
    }
}

/// Which entries a reader follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Those that a default answer lists.
    Ready,
    /// All of them, whatever their state.
    All,
}

/// What differs between two versions for one reader.
#[derive(Debug)]
pub struct Changes<'a, E: Entry = Endpoint> {
    /// Entries that are new or differ, by key, with the revision of their last change.
    pub upsert: Vec<(&'a E, u64)>,
    /// Keys that the reader shall not list any more.
    pub remove: Vec<E::Key>,
}

impl<E: Entry> Changes<'_, E> {
    /// Whether nothing differs.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.upsert.is_empty() && self.remove.is_empty()
    }
}

impl Shown {
    pub(super) fn of<E: Entry>(entry: &E) -> Self {
        if entry.is_listed() {
            Self::Listed
        } else {
            Self::Unlisted
        }
    }
}

/// The rendered answer of one version.
#[derive(Debug, Default)]
pub(super) struct Body {
    bytes: OnceLock<Arc<[u8]>>,
    /// Who sets it. The others would have to wait a moment for that one, so they keep their own bytes.
    is_taken: AtomicBool,
}

impl Body {
    fn or_render(&self, render: impl FnOnce() -> Arc<[u8]>) -> Arc<[u8]> {
        if let Some(bytes) = self.bytes.get() {
            return Arc::clone(bytes);
        }
        let bytes = render();
        if !self.is_taken.swap(true, Ordering::Relaxed) {
            // Taken once, so it is not set yet.
            let _ = self.bytes.set(Arc::clone(&bytes));
        }
        bytes
    }
}
