//! Every grant of a context under its id, and what calls from any thread leave for the next cycle.
//!
//! Its lock is held for a look or an entry, never while numbers are chosen or a list is published. Order
//! of locks in a context: cycle, board, register.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::allocator::{AfterRelease, HostState};
use crate::identity::{HostId, HostName, Incarnation, ReplicaId};
use crate::plugin_abi::board::{Chosen, HostNo};
use crate::plugin_abi::constants::{PR_ANY, PR_ENOENT, PR_ESTATE};
use crate::plugin_abi::context::Limits;
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::{Handle, Kind, SLOTS, Slots};
use crate::plugin_abi::network::Addresses;
use crate::plugin_abi::profile::Profile;
use crate::plugin_abi::types::PrWant;
use crate::port::{Port, Protocol};
use crate::port_pool::{Foreign, NetworkSet, PortGrant, PortRequest, Stranger};
use crate::time::Monotonic;

/// What a scheduler calls a replica; its incarnations share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) job: u64,
    pub(super) step: u32,
    pub(super) replica: u32,
}

impl From<&PrWant> for Key {
    fn from(want: &PrWant) -> Self {
        Self {
            job: want.job,
            step: want.step,
            replica: want.replica,
        }
    }
}

/// A grant as it stays from reserve to release.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) handle: Handle,
    pub(super) key: Key,
    pub(super) incarnation: u32,
    pub(super) host: HostNo,
    pub(super) host_name: HostName,
    pub(super) profile: Arc<Profile>,
    pub(super) grant: PortGrant,
}

impl Placed {
    pub(super) fn replica(&self) -> ReplicaId {
        replica_id(&self.profile, self.handle)
    }
}

/// What the allocator calls the grant under `handle`. Not the scheduler's own numbers: one service
/// may have a replica 0 in each of many jobs.
pub(super) fn replica_id(profile: &Profile, handle: Handle) -> ReplicaId {
    ReplicaId {
        service: profile.service_id,
        index: handle.slot(),
        incarnation: Incarnation(handle.generation()),
    }
}

/// How firm a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Tentative,
    Held,
    Releasing,
}

/// What waits for the next cycle.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    Begin(ReplicaId),
    Confirm {
        replica: ReplicaId,
        at: Monotonic,
        after: AfterRelease,
    },
    State(HostName, HostState),
    /// In which networks a host has an address, if it has said.
    Networks(HostName, Option<NetworkSet>),
    Foreign(HostName, Vec<Foreign>),
    Conflict(Box<RefusedBind>),
    Wait(ReplicaId, Option<HostId>, PortRequest),
    StopWaiting(ReplicaId),
}

impl Queued {
    /// Whose release it is.
    const fn released(&self) -> Option<ReplicaId> {
        match self {
            Self::Begin(replica) | Self::Confirm { replica, .. } => Some(*replica),
            _ => None,
        }
    }
}

/// A number that a replica could not bind.
#[derive(Clone, Debug)]
pub(super) struct RefusedBind {
    pub(super) host: HostName,
    pub(super) port: Port,
    pub(super) protocol: Protocol,
    pub(super) stranger: Stranger,
    pub(super) at: Monotonic,
}

/// What readers shall see, in the order it was decided.
#[derive(Clone, Debug)]
pub(super) enum News {
    Held(Arc<Placed>),
    Releasing(Handle),
    Ended(Handle),
}

/// A grant with what changes of it.
#[derive(Debug)]
struct Entered {
    placed: Arc<Placed>,
    stage: Stage,
    reported: Reported,
}

/// The newest report of a replica, for its record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    pub(super) seq: u64,
    pub(super) run: u32,
    pub(super) state: u32,
    pub(super) restarts: u32,
}

/// One who waits.
#[derive(Debug)]
struct Waiting {
    want: PrWant,
    replica: ReplicaId,
}

