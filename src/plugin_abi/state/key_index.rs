//! Which slots stand under a key and under a job: chains through the slots themselves.
//!
//! All memory is taken at the start, so that whatever is entered allocates nothing. Slots are numbers
//! below the most that were said then; a slot stands in one place of an index at a time.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::state::register::Key;
use crate::plugin_abi::state::room;

/// Slots by key, newest incarnation first.
///
/// A chain holds one slot for each key, its head; the others of the key hang behind it. So neither a key with
/// many incarnations nor one whose older ones are long gone makes another look-up slower.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    heads: Chains,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    key: Key,
    incarnation: u32,
    newer: Link,
    older: Link,
}

impl KeyIndex {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for `most` slots.
    pub(crate) fn new(most: u32) -> Result<Self, Failure> {
        Ok(Self {
            heads: Chains::new(most)?,
            nodes: room::list(most as usize, "room for keys")?,
        })
    }

    /// Every slot of `key`, newest first.
    pub(crate) fn of(&self, key: Key) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = self.head(key);
        std::iter::from_fn(move || {
            let slot = at?;
            let node = self.nodes[slot as usize];
            at = node.older.slot();
            Some((slot, node.incarnation))
        })
    }

    /// The slot of exactly this placement. Cost: a look at those that are newer.
    pub(crate) fn find(&self, key: Key, incarnation: u32) -> Option<u32> {
        let mut from_newest = self.of(key).skip_while(|(_, other)| *other > incarnation);
        let (slot, found) = from_newest.next()?;
        (found == incarnation).then_some(slot)
    }

    /// Enters a slot that does not stand here. Cost: a look at those of its key that are newer.
    pub(crate) fn insert(&mut self, slot: u32, key: Key, incarnation: u32) {
        if self.nodes.len() <= slot as usize {
            self.nodes.resize(slot as usize + 1, Node::default());
        }
        let mut newer = None;
        let mut older = self.head(key);
        while let Some(at) = older
            && self.nodes[at as usize].incarnation > incarnation
        {
            newer = Some(at);
            older = self.nodes[at as usize].older.slot();
        }
        self.nodes[slot as usize] = Node {
            key,
            incarnation,
            newer: Link::to(newer),
            older: Link::to(older),
        };
        if let Some(older) = older {
            self.nodes[older as usize].newer = Link::to(Some(slot));
        }
        match newer {
            Some(newer) => self.nodes[newer as usize].older = Link::to(Some(slot)),
            None => {
                if let Some(former) = older {
                    self.heads.remove(hash_of(key), former);
                }
                self.heads.insert(hash_of(key), slot);
            }
        }
    }

    /// Takes out a slot that stands here.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Node {
            key, newer, older, ..
        } = self.nodes[slot as usize];
        if let Some(older) = older.slot() {
            self.nodes[older as usize].newer = newer;
        }
        match newer.slot() {
            Some(newer) => self.nodes[newer as usize].older = older,
            None => {
                self.heads.remove(hash_of(key), slot);
                if let Some(older) = older.slot() {
                    self.heads.insert(hash_of(key), older);
                }
            }
        }
    }

    fn head(&self, key: Key) -> Option<u32> {
        let heads = self.heads.of(hash_of(key));
        heads
            .into_iter()
            .find(|slot| self.nodes[*slot as usize].key == key)
    }
}

/// Slots by job.
#[derive(Debug)]
pub(crate) struct JobIndex(Chains);

impl JobIndex {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for `most` slots.
    pub(crate) fn new(most: u32) -> Result<Self, Failure> {
        Chains::new(most).map(Self)
    }

    pub(crate) fn insert(&mut self, slot: u32, job: u64) {
        self.0.insert(mixed(job), slot);
    }

    pub(crate) fn remove(&mut self, slot: u32, job: u64) {
        self.0.remove(mixed(job), slot);
    }

    /// The first of the slots among which all of `job` are; few others are.
    pub(crate) fn first(&self, job: u64) -> Option<u32> {
        self.0.first(mixed(job))
    }

    /// The one after `slot`, which stands here.
    pub(crate) fn after(&self, slot: u32) -> Option<u32> {
        self.0.after(slot)
    }
}

/// Chains of slots, one for each value that a hash is cut down to.
#[derive(Debug)]
struct Chains {
    /// A power of two of them.
    firsts: Vec<u32>,
    links: Vec<Linked>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Linked {
    before: Link,
    after: Link,
}

/// A slot, or none; zeroed memory is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Link(u32);

impl Link {
    fn to(slot: Option<u32>) -> Self {
        Self(slot.map_or(0, |slot| slot + 1))
    }

