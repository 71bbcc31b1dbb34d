//! How much each user has of something that all share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is taken, by whose it is.
#[derive(Debug)]
pub(crate) struct Shares<K>(Arc<Mutex<Taken<K>>>);

#[derive(Debug)]
struct Taken<K> {
    all: usize,
    by: BTreeMap<K, usize>,
}

/// How many there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of one user.
    pub(crate) each: usize,
    /// Of all.
    pub(crate) all: usize,
}

/// One piece, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Ord> {
    shares: Shares<K>,
    by: K,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        let taken = Taken {
            all: 0,
            by: BTreeMap::new(),
        };
        Self(Arc::new(Mutex::new(taken)))
    }
}

impl<K> Clone for Shares<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Ord> Shares<K> {
    /// How many are taken.
    pub(crate) fn all(&self) -> usize {
        self.0.lock().all
    }

    /// One more for this user; `None` if it, or all together, have as many as they may.
    pub(crate) fn take(&self, by: K, bounds: Bounds) -> Option<Share<K>> {
        let mut taken = self.0.lock();
        let count = taken.by.get(&by).copied().unwrap_or_default();
        if count >= bounds.each || taken.all >= bounds.all {
            return None;
        }
        taken.all += 1;
        taken.by.insert(by.clone(), count + 1);
        Some(Share {
            shares: self.clone(),
            by,
        })
    }
}

impl<K: Ord> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.shares.0.lock();
        taken.all -= 1;
        if let Some(count) = taken.by.get_mut(&self.by) {
            *count -= 1;
            if *count == 0 {
                taken.by.remove(&self.by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_more_than_a_share_and_what_is_given_back_is_free() {
        let shares = Shares::default();
        let bounds = Bounds { each: 2, all: 3 };
        let held: Vec<_> = (0..2)
            .map(|_| shares.take(Some(1), bounds).unwrap())
            .collect();
        assert!(shares.take(Some(1), bounds).is_none());
        let other = shares.take(Some(2), bounds);
        assert!(other.is_some(), "others are not touched");
        assert!(shares.take(Some(3), bounds).is_none(), "all have three");
        let more = Bounds { all: 4, ..bounds };
        assert!(shares.take(Some(3), more).is_some(), "some may have more");
        drop((held, other));
        assert!(shares.0.lock().by.is_empty());
        assert!(shares.take(Some(1), bounds).is_some());
    }
}