/// The grants of one context.
#[derive(Debug)]
pub(super) struct Register {
    /// As the cycle has them, for those who must not wait for it.
    pub(super) profiles: Vec<Option<Arc<Profile>>>,
    waits: Slots<Waiting>,
    waits_by_key: BTreeMap<(Key, u32), Handle>,
    /// Who waits and fits, until it is told; each once.
    woken: VecDeque<Handle>,
    allocs: Slots<Entered>,
    by_key: BTreeMap<(Key, u32), Handle>,
    /// Confirmed, but still in the allocator until the next cycle.
    leaving: BTreeSet<(Key, u32)>,
    /// The last numbers of ended replicas, for those that come back.
    former: BTreeMap<Key, PortGrant>,
    most_former: usize,
    /// What hosts published last, for environments.
    pub(super) addresses: BTreeMap<HostNo, Arc<Addresses>>,
    pub(super) queue: Vec<Queued>,
    pub(super) news: Vec<News>,
}

impl Register {
    pub(super) fn new(context: Handle, limits: Limits) -> Result<Self, Failure> {
        let most = limits.allocs;
        Ok(Self {
            profiles: Vec::new(),
            waits: Slots::new(Kind::Wait, context, limits.waits)?,
            waits_by_key: BTreeMap::new(),
            woken: VecDeque::new(),
            allocs: Slots::new(Kind::Alloc, context, most)?,
            by_key: BTreeMap::new(),
            leaving: BTreeSet::new(),
            former: BTreeMap::new(),
            most_former: most as usize,
            addresses: BTreeMap::new(),
            queue: Vec::new(),
            news: Vec::new(),
        })
    }

    /// The grant under an id.
    pub(super) fn get(&self, handle: Handle) -> Result<(&Arc<Placed>, Stage), Failure> {
        let found = self.allocs.get(handle).ok_or_else(|| handle.stale())?;
        Ok((&found.placed, found.stage))
    }

    /// What the replica reported last; the default before its first.
    pub(super) fn reported(&self, handle: Handle) -> Reported {
        let found = self.allocs.get(handle);
        found.map_or_else(Reported::default, |entered| entered.reported)
    }

    /// Notes what a replica reported.
    pub(super) fn note(&mut self, handle: Handle, reported: Reported) {
        if let Some(entered) = self.allocs.get_mut(handle) {
            entered.reported = reported;
        }
    }

    /// The first grant in `slot` or a later one.
    pub(super) fn next_living(&self, slot: u32) -> Option<Handle> {
        self.allocs.next_living(slot)
    }

    /// The grant of exactly this placement.
    pub(super) fn find(&self, key: Key, incarnation: u32) -> Option<&Arc<Placed>> {
        let handle = self.by_key.get(&(key, incarnation))?;
        self.allocs.get(*handle).map(|entered| &entered.placed)
    }

    /// The grant of the newest placement.
    pub(super) fn newest(&self, key: Key) -> Option<&Arc<Placed>> {
        let all = self.by_key.range((key, 0)..=(key, u32::MAX));
        let (_, handle) = all.last()?;
        self.allocs.get(*handle).map(|entered| &entered.placed)
    }

    /// Whether this placement was confirmed as gone since the last cycle began.
    pub(super) fn is_leaving(&self, key: Key, incarnation: u32) -> bool {
        self.leaving.contains(&(key, incarnation))
    }

    /// The numbers the replica had last.
    pub(super) fn former(&self, key: Key) -> Option<&PortGrant> {
        self.former.get(&key)
    }

    /// The id that the next entry gets, for the allocator to take numbers under.
    pub(super) fn next(&self) -> Result<Handle, Failure> {
        self.allocs.next()
    }

    /// The id that an entry gets which comes after `others` more.
    pub(super) fn next_after(&self, others: u32) -> Result<Handle, Failure> {
        self.allocs.next_after(others)
    }

    /// Enters a grant under the id that [`Register::next`] said.
    pub(super) fn enter(&mut self, placed: Arc<Placed>, stage: Stage) -> Result<(), Failure> {
        self.by_key
            .insert((placed.key, placed.incarnation), placed.handle);
        let handle = self.allocs.insert(Entered {
            placed: Arc::clone(&placed),
            stage,
            reported: Reported::default(),
        })?;
        debug_assert_eq!(handle, placed.handle, "numbers were taken under another id");
        Ok(())
    }

