//! The machine itself: its boots, what is on it, and what is left of that without power.

use std::net::{IpAddr, Ipv4Addr};

use portreeve::residency::{Pace, ReplicaName};
use portreeve::time::Monotonic;

use super::agenda::Actor;
use super::agent::CLOSING_PATIENCE;
use super::happening::{Happening, Heard};
use super::process::Processes;
use super::replica::{Assignment, Replica};
use super::{Due, Host, HostOut, Place, boot_id_of};
use crate::cluster::act::{HostNo, Whom};

/// The address that a host has at first.
pub(super) fn address_of(no: HostNo) -> IpAddr {
    const FIRST: u32 = u32::from_be_bytes([10, 0, 0, 1]);
    let nth = u32::try_from(no).unwrap_or(u32::MAX);
    IpAddr::V4(Ipv4Addr::from(FIRST.saturating_add(nth)))
}

impl Host {
    /// It boots. Whoever else wants its numbers comes with it.
    pub(super) fn power_on(&mut self) {
        self.is_up = true;
        self.boot += 1;
        self.strangers_take();
    }

    /// Everything on it is gone; what is on its disk stays, but for what was not synced.
    pub(super) fn power_off(&mut self, now: Monotonic, how: &str, out: &mut Vec<HostOut>) {
        if !self.is_up {
            return;
        }
        self.is_up = false;
        self.off_at = None;
        self.agent = None;
        self.agenda.clear();
        self.listeners.clear();
        self.strangers.lose_all();
        self.contact = None;
        self.pace = Pace::default();
        self.outputs.clear();
        let boot = u64::from(self.boot);
        let places: Vec<_> = self.replicas.keys().copied().collect();
        for place in places {
            let loses = self.draw(place, boot, 0).is_multiple_of(2);
            if let Some(replica) = self.replicas.get_mut(&place) {
                if let Some(worker) = replica.worker.take()
                    && let Some(record) = worker.record()
                {
                    replica.folder.freeze(record);
                }
                replica.waiting.clear();
                replica.by_hand.clear();
                replica.processes.lose_power();
                if loses {
                    replica.folder.lose_unsynced();
                }
            }
        }
        self.saw_host(now, how, out);
    }

    /// It is shut down in order, then off.
    pub(super) fn begin_shutdown(&mut self, now: Monotonic) {
        let off_at = now + CLOSING_PATIENCE;
        if self.off_at.is_none() {
            self.off_at = Some(off_at);
            let due = Due::PowerOff(self.boot);
            self.agenda.put(off_at, Actor::Machine, 0, due);
        }
    }

    /// The power goes once everything has ended and is told.
    pub(super) fn look_after_shutdown(&mut self, now: Monotonic, out: &mut Vec<HostOut>) {
        if self.off_at.is_some() && self.is_closed() {
            self.power_off(now, "is off", out);
        }
    }

    /// How often it booted.
    pub(crate) fn boots(&self) -> u64 {
        self.boot.into()
    }

    pub(super) fn boot_id(&self) -> String {
        boot_id_of(self.no, self.boot)
    }

    /// A number by chance that is the same whenever the same is asked for.
    pub(super) fn draw(&self, place: Place, one: u64, other: u64) -> u32 {
        let mixed = [u64::from(place.0), one, other];
        let mixed = mixed
            .into_iter()
            .fold(self.seed, |mixed, part| mix(mixed ^ part));
        u32::try_from(mixed >> 32).unwrap_or(u32::MAX)
    }

    /// What the machine of a new incarnation draws from: of the first one of the first service, the spec's own seed and
    /// its index.
    pub(super) fn machine_seed(&self, place: Place) -> u64 {
        let Some(replica) = self.replicas.get(&place) else {
            return self.seed;
        };
        let service = replica.whom.map_or(usize::MAX, |whom| whom.service);
        let service = u64::try_from(service).unwrap_or(u64::MAX);
        let placements = replica.name.incarnation.0.saturating_sub(1);
        let seed = self.spec.seed.wrapping_add(u64::from(replica.name.index));
        match (service, placements) {
            (0, 0) => seed,
            (service, placements) => mix(mix(seed ^ service) ^ u64::from(placements)),
        }
    }

    /// The place of an incarnation, made if it has none.
    pub(super) fn place_of(&mut self, name: &ReplicaName) -> Place {
        if let Some(place) = self.names.get(name) {
            return *place;
        }
        let place = Place(self.next_place);
        self.next_place += 1;
        let mut services = self.spec.services.iter();
        let service = services.position(|one| one.is(&name.service));
        let whom = service.map(|service| Whom {
            service,
            index: name.index,
        });
        let spec = service.map(|service| &self.spec.services[service]);
        let scripts = spec.and_then(|spec| {
            let own = spec.scripts.get(&Some(name.index));
            own.or_else(|| spec.scripts.get(&None)).cloned()
        });
        let processes = Processes::new(scripts.unwrap_or_default(), false);
        let replica = Replica::new(name.clone(), whom, processes);
        self.names.insert(name.clone(), place);
        self.replicas.insert(place, replica);
        place
    }

    pub(super) fn replica_mut(&mut self, name: &ReplicaName) -> Option<&mut Replica> {
        self.replicas.get_mut(self.names.get(name)?)
    }

    /// Its assignment is written down.
    pub(super) fn assign(&mut self, place: Place, assignment: Assignment) {
        if let Some(replica) = self.replicas.get_mut(&place) {
            if replica.assigned.is_none() {
                let pre_exec = assignment.desired.profile.pre_exec.is_some();
                replica.processes.expect_pre_exec(pre_exec);
            }
            replica.assigned = Some(assignment);
        }
        self.strangers_take();
    }

    /// Its folder is removed with everything in it.
    pub(super) fn remove(&mut self, name: &ReplicaName) {
        if let Some(place) = self.names.remove(name) {
            self.replicas.remove(&place);
            self.agenda.wake(Actor::Worker(place), None);
        }
    }

    /// A process of the replica does what it was to do.
    pub(super) fn process_happens(
        &mut self,
        now: Monotonic,
        place: Place,
        happening: Happening,
    ) -> Option<Heard> {
        let heard = self.with_processes(place, |processes, ground| {
            processes.happen(now, happening, ground)
        })?;
        self.numbers_changed(now);
        heard
    }

    /// Whatever lives of a replica is killed; whether nothing is left of it.
    pub(super) fn end_processes(&mut self, now: Monotonic, place: Place) -> bool {
        let rest = self.with_processes(place, |processes, ground| {
            processes.clear(now, processes.next_run(), ground)
        });
        let Some(rest) = rest else {
            return true;
        };
        self.numbers_changed(now);
        rest.is_none_or(|gone| gone == Some(now))
    }

    /// Others may listen now than before, or other numbers be ours.
    pub(super) fn numbers_changed(&mut self, now: Monotonic) {
        self.strangers_take();
        self.look_soon(now);
    }

    /// Strangers take what they want and is free.
    pub(super) fn strangers_take(&mut self) {
        let Self {
            strangers,
            listeners,
            replicas,
            ..
        } = self;
        strangers.take(listeners, |whom| {
            let mut newest = replicas.values().rev();
            let found = newest.find(|replica| replica.whom == Some(whom));
            let granted = found?.assigned.as_ref()?.desired.grant.ports.first()?;
            Some(super::ports::Bound {
                numbers: granted.numbers,
                protocol: granted.protocol,
            })
        });
    }
}

/// Spreads every bit over all.
const fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
