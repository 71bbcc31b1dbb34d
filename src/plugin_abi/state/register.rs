//! Every grant of a context under its id, and what calls from any thread leave for the next cycle.
//!
//! Its lock is held for a look or an entry, never while numbers are chosen or a list is published. Order
//! of locks in a context: cycle, board, register.
//!
//! All room for grants is taken at the start, so that what comes and goes allocates nothing. A grant that
//! ended keeps its slot until the allocator knows, and stays there to be looked at (for the numbers that
//! its replica had) until the slot is used again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::allocator::AfterRelease;
use crate::identity::{HostName, NetworkName, ReplicaId};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind, Slots};
use crate::plugin_abi::constants::{PR_ANY, PR_ENOENT, PR_ESTATE};
use crate::plugin_abi::control::network::Addresses;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::state::board::{Chosen, HostNo};
use crate::plugin_abi::state::context::Limits;
pub(crate) use crate::plugin_abi::state::entered::{
    Entered, Entry, Key, Numbers, Placed, Reported, Stage, replica_id,
};
use crate::plugin_abi::state::key_index::{JobIndex, KeyIndex};
use crate::plugin_abi::state::queue::{Queue, Queued};
use crate::plugin_abi::state::room;
use crate::plugin_abi::state::waiting::Waits;
use crate::plugin_abi::types::PrWant;
use crate::port::PortRange;
use crate::port_pool::{PortGrant, SpareRooms};
use crate::time::Monotonic;

/// Where a host stands.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) name: HostName,
    pub(crate) index: u32,
}

/// The grants of one context.
#[derive(Debug)]
pub(crate) struct Register {
    /// As the cycle has them, for those who must not wait for it.
    pub(crate) profiles: Vec<Option<Arc<Profile>>>,
    /// Dropped, but of use to a grant still. A hot call that lets go of one is never the last.
    dropped: Vec<Arc<Profile>>,
    pub(crate) waits: Waits,
    allocs: Slots<Entered>,
    /// Room for more numbers than a slot has, lent to those slots that need it.
    rooms: SpareRooms<PortRange>,
    by_key: KeyIndex,
    by_job: JobIndex,
    /// Grants that ended: those that leave, and the newest of each key.
    former: KeyIndex,
    /// Slots that readers are yet to be told of, each once.
    dirty: Vec<u32>,
    /// What the cycle is about.
    pub(crate) outline: Outline,
    /// Grants whose records share a number with another's.
    pub(crate) conflicts: BTreeSet<ReplicaId>,
    /// Where hosts stand, as the cycle has them.
    pub(crate) hosts: BTreeMap<HostNo, Standing>,
    /// What hosts published last, for environments.
    pub(crate) addresses: BTreeMap<HostNo, Arc<Addresses>>,
    /// Of hosts that have published none.
    no_addresses: Arc<Addresses>,
    pub(crate) queue: Queue,
}

/// The cycle for those who look from beside: they must not take its lock, as a hot call that finds it taken is
/// refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    pub(crate) restoring: bool,
    /// Whether a transaction is open, and whether it is a what-if.
    pub(crate) what_if: Option<bool>,
    pub(crate) networks: Vec<NetworkName>,
}

impl Register {
    pub(crate) fn new(context: Handle, limits: Limits) -> Result<Self, Failure> {
        let most = limits.allocs;
        Ok(Self {
            profiles: Vec::new(),
            dropped: Vec::new(),
            waits: Waits::new(context, limits.waits)?,
            allocs: Slots::new(Kind::Alloc, context, most)?,
            rooms: SpareRooms::for_most(most as usize),
            by_key: KeyIndex::new(most)?,
            by_job: JobIndex::new(most)?,
            former: KeyIndex::new(most)?,
            dirty: room_for_dirty(limits)?,
            outline: Outline::default(),
            conflicts: BTreeSet::new(),
            hosts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            no_addresses: Arc::default(),
            queue: Queue::new(limits)?,
        })
    }

    /// The grant under an id.
    pub(crate) fn get(&self, handle: Handle) -> Result<&Entered, Failure> {
        self.allocs.get(handle).ok_or_else(|| handle.stale())
    }

    /// The grant under an id, also if it ended since the last cycle began.
    pub(crate) fn last_under(&self, handle: Handle) -> Option<&Entered> {
        let last = self.allocs.last_in(handle.slot())?;
        (last.replica.incarnation.0 == handle.generation()).then_some(last)
    }

