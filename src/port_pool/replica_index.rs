//! Which slot a replica's holding stands in: open addressing over slot numbers alone.
//!
//! The replicas themselves stand in the slots, so that an entry is four bytes, and a removal closes
//! the gap that it makes: no table of any age is slower than a new one. It is never walked, so that
//! its order reaches no decision.

use crate::identity::ReplicaId;

/// Slots by replica. Every method is told how to find the replica of a slot.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaIndex {
    /// A power of two of entries, half of them free at least; none while nothing was inserted.
    table: Vec<u32>,
    len: usize,
}

/// No slot.
const FREE: u32 = u32::MAX;

/// How small a table can be.
const LEAST: usize = 8;

impl ReplicaIndex {
    pub(super) fn find(
        &self,
        replica: ReplicaId,
        replica_of: impl Fn(u32) -> ReplicaId,
    ) -> Option<u32> {
        let at = self.place(replica, replica_of)?;
        Some(self.table[at])
    }

    /// Adds the slot of a replica that has none yet.
    pub(super) fn insert(
        &mut self,
        replica: ReplicaId,
        slot: u32,
        replica_of: impl Fn(u32) -> ReplicaId,
    ) {
        if (self.len + 1) * 2 > self.table.len() {
            self.resize((self.table.len() * 2).max(LEAST), replica_of);
        }
        self.add(replica, slot);
        self.len += 1;
    }

    /// Takes the slot of a replica out.
    pub(super) fn remove(
        &mut self,
        replica: ReplicaId,
        replica_of: impl Fn(u32) -> ReplicaId,
    ) -> Option<u32> {
        let mut gap = self.place(replica, &replica_of)?;
        let slot = std::mem::replace(&mut self.table[gap], FREE);
        self.len -= 1;
        // What was pushed past the gap moves up into it, unless it would come before its home.
        let mask = self.table.len() - 1;
        let mut at = (gap + 1) & mask;
        while self.table[at] != FREE {
            let home = self.home(replica_of(self.table[at]));
            let pushed = at.wrapping_sub(home) & mask;
            if pushed >= (at.wrapping_sub(gap) & mask) {
                self.table[gap] = std::mem::replace(&mut self.table[at], FREE);
                gap = at;
            }
            at = (at + 1) & mask;
        }
        Some(slot)
    }

    /// Makes the table as small as its entries allow.
    pub(super) fn compact(&mut self, replica_of: impl Fn(u32) -> ReplicaId) {
        let size = match self.len {
            0 => 0,
            len => (len * 2).next_power_of_two().max(LEAST),
        };
        if size < self.table.len() {
            self.resize(size, replica_of);
        }
    }

    fn place(&self, replica: ReplicaId, replica_of: impl Fn(u32) -> ReplicaId) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mask = self.table.len() - 1;
        let mut at = self.home(replica);
        while self.table[at] != FREE {
            if replica_of(self.table[at]) == replica {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn add(&mut self, replica: ReplicaId, slot: u32) {
        let mask = self.table.len() - 1;
        let mut at = self.home(replica);
        while self.table[at] != FREE {
            at = (at + 1) & mask;
        }
        self.table[at] = slot;
    }

    fn resize(&mut self, size: usize, replica_of: impl Fn(u32) -> ReplicaId) {
        let before = std::mem::replace(&mut self.table, vec![FREE; size]);
        for slot in before.into_iter().filter(|slot| *slot != FREE) {
            self.add(replica_of(slot), slot);
        }
    }

    /// Where a replica belongs: replicas of one service one after the other, services far apart.
    fn home(&self, replica: ReplicaId) -> usize {
        let ReplicaId {
            service,
            index,
            incarnation,
        } = replica;
        let own = u64::from(index) | u64::from(incarnation.0) << 32;
        let mut mixed = (service.0 ^ own.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ own ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let place = usize::try_from(mixed >> 33).unwrap_or(0);
        place & (self.table.len() - 1)
    }
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
                    index.insert(who, slot, |slot| slots[slot as usize]);
                    model.insert(who, slot);
                }
                if compacts {
                    index.compact(|slot| slots[slot as usize]);
                }
                for who in &slots {
                    let found = index.find(*who, |slot| slots[slot as usize]);
                    prop_assert_eq!(found, model.get(who).copied());
                }
            }
        }
    }
}
