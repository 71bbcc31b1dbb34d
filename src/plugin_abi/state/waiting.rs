//! Replicas that wait for numbers, each under its key, and who of them is to be told that it fits.

use std::collections::{BTreeMap, VecDeque};

use crate::identity::{HostId, Incarnation, ReplicaId};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind, SLOTS, Slots};
use crate::plugin_abi::constants::PR_ANY;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::state::entered::Key;
use crate::plugin_abi::state::queue::{Queue, Queued, Wait};
use crate::plugin_abi::types::PrWant;

/// One who waits.
#[derive(Debug)]
struct Waiting {
    want: PrWant,
    replica: ReplicaId,
}

/// Everybody who waits in one context.
#[derive(Debug)]
pub(crate) struct Waits {
    slots: Slots<Waiting>,
    by_key: BTreeMap<(Key, u32), Handle>,
    /// Who waits and fits, until it is told; each once.
    woken: VecDeque<Handle>,
}

impl Waits {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for `most` of them.
    pub(crate) fn new(context: Handle, most: u32) -> Result<Self, Failure> {
        Ok(Self {
            slots: Slots::new(Kind::Wait, context, most)?,
            by_key: BTreeMap::new(),
            woken: VecDeque::new(),
        })
    }

    /// Notes that a key waits; said again, it keeps its place among those who wait for the same.
    pub(crate) fn put(
        &mut self,
        want: &PrWant,
        profile: &Profile,
        queue: &mut Queue,
    ) -> Result<(), Failure> {
        let place = (Key::from(want), want.incarnation);
        let known = self.by_key.get(&place).copied();
        let known = known.and_then(|handle| self.slots.get(handle));
        let (replica, is_new) = match known {
            Some(it) if it.want.profile == want.profile && it.want.host == want.host => {
                (it.replica, false)
            }
            _ => {
                if let Some(before) = self.take(place) {
                    queue.stop_waiting(before);
                }
                let handle = self.slots.next()?;
                let replica = ReplicaId {
                    service: profile.service_id,
                    // Above those of all grants.
                    index: SLOTS + handle.slot(),
                    incarnation: Incarnation(handle.generation()),
                };
                let want = *want;
                self.slots.insert(Waiting { want, replica })?;
                self.by_key.insert(place, handle);
                (replica, true)
            }
        };
        queue.push(Queued::Wait(Box::new(Wait {
            replica,
            host: (want.host != PR_ANY).then_some(HostId(want.host)),
            request: profile.request.clone(),
            is_new,
        })));
        Ok(())
    }

    /// Forgets that a key waits; who the allocator is to be told of, if it did.
    pub(crate) fn take(&mut self, place: (Key, u32)) -> Option<ReplicaId> {
        let handle = self.by_key.remove(&place)?;
        self.slots.remove(handle).map(|waiting| waiting.replica)
    }

    /// Who waits, by key, `most` of them, and how many there are.
    pub(crate) fn listed(&self, most: usize) -> (Vec<PrWant>, usize) {
        let all = self.by_key.values();
        let all = all.filter_map(|handle| self.slots.get(*handle));
        let told = all.map(|waiting| waiting.want).take(most);
        (told.collect(), self.by_key.len())
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The memory of the slots.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.bytes()
    }

    /// Who waits and fits now, oldest first, to be told.
    pub(crate) fn wake(&mut self, context: Handle, woken: Vec<ReplicaId>) {
        // A scheduler that never asks who fits does not let those gather who wait no more.
        if self.woken.len() > 2 * self.by_key.len() {
            self.woken
                .retain(|handle| self.slots.get(*handle).is_some());
        }
        for replica in woken {
            let slot = replica.index.wrapping_sub(SLOTS);
            let handle = context.wait(slot, replica.incarnation.0);
            if self.slots.get(handle).is_some() && !self.woken.contains(&handle) {
                self.woken.push_back(handle);
            }
        }
    }

    /// The next one to be told that it fits. Who waits no more is left out.
    pub(crate) fn next_woken(&mut self) -> Option<PrWant> {
        while let Some(handle) = self.woken.pop_front() {
            if let Some(waiting) = self.slots.get(handle) {
                return Some(waiting.want);
            }
        }
        None
    }

    /// Whether somebody is left to be told.
    pub(crate) fn has_woken(&self) -> bool {
        let mut woken = self.woken.iter();
        woken.any(|handle| self.slots.get(*handle).is_some())
    }
}
