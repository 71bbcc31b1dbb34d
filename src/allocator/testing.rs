//! What the tests of the allocator share: hosts to begin with, and the whole state to compare.

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::port::Protocol;
use crate::port_pool::{Awaited, Foreign, PortPool};
use crate::time::Monotonic;

use super::census::Entry;
use super::placements::Owner;
use super::waiting::Wait;
pub(super) use crate::port_pool::testing::{ask, granted, numbers, port, ranges};

use super::{Allocator, AllocatorConfig, HostSet, HostSpec, HostState};

pub(super) fn replica(service: u64, index: u32, incarnation: u32) -> ReplicaId {
    ReplicaId {
        service: ServiceId(service),
        index,
        incarnation: Incarnation(incarnation),
    }
}

pub(super) fn seconds(s: u64) -> Monotonic {
    Monotonic::from_millis(s * 1000)
}

/// Hosts `n0`, `n1`, … that are up and offer `dynamic` to "any" and 1024-65535 to fixed requests.
pub(super) fn hosts(count: u32, dynamic: &str) -> Allocator {
    hosts_by(AllocatorConfig::default(), count, dynamic)
}

/// The same with other settings.
pub(super) fn hosts_by(config: AllocatorConfig, count: u32, dynamic: &str) -> Allocator {
    let allocator = Allocator::new(config);
    for id in 0..count {
        let mut spec = HostSpec::new(format!("n{id}").parse().unwrap());
        spec.ranges = ranges(dynamic, "1024-65535", "");
        allocator.put_host(HostId(id), spec).unwrap();
        allocator.set_host_state(HostId(id), HostState::Up).unwrap();
    }
    allocator.take_freed();
    allocator
}

pub(super) fn nginx_on(number: u16, protocol: Protocol) -> Foreign {
    Foreign {
        port: port(number),
        protocol,
        pid: Some(811),
        comm: Some("nginx".to_owned()),
    }
}

/// Reserves and commits; the grant's numbers as text, or every cause joined.
pub(super) fn grant(
    allocator: &Allocator,
    host: u32,
    who: ReplicaId,
    request: &str,
) -> Result<String, String> {
    let mut transaction = allocator.begin(Monotonic::default());
    let grant = transaction
        .reserve(HostId(host), who, &ask(request), None)
        .map_err(|refused| refused.to_string())?;
    transaction.commit();
    Ok(numbers(&grant))
}

/// Everything an allocator decides by, to the byte of its free sets.
#[derive(Debug, PartialEq)]
pub(super) struct Whole {
    now: Monotonic,
    hosts: Vec<Option<WholeHost>>,
    names: Vec<(String, HostId)>,
    placed: Vec<(ReplicaId, HostId, Owner)>,
    released: Vec<(ReplicaId, Monotonic)>,
    waiting: Vec<(ReplicaId, Wait)>,
    freed: HostSet,
}

#[derive(Debug, PartialEq)]
struct WholeHost {
    name: String,
    state: HostState,
    pool: PortPool,
    free: Vec<u8>,
    awaited: Awaited,
    counted: Entry,
}

pub(super) fn whole(allocator: &Allocator) -> Whole {
    let now = allocator.now();
    let host = |id| {
        allocator.hosts.with(id, |host| WholeHost {
            name: host.name.to_string(),
            state: host.state,
            pool: host.pool.clone(),
            free: host.pool.free_bytes(),
            awaited: host.awaited.clone(),
            counted: host.counted,
        })
    };
    let names = allocator.names.lock();
    Whole {
        now,
        hosts: allocator.hosts.ids().map(host).collect(),
        names: names
            .iter()
            .map(|(name, id)| (name.to_string(), *id))
            .collect(),
        placed: allocator.placements.all(),
        released: allocator.placements.remembered(now),
        waiting: allocator.waiting.requests().all(),
        freed: allocator.census.freed.all(),
    }
}
