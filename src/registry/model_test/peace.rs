//! What must have become of any life once everything is mended and time has passed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::endpoints::{EndpointState, ServiceEndpoints};
use crate::identity::ServiceName;
use crate::residency::ReplicaName;
use crate::supervision::State;

use super::super::records::{Phase, Placement};
use super::super::rig::name;
use super::super::{ReplicaView, Store, Write, tables};
use super::checks::numbers;
use super::op::Order;
use super::{GRACE, HOSTS, SERVICES, World};

/// The longest that peace may take: rests of a minute, of ten after strangers, and rolls.
const ROUNDS: u32 = 150;

impl World {
    pub(super) fn makes_peace(mut self) {
        self.rig.store.failing_commits = 0;
        self.land();
        for host in 0..HOSTS.len() {
            self.mend(host, true);
            self.operate(host, Order::Undrain);
            self.join(host, true);
        }
        self.hear_answers();
        self.act();
        self.check();
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let before = self.rig.commits;
            self.everybody_obeys_and_is_ready();
            self.pass(Duration::from_secs(15));
            self.check();
            quiet = if self.rig.commits == before {
                quiet + 1
            } else {
                0
            };
            if quiet > 2 && !self.somebody_rests() {
                break;
            }
        }
        self.what_runs_is_what_is_wanted();
        self.nothing_is_held_for_nobody();
        self.nobody_waits_for_what_is_there();
        self.a_short_silence_changes_nothing();
        self.rests_as_stored();
    }

    fn somebody_rests(&self) -> bool {
        let now = self.rig.now.mono;
        let replicas = self.rig.registry.truth.replicas.iter();
        let mut waiting = replicas.filter(|(_, it)| matches!(it.phase, Phase::Waiting(_)));
        waiting.any(|(key, _)| self.rig.registry.waits.rest_left(*key, now).is_some())
    }

    fn everybody_obeys_and_is_ready(&mut self) {
        for host in 0..self.machines.len() {
            for who in self.machines[host].obey() {
                self.deliver(host, &who);
            }
            let living: Vec<ReplicaName> = self.machines[host]
                .living()
                .map(|(it, _)| it.clone())
                .collect();
            for who in living {
                let machine = &mut self.machines[host];
                let resident = &machine.residents[&who];
                let wanted = resident.told.map_or(0, |told| told.restart_no);
                let is_ready = resident
                    .status
                    .as_ref()
                    .is_some_and(|it| it.ready && it.restart_no >= wanted);
                if !is_ready {
                    machine.becomes(&who, |status| {
                        status.state = State::Up;
                        status.ready = true;
                        status.restart_no = status.restart_no.max(wanted);
                    });
                    self.deliver(host, &who);
                }
            }
        }
        self.act();
    }

    fn placements(&self) -> impl Iterator<Item = &Placement> {
        let replicas = self.rig.registry.truth.replicas.iter();
        replicas.filter_map(|(_, replica)| match &replica.phase {
            Phase::Placed(placement) => Some(placement),
            _ => None,
        })
    }

    /// The acknowledged commands, and nothing else.
    fn what_runs_is_what_is_wanted(&self) {
        let mut living: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for machine in &self.machines {
            for (who, _) in machine.living() {
                let service = super::service_number(&who.service);
                *living.entry((service, who.index)).or_default() += 1;
            }
        }
        let truth = &self.rig.registry.truth;
        for (service, known) in SERVICES.iter().enumerate() {
            let wanted = self.plain.services.get(&service);
            let id = self.rig.registry.names.get(&name(known));
            assert_eq!(id.is_some(), wanted.is_some(), "{known}");
            let here = (service, 0)..=(service, u32::MAX);
            let (Some(wanted), Some(id)) = (wanted, id) else {
                assert_eq!(living.range(here).next(), None, "{known} is deleted");
                continue;
            };
            for (at, count) in living.range(here) {
                assert_eq!(*count, 1, "{at:?} lives {count} times");
                let is_wanted = wanted.attached
                    || wanted.running && at.1 < wanted.copies && !wanted.empty.contains(&at.1);
                assert!(is_wanted, "{at:?} lives, but: {wanted:?}");
            }
            if wanted.attached || !wanted.running {
                continue;
            }
            for index in (0..wanted.copies).filter(|it| !wanted.empty.contains(it)) {
                let replica = truth.replicas.find(&(*id, index));
                let replica = replica.unwrap_or_else(|| panic!("{known}/{index} is missing"));
                let waits = self.rig.registry.waits.reasons.contains_key(&(*id, index));
                let is_there = match &replica.phase {
                    Phase::Placed(_) => living.contains_key(&(service, index)),
                    Phase::Waiting(_) => waits,
                    Phase::Ended(_) => {
                        wanted.open.contains(&index) || self.fragile.contains(&service)
                    }
                };
                assert!(is_there, "{known}/{index}: {wanted:?} {replica:?}");
            }
        }
    }

    /// All hosts are back and told everything, so nothing is held but by what is placed.
    fn nothing_is_held_for_nobody(&mut self) {
        for host in 0..self.machines.len() {
            let name = self.machines[host].name.clone();
            let Some(held) = self.held(&name) else {
                continue;
            };
            let id = self.rig.registry.host_names[&name];
            let here = self.placements().filter(|it| it.host == id);
            let placed = here.flat_map(|it| numbers(&it.grant)).collect();
            assert_eq!(held, placed, "{name}");
        }
    }

    /// Whoever waits still waits when everybody is looked at again: no wake-up was missed.
    fn nobody_waits_for_what_is_there(&mut self) {
        let placed = self.placements().count();
        self.rig.registry.waits.wake();
        self.rig.settle();
        assert_eq!(self.placements().count(), placed);
    }

    /// Promise 7: neither a silence within the grace nor its end is anything that is told, written or decided upon.
    fn a_short_silence_changes_nothing(&mut self) {
        // Until the last number has rested, and who waited for it serves.
        for _ in 0..3 {
            self.pass(Duration::from_secs(150));
            self.everybody_obeys_and_is_ready();
        }
        self.pass(Duration::from_secs(15));
        let written = self.rig.everything();
        let table = self.rig.table.clone();
        let commits = self.rig.commits;
        let same = |world: &Self, when: &str| {
            for (now, before) in world.rig.everything().iter().zip(&written) {
                assert_eq!(shown(now), shown(before), "{when}");
            }
            assert_eq!(confirmed(&world.rig.table), table, "{when}");
            assert_eq!(world.rig.commits, commits, "{when}");
        };
        for host in 0..self.machines.len() {
            let name = self.machines[host].name.clone();
            self.machines[host].linked = false;
            self.pass(GRACE - Duration::from_secs(10));
            same(self, &format!("{name} was silent"));
            self.mend(host, true);
            self.act();
            same(self, &format!("{name} is back"));
            assert_eq!(self.rig.table, table, "{name} is back");
        }
    }

    /// A start on the store finds what runs.
    fn rests_as_stored(mut self) {
        self.rig.pass(Duration::from_secs(2));
        // A rest that ended just now is news, written a moment later.
        while self.rig.registry.truth.has_news() {
            self.rig.pass(Duration::from_secs(1));
        }
        let stored = self.rig.store.load().unwrap();
        let mut running: BTreeMap<&str, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for write in self.rig.everything() {
            let table = running.entry(write.table).or_default();
            table.insert(write.key, write.value.unwrap());
        }
        for table in tables::ALL {
            let empty = BTreeMap::new();
            let on_disk = stored.tables.get(table).unwrap_or(&empty);
            assert_eq!(on_disk, running.get(table).unwrap_or(&empty), "{table}");
        }
        let before = self.rig.table.clone();
        let services = self.rig.registry.view().services.clone();
        let rig = self.rig.restart();
        assert_eq!(rig.table, before);
        for (name, service) in &rig.registry.view().services {
            for (after, before) in service.replicas.iter().zip(&services[name].replicas) {
                // Why one waits is found anew.
                let after = ReplicaView {
                    reason: before.reason.clone(),
                    reasons: before.reasons.clone(),
                    reason_sums: before.reason_sums.clone(),
                    waits: before.waits.clone(),
                    state: before.state.clone(),
                    ..after.clone()
                };
                assert_eq!(after, *before);
            }
        }
    }
}

/// What is listed, whether or not its host was heard of a moment ago.
fn confirmed(
    table: &BTreeMap<ServiceName, ServiceEndpoints>,
) -> BTreeMap<ServiceName, ServiceEndpoints> {
    let mut table = table.clone();
    let endpoints = table.values_mut().flat_map(|it| &mut it.endpoints);
    for endpoint in endpoints.filter(|it| it.state == EndpointState::Unconfirmed) {
        endpoint.state = EndpointState::Ready;
        endpoint.reason = None;
    }
    table
}

/// A write as it reads.
fn shown(write: &Write) -> (&str, &str, Cow<'_, str>) {
    let value = write.value.as_deref().unwrap_or_default();
    (write.table, &write.key, String::from_utf8_lossy(value))
}
