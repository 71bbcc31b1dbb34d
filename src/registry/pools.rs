//! The registry's use of the allocator: ports for placements, strangers, rests.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocator::{
    AfterRelease, Allocator, AllocatorConfig, Conflict, CoolingRecord, GrantRecord, HostSet,
    HostSpec, HostState, Need, PoolCounts, Removal, Summary, Transaction,
};
use crate::identity::{HostId, ReplicaId, ServiceId};
use crate::port::{Port, PortRange};
use crate::port_pool::{
    ListedPorts, PoolRanges, PortGrant, PortRequest, PortState, Side, Stranger, Want, Why,
};
use crate::profile::Profile;
use crate::supervision::Final;
use crate::time::Monotonic;

use super::HostFacts;
use super::machine::{Config, Registry};
use super::records::{Phase, Resting};
use super::truth::{NumberKey, ReplicaKey};

/// The allocator, and when what it lets rest is over.
#[derive(Debug)]
pub(super) struct Pools {
    allocator: Allocator,
    config: Config,
    /// Replicas whose fixed numbers "any" leaves alone.
    waiting: BTreeMap<ReplicaId, PortRequest>,
    /// When the stored rest of a number is over.
    cooled: BTreeMap<NumberKey, Monotonic>,
    /// The same by time.
    cooled_by: BTreeSet<(Monotonic, NumberKey)>,
}

impl Pools {
    pub(super) fn new(config: &Config) -> Self {
        let allocator = Allocator::new(AllocatorConfig {
            cooling: config.cooling,
            foreign_rest: config.foreign_rest,
            ..AllocatorConfig::default()
        });
        Self {
            allocator,
            config: config.clone(),
            waiting: BTreeMap::new(),
            cooled: BTreeMap::new(),
            cooled_by: BTreeSet::new(),
        }
    }

    /// Adds a host or changes its ranges and strangers; who holds numbers there keeps them.
    pub(super) fn put_host(&mut self, host: HostId, facts: &HostFacts) {
        let spec = HostSpec {
            ranges: PoolRanges {
                dynamic: facts.dynamic.clone(),
                fixed: facts.fixed.clone(),
                reserved: facts.reserved.clone(),
            },
            ..HostSpec::new(facts.host.clone())
        };
        // Numbers are dense and each name keeps its own, so the only refusal is a cluster beyond the
        // allocator's limit: such a host stays unknown there, and is never a place.
        if self.allocator.put_host(host, spec).is_ok() {
            let known = self.allocator.set_foreign(host, &facts.foreign);
            debug_assert!(known.is_ok(), "the host was just put");
        }
    }

    /// Whether the host takes new grants, and why not.
    pub(super) fn set_state(&mut self, host: HostId, state: HostState) {
        // An unknown host is one beyond the limit, see `put_host`.
        let _ = self.allocator.set_host_state(host, state);
    }

    /// Forgets a host. One that an open batch still fills is kept, as unknown ones are.
    pub(super) fn forget_host(&mut self, host: HostId, removal: Removal) {
        let _ = self.allocator.remove_host(host, removal);
        self.cooled.retain(|number, _| number.host != host);
        self.cooled_by.retain(|(_, number)| number.host != host);
    }