    const fn slot(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

impl Chains {
    fn new(most: u32) -> Result<Self, Failure> {
        let firsts = (most as usize).next_power_of_two();
        Ok(Self {
            firsts: room::zeroes(firsts, "room for an index")?,
            links: room::list(most as usize, "room for an index")?,
        })
    }

    fn of(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.first(hash), |slot| self.after(*slot))
    }

    fn first(&self, hash: u64) -> Option<u32> {
        Link(self.firsts[self.place(hash)]).slot()
    }

    fn after(&self, slot: u32) -> Option<u32> {
        self.links[slot as usize].after.slot()
    }

    fn insert(&mut self, hash: u64, slot: u32) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, Linked::default());
        }
        let place = self.place(hash);
        let after = Link(self.firsts[place]);
        self.links[slot as usize] = Linked {
            before: Link::default(),
            after,
        };
        if let Some(after) = after.slot() {
            self.links[after as usize].before = Link::to(Some(slot));
        }
        self.firsts[place] = Link::to(Some(slot)).0;
    }

    fn remove(&mut self, hash: u64, slot: u32) {
        let Linked { before, after } = self.links[slot as usize];
        if let Some(after) = after.slot() {
            self.links[after as usize].before = before;
        }
        match before.slot() {
            Some(before) => self.links[before as usize].after = after,
            None => {
                let place = self.place(hash);
                self.firsts[place] = after.0;
            }
        }
    }

    fn place(&self, hash: u64) -> usize {
        // The upper half is the better mixed one.
        let hash = usize::try_from(hash >> 32).unwrap_or(0);
        hash & (self.firsts.len() - 1)
    }
}

fn hash_of(key: Key) -> u64 {
    mixed(key)
}

fn mixed(what: impl std::hash::Hash) -> u64 {
    FixedState::default().hash_one(what)
}

#[cfg(test)]
mod tests {
    use std::collections::btree_map::Entry;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn key(job: u64, replica: u32) -> Key {
        Key {
            job,
            step: 0,
            replica,
        }
    }

    proptest! {
        #[test]
        fn an_index_agrees_with_an_ordered_map_whatever_comes_and_goes(
            ops in prop::collection::vec((0u32..24, 0u64..3, 0u32..3, 0u32..6), 1..200)
        ) {
            let (mut keys, mut jobs) = (KeyIndex::new(24).unwrap(), JobIndex::new(24).unwrap());
            let mut stands: BTreeMap<u32, (Key, u32)> = BTreeMap::new();
            let mut model: BTreeMap<(Key, u32), u32> = BTreeMap::new();
            for (slot, job, replica, incarnation) in ops {
                let place = (key(job, replica), incarnation);
                if let Some(before) = stands.remove(&slot) {
                    model.remove(&before);
                    keys.remove(slot);
                    jobs.remove(slot, before.0.job);
                } else if let Entry::Vacant(free) = model.entry(place) {
                    free.insert(slot);
                    stands.insert(slot, place);
                    keys.insert(slot, place.0, place.1);
                    jobs.insert(slot, job);
                }
                for job in 0..3 {
                    for replica in 0..3 {
                        let of_key = key(job, replica);
                        let found: Vec<_> = keys.of(of_key).collect();
                        let expected = model.range((of_key, 0)..=(of_key, u32::MAX)).rev();
                        let expected: Vec<_> = expected.map(|((_, incarnation), slot)| (*slot, *incarnation)).collect();
                        prop_assert_eq!(found, expected);
                        for incarnation in 0..6 {
                            prop_assert_eq!(keys.find(of_key, incarnation), model.get(&(of_key, incarnation)).copied());
                        }
                    }
                    let all = std::iter::successors(jobs.first(job), |slot| jobs.after(*slot));
                    let found: BTreeSet<_> = all.filter(|slot| stands[slot].0.job == job).collect();
                    let expected = stands.iter().filter(|(_, place)| place.0.job == job);
                    prop_assert_eq!(found, expected.map(|(slot, _)| *slot).collect::<BTreeSet<_>>());
                }
            }
        }
    }

    #[test]
    fn room_for_every_slot_is_taken_at_the_start() {
        let mut keys = KeyIndex::new(100).unwrap();
        let mut jobs = JobIndex::new(100).unwrap();
        let counted = allocation_counter::measure(|| {
            for slot in 0..100 {
                keys.insert(slot, key(u64::from(slot) % 7, 0), slot);
                jobs.insert(slot, u64::from(slot) % 7);
            }
        });
        assert_eq!(counted.count_total, 0);
    }
}
