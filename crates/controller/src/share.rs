//! How much each user has of something that all share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is taken, by uid; those whose uid is not known share one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Mutex<BTreeMap<Option<u32>, usize>>>);

/// One piece, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    uid: Option<u32>,
}

impl Shares {
    /// One more for this user; `None` if it has `bound` already.
    pub(crate) fn take(&self, uid: Option<u32>, bound: usize) -> Option<Share> {
        let mut taken = self.0.lock();
        let count = taken.entry(uid).or_default();
        if *count >= bound {
            return None;
        }
        *count += 1;
        Some(Share {
            shares: self.clone(),
            uid,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.0.lock();
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
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
        let held: Vec<_> = (0..2).map(|_| shares.take(Some(1), 2).unwrap()).collect();
        assert!(shares.take(Some(1), 2).is_none());
        assert!(shares.take(Some(2), 2).is_some(), "others are not touched");
        drop(held);
        assert!(shares.0.lock().is_empty());
        assert!(shares.take(Some(1), 2).is_some());
    }
}
