//! What holds at every moment of any life.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::identity::{HostName, ServiceName};
use crate::port::Port;
use crate::port_pool::{PortGrant, Side};
use crate::residency::ReplicaName;
use crate::rights::{Caller, Rights};
use crate::supervision::State;

use super::super::Effect;
use super::super::records::Phase;
use super::super::rig::caller;
use super::super::touched::Touch;
use super::World;

impl World {
    pub(super) fn check(&mut self) {
        self.no_number_belongs_to_two();
        self.what_lives_holds_its_numbers();
        self.everything_told_is_shown_or_held();
        if self.rig.registry.shown.windows.is_empty() {
            self.only_ready_replicas_are_listed();
        }
        self.nothing_lost_is_listed();
        self.what_is_lost_is_given_up();
        self.drains_are_as_ordered();
        self.no_attached_replica_waits_or_moves();
        for effect in std::mem::take(&mut self.rig.effects) {
            if let Effect::Publish { revision, .. } = effect {
                // What is only said to be unconfirmed, or not any more, comes with the revision that was.
                assert!(revision >= self.last_revision, "revisions only grow");
                assert!(revision < self.rig.registry.shown.ceiling);
                self.last_revision = revision;
            }
        }
    }

    fn no_number_belongs_to_two(&self) {
        for machine in &self.machines {
            let mut taken: BTreeMap<(Side, Port), &ReplicaName> = BTreeMap::new();
            for (who, grant) in machine.living() {
                for number in numbers(grant) {
                    let other = taken.insert(number, who);
                    assert_eq!(other, None, "{number:?} on {} is {who}'s too", machine.name);
                }
            }
        }
    }

    /// Promise 1, and 7: whatever may run has its numbers, whether or not anybody hears of it.
    fn what_lives_holds_its_numbers(&mut self) {
        for host in 0..self.machines.len() {
            let name = self.machines[host].name.clone();
            let Some(held) = self.held(&name) else {
                continue;
            };
            for (who, grant) in self.machines[host].living() {
                for number in numbers(grant) {
                    assert!(
                        held.contains(&number),
                        "{who} lives on {name} with {number:?}"
                    );
                }
            }
        }
    }

    /// The numbers of a host that have a holder.
    pub(super) fn held(&mut self, host: &HostName) -> Option<BTreeSet<(Side, Port)>> {
        let now = self.rig.now;
        let ports = self.rig.registry.host_ports(now, &operator(), host)?;
        let held = ports
            .ports
            .iter()
            .filter(|port| port.state == "held" || port.state == "releasing");
        let sides = held.flat_map(|port| {
            Side::of(port.protocol)
                .flat_map(move |side| port.numbers.iter().map(move |number| (side, number)))
        });
        Some(sides.collect())
    }

    /// A copy begins only where no other of it can be, but on hosts that were given up.
    pub(super) fn nobody_else_is_that_copy(&self, host: usize, who: &ReplicaName) {
        for (at, machine) in self.machines.iter().enumerate() {
            for (other, _) in machine
                .living()
                .filter(|(other, _)| other.copy() == who.copy())
            {
                let is_itself = at == host && other == who;
                let is_forsaken = at != host && machine.forsaken.contains(other);
                assert!(
                    is_itself || is_forsaken,
                    "{who} begins on {} and {other} lives on {}",
                    self.machines[host].name,
                    machine.name
                );
            }
        }
    }

    /// Promise 6: news waits for no store.
    pub(super) fn a_withdrawal_waits_for_no_store(&mut self, who: &ReplicaName) {
        if !self.rig.registry.shown.has_revisions() {
            return;
        }
        // What is not ready any more is shown within 20 ms.
        if !self.rig.registry.shown.windows.is_empty() {
            self.rig.pass(Duration::from_millis(20));
        }
        let listed = self.rig.table.get(&who.service);
        let listed = listed.is_some_and(|set| {
            set.endpoints.iter().any(|it| {
                it.replica == who.index && it.incarnation == who.incarnation && it.state.is_listed()
            })
        });
        assert!(!listed, "{who} is not ready and is listed");
    }

