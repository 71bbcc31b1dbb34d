//! Hosts come, change, move to another number and go; and what they report.

use std::collections::BTreeSet;

use crate::identity::{HostId, HostName, ReplicaId};
use crate::port::{Port, Protocol};
use crate::port_pool::{Foreign, PoolRanges, PortState, Side, Stranger};
use crate::time::Monotonic;

use super::Allocator;
use super::host::{Host, HostSpec, HostState, PutHostError, Removal, RemoveHostError, UnknownHost};

/// How the numbers of one host stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Numbers of the dynamic range.
    pub dynamic: u32,
    /// Of those, free for TCP.
    pub free_tcp: u32,
    /// Of those, free for UDP.
    pub free_udp: u32,
    /// Numbers in grants, releasing and tentative ones included.
    pub held: u32,
}

impl Allocator {
    /// Adds a host, or changes one: a known name keeps its holders, its state and what rests there,
    /// whatever its ranges and number become. A new host is [`HostState::NotReported`].
    ///
    /// # Errors
    ///
    /// [`PutHostError`]; nothing changed.
    pub fn put_host(&mut self, host: HostId, spec: HostSpec) -> Result<(), PutHostError> {
        self.put_hosts(vec![(host, spec)])
    }

    /// Adds or changes hosts, all or none, as [`Self::put_host`] does for one. Names may change
    /// places among themselves. A number's former host that the list does not name is dropped if
    /// nothing is held there.
    ///
    /// # Errors
    ///
    /// [`PutHostError`]; nothing changed.
    pub fn put_hosts(&mut self, specs: Vec<(HostId, HostSpec)>) -> Result<(), PutHostError> {
        self.check_put(&specs)?;
        let mut moving: Vec<(HostId, Host)> = Vec::with_capacity(specs.len());
        for (id, spec) in specs {
            let host = match self.names.get(&spec.name).copied() {
                Some(before) => self.lift(before).map(|mut host| {
                    self.rename_placed(&host, before, id);
                    host.pool.set_ranges(spec.ranges, spec.draw);
                    host.cooling = spec.cooling;
                    host
                }),
                None => Some(Host::new(spec)),
            };
            moving.extend(host.map(|host| (id, host)));
        }
        for (id, host) in moving {
            // Checked above: whoever still stands here has no holders.
            self.lift(id);
            self.set_down(id, host);
        }
        Ok(())
    }

    fn check_put(&self, specs: &[(HostId, HostSpec)]) -> Result<(), PutHostError> {
        let limit = self.config.max_hosts;
        let names: BTreeSet<&HostName> = specs.iter().map(|(_, spec)| &spec.name).collect();
        let mut ids = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for (host, spec) in specs {
            let host = *host;
            if host.0 >= limit {
                return Err(PutHostError::BeyondLimit { host, limit });
            }
            if !ids.insert(host) || !seen.insert(&spec.name) {
                let name = spec.name.clone();
                return Err(PutHostError::Twice { host, name });
            }
            if let Some(there) = self.host(host)
                && !names.contains(&there.name)
                && there.pool.has_holders()
            {
                let by = there.name.clone();
                return Err(PutHostError::Occupied { host, by });
            }
        }
        Ok(())
    }

    /// Takes the host out of its number. What replicas hold there stays in `placed`.
    fn lift(&mut self, id: HostId) -> Option<Host> {
        let mut host = self.hosts.get_mut(id.0 as usize)?.take()?;
        if let Some(due) = host.due.take() {
            self.due.remove(&(due, id));
        }
        self.names.remove(&host.name);
        self.freed.remove(id);
        Some(host)
    }

    fn set_down(&mut self, id: HostId, host: Host) {
        let place = id.0 as usize;
        if self.hosts.len() <= place {
            self.hosts.resize_with(place + 1, || None);
        }
        self.names.insert(host.name.clone(), id);
        self.hosts[place] = Some(host);
        self.waiting.count_for(id, &mut self.hosts);
        self.freed.insert(id);
        self.requeue(id);
    }

    fn rename_placed(&mut self, host: &Host, before: HostId, after: HostId) {
        if before == after {
            return;
        }
        for (replica, _) in host.pool.holders() {
            self.placed.remove(&(replica, before));
        }
        for (replica, _) in host.pool.holders() {
            self.placed.insert((replica, after));
        }
    }