    /// Reservations to look at what would be; undone when it is dropped.
    pub(super) fn trial(&self, now: Monotonic) -> Transaction<'_> {
        self.allocator.begin(now)
    }

    /// The hosts of `candidates` that take the request now.
    pub(super) fn feasible(
        &self,
        now: Monotonic,
        service: ServiceId,
        request: &PortRequest,
        candidates: &HostSet,
    ) -> HostSet {
        let need = Need::new(request, service);
        self.allocator.begin(now).feasible(&need, Some(candidates))
    }

    /// Reserves the request on a host that takes it; nothing if it does not after all.
    pub(super) fn place(
        &mut self,
        now: Monotonic,
        replica: ReplicaId,
        request: &PortRequest,
        former: Option<&(HostId, PortGrant)>,
        host: HostId,
    ) -> Option<PortGrant> {
        let mut transaction = self.allocator.begin(now);
        let numbers = former.filter(|(at, _)| *at == host).map(|(_, grant)| grant);
        let grant = transaction.reserve(host, replica, request, numbers).ok()?;
        transaction.commit();
        self.waiting.remove(&replica);
        Some(grant)
    }

    /// Why the host does not take the request; empty if it does.
    pub(super) fn explain(
        &mut self,
        now: Monotonic,
        host: HostId,
        request: &PortRequest,
        service: ServiceId,
    ) -> Vec<Why> {
        let need = Need::new(request, service);
        self.allocator.begin(now).explain(host, &need)
    }

    /// The first cause of each of `hosts`, summed.
    pub(super) fn explain_all(
        &mut self,
        now: Monotonic,
        hosts: &HostSet,
        request: &PortRequest,
        service: ServiceId,
    ) -> Summary {
        let need = Need::new(request, service);
        self.allocator.begin(now).explain_all(&need, Some(hosts))
    }

    /// From now on exactly these wait; "any" leaves alone what they fix.
    pub(super) fn set_waiting(&mut self, waiting: BTreeMap<ReplicaId, PortRequest>) {
        for replica in self.waiting.keys() {
            if !waiting.contains_key(replica) {
                self.allocator.stop_waiting(*replica);
            }
        }
        for (replica, request) in &waiting {
            if self.waiting.get(replica) != Some(request) {
                self.allocator.wait(*replica, None, request);
            }
        }
        self.waiting = waiting;
    }

    /// The stop of a replica is ordered; its numbers stay its own. Ordered again, nothing changes.
    pub(super) fn begin_release(&mut self, replica: ReplicaId) {
        let _ = self.allocator.begin_release(replica);
    }

    /// A stranger has a number that was granted.
    pub(super) fn meet_stranger(&mut self, host: HostId, end: &Final, now: Monotonic) {
        if let Final::PortConflict {
            port,
            protocol,
            pid,
            comm,
        } = end
        {
            let stranger = Stranger {
                pid: *pid,
                comm: comm.as_deref().map(std::sync::Arc::from),
            };
            // An unknown host is one beyond the limit, see `put_host`.
            let _ = self
                .allocator
                .report_conflict(host, *port, *protocol, &stranger, now);
        }
    }

    /// Holds what somebody says is held, whatever else has it; what contradicts that.
    pub(super) fn restore(
        &mut self,
        grants: impl IntoIterator<Item = GrantRecord>,
    ) -> Vec<Conflict> {
        self.allocator.restore(grants)
    }

    /// What is held in this name is not any more; nothing of it is on disk.
    pub(super) fn release(&mut self, replica: ReplicaId, now: Monotonic, after: AfterRelease) {
        // Refused where nothing is held, which is as well.
        let _ = self.allocator.confirm_release(replica, now, after);
    }

    /// What is stored of the number's rest is over then.
    fn rest(&mut self, number: NumberKey, over: Monotonic) {
        if let Some(before) = self.cooled.insert(number, over) {
            self.cooled_by.remove(&(before, number));
        }
        self.cooled_by.insert((over, number));
    }

    pub(super) fn state(&self, host: HostId, side: Side, port: Port) -> PortState {
        self.allocator.port_state(host, side, port)
    }

    pub(super) fn listed(&self, host: HostId) -> Vec<ListedPorts> {
        self.allocator.ports(host)
    }

    pub(super) fn counts(&self, host: HostId) -> PoolCounts {
        self.allocator.counts(host)
    }

    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        let cooled = self.cooled_by.first().map(|(over, _)| *over);
        match (self.allocator.next_deadline(), cooled) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// What of a resting block reaches beyond `numbers`, which begin with the same one, and under which number.
fn beyond(
    numbers: PortRange,
    of: NumberKey,
    resting: Resting,
    over: Monotonic,
) -> Option<(NumberKey, Resting, Monotonic)> {
    let first = numbers.last().number().checked_add(1)?;
    let port = Port::new(first)?;
    let numbers = PortRange::new(port, resting.numbers.last())?;
    let resting = Resting { numbers, ..resting };
    Some((NumberKey { port, ..of }, resting, over))
}

fn names_numbers(profile: &Profile) -> bool {
    let fixes = |want: Want| matches!(want, Want::Fixed(_));
    profile.ports.iter().any(|port| fixes(port.want))
}

impl Registry {
    /// The last process of the replica is gone: its numbers rest, and rest on disk too. `how` it ended is what is told
    /// of them later.
    pub(super) fn free_ports(&mut self, key: ReplicaKey, how: &str) {
        if let Some(id) = self.allocated(key) {
            self.free_grant(id, how);
        }
    }

    /// The same by the name under which it holds them.
    pub(super) fn free_grant(&mut self, id: ReplicaId, how: &str) {
        let now = self.now.mono;
        let grant = self.pools.allocator.grant(id);
        let released = self
            .pools
            .allocator
            .confirm_release(id, now, AfterRelease::Cool);
        self.end_conflicts_of(id);
        self.waits.wake();
        // Only a replica that holds nothing is refused, and that has nothing to rest.
        let (Ok(_), Some((host, grant))) = (released, grant) else {
            return;
        };
        self.history_close(host, id, how);
        if self.config.cooling.is_zero() {
            return;
        }
        for port in grant.ports {
            let number = NumberKey {
                host,
                protocol: port.protocol,
                port: port.numbers.first(),
            };
            let resting = Resting {
                service: id.service,
                numbers: port.numbers,
            };
            self.rest_on_disk(number, resting, now + self.pools.config.cooling);
        }
    }