    /// Where a host is reached.
    pub(crate) fn addresses_of(&self, host: HostNo) -> Arc<Addresses> {
        let known = self.addresses.get(&host);
        Arc::clone(known.unwrap_or(&self.no_addresses))
    }

    /// Notes what a replica reported.
    pub(crate) fn note(&mut self, handle: Handle, reported: Reported) {
        if let Some(entered) = self.allocs.get_mut(handle) {
            entered.reported = reported;
        }
    }

    /// Tells `tell` of some grants, from a slot on and as long as it says so: few enough to be told under one
    /// hold of the lock. The slot to go on from, if there may be more.
    pub(crate) fn some_living(
        &self,
        from: u32,
        mut tell: impl FnMut(Handle) -> bool,
    ) -> Option<u32> {
        const FEW: usize = 64;
        let mut slot = from;
        for _ in 0..FEW {
            let handle = self.next_living(slot)?;
            if !tell(handle) {
                return None;
            }
            slot = handle.slot() + 1;
        }
        Some(slot)
    }

    /// The first grant in `slot` or a later one.
    fn next_living(&self, slot: u32) -> Option<Handle> {
        self.allocs.next_living(slot)
    }

    /// The grant of exactly this placement.
    pub(crate) fn find(&self, key: Key, incarnation: u32) -> Option<(Handle, &Entered)> {
        let slot = self.by_key.find(key, incarnation)?;
        self.allocs.living(slot)
    }

    /// The grant of the newest placement.
    pub(crate) fn newest(&self, key: Key) -> Option<(Handle, &Entered)> {
        let (slot, _) = self.by_key.of(key).next()?;
        self.allocs.living(slot)
    }

    /// Whether this placement was confirmed as gone since the last cycle began.
    pub(crate) fn is_leaving(&self, key: Key, incarnation: u32) -> bool {
        let ended = self.former.find(key, incarnation);
        let ended = ended.and_then(|slot| self.allocs.last_in(slot));
        ended.is_some_and(|ended| ended.leaving.is_some())
    }

    /// The last grant of the replica, which has ended.
    pub(crate) fn former(&self, key: Key) -> Option<&Entered> {
        let (slot, _) = self.former.of(key).next()?;
        self.allocs.last_in(slot)
    }

    /// The id that the next entry gets, for the allocator to take numbers under.
    pub(crate) fn next(&self) -> Result<Handle, Failure> {
        self.allocs.next()
    }

    /// The id that an entry gets which comes after `others` more.
    pub(crate) fn next_after(&self, others: u32) -> Result<Handle, Failure> {
        self.allocs.next_after(others)
    }

    /// Enters a tentative grant under the id that [`Register::next`] said.
    pub(crate) fn enter(
        &mut self,
        handle: Handle,
        entry: Entry,
        numbers: &[PortRange],
    ) -> Result<(), Failure> {
        let slot = handle.slot();
        let ended = self.allocs.last_in(slot);
        if ended.is_some_and(|ended| ended.is_former) {
            self.former.remove(slot);
        }
        let Entry {
            key,
            incarnation,
            host,
            profile,
        } = entry;
        let rooms = &mut self.rooms;
        let entered = self.allocs.insert_with(|ended| {
            let (mut room, is_dirty) = match ended {
                Some(ended) => (ended.numbers, ended.is_dirty),
                None => (Numbers::new(), false),
            };
            // In the place of those that the slot held before.
            room.clear();
            rooms.fit(&mut room, numbers.len());
            room.extend_from_slice(numbers);
            Entered {
                replica: replica_id(&profile, handle),
                key,
                incarnation,
                host,
                profile,
                numbers: room,
                stage: Stage::Tentative,
                reported: Reported::default(),
                leaving: None,
                is_former: false,
                is_dirty,
            }
        })?;
        debug_assert_eq!(entered, handle, "numbers were taken under another id");
        self.by_key.insert(slot, key, incarnation);
        self.by_job.insert(slot, key.job);
        Ok(())
    }

    /// Makes a tentative grant held and lets readers know; its key waits no more.
    pub(crate) fn hold(&mut self, handle: Handle) {
        if let Some(entered) = self.allocs.get_mut(handle) {
            entered.stage = Stage::Held;
            let place = (entered.key, entered.incarnation);
            self.touch(handle.slot());
            if let Some(replica) = self.waits.take(place) {
                self.queue.push_hot(Queued::StopWaiting(replica));
            }
        }
    }