    /// Removes a host. Returns the replicas whose grants were forgotten with it, which is nothing
    /// unless forced.
    ///
    /// # Errors
    ///
    /// [`RemoveHostError`] if it is unknown or, unless forced, somebody holds ports there; nothing
    /// changed.
    pub fn remove_host(
        &mut self,
        host: HostId,
        removal: Removal,
    ) -> Result<Vec<ReplicaId>, RemoveHostError> {
        let there = self.host(host).ok_or(RemoveHostError::Unknown { host })?;
        let holders: Vec<ReplicaId> = there.pool.holders().into_iter().map(|(id, _)| id).collect();
        if let (Removal::IfEmpty, Some(first)) = (removal, holders.first()) {
            return Err(RemoveHostError::Holders {
                name: there.name.clone(),
                holders: holders.len(),
                first: *first,
            });
        }
        self.lift(host);
        for replica in &holders {
            self.placed.remove(&(*replica, host));
        }
        Ok(holders)
    }

    /// Says whether the host takes new grants. Frees nothing.
    ///
    /// # Errors
    ///
    /// [`UnknownHost`].
    pub fn set_host_state(&mut self, host: HostId, state: HostState) -> Result<(), UnknownHost> {
        let there = self.host_mut(host).ok_or(UnknownHost { host })?;
        let before = std::mem::replace(&mut there.state, state);
        if state == HostState::Up && before != state {
            self.freed.insert(host);
        }
        Ok(())
    }

    /// Replaces the list of listeners on the host that are not ours. A number that the list before
    /// named and this one does not is free again at once, also if a refused bind made it rest.
    ///
    /// # Errors
    ///
    /// [`UnknownHost`].
    pub fn set_foreign(&mut self, host: HostId, list: &[Foreign]) -> Result<(), UnknownHost> {
        let there = self.host_mut(host).ok_or(UnknownHost { host })?;
        if there.pool.set_foreign(list, &mut |_, _| {}) {
            self.freed.insert(host);
        }
        self.requeue(host);
        Ok(())
    }

    /// A bind to the number was refused: a stranger has it, reported or not. It is foreign for
    /// [`foreign_rest`](super::AllocatorConfig::foreign_rest) from `now`, and then free unless a report names it. Who
    /// holds it keeps holding it; its release is the caller's.
    ///
    /// # Errors
    ///
    /// [`UnknownHost`].
    pub fn report_conflict(
        &mut self,
        host: HostId,
        port: Port,
        protocol: Protocol,
        stranger: &Stranger,
        now: Monotonic,
    ) -> Result<(), UnknownHost> {
        self.advance(now);
        let until = self.now + self.config.foreign_rest;
        let there = self.host_mut(host).ok_or(UnknownHost { host })?;
        there.pool.refuse_bind(port, protocol, until, stranger);
        self.requeue(host);
        Ok(())
    }

    /// Where the host of this name stands.
    #[must_use]
    pub fn host_id(&self, name: &HostName) -> Option<HostId> {
        self.names.get(name).copied()
    }

    /// The name of the host that stands here.
    #[must_use]
    pub fn host_name(&self, host: HostId) -> Option<&HostName> {
        self.host(host).map(|host| &host.name)
    }

    /// The host's state.
    #[must_use]
    pub fn host_state(&self, host: HostId) -> Option<HostState> {
        self.host(host).map(|host| host.state)
    }

    /// The host's ranges.
    #[must_use]
    pub fn ranges(&self, host: HostId) -> Option<&PoolRanges> {
        self.host(host).map(|host| host.pool.ranges())
    }

    /// Every host, ascending.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &HostName, HostState)> {
        (0..).zip(&self.hosts).filter_map(|(id, host)| {
            let host = host.as_ref()?;
            Some((HostId(id), &host.name, host.state))
        })
    }

    /// How the host's numbers stand; zeros for an unknown host. Cost: constant.
    #[must_use]
    pub fn counts(&self, host: HostId) -> PoolCounts {
        let Some(there) = self.host(host) else {
            return PoolCounts::default();
        };
        PoolCounts {
            dynamic: there.pool.ranges().dynamic.count(),
            free_tcp: there.pool.free_count(Protocol::Tcp),
            free_udp: there.pool.free_count(Protocol::Udp),
            held: there.pool.held_count(),
        }
    }

    /// The shown state of one number; [`PortState::Free`] on an unknown host too.
    #[must_use]
    pub fn port_state(&self, host: HostId, side: Side, port: Port) -> PortState {
        self.host(host)
            .map_or(PortState::Free, |host| host.pool.state(side, port))
    }
}
