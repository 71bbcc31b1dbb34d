//! Hosts come, change, move to another number and go; and what they report.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::MutexGuard;

use crate::identity::{HostId, HostName, ReplicaId};
use crate::port::{Port, PortRange, Protocol};
use crate::port_pool::{Foreign, NetworkSet, PoolRanges, PortState, Side, Stranger};
use crate::time::Monotonic;

use super::census::Entry;
use super::host::{Host, HostSpec, HostState, PutHostError, Removal, RemoveHostError, UnknownHost};
use super::waiting::Requests;
use super::{Allocator, HostSet};

/// How the numbers of one host stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Numbers of the dynamic range.
    pub dynamic: u32,
    /// Of those, free for TCP.
    pub free_tcp: u32,
    /// Of those, free for UDP.
    pub free_udp: u32,
    /// Of those, free for both.
    pub free_both: u32,
    /// Numbers in grants, releasing and tentative ones included.
    pub held: u32,
    /// Numbers that were released and rest.
    pub resting: u32,
}

impl Allocator {
    /// Adds a host, or changes one: a known name keeps its holders, its state and what rests there,
    /// whatever its ranges and number become. A new host is [`HostState::NotReported`].
    ///
    /// # Errors
    ///
    /// [`PutHostError`]; nothing changed.
    pub fn put_host(&self, host: HostId, spec: HostSpec) -> Result<(), PutHostError> {
        self.put_hosts(vec![(host, spec)])
    }

    /// Adds or changes hosts, all or none, as [`Self::put_host`] does for one. Names may change
    /// places among themselves. A number's former host that the list does not name is dropped if
    /// nothing is held there.
    ///
    /// # Errors
    ///
    /// [`PutHostError`]; nothing changed.
    pub fn put_hosts(&self, specs: Vec<(HostId, HostSpec)>) -> Result<(), PutHostError> {
        self.check_list(&specs)?;
        for (_, spec) in &specs {
            self.census.offered.widen(&spec.ranges.dynamic);
        }
        let _structure = self.structure.lock();
        let waiting = self.waiting.requests();
        let mut staying = Vec::new();
        // Hosts that are new, or change their numbers, with the number they had.
        let mut coming: Vec<(HostId, HostSpec, Option<HostId>)> = Vec::new();
        {
            let names = self.names.lock();
            for (id, spec) in specs {
                match names.get(&spec.name).copied() {
                    Some(before) if before == id => staying.push((id, spec)),
                    before => coming.push((id, spec, before)),
                }
            }
        }
        self.bring(coming, &waiting)?;
        for (id, spec) in staying {
            self.hosts.with(id, |host| {
                host.pool.set_ranges(spec.ranges, spec.draw);
                host.cooling = spec.cooling;
                self.watches.note_all(id, Some(host));
                self.census.free(id);
                self.recount(id, host);
            });
        }
        Ok(())
    }

    fn check_list(&self, specs: &[(HostId, HostSpec)]) -> Result<(), PutHostError> {
        let limit = self.config.max_hosts.min(HostSet::MAX_HOSTS);
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (host, spec) in specs {
            let host = *host;
            if host.0 >= limit {
                return Err(PutHostError::BeyondLimit { host, limit });
            }
            if !ids.insert(host) || !names.insert(&spec.name) {
                let name = spec.name.clone();
                return Err(PutHostError::Twice { host, name });
            }
        }
        Ok(())
    }