    /// News too, so also on a full disk: what is on a host that was given up is not listed.
    fn nothing_lost_is_listed(&self) {
        if !self.rig.registry.shown.has_revisions() {
            return;
        }
        for machine in &self.machines {
            let silent = Duration::from_millis(super::now_ms(&self.rig) - machine.heard_ms);
            if machine.linked || silent < super::GRACE + Duration::from_secs(1) {
                continue;
            }
            let address = super::super::rig::facts(machine.name.as_str()).published;
            for (service, set) in &self.rig.table {
                for it in &set.endpoints {
                    let is_there = it.state.is_listed() && it.address == address;
                    assert!(!is_there, "{service} is listed on {}", machine.name);
                }
            }
        }
    }

    /// As soon as the store takes it, what was on a lost host is over there.
    fn what_is_lost_is_given_up(&self) {
        let registry = &self.rig.registry;
        if registry.outbox.is_busy() || registry.outbox.is_resting(self.rig.now.mono) {
            return;
        }
        for (key, replica) in registry.truth.replicas.iter() {
            if let Phase::Placed(placement) = &replica.phase {
                assert!(registry.lost(placement.host).is_none(), "{key:?} stands");
            }
        }
    }

    /// What was acknowledged about hosts outlives starts and refused batches.
    fn drains_are_as_ordered(&self) {
        let registry = &self.rig.registry;
        for (id, host) in registry.truth.known_hosts() {
            let is_drained = registry.is_drained(*id);
            assert_eq!(is_drained, host.drain.is_some(), "{}", host.name());
        }
    }

    fn no_attached_replica_waits_or_moves(&self) {
        let truth = &self.rig.registry.truth;
        for (key, replica) in truth.replicas.iter() {
            let service = truth.services.find(&key.0).unwrap();
            match &replica.phase {
                Phase::Waiting(_) => assert!(!service.attached, "{key:?} waits"),
                Phase::Placed(placement) => {
                    assert_eq!(placement.attached.is_some(), service.attached, "{key:?}");
                }
                Phase::Ended(_) => {}
            }
        }
    }

    /// A look at the whole of a service finds nothing that looks at single replicas missed.
    fn everything_told_is_shown_or_held(&self) {
        let registry = &self.rig.registry;
        let shown = &registry.shown;
        if !shown.has_revisions() || !shown.windows.is_empty() {
            return;
        }
        assert!(shown.news.is_empty());
        for (id, service) in registry.truth.services.iter() {
            let name = &service.name;
            // Promise 6: whatever else waits for the store, this does not.
            assert!(!registry.is_withdrawn(*id, &Touch::Whole), "{name}");
            // What a refused batch would have shown is looked at with the next one.
            if !shown.truth.contains(*id) {
                let look = registry.look(*id, &Touch::Whole);
                assert!(!look.is_change(), "{name}");
            }
        }
    }

    fn only_ready_replicas_are_listed(&self) {
        let truth = &self.rig.registry.truth;
        let mut listed: BTreeSet<(ServiceName, u32)> = BTreeSet::new();
        for (service, set) in &self.rig.table {
            let id = self.rig.registry.view().services[service].id;
            for endpoint in &set.endpoints {
                let replica = truth.replicas.durable(&(id, endpoint.replica)).unwrap();
                assert_eq!(replica.incarnation, endpoint.incarnation);
                if endpoint.state.is_listed() {
                    let status = replica.status.as_ref().unwrap();
                    assert!(status.ready && status.state == State::Up);
                    assert!(endpoint.address.is_some());
                    listed.insert((service.clone(), endpoint.replica));
                }
            }
        }
        for (service, view) in &self.rig.registry.view().services {
            for replica in &view.replicas {
                let is_listed = listed.contains(&(service.clone(), replica.replica));
                assert_eq!(replica.ready, is_listed, "{service} {replica:?}");
            }
        }
    }
}

/// Every number of a grant, on each of its sides.
pub(super) fn numbers(grant: &PortGrant) -> impl Iterator<Item = (Side, Port)> {
    grant.ports.iter().flat_map(|port| {
        Side::of(port.protocol)
            .flat_map(move |side| port.numbers.iter().map(move |number| (side, number)))
    })
}

/// Sees and may do everything.
pub(super) fn operator() -> Caller {
    caller("root").with_rights(Rights::ADMIN)
}
