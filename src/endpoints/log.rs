//! The last changes of one service, from which a lagging reader is told what differs.

use std::sync::Arc;

/// What is remembered of one change.
#[derive(Clone, Debug)]
pub(super) struct Logged<K> {
    pub(super) revision: u64,
    pub(super) key: K,
    /// How the entry was shown before.
    pub(super) was: Shown,
}

/// How one entry is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    Absent,
    /// Not by a default answer.
    Unlisted,
    Listed,
}

/// The newest changes, oldest first: full pages that versions share, and one that each copies to add to it.
#[derive(Debug)]
pub(super) struct Log<K> {
    full: Arc<[Page<K>]>,
    newest: Page<K>,
    /// Every change after this revision is there.
    complete_after: u64,
}

type Page<K> = Arc<[Logged<K>]>;

/// Changes on a page.
const PAGE: usize = 16;

impl<K: Clone + Ord> Log<K> {
    /// How many changes of a service are remembered at least.
    pub(super) const LEAST: usize = 64;

    pub(super) fn new(revision: u64) -> Self {
        Self {
            full: Arc::new([]),
            newest: Arc::new([]),
            complete_after: revision,
        }
    }

    /// With these changes too, which are the newest.
    pub(super) fn with(&self, changes: &[Logged<K>]) -> Self {
        if self.newest.len() + changes.len() <= PAGE {
            return Self {
                newest: self.newest.iter().chain(changes).cloned().collect(),
                full: Arc::clone(&self.full),
                ..*self
            };
        }
        let turned = self.newest.iter().chain(changes).cloned();
        let turned: Vec<_> = turned.collect();
        let mut pages: Vec<Page<K>> = self.full.to_vec();
        pages.extend(turned.chunks(PAGE).map(Arc::from));
        let newest = pages.pop().unwrap_or_else(|| Arc::new([]));
        let surplus = pages.len().saturating_sub(Self::LEAST / PAGE);
        let forgotten = pages[..surplus].last().and_then(|page| page.last());
        Self {
            complete_after: forgotten.map_or(self.complete_after, |last| last.revision),
            full: pages[surplus..].into(),
            newest,
        }
    }

    /// Of every key that changed after `since`, how it was shown at most then and from then on, before its newest
    /// change; by key. `None` if some of it is forgotten.
    pub(super) fn since(&self, since: u64) -> Option<Vec<&Logged<K>>> {
        if since < self.complete_after {
            return None;
        }
        let pages = self.full.iter().chain([&self.newest]);
        let changes = pages.flat_map(|page| page.iter());
        let mut changes: Vec<_> = changes.filter(|change| change.revision > since).collect();
        // Whoever has a version from between may have what came after `since` and has gone again.
        changes.sort_by(|a, b| a.key.cmp(&b.key).then(b.was.cmp(&a.was)));
        changes.dedup_by(|later, first| later.key == first.key);
        Some(changes)
    }
}

impl<K> Clone for Log<K> {
    fn clone(&self) -> Self {
        Self {
            full: Arc::clone(&self.full),
            newest: Arc::clone(&self.newest),
            complete_after: self.complete_after,
        }
    }
}