    /// Puts hosts where they did not stand before, all or none, with all places concerned locked.
    fn bring(
        &self,
        coming: Vec<(HostId, HostSpec, Option<HostId>)>,
        waiting: &Requests,
    ) -> Result<(), PutHostError> {
        let places: BTreeSet<HostId> = coming
            .iter()
            .flat_map(|(id, _, before)| before.iter().copied().chain([*id]))
            .collect();
        // In ascending order, as everybody locks several hosts.
        let mut slots: BTreeMap<HostId, Slot<'_>> = BTreeMap::new();
        for id in places {
            slots.extend(self.hosts.slot_made(id).map(|slot| (id, slot)));
        }
        check_places(&coming, &slots)?;
        let mut moves = BTreeMap::new();
        let mut moving: Vec<(HostId, Box<Host>)> = Vec::with_capacity(coming.len());
        let mut gone = Vec::new();
        for (id, spec, before) in coming {
            let known = before.and_then(|before| slots.get_mut(&before)?.take());
            let host = match (known, before) {
                (Some(mut host), Some(before)) => {
                    moves.insert(before, id);
                    self.census.change(before, host.counted, Entry::default());
                    host.counted = Entry::default();
                    host.queued = None;
                    host.pool.set_ranges(spec.ranges, spec.draw);
                    host.cooling = spec.cooling;
                    host
                }
                _ => Box::new(Host::new(spec)),
            };
            moving.push((id, host));
        }
        let replicas = moving.iter().flat_map(|(_, host)| host.pool.holders());
        let keys: BTreeSet<_> = replicas
            .map(|(replica, _)| (replica.service, replica.index))
            .collect();
        for key in keys {
            self.placements.follow(key, &moves);
        }
        let mut came = Vec::with_capacity(moving.len());
        for (id, mut host) in moving {
            host.awaited = waiting.wished_of(id);
            came.push((host.name.clone(), id));
            let Some(slot) = slots.get_mut(&id) else {
                continue;
            };
            // Checked above: whoever still stands here holds nothing.
            if let Some(displaced) = slot.take() {
                self.census.change(id, displaced.counted, Entry::default());
                gone.push(displaced.name);
            }
            let host = slot.insert(host);
            self.recount(id, host);
            self.census.free(id);
            self.watches.note_all(id, Some(host));
        }
        for left in moves.keys() {
            if slots.get(left).is_some_and(|slot| slot.is_none()) {
                self.watches.note_all(*left, None);
            }
        }
        if self.config.room_for > 0 {
            self.make_room(came.iter().map(|(_, id)| id.0 + 1).max().unwrap_or(0));
        }
        let mut names = self.names.lock();
        for name in gone {
            names.remove(&name);
        }
        names.extend(came);
        Ok(())
    }

    /// Makes the room that cycles need for hosts below `end`.
    fn make_room(&self, end: u32) {
        self.watches.make_room(end);
        self.deadlines.make_room(end);
        let mut work = self.spares.take(self.no);
        work.scratch.make_room(end);
        self.spares.keep(work);
    }

    /// Removes a host. Returns the replicas whose grants were forgotten with it, which is nothing
    /// unless forced.
    ///
    /// # Errors
    ///
    /// [`RemoveHostError`] if it is unknown, if a transaction is open that took ports there or,
    /// unless forced, if somebody holds ports there; nothing changed.
    pub fn remove_host(
        &self,
        host: HostId,
        removal: Removal,
    ) -> Result<Vec<ReplicaId>, RemoveHostError> {
        let _structure = self.structure.lock();
        let unknown = RemoveHostError::Unknown { host };
        let mut slot = self.hosts.slot(host).ok_or(unknown.clone())?;
        let there = slot.as_deref().ok_or(unknown)?;
        let name = there.name.clone();
        let holders: Vec<ReplicaId> = there.pool.holders().into_iter().map(|it| it.0).collect();
        if let (Removal::IfEmpty, Some(first)) = (removal, holders.first()) {
            return Err(RemoveHostError::Holders {
                name,
                holders: holders.len(),
                first: *first,
            });
        }
        if there.is_in_transaction() {
            return Err(RemoveHostError::InTransaction { name });
        }
        for replica in &holders {
            self.placements.remove(*replica, host);
        }
        self.census.change(host, there.counted, Entry::default());
        self.watches.note_all(host, None);
        self.names.lock().remove(&name);
        *slot = None;
        Ok(holders)
    }

    /// Says whether the host takes new grants. Frees nothing.
    ///
    /// # Errors
    ///
    /// [`UnknownHost`].
    pub fn set_host_state(&self, host: HostId, state: HostState) -> Result<(), UnknownHost> {
        let id = host;
        let known = self.hosts.with(id, |host| {
            let before = std::mem::replace(&mut host.state, state);
            if state == HostState::Up && before != state {
                self.census.free(id);
            }
            self.recount(id, host);
        });
        known.ok_or(UnknownHost { host })
    }

    /// In which named networks the host has an address; `None`: it has not said. Requests for others do
    /// not fit there. Frees nothing.
    ///
    /// # Errors
    ///
    /// [`UnknownHost`].
    pub fn set_networks(
        &self,
        host: HostId,
        networks: Option<NetworkSet>,
    ) -> Result<(), UnknownHost> {
        let id = host;
        let known = self.hosts.with(id, |host| {
            let before = std::mem::replace(&mut host.networks, networks);
            if host.networks != before {
                self.census.free(id);
            }
            self.recount(id, host);
        });
        known.ok_or(UnknownHost { host })
    }

    /// Makes room for the sets of hosts in so many named networks, so that [`Self::set_networks`] allocates
    /// nothing for hosts that are known now.
    pub fn room_for_networks(&self, networks: usize) {
        self.census.room_for_networks(networks);
    }

