//! Which replicas the disk has on which host: what a host shall run is found without a look at all the others.
//!
//! Invariant: as [`Registry::desired`](super::Registry::desired) reads durable placements, so these are: they change in
//! one place, when a batch becomes durable.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::HostId;

use super::ledger::Ledger;
use super::records::{Phase, Replica};
use super::truth::ReplicaKey;

/// Replicas by the host that they are placed on.
#[derive(Debug, Default)]
pub(super) struct Residents(BTreeMap<HostId, BTreeSet<ReplicaKey>>);

impl Residents {
    /// Those of stored records.
    pub(super) fn of(replicas: &Ledger<ReplicaKey, Replica>) -> Self {
        let mut residents = Self::default();
        for (key, replica) in replicas.iter() {
            residents.moved(*key, None, host_of(replica));
        }
        residents
    }

    /// Follows what the batch changes that became durable just now: call it before the records forget what was.
    pub(super) fn follow(&mut self, replicas: &Ledger<ReplicaKey, Replica>) {
        for (key, before, now) in replicas.undurable() {
            self.moved(*key, before.and_then(host_of), now.and_then(host_of));
        }
    }

    /// Those on one host, by service and index.
    pub(super) fn on(&self, host: HostId) -> impl Iterator<Item = ReplicaKey> {
        self.0.get(&host).into_iter().flatten().copied()
    }

    fn moved(&mut self, key: ReplicaKey, from: Option<HostId>, to: Option<HostId>) {
        if from == to {
            return;
        }
        if let Some(host) = from
            && let Some(here) = self.0.get_mut(&host)
        {
            here.remove(&key);
            if here.is_empty() {
                self.0.remove(&host);
            }
        }
        if let Some(host) = to {
            self.0.entry(host).or_default().insert(key);
        }
    }
}

const fn host_of(replica: &Replica) -> Option<HostId> {
    match &replica.phase {
        Phase::Placed(placement) => Some(placement.host),
        Phase::Waiting(_) | Phase::Ended(_) => None,
    }
}