    /// Takes note of where a host is reached, for environments and for the pools.
    pub(crate) fn rechoose(&mut self, chosen: Chosen) {
        if let Some((name, networks)) = chosen.networks {
            self.queue.push(Queued::Networks(name, networks));
        }
        self.addresses.insert(chosen.host, chosen.addresses);
    }

    /// Notes that a key waits.
    pub(crate) fn wait(&mut self, want: &PrWant, profile: &Profile) -> Result<(), Failure> {
        self.waits.put(want, profile, &mut self.queue)
    }

    /// Forgets that a key waits, as the scheduler wishes.
    pub(crate) fn drop_wait(&mut self, want: &PrWant) -> Result<(), Failure> {
        let replica = self.waits.take((Key::from(want), want.incarnation));
        let replica = replica.ok_or(Failure::value(PR_ENOENT, "job", want.job))?;
        self.queue.stop_waiting(replica);
        Ok(())
    }

    /// Lets `release` act on every grant of a job, of one step of it or of any.
    pub(crate) fn of_job(
        &mut self,
        job: u64,
        step: u32,
        mut release: impl FnMut(&mut Self, Handle),
    ) {
        let mut next = self.by_job.first(job);
        while let Some(slot) = next {
            // Looked up before the slot may leave the chain.
            next = self.by_job.after(slot);
            let meant = |key: Key| key.job == job && (step == PR_ANY || key.step == step);
            let found = self.allocs.living(slot);
            if let Some((handle, _)) = found.filter(|(_, entered)| meant(entered.key)) {
                release(self, handle);
            }
        }
    }

    /// Forgets grants whose host is gone; their ids are stale from here on.
    pub(crate) fn lose(&mut self, context: Handle, lost: &[ReplicaId]) {
        let slots: BTreeSet<u32> = lost.iter().map(|replica| replica.index).collect();
        self.queue.forget(|slot| slots.contains(&slot));
        for replica in lost {
            let slot = replica.index;
            let handle = context.alloc(slot, replica.incarnation.0);
            if self.take_out(handle).is_some() {
                self.allocs.free(slot);
                self.touch(slot);
            } else {
                // It was confirmed a moment ago, which the allocator need not know any more.
                self.leave(slot);
            }
        }
    }

    /// Forgets a tentative grant. Its slot is the next to be used, so that trying and going back wears out no
    /// other, whose last numbers may still be wished for.
    pub(crate) fn forget(&mut self, handle: Handle) {
        if self.take_out(handle).is_some() {
            self.allocs.free_first(handle.slot());
        }
    }

    /// Ends a grant: its id is stale from here on, its slot not yet free.
    fn take_out(&mut self, handle: Handle) -> Option<&mut Entered> {
        let slot = handle.slot();
        let ended = self.allocs.end(handle)?;
        self.by_key.remove(slot);
        self.by_job.remove(slot, ended.key.job);
        Some(ended)
    }

    /// Notes that the stop of a grant was ordered.
    pub(crate) fn begin_release(&mut self, handle: Handle) -> Result<(), Failure> {
        let found = self.allocs.get_mut(handle);
        let entered = found.ok_or_else(|| handle.stale())?;
        match entered.stage {
            Stage::Held => entered.stage = Stage::Releasing,
            Stage::Releasing => {
                return Err(Failure::said(PR_ESTATE, "its release has begun already"));
            }
            Stage::Tentative => return Err(not_committed()),
        }
        self.queue.push_hot(Queued::Begin(handle.slot()));
        self.touch(handle.slot());
        Ok(())
    }

    /// Notes that the last process of a grant is gone; its id is stale from here on.
    pub(crate) fn confirm_release(
        &mut self,
        handle: Handle,
        at: Monotonic,
        after: AfterRelease,
    ) -> Result<(), Failure> {
        if self.get(handle)?.stage == Stage::Tentative {
            return Err(not_committed());
        }
        let slot = handle.slot();
        let ended = self.take_out(handle).ok_or_else(|| handle.stale())?;
        ended.leaving = Some((at, after));
        ended.is_former = true;
        let (key, incarnation) = (ended.key, ended.incarnation);
        self.former.insert(slot, key, incarnation);
        // One of the same key that left earlier has been replaced.
        let mut of_key = self.former.of(key);
        let next = of_key.find(|(of, _)| *of == slot).and(of_key.next());
        drop(of_key);
        if let Some((next, _)) = next {
            self.forget_former(next);
        }
        self.queue.push_hot(Queued::Confirm(slot));
        self.touch(slot);
        Ok(())
    }

