//! Records in memory that know what of them is durable.
//!
//! Truth is changed with [`Ledger::change`]: the durable form is kept until the batch that holds the change
//! is, and comes back if it never becomes so. News is told with [`Ledger::note`] to both forms, so that
//! undoing truth never unsays news.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

/// Records by key, with the durable form of those that an open batch changes.
#[derive(Clone, Debug)]
pub(super) struct Ledger<K, V> {
    current: BTreeMap<K, V>,
    /// The durable form of what was changed since; `None`: there was none.
    durable: BTreeMap<K, Option<V>>,
    /// Told but in no batch yet.
    unsaved: BTreeSet<K>,
    /// Told and in the batch that is with the store.
    in_flight: BTreeSet<K>,
}

impl<K: Ord + Clone, V: Clone> Ledger<K, V> {
    pub(super) fn new(stored: BTreeMap<K, V>) -> Self {
        Self {
            current: stored,
            durable: BTreeMap::new(),
            unsaved: BTreeSet::new(),
            in_flight: BTreeSet::new(),
        }
    }

    /// The record with every change.
    pub(super) fn find(&self, key: &K) -> Option<&V> {
        self.current.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.current.len()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.current.iter()
    }

    pub(super) fn range(
        &self,
        keys: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.current.range(keys)
    }

    /// The record without what is not durable yet, news included.
    pub(super) fn durable(&self, key: &K) -> Option<&V> {
        match self.durable.get(key) {
            Some(before) => before.as_ref(),
            None => self.current.get(key),
        }
    }

    /// [`Ledger::durable`] of all keys of a range, ascending.
    pub(super) fn durable_range(&self, keys: impl RangeBounds<K> + Clone) -> Vec<(&K, &V)> {
        let unchanged = self
            .current
            .range(keys.clone())
            .filter(|(key, _)| !self.durable.contains_key(key));
        let before = self
            .durable
            .range(keys)
            .filter_map(|(key, before)| Some((key, before.as_ref()?)));
        let mut records: Vec<_> = unchanged.chain(before).collect();
        records.sort_by(|a, b| a.0.cmp(b.0));
        records
    }

    /// What was changed and is not durable yet: the durable record beside the present one.
    pub(super) fn undurable(&self) -> impl Iterator<Item = (&K, Option<&V>, Option<&V>)> {
        let changed = self.durable.iter();
        changed.map(|(key, before)| (key, before.as_ref(), self.current.get(key)))
    }

    /// Changes truth: visible to decisions at once, to readers when the next batch is durable.
    pub(super) fn change(&mut self, key: &K) -> Option<&mut V> {
        let record = self.current.get_mut(key)?;
        if !self.durable.contains_key(key) {
            self.durable.insert(key.clone(), Some(record.clone()));
        }
        Some(record)
    }

    /// Whether the record is as it is on disk, but for news: nothing of it can be undone any more.
    pub(super) fn is_settled(&self, key: &K) -> bool {
        !self.durable.contains_key(key)
    }

    /// Adds or replaces a record as truth.
    pub(super) fn insert(&mut self, key: K, record: V) {
        let before = self.current.insert(key.clone(), record);
        self.durable.entry(key).or_insert(before);
    }

    /// Forgets a record as truth.
    pub(super) fn remove(&mut self, key: &K) {
        if let Some(before) = self.current.remove(key) {
            self.durable.entry(key.clone()).or_insert(Some(before));
        }
    }

    /// Tells news to the record and to its durable form.
    pub(super) fn note(&mut self, key: &K, tell: impl Fn(&mut V)) {
        let before = self.durable.get_mut(key).and_then(Option::as_mut);
        let current = self.current.get_mut(key);
        for record in before.into_iter().chain(current) {
            tell(record);
            self.unsaved.insert(key.clone());
        }
    }

    /// Adds or replaces a record as news.
    pub(super) fn note_whole(&mut self, key: K, record: V) {
        if let Some(before) = self.durable.get_mut(&key) {
            *before = Some(record.clone());
        }
        self.current.insert(key.clone(), record);
        self.unsaved.insert(key);
    }

    /// Forgets a record as news.
    pub(super) fn note_gone(&mut self, key: &K) {
        self.durable.remove(key);
        self.current.remove(key);
        self.unsaved.insert(key.clone());
    }

    /// Whether truth was changed that is not durable yet.
    pub(super) fn is_changed(&self) -> bool {
        !self.durable.is_empty()
    }

    /// Whether news was told that is in no batch yet.
    pub(super) fn has_news(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Everything to write, for the next batch; `None`: forget it. Only one batch may be with the store.
    pub(super) fn take_writes(&mut self) -> Vec<(K, Option<&V>)> {
        self.in_flight = std::mem::take(&mut self.unsaved);
        let keys: BTreeSet<&K> = self.durable.keys().chain(&self.in_flight).collect();
        keys.into_iter()
            .map(|key| (key.clone(), self.current.get(key)))
            .collect()
    }

    /// The batch is durable.
    pub(super) fn commit(&mut self) {
        self.durable.clear();
        self.in_flight.clear();
    }

    /// The batch never became durable: truth is as before it, news stays told and unsaved.
    pub(super) fn revert(&mut self) {
        for (key, before) in std::mem::take(&mut self.durable) {
            match before {
                Some(record) => self.current.insert(key, record),
                None => self.current.remove(&key),
            };
        }
        self.unsaved.append(&mut self.in_flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger<u8, (u8, u8)> {
        Ledger::new(BTreeMap::from([(1, (10, 0)), (2, (20, 0))]))
    }

    #[test]
    fn a_reverted_batch_leaves_the_records_as_before_but_keeps_news() {
        let mut ledger = ledger();
        ledger.change(&1).unwrap().0 = 11;
        ledger.note(&1, |record| record.1 = 5);
        ledger.remove(&2);
        ledger.insert(3, (30, 0));
        assert_eq!(ledger.durable(&1), Some(&(10, 5)));
        assert_eq!(ledger.durable(&2), Some(&(20, 0)));
        assert_eq!(ledger.durable(&3), None);
        assert_eq!(ledger.durable_range(..), [(&1, &(10, 5)), (&2, &(20, 0))]);
        ledger.take_writes();
        // News that comes while the batch is with the store survives too.
        ledger.note(&2, |record| record.1 = 7);
        ledger.revert();
        let left: Vec<_> = ledger.iter().collect();
        assert_eq!(left, [(&1, &(10, 5)), (&2, &(20, 7))]);
        assert!(ledger.has_news() && !ledger.is_changed());
    }

    #[test]
    fn a_batch_holds_truth_and_news_once() {
        let mut ledger = ledger();
        ledger.change(&1).unwrap().0 = 11;
        ledger.note(&2, |record| record.1 = 1);
        ledger.note_whole(4, (40, 0));
        ledger.note_gone(&4);
        let writes = ledger.take_writes();
        assert_eq!(
            writes,
            [(1, Some(&(11, 0))), (2, Some(&(20, 1))), (4, None)]
        );
        ledger.commit();
        assert!(ledger.take_writes().is_empty());
    }
}
