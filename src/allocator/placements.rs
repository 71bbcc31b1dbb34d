//! Where each replica has its ports, found by replica: shards of short locks.
//!
//! A transaction claims a replica here before it takes numbers for it, so that two threads cannot
//! place one replica twice. Invariant: whatever stands here has a holding in the pool of its host,
//! but for the moment in which one thread changes both.

use std::collections::{BTreeMap, TryReserveError, VecDeque};
use std::num::NonZeroU64;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::time::Monotonic;

/// Which transaction, of all in this process. Never 0, so that an [`Owner`] takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TransactionNo(pub(super) NonZeroU64);

/// Whose a placement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Committed or restored.
    Standing,
    /// Taken by a transaction that is still open.
    Claimed(TransactionNo),
}

/// One host on which one incarnation has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) incarnation: Incarnation,
    pub(super) host: HostId,
    pub(super) owner: Owner,
}

impl Placement {
    /// Whether an open transaction took it, which may give it back.
    pub(super) const fn is_claimed(&self) -> bool {
        matches!(self.owner, Owner::Claimed(_))
    }
}

/// Why a replica cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimError {
    /// A newer incarnation has ports.
    Stale(Incarnation),
    /// It has ports already, by this transaction or for good.
    Placed(HostId),
    /// Another open transaction is placing it.
    Busy,
}

/// All incarnations of one replica that have ports: hardly ever more than one or two.
pub(super) type Placed = SmallVec<[Placement; 2]>;

pub(super) type Key = (ServiceId, u32);

#[expect(
    clippy::disallowed_types,
    reason = "looked up only; its order reaches no decision"
)]
pub(super) type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// Cache lines of its own, so that threads at two shards do not meet.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    placed: Map<Key, Placed>,
    /// Releases of a while ago, so that a repeated one is told from a stranger's.
    released: Map<ReplicaId, Monotonic>,
    /// The same by the time of their release.
    by_age: VecDeque<(Monotonic, ReplicaId)>,
}

/// Placements by replica.
#[derive(Debug)]
pub(super) struct Placements {
    /// `SHARDS` of them.
    shards: Box<[Mutex<Shard>]>,
    /// What each shard has room for, always.
    room: usize,
    /// Whether releases are remembered.
    remembers: bool,
}

const SHARDS: usize = 64;

/// How many releases a shard remembers, or more if it has the room, however long numbers rest: a million
/// in all of them.
const MOST_REMEMBERED: usize = if cfg!(test) { 256 } else { 1 << 14 };

impl Placements {
    /// Room for so many grants, however unevenly they fall, and as many releases that are remembered.
    pub(super) fn with_room(grants: u32, remembers: bool) -> Result<Self, TryReserveError> {
        let room = usize::try_from(grants).unwrap_or(0);
        let even = room / SHARDS;
        // Five deviations above an even share; twice that, since a map grows where more than half of it is in use and
        // the rest was used before.
        let most = if room == 0 {
            0
        } else {
            2 * (even + 5 * even.isqrt() + 8)
        };
        // One by one: all of them at once would pass over the stack, of which a scheduler's thread may have little.
        let mut shards = Vec::new();
        shards.try_reserve_exact(SHARDS)?;
        for _ in 0..SHARDS {
            let mut shard = Shard::default();
            shard.placed.try_reserve(most)?;
            if remembers {
                shard.released.try_reserve(most)?;
                shard.by_age.try_reserve(most)?;
            }
            shards.push(Mutex::new(shard));
        }
        Ok(Self {
            shards: shards.into_boxed_slice(),
            room: most,
            remembers,
        })
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        // Neighbours of one service go to different shards, services begin at different ones.
        let mixed = key
            .0
            .0
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(20)
            .wrapping_add(u64::from(key.1));
        &self.shards[usize::try_from(mixed % SHARDS as u64).unwrap_or(0)]
    }

    /// Claims `replica` for a transaction that takes its ports on `host`.
    pub(super) fn claim(
        &self,
        replica: ReplicaId,
        host: HostId,
        by: TransactionNo,
    ) -> Result<(), ClaimError> {
        let key = key(replica);
        let mut shard = self.shard(key).lock();
        let placed = shard.placed.entry(key).or_default();
        if let Some(error) = against(placed, replica.incarnation, by) {
            return Err(error);
        }
        insert(placed, replica.incarnation, host, Owner::Claimed(by));
        Ok(())
    }

    /// Why `by` could not claim `replica` now; `None` if it could.
    pub(super) fn against(&self, replica: ReplicaId, by: TransactionNo) -> Option<ClaimError> {
        let key = key(replica);
        let shard = self.shard(key).lock();
        against(shard.placed.get(&key)?, replica.incarnation, by)
    }

