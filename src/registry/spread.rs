//! How replicas are spread over the hosts, as decisions see it, and who waits for a place.
//!
//! Kept as records change, so that a place is found without a walk over all replicas and hosts. Invariant: what was
//! followed is what a walk would count ([`Registry::crowd`]). Only truth places replicas and ends them, so it is enough to
//! look at what an open batch changes: before a decision, and when the batch becomes durable; one that is refused has
//! everything counted anew.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::{HostId, HostName, ServiceId};
use crate::port_pool::PortGrant;

use super::ledger::Ledger;
use super::machine::Registry;
use super::records::{Phase, Replica};
use super::truth::{ReplicaKey, Truth};

/// How full hosts are, counted in a round and as it places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    of_service: BTreeMap<(ServiceId, HostId), u32>,
    numbers: BTreeMap<HostId, u32>,
}

impl Crowd {
    pub(super) fn add(&mut self, service: ServiceId, host: HostId, grant: &PortGrant) {
        self.add_numbers(service, host, grant.count());
    }

    /// How many replicas of the service the host has.
    pub(super) fn of_service(&self, service: ServiceId, host: HostId) -> u32 {
        let count = self.of_service.get(&(service, host));
        count.copied().unwrap_or_default()
    }

    /// How many numbers are held on the host.
    pub(super) fn numbers(&self, host: HostId) -> u32 {
        self.numbers.get(&host).copied().unwrap_or_default()
    }

    fn add_numbers(&mut self, service: ServiceId, host: HostId, numbers: u32) {
        *self.of_service.entry((service, host)).or_default() += 1;
        *self.numbers.entry(host).or_default() += numbers;
    }

    /// One that was added is there no more.
    fn take(&mut self, service: ServiceId, host: HostId, numbers: u32) {
        if let Some(count) = self.of_service.get_mut(&(service, host)) {
            *count -= 1;
            if *count == 0 {
                self.of_service.remove(&(service, host));
            }
        }
        if let Some(all) = self.numbers.get_mut(&host) {
            *all -= numbers;
        }
    }
}

/// The same kept from round to round, with the hosts that have least first, and who waits.
#[derive(Debug, Default)]
pub(super) struct Spread {
    crowd: Crowd,
    /// Where each replica is counted, with how many numbers.
    placed: BTreeMap<ReplicaKey, (HostId, u32)>,
    waiting: BTreeSet<ReplicaKey>,
    names: BTreeMap<HostId, HostName>,
    /// By how many numbers are held there, then by name.
    emptiest: BTreeSet<(u32, HostName, HostId)>,
}

impl Spread {
    /// Counts everything. Cost: a walk over all records.
    pub(super) fn of(truth: &Truth) -> Self {
        let mut spread = Self::default();
        for (id, host) in truth.known_hosts() {
            spread.put_host(*id, host.name());
        }
        for (key, replica) in truth.replicas.iter() {
            spread.moved(*key, Some(replica));
        }
        spread
    }

    /// Follows what the open batch changes.
    pub(super) fn follow(&mut self, replicas: &Ledger<ReplicaKey, Replica>) {
        for (key, _, now) in replicas.undurable() {
            self.moved(*key, now);
        }
    }

    /// What the replica is now; `None`: it is not.
    pub(super) fn moved(&mut self, key: ReplicaKey, now: Option<&Replica>) {
        let phase = now.map(|replica| &replica.phase);
        match phase {
            Some(Phase::Waiting(_)) => self.waiting.insert(key),
            _ => self.waiting.remove(&key),
        };
        let now = match phase {
            Some(Phase::Placed(at)) => Some((at.host, at.grant.count())),
            _ => None,
        };
        let before = self.placed.get(&key).copied();
        if before == now {
            return;
        }
        if let Some((host, numbers)) = before {
            self.placed.remove(&key);
            self.change(host, |crowd| crowd.take(key.0, host, numbers));
        }
        if let Some((host, numbers)) = now {
            self.placed.insert(key, (host, numbers));
            self.change(host, |crowd| crowd.add_numbers(key.0, host, numbers));
        }
    }

    /// The host is known.
    pub(super) fn put_host(&mut self, host: HostId, name: &HostName) {
        if self.names.insert(host, name.clone()).is_none() {
            let numbers = self.crowd.numbers(host);
            self.emptiest.insert((numbers, name.clone(), host));
        }
    }

    /// The host is not known any more.
    pub(super) fn forget_host(&mut self, host: HostId) {
        if let Some(name) = self.names.remove(&host) {
            self.emptiest
                .remove(&(self.crowd.numbers(host), name, host));
        }
    }

    pub(super) const fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// All that wait, whether they may run or not.
    pub(super) fn waiting(&self) -> impl Iterator<Item = ReplicaKey> {
        self.waiting.iter().copied()
    }

    /// Known hosts: those where least numbers are held first, then by name.
    pub(super) fn emptiest(&self) -> impl Iterator<Item = HostId> {
        self.emptiest.iter().map(|(_, _, host)| *host)
    }

    fn change(&mut self, host: HostId, change: impl FnOnce(&mut Crowd)) {
        let before = self.crowd.numbers(host);
        change(&mut self.crowd);
        let now = self.crowd.numbers(host);
        if now != before
            && let Some(name) = self.names.get(&host)
        {
            let mut entry = (before, name.clone(), host);
            self.emptiest.remove(&entry);
            entry.0 = now;
            self.emptiest.insert(entry);
        }
    }
}

impl Registry {
    /// Counts how full hosts are. Cost: a walk over all replicas.
    pub(super) fn crowd(&self) -> Crowd {
        let mut crowd = Crowd::default();
        for (key, replica) in self.truth.replicas.iter() {
            if let Phase::Placed(placement) = &replica.phase {
                crowd.add(key.0, placement.host, &placement.grant);
            }
        }
        crowd
    }

    /// Holds what is kept against what a walk counts.
    #[cfg(test)]
    pub(super) fn assert_followed(&self) {
        let counted = Spread::of(&self.truth);
        assert_eq!(self.spread.placed, counted.placed);
        assert_eq!(self.spread.waiting, counted.waiting);
        assert_eq!(self.spread.crowd.of_service, counted.crowd.of_service);
        let missing: Vec<_> = counted.emptiest.difference(&self.spread.emptiest).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
