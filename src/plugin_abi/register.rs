//! Every grant of a context under its id, and what calls from any thread leave for the next cycle.
//!
//! Its lock is held for a look or an entry, never while numbers are chosen or a list is published. Order
//! of locks in a context: cycle, board, register.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::allocator::{AfterRelease, HostState};
use crate::identity::{HostName, Incarnation, ReplicaId};
use crate::plugin_abi::board::HostNo;
use crate::plugin_abi::constants::PR_ESTATE;
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::{Handle, Kind, Slots};
use crate::plugin_abi::profile::Profile;
use crate::plugin_abi::types::PrWant;
use crate::port_pool::PortGrant;
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

/// The grants of one context.
#[derive(Debug)]
pub(super) struct Register {
    allocs: Slots<Entered>,
    by_key: BTreeMap<(Key, u32), Handle>,
    /// Confirmed, but still in the allocator until the next cycle.
    leaving: BTreeSet<(Key, u32)>,
    /// The last numbers of ended replicas, for those that come back.
    former: BTreeMap<Key, PortGrant>,
    most_former: usize,
    /// What hosts published last, for environments.
    pub(super) addresses: BTreeMap<HostNo, IpAddr>,
    pub(super) queue: Vec<Queued>,
    pub(super) news: Vec<News>,
}

impl Register {
    pub(super) fn new(context: Handle, most: u32) -> Result<Self, Failure> {
        Ok(Self {
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

    /// Makes a tentative grant held and lets readers know.
    pub(super) fn hold(&mut self, handle: Handle) {
        if let Some(entered) = self.allocs.get_mut(handle) {
            entered.stage = Stage::Held;
            self.news.push(News::Held(Arc::clone(&entered.placed)));
        }
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