    /// Makes a claim stand. Whether it was `by`'s.
    pub(super) fn settle(&self, replica: ReplicaId, host: HostId, by: TransactionNo) -> bool {
        let key = key(replica);
        let mut shard = self.shard(key).lock();
        let placed = shard.placed.get_mut(&key);
        let claim = placed.and_then(|placed| find(placed, replica.incarnation, host));
        match claim {
            Some(claim) if claim.owner == Owner::Claimed(by) => {
                claim.owner = Owner::Standing;
                true
            }
            _ => false,
        }
    }

    /// Drops a claim. Whether it was `by`'s.
    pub(super) fn unclaim(&self, replica: ReplicaId, host: HostId, by: TransactionNo) -> bool {
        let key = key(replica);
        let mut shard = self.shard(key).lock();
        let Some(placed) = shard.placed.get_mut(&key) else {
            return false;
        };
        let ours = Placement {
            incarnation: replica.incarnation,
            host,
            owner: Owner::Claimed(by),
        };
        let Some(at) = placed.iter().position(|it| *it == ours) else {
            return false;
        };
        placed.remove(at);
        if placed.is_empty() {
            shard.placed.remove(&key);
        }
        true
    }

    /// Records that `replica` has ports on `host` for good. Returns another host on which it has
    /// ports too.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Busy`] if an open transaction is placing it; nothing changed.
    pub(super) fn stand(
        &self,
        replica: ReplicaId,
        host: HostId,
    ) -> Result<Option<HostId>, ClaimError> {
        let key = key(replica);
        let mut shard = self.shard(key).lock();
        let placed = shard.placed.entry(key).or_default();
        let mut other = None;
        for it in placed
            .iter()
            .filter(|it| it.incarnation == replica.incarnation)
        {
            if it.owner != Owner::Standing {
                return Err(ClaimError::Busy);
            }
            if it.host != host {
                other = other.or(Some(it.host));
            }
        }
        if find(placed, replica.incarnation, host).is_none() {
            insert(placed, replica.incarnation, host, Owner::Standing);
        }
        Ok(other)
    }

    /// Tells every placement of a replica, sorted by incarnation, then host, under a lock.
    pub(super) fn each(&self, replica: ReplicaId, tell: impl FnMut(&Placement)) {
        let key = key(replica);
        let shard = self.shard(key).lock();
        shard.placed.get(&key).into_iter().flatten().for_each(tell);
    }

    /// Forgets that `replica` has ports on `host`.
    pub(super) fn remove(&self, replica: ReplicaId, host: HostId) {
        self.shard(key(replica)).lock().remove(replica, host);
    }

    /// Forgets it, and remembers the release until `until` where that is later than `now`.
    pub(super) fn release(
        &self,
        replica: ReplicaId,
        host: HostId,
        now: Monotonic,
        until: Monotonic,
    ) {
        let key = key(replica);
        let mut shard = self.shard(key).lock();
        shard.remove(replica, host);
        shard.forget_due(now);
        if self.remembers && until > now && shard.released.insert(replica, until) != Some(until) {
            shard.by_age.push_back((until, replica));
            if shard.by_age.len() > self.room.max(MOST_REMEMBERED) {
                shard.forget_oldest();
            }
        }
    }

    /// Whether `replica` was released a while ago, and that is remembered at `now`.
    pub(super) fn was_released(&self, replica: ReplicaId, now: Monotonic) -> bool {
        let shard = self.shard(key(replica)).lock();
        shard
            .released
            .get(&replica)
            .is_some_and(|until| *until > now)
    }

    /// Lets all placements of a replica follow hosts that change their numbers.
    pub(super) fn follow(&self, key: Key, moves: &BTreeMap<HostId, HostId>) {
        let mut shard = self.shard(key).lock();
        if let Some(placed) = shard.placed.get_mut(&key) {
            for it in placed.iter_mut() {
                it.host = moves.get(&it.host).copied().unwrap_or(it.host);
            }
            placed.sort_unstable_by_key(|it| (it.incarnation, it.host));
        }
    }

    /// The placements of this very incarnation, by host, as `by` sees them: its own claims, and
    /// what stands.
    pub(super) fn of(
        &self,
        replica: ReplicaId,
        by: Option<TransactionNo>,
    ) -> SmallVec<[HostId; 2]> {
        let key = key(replica);
        let shard = self.shard(key).lock();
        let placed = shard.placed.get(&key).into_iter().flatten();
        placed
            .filter(|it| it.incarnation == replica.incarnation)
            .filter(|it| match it.owner {
                Owner::Standing => true,
                Owner::Claimed(other) => Some(other) == by,
            })
            .map(|it| it.host)
            .collect()
    }