    /// Makes a tentative grant held and lets readers know; its key waits no more.
    pub(super) fn hold(&mut self, handle: Handle) {
        if let Some(entered) = self.allocs.get_mut(handle) {
            entered.stage = Stage::Held;
            let place = (entered.placed.key, entered.placed.incarnation);
            self.news.push(News::Held(Arc::clone(&entered.placed)));
            self.stop_waiting(place);
        }
    }

    /// Takes note of where a host is reached, for environments and for the pools.
    pub(super) fn rechoose(&mut self, chosen: Chosen) {
        if let Some((name, networks)) = chosen.networks {
            self.queue.push(Queued::Networks(name, networks));
        }
        self.addresses.insert(chosen.host, chosen.addresses);
    }

    /// Notes that a key waits; said again, it keeps its place among those who wait for the same.
    pub(super) fn wait(&mut self, want: &PrWant, profile: &Profile) -> Result<(), Failure> {
        let place = (Key::from(want), want.incarnation);
        let known = self.waits_by_key.get(&place).copied();
        let known = known.and_then(|handle| self.waits.get(handle));
        let replica = match known {
            Some(it) if it.want.profile == want.profile && it.want.host == want.host => it.replica,
            _ => {
                self.stop_waiting(place);
                let handle = self.waits.next()?;
                let replica = ReplicaId {
                    service: profile.service_id,
                    // Above those of all grants.
                    index: SLOTS + handle.slot(),
                    incarnation: Incarnation(handle.generation()),
                };
                let want = *want;
                self.waits.insert(Waiting { want, replica })?;
                self.waits_by_key.insert(place, handle);
                replica
            }
        };
        let host = (want.host != PR_ANY).then_some(HostId(want.host));
        let request = profile.request.clone();
        self.queue.push(Queued::Wait(replica, host, request));
        Ok(())
    }

    /// Forgets that a key waits. Whether it did.
    fn stop_waiting(&mut self, place: (Key, u32)) -> bool {
        let handle = self.waits_by_key.remove(&place);
        let Some(waiting) = handle.and_then(|handle| self.waits.remove(handle)) else {
            return false;
        };
        self.queue.push(Queued::StopWaiting(waiting.replica));
        true
    }

    /// As the scheduler wishes.
    pub(super) fn drop_wait(&mut self, want: &PrWant) -> Result<(), Failure> {
        if self.stop_waiting((Key::from(want), want.incarnation)) {
            Ok(())
        } else {
            Err(Failure::value(PR_ENOENT, "job", want.job))
        }
    }

    /// Who waits, by key, `most` of them, and how many there are.
    pub(super) fn waiting(&self, most: usize) -> (Vec<PrWant>, usize) {
        let all = self.waits_by_key.values();
        let all = all.filter_map(|handle| self.waits.get(*handle));
        let told = all.map(|waiting| waiting.want).take(most);
        (told.collect(), self.waits_by_key.len())
    }

    /// Whether anybody waits.
    pub(super) fn has_waits(&self) -> bool {
        !self.waits_by_key.is_empty()
    }

    /// Who waits and fits now, oldest first, to be told.
    pub(super) fn wake(&mut self, context: Handle, woken: Vec<ReplicaId>) {
        for replica in woken {
            let slot = replica.index.wrapping_sub(SLOTS);
            let handle = context.wait(slot, replica.incarnation.0);
            if self.waits.get(handle).is_some() && !self.woken.contains(&handle) {
                self.woken.push_back(handle);
            }
        }
    }

    /// The next one to be told that it fits. Who waits no more is left out.
    pub(super) fn next_woken(&mut self) -> Option<PrWant> {
        while let Some(handle) = self.woken.pop_front() {
            if let Some(waiting) = self.waits.get(handle) {
                return Some(waiting.want);
            }
        }
        None
    }