    /// Replaces the list of listeners on the host that are not ours. A number that the list before
    /// named and this one does not is free again at once, also if a refused bind made it rest.
    ///
    /// # Errors
    ///
    /// [`UnknownHost`].
    pub fn set_foreign(&self, host: HostId, list: &[Foreign]) -> Result<(), UnknownHost> {
        let id = host;
        let known = self.hosts.with(id, |host| {
            let mut changed = Vec::new();
            let freed = host
                .pool
                .set_foreign(list, &mut |side, range| changed.push((side, range)));
            self.note(id, host, &changed);
            if freed {
                self.census.free(id);
            }
            self.recount(id, host);
        });
        known.ok_or(UnknownHost { host })
    }

    /// A bind to the number was refused: a stranger has it, reported or not. It is foreign for
    /// [`foreign_rest`](super::AllocatorConfig::foreign_rest) from `now`, and then free unless a report names it. Who
    /// holds it keeps holding it; its release is the caller's.
    ///
    /// # Errors
    ///
    /// [`UnknownHost`].
    pub fn report_conflict(
        &self,
        host: HostId,
        port: Port,
        protocol: Protocol,
        stranger: &Stranger,
        now: Monotonic,
    ) -> Result<(), UnknownHost> {
        let until = self.advance(now) + self.config.foreign_rest;
        let id = host;
        let known = self.hosts.with(id, |host| {
            host.pool.refuse_bind(port, protocol, until, stranger);
            for side in Side::of(protocol) {
                let range = PortRange::single(port);
                self.watches.note(id, &host.pool, side, range);
            }
            self.recount(id, host);
        });
        known.ok_or(UnknownHost { host })
    }

    /// Where the host of this name stands.
    #[must_use]
    pub fn host_id(&self, name: &HostName) -> Option<HostId> {
        self.names.lock().get(name).copied()
    }

    /// The name of the host that stands here.
    #[must_use]
    pub fn host_name(&self, host: HostId) -> Option<HostName> {
        self.hosts.with(host, |host| host.name.clone())
    }

    /// The host's state.
    #[must_use]
    pub fn host_state(&self, host: HostId) -> Option<HostState> {
        self.hosts.with(host, |host| host.state)
    }

    /// The host's ranges.
    #[must_use]
    pub fn ranges(&self, host: HostId) -> Option<PoolRanges> {
        self.hosts.with(host, |host| host.pool.ranges().clone())
    }

    /// Every host, ascending.
    #[must_use]
    pub fn hosts(&self) -> Vec<(HostId, HostName, HostState)> {
        let ids = self.hosts.ids();
        ids.filter_map(|id| {
            self.hosts
                .with(id, |host| (id, host.name.clone(), host.state))
        })
        .collect()
    }

    /// How the host's numbers stand; zeros for an unknown host. Cost: linear in what
    /// rests.
    #[must_use]
    pub fn counts(&self, host: HostId) -> PoolCounts {
        let counts = self.hosts.with(host, |host| PoolCounts {
            dynamic: host.pool.ranges().dynamic.count(),
            free_tcp: host.pool.free_count(Protocol::Tcp),
            free_udp: host.pool.free_count(Protocol::Udp),
            free_both: host.pool.free_count(Protocol::TcpUdp),
            held: host.pool.held_count(),
            resting: host.pool.resting_count(),
        });
        counts.unwrap_or_default()
    }

    /// The shown state of one number; [`PortState::Free`] on an unknown host too.
    #[must_use]
    pub fn port_state(&self, host: HostId, side: Side, port: Port) -> PortState {
        let state = self.hosts.with(host, |host| host.pool.state(side, port));
        state.unwrap_or(PortState::Free)
    }
}

type Slot<'a> = MutexGuard<'a, Option<Box<Host>>>;

/// Whether hosts can come, all of them: nobody loses what is held, and no transaction a host.
fn check_places(
    coming: &[(HostId, HostSpec, Option<HostId>)],
    slots: &BTreeMap<HostId, Slot<'_>>,
) -> Result<(), PutHostError> {
    let names: BTreeSet<&HostName> = coming.iter().map(|(_, spec, _)| &spec.name).collect();
    for (host, there) in slots {
        let Some(there) = there.as_deref() else {
            continue;
        };
        let host = *host;
        let by = || there.name.clone();
        if !names.contains(&there.name) && there.pool.has_holders() {
            return Err(PutHostError::Occupied { host, by: by() });
        }
        if there.is_in_transaction() {
            return Err(PutHostError::InTransaction { name: by() });
        }
    }
    Ok(())
}
