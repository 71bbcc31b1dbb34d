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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Absent,
    /// Not by a default answer.
    Unlisted,
    Listed,
}

/// The newest changes, oldest first.
#[derive(Debug)]
pub(super) struct Log<K> {
    newest: Arc<[Logged<K>]>,
    /// Every change after this revision is there.
    complete_after: u64,
}

impl<K: Clone + Ord> Log<K> {
    /// How many changes of a service are remembered.
    pub(super) const MOST: usize = 64;

    pub(super) fn new(revision: u64) -> Self {
        Self {
            newest: Arc::new([]),
            complete_after: revision,
        }
    }

    /// With these changes too, which are the newest.
    pub(super) fn with(&self, changes: &[Logged<K>]) -> Self {
        let surplus = (self.newest.len() + changes.len()).saturating_sub(Self::MOST);
        let (old, new) = if let Some(of_new) = surplus.checked_sub(self.newest.len()) {
            (self.newest.len(), of_new)
        } else {
            (surplus, 0)
        };
        let forgotten = self.newest[..old].last();
        let forgotten = changes[..new].last().or(forgotten);
        let kept = self.newest[old..].iter().chain(&changes[new..]);
        Self {
            complete_after: forgotten.map_or(self.complete_after, |last| last.revision),
            newest: kept.cloned().collect(),
        }
    }

    /// Of every key that changed after `since`, how it was shown then; by key. `None` if some of it is
    /// forgotten.
    pub(super) fn since(&self, since: u64) -> Option<Vec<&Logged<K>>> {
        if since < self.complete_after {
            return None;
        }
        let after = self
            .newest
            .partition_point(|change| change.revision <= since);
        let mut changes: Vec<_> = self.newest[after..].iter().collect();
        // Stable: of one key the oldest stays first, and that one knows how it was.
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        changes.dedup_by(|later, first| later.key == first.key);
        Some(changes)
    }
}

impl<K> Clone for Log<K> {
    fn clone(&self) -> Self {
        Self {
            newest: Arc::clone(&self.newest),
            complete_after: self.complete_after,
        }
    }
}