    /// Whether somebody is left to be told.
    pub(super) fn has_woken(&self) -> bool {
        let mut woken = self.woken.iter();
        woken.any(|handle| self.waits.get(*handle).is_some())
    }

    /// The grant of the next placement of a job after `last`, that is of `step` or of any.
    pub(super) fn next_of_job(
        &self,
        job: u64,
        step: u32,
        last: Option<(Key, u32)>,
    ) -> Option<((Key, u32), Handle)> {
        let key = |step, replica| Key { job, step, replica };
        let (first, end) = match step {
            PR_ANY => (0, u32::MAX),
            one => (one, one),
        };
        let from = match last {
            Some(last) => Bound::Excluded(last),
            None => Bound::Included((key(first, 0), 0)),
        };
        let to = Bound::Included((key(end, u32::MAX), u32::MAX));
        let next = self.by_key.range((from, to)).next()?;
        Some((*next.0, *next.1))
    }

    /// Forgets grants whose host is gone; their ids are stale from here on.
    pub(super) fn lose(&mut self, context: Handle, lost: &[ReplicaId]) {
        for replica in lost {
            let handle = context.alloc(replica.index, replica.incarnation.0);
            if let Some(Entered { placed, .. }) = self.allocs.remove(handle) {
                self.by_key.remove(&(placed.key, placed.incarnation));
                self.news.push(News::Ended(handle));
            }
        }
        let lost: BTreeSet<ReplicaId> = lost.iter().copied().collect();
        let is_lost = |queued: &Queued| queued.released().is_some_and(|it| lost.contains(&it));
        self.queue.retain(|queued| !is_lost(queued));
    }

    /// Forgets a tentative grant.
    pub(super) fn forget(&mut self, handle: Handle) {
        if let Some(Entered { placed, .. }) = self.allocs.remove(handle) {
            self.by_key.remove(&(placed.key, placed.incarnation));
        }
    }

    /// Notes that the stop of a grant was ordered.
    pub(super) fn begin_release(&mut self, handle: Handle) -> Result<(), Failure> {
        let found = self.allocs.get_mut(handle);
        let entered = found.ok_or_else(|| handle.stale())?;
        match entered.stage {
            Stage::Held => entered.stage = Stage::Releasing,
            Stage::Releasing => {
                return Err(Failure::said(PR_ESTATE, "its release has begun already"));
            }
            Stage::Tentative => return Err(not_committed()),
        }
        let replica = entered.placed.replica();
        self.queue.push(Queued::Begin(replica));
        self.news.push(News::Releasing(handle));
        Ok(())
    }

    /// Notes that the last process of a grant is gone; its id is stale from here on.
    pub(super) fn confirm_release(
        &mut self,
        handle: Handle,
        at: Monotonic,
        after: AfterRelease,
    ) -> Result<(), Failure> {
        if self.get(handle)?.1 == Stage::Tentative {
            return Err(not_committed());
        }
        let Some(Entered { placed, .. }) = self.allocs.remove(handle) else {
            return Err(handle.stale());
        };
        let place = (placed.key, placed.incarnation);
        self.by_key.remove(&place);
        self.leaving.insert(place);
        if self.former.len() >= self.most_former {
            // The oldest job is the least likely to come back.
            self.former.pop_first();
        }
        self.former.insert(placed.key, placed.grant.clone());
        self.queue.push(Queued::Confirm {
            replica: placed.replica(),
            at,
            after,
        });
        self.news.push(News::Ended(handle));
        Ok(())
    }

    /// Takes everything queued, for the allocator, and leaves `empty`; what was leaving has left.
    pub(super) fn swap_queue(&mut self, empty: &mut Vec<Queued>) {
        self.leaving.clear();
        std::mem::swap(&mut self.queue, empty);
    }

    /// Above every generation that its ids have or had.
    pub(super) const fn highest_generation(&self) -> u32 {
        self.allocs.highest_generation()
    }
}

pub(super) const fn not_committed() -> Failure {
    Failure::said(PR_ESTATE, "the grant is not committed yet")
}