    /// The newest incarnation with ports, claims included.
    pub(super) fn newest(&self, service: ServiceId, index: u32) -> Option<Incarnation> {
        let key = (service, index);
        let shard = self.shard(key).lock();
        Some(shard.placed.get(&key)?.last()?.incarnation)
    }

    /// Drops what is remembered for nothing, and room that is not needed.
    pub(super) fn compact(&self, now: Monotonic) {
        for shard in self.shards.iter() {
            let mut shard = shard.lock();
            shard.forget_due(now);
            // Half full is what the maps keep anyway; below an eighth the peak is long over.
            if shard.placed.capacity() > 64 && shard.placed.len() < shard.placed.capacity() / 8 {
                let half = shard.placed.len() * 2;
                shard.placed.shrink_to(half.max(self.room));
            }
            if shard.released.capacity() > 64
                && shard.released.len() < shard.released.capacity() / 8
            {
                let half = shard.released.len() * 2;
                shard.released.shrink_to(half.max(self.room));
                shard.by_age.shrink_to(half.max(self.room));
            }
        }
    }

    /// How many placements stand, and how many are claimed.
    pub(super) fn counts(&self) -> (u64, u64) {
        let (mut standing, mut claimed) = (0, 0);
        for shard in self.shards.iter() {
            let shard = shard.lock();
            // A sum has no order.
            for it in shard.placed.values().flatten() {
                match it.owner {
                    Owner::Standing => standing += 1,
                    Owner::Claimed(_) => claimed += 1,
                }
            }
        }
        (standing, claimed)
    }

    /// Every placement, sorted, to hold two states against each other.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(ReplicaId, HostId, Owner)> {
        let mut all: Vec<_> = Vec::new();
        for shard in self.shards.iter() {
            let shard = shard.lock();
            all.extend(shard.placed.iter().flat_map(|((service, index), placed)| {
                placed.iter().map(|it| {
                    let replica = ReplicaId {
                        service: *service,
                        index: *index,
                        incarnation: it.incarnation,
                    };
                    (replica, it.host, it.owner)
                })
            }));
        }
        all.sort_unstable_by_key(|(replica, host, _)| (*replica, *host));
        all
    }

    /// Every release that is remembered at `now`, sorted.
    #[cfg(test)]
    pub(super) fn remembered(&self, now: Monotonic) -> Vec<(ReplicaId, Monotonic)> {
        let mut all: Vec<_> = Vec::new();
        for shard in self.shards.iter() {
            let shard = shard.lock();
            let due = shard.released.iter().filter(|(_, until)| **until > now);
            all.extend(due.map(|(replica, until)| (*replica, *until)));
        }
        all.sort_unstable();
        all
    }
}

impl Shard {
    fn remove(&mut self, replica: ReplicaId, host: HostId) {
        let key = key(replica);
        if let Some(placed) = self.placed.get_mut(&key) {
            placed.retain(|it| it.incarnation != replica.incarnation || it.host != host);
            if placed.is_empty() {
                self.placed.remove(&key);
            }
        }
    }

    /// Forgets releases from the oldest on. A host on which numbers rest longer than on others
    /// keeps those behind it a while.
    fn forget_due(&mut self, now: Monotonic) {
        while self.by_age.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((until, replica)) = self.by_age.pop_front() else {
            return;
        };
        // It may have been released again since.
        if self.released.get(&replica) == Some(&until) {
            self.released.remove(&replica);
        }
    }
}

pub(super) const fn key(replica: ReplicaId) -> Key {
    (replica.service, replica.index)
}

/// What stands against placing an incarnation beside those of `placed`.
pub(super) fn against(
    placed: &[Placement],
    incarnation: Incarnation,
    by: TransactionNo,
) -> Option<ClaimError> {
    let foreign = |it: &Placement| matches!(it.owner, Owner::Claimed(other) if other != by);
    if let Some(newest) = placed.last().filter(|it| it.incarnation > incarnation) {
        return Some(if foreign(newest) {
            ClaimError::Busy
        } else {
            ClaimError::Stale(newest.incarnation)
        });
    }
    let it = placed.iter().find(|it| it.incarnation == incarnation)?;
    Some(if foreign(it) {
        ClaimError::Busy
    } else {
        ClaimError::Placed(it.host)
    })
}

fn find(placed: &mut Placed, incarnation: Incarnation, host: HostId) -> Option<&mut Placement> {
    placed
        .iter_mut()
        .find(|it| it.incarnation == incarnation && it.host == host)
}

/// Keeps the list sorted by incarnation, then host.
fn insert(placed: &mut Placed, incarnation: Incarnation, host: HostId, owner: Owner) {
    let at = placed.partition_point(|it| (it.incarnation, it.host) < (incarnation, host));
    let placement = Placement {
        incarnation,
        host,
        owner,
    };
    placed.insert(at, placement);
}