    /// What the allocator called the last grant in a slot.
    pub(crate) fn replica_in(&self, slot: u32) -> Option<ReplicaId> {
        self.allocs.last_in(slot).map(|entered| entered.replica)
    }

    /// How the grant in a slot ended, which the allocator does not know yet.
    pub(crate) fn leaving(&self, slot: u32) -> Option<(ReplicaId, Monotonic, AfterRelease)> {
        let entered = self.allocs.last_in(slot)?;
        let (at, after) = entered.leaving?;
        Some((entered.replica, at, after))
    }

    /// Lets the slot of a grant be used again that left; the allocator knows. The newest of its key stays as
    /// what the replica had last.
    pub(crate) fn leave(&mut self, slot: u32) {
        let Some(ended) = self.allocs.last_in_mut(slot) else {
            return;
        };
        if ended.leaving.take().is_none() {
            return;
        }
        let key = ended.key;
        let newest = self.former.of(key).next();
        if newest.is_none_or(|(newest, _)| newest != slot) {
            self.forget_former(slot);
        }
        self.allocs.free(slot);
    }

    /// Takes a grant that left out of those that are found by key.
    fn forget_former(&mut self, slot: u32) {
        let ended = self.allocs.last_in_mut(slot);
        if let Some(ended) = ended.filter(|it| it.is_former && it.leaving.is_none()) {
            ended.is_former = false;
            self.former.remove(slot);
        }
    }

    /// Notes that readers are yet to be told of a slot.
    fn touch(&mut self, slot: u32) {
        if let Some(entered) = self.allocs.last_in_mut(slot)
            && !entered.is_dirty
        {
            entered.is_dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Takes the slots that readers are yet to be told of, and leaves `empty`. Each is then to be looked at with
    /// [`Register::shown`].
    pub(crate) fn swap_dirty(&mut self, empty: &mut Vec<u32>) {
        std::mem::swap(&mut self.dirty, empty);
    }

    /// What readers are to be told of a slot that was dirty; `None` for nothing. What changes from here on makes
    /// it dirty again.
    pub(crate) fn shown(&mut self, slot: u32) -> Option<(Handle, Stage)> {
        self.allocs.last_in_mut(slot)?.is_dirty = false;
        let (handle, entered) = self.allocs.living(slot)?;
        (entered.stage != Stage::Tentative).then_some((handle, entered.stage))
    }

    /// A grant to be shared with readers.
    pub(crate) fn placed(&self, handle: Handle) -> Option<Placed> {
        let entered = self.allocs.get(handle)?;
        Some(Placed {
            handle,
            key: entered.key,
            incarnation: entered.incarnation,
            host: entered.host,
            profile: Arc::clone(&entered.profile),
            grant: PortGrant {
                ports: entered.ports().collect(),
            },
        })
    }

    /// Keeps a dropped profile until nobody needs it, and lets those go that nobody does.
    pub(crate) fn drop_profile(&mut self, dropped: Option<Arc<Profile>>) {
        self.dropped.extend(dropped);
        self.dropped
            .retain(|profile| Arc::strong_count(profile) > 1);
    }

    /// The memory of the slots of grants and waits, with what finds them.
    pub(crate) fn bytes(&self, limits: Limits) -> u64 {
        // Indices, queue and list of news, for each grant that there may be.
        const FOUND: u64 = 160;
        self.allocs.bytes() + self.waits.bytes() + u64::from(limits.allocs) * FOUND
    }

    /// Above every generation that its ids have or had.
    pub(crate) const fn highest_generation(&self) -> u32 {
        self.allocs.highest_generation()
    }
}

/// Room for every slot to be dirty.
pub(crate) fn room_for_dirty(limits: Limits) -> Result<Vec<u32>, Failure> {
    room::list(limits.allocs as usize, "room for news")
}

pub(crate) const fn not_committed() -> Failure {
    Failure::said(PR_ESTATE, "the grant is not committed yet")
}
