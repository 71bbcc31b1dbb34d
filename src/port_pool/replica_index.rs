//! Which slot a replica's holding stands in: open addressing over slot numbers and hashes.
//!
//! The replicas themselves stand in the slots; an entry is eight bytes, and another replica's slot is
//! hardly ever looked at. A removal closes the gap that it makes: no table of any age is slower than
//! a new one. It is never walked, so that its order reaches no decision.

use crate::identity::ReplicaId;

/// Slots by replica. Who looks one up says how to find the replica of a slot.
#[derive(Debug, Default)]
pub(super) struct ReplicaIndex {
    /// A power of two of entries, half of them vacant at least; none while nothing was inserted.
    table: Vec<Entry>,
    len: usize,
}

/// One replica: its hash, whose low bits say where it belongs, and its slot.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    slot: u32,
}

impl Entry {
    const VACANT: Self = Self {
        hash: 0,
        slot: u32::MAX,
    };

    const fn is_vacant(self) -> bool {
        self.slot == u32::MAX
    }
}

/// How small a table can be.
const LEAST: usize = 8;

impl ReplicaIndex {
    pub(super) fn find(
        &self,
        replica: ReplicaId,
        replica_of: impl Fn(u32) -> ReplicaId,
    ) -> Option<u32> {
        let at = self.place(replica, replica_of)?;
        Some(self.table[at].slot)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the slot of a replica that has none yet.
    pub(super) fn insert(&mut self, replica: ReplicaId, slot: u32) {
        if (self.len + 1) * 2 > self.table.len() {
            self.resize((self.table.len() * 2).max(LEAST));
        }
        let hash = hash_of(replica);
        self.add(Entry { hash, slot });
        self.len += 1;
    }

    /// Takes the slot of a replica out.
    pub(super) fn remove(
        &mut self,
        replica: ReplicaId,
        replica_of: impl Fn(u32) -> ReplicaId,
    ) -> Option<u32> {
        let mut gap = self.place(replica, replica_of)?;
        let slot = self.table[gap].slot;
        self.len -= 1;
        // What was pushed past the gap moves up into it, unless it would come before its home.
        let mask = self.table.len() - 1;
        let mut at = (gap + 1) & mask;
        while !self.table[at].is_vacant() {
            let home = self.table[at].hash as usize;
            let pushed = at.wrapping_sub(home) & mask;
            if pushed >= (at.wrapping_sub(gap) & mask) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = (at + 1) & mask;
        }
        self.table[gap] = Entry::VACANT;
        Some(slot)
    }

    /// Makes the table as small as its entries allow.
    pub(super) fn compact(&mut self) {
        let size = match self.len {
            0 => 0,
            len => (len * 2).next_power_of_two().max(LEAST),
        };
        if size < self.table.len() {
            self.resize(size);
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.table
            .iter()
            .copied()
            .filter(|entry| !entry.is_vacant())
    }

    fn place(&self, replica: ReplicaId, replica_of: impl Fn(u32) -> ReplicaId) -> Option<usize> {
        let mask = self.table.len().checked_sub(1)?;
        let hash = hash_of(replica);
        let mut at = hash as usize & mask;
        while !self.table[at].is_vacant() {
            let entry = self.table[at];
            if entry.hash == hash && replica_of(entry.slot) == replica {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn add(&mut self, entry: Entry) {
        let mask = self.table.len() - 1;
        let mut at = entry.hash as usize & mask;
        while !self.table[at].is_vacant() {
            at = (at + 1) & mask;
        }
        self.table[at] = entry;
    }

    fn resize(&mut self, size: usize) {
        let before = std::mem::replace(&mut self.table, vec![Entry::VACANT; size]);
        for entry in before.into_iter().filter(|entry| !entry.is_vacant()) {
            self.add(entry);
        }
    }
}

impl Clone for ReplicaIndex {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            len: self.len,
        }
    }

    /// A table that is larger stays so: it grew for somebody who came to an earlier copy.
    fn clone_from(&mut self, source: &Self) {
        self.len = source.len;
        if self.table.len() <= source.table.len() {
            self.table.clone_from(&source.table);
        } else {
            self.table.fill(Entry::VACANT);
            for entry in source.entries() {
                self.add(entry);
            }
        }
    }
}

fn hash_of(replica: ReplicaId) -> u32 {
    let ReplicaId {
        service,
        index,
        incarnation,
    } = replica;
    let own = u64::from(index) | u64::from(incarnation.0) << 32;
    let mut mixed = (service.0 ^ own.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ own ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    u32::try_from(mixed >> 32).expect("the upper half of 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Incarnation, ServiceId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn replica(service: u64, index: u32, incarnation: u32) -> ReplicaId {
        ReplicaId {
            service: ServiceId(service),
            index,
            incarnation: Incarnation(incarnation),
        }
    }

    proptest! {
        #[test]
        fn a_replica_is_found_until_it_is_removed_whoever_came_and_went_meanwhile(
            ops in proptest::collection::vec((0u64..3, 0u32..12, 0u32..2, any::<bool>()), 1..200)
        ) {
            let mut index = ReplicaIndex::default();
            let mut model: BTreeMap<ReplicaId, u32> = BTreeMap::new();
            let mut slots: Vec<ReplicaId> = Vec::new();
            for (service, number, incarnation, compacts) in ops {
                let who = replica(service, number, incarnation);
                if let Some(slot) = model.remove(&who) {
                    prop_assert_eq!(index.remove(who, |slot| slots[slot as usize]), Some(slot));
                } else {
                    prop_assert_eq!(index.remove(who, |slot| slots[slot as usize]), None);
                    let slot = u32::try_from(slots.len()).unwrap();
                    slots.push(who);
                    index.insert(who, slot);
                    model.insert(who, slot);
                }
                if compacts {
                    index.compact();
                }
                for who in &slots {
                    let found = index.find(*who, |slot| slots[slot as usize]);
                    prop_assert_eq!(found, model.get(who).copied());
                }
            }
        }
    }
}