    /// Has numbers rest on disk, also where a longer or a shorter block rests that begins with the same one: whichever
    /// rests longer has that record, and what reaches beyond it has one of its own.
    fn rest_on_disk(&mut self, number: NumberKey, resting: Resting, over: Monotonic) {
        let mut left = Some((number, resting, over));
        while let Some((number, resting, over)) = left.take() {
            let before = self.pools.cooled.get(&number).copied();
            let before = before.zip(self.truth.resting.find(&number).cloned());
            let short = match before {
                Some((longer, before)) if longer > over => {
                    left = beyond(before.numbers, number, resting, over);
                    continue;
                }
                before => before,
            };
            if let Some((over, before)) = short {
                left = beyond(resting.numbers, number, before, over);
            }
            self.truth.resting.insert(number, resting);
            self.pools.rest(number, over);
        }
    }

    /// It holds nothing any more: who shared a number with it has that alone.
    pub(super) fn end_conflicts_of(&mut self, id: ReplicaId) {
        self.conflicts.retain(|conflict| match conflict {
            Conflict::Shared { first, second, .. } => *first != id && *second != id,
            Conflict::TwoHosts { replica, .. } => *replica != id,
            Conflict::BeingPlaced { .. } | Conflict::UnknownHost { .. } => true,
        });
    }

    /// Ends rests that are over, in the pools and on disk.
    pub(super) fn end_cooling(&mut self, now: Monotonic) {
        let freed = self.pools.allocator.on_deadline(now);
        if !freed.is_empty() {
            self.waits.wake();
            self.shown.hosts_news.extend(freed.iter());
        }
        while let Some((over, number)) = self.pools.cooled_by.first().copied()
            && over <= now
        {
            self.pools.cooled_by.pop_first();
            self.pools.cooled.remove(&number);
            self.truth.resting.note_gone(&number);
        }
    }

    /// The name under which the replica's present incarnation holds ports.
    pub(super) fn allocated(&self, key: ReplicaKey) -> Option<ReplicaId> {
        let replica = self.truth.replicas.find(&key)?;
        Some(ReplicaId {
            service: key.0,
            index: key.1,
            incarnation: replica.incarnation,
        })
    }

    /// Makes known what fixed numbers waiting replicas name.
    pub(super) fn tell_awaited(&mut self, waiting: &[ReplicaKey]) {
        let mut awaited = BTreeMap::new();
        for key in waiting {
            let found = self.profile_of(*key).zip(self.allocated(*key));
            if let Some((profile, id)) = found
                && names_numbers(profile)
            {
                awaited.insert(id, profile.request());
            }
        }
        self.pools.set_waiting(awaited);
    }

    /// Whether numbers are left to the replica while it waits.
    pub(super) fn awaits_numbers(&self, key: ReplicaKey) -> bool {
        self.profile_of(key).is_some_and(names_numbers)
    }

    fn profile_of(&self, key: ReplicaKey) -> Option<&Profile> {
        let service = self.truth.services.find(&key.0)?;
        let replica = self.truth.replicas.find(&key)?;
        Some(service.profile_of(replica.generation))
    }

    /// Builds the pools anew from the records. Rests begin in full again.
    pub(super) fn fill_pools(&mut self) {
        let mut pools = Pools::new(&self.config);
        for (id, host) in self.truth.known_hosts() {
            pools.put_host(*id, &host.facts);
            pools.set_state(*id, self.pool_state(*id));
        }
        let grants = self.truth.replicas.iter().filter_map(|(key, replica)| {
            let Phase::Placed(placement) = &replica.phase else {
                return None;
            };
            Some(GrantRecord {
                host: placement.host,
                replica: ReplicaId {
                    service: key.0,
                    index: key.1,
                    incarnation: replica.incarnation,
                },
                grant: placement.grant.clone(),
                releasing: placement.stop.is_some(),
            })
        });
        let stranded = self.truth.stranded.iter().map(|(at, it)| GrantRecord {
            host: at.host,
            replica: at.replica,
            grant: it.grant.clone(),
            releasing: false,
        });
        let unknown = self.held_by_unknown();
        let all = grants.chain(stranded).chain(unknown);
        self.conflicts = pools.allocator.restore(all);
        let now = self.now.mono;
        let mut cooling = Vec::new();
        for (number, resting) in self.truth.resting.iter() {
            // A number that was given from its rest is held, and rests no more; on its other side it does.
            for side in Side::of(number.protocol) {
                let is_held = |port: &Port| {
                    let state = pools.state(number.host, side, *port);
                    matches!(state, PortState::Held { .. } | PortState::Releasing { .. })
                };
                for port in resting.numbers.iter().filter(|port| !is_held(port)) {
                    cooling.push(CoolingRecord {
                        host: number.host,
                        protocol: side.protocol(),
                        numbers: PortRange::single(port),
                        service: resting.service,
                        left: self.config.cooling,
                    });
                }
            }
        }
        let over = now + self.config.cooling;
        for (number, _) in self.truth.resting.iter() {
            pools.rest(*number, over);
        }
        // A host that is not known any more has nothing that could rest.
        drop(pools.allocator.restore_cooling(cooling, now));
        self.pools = pools;
    }
}
