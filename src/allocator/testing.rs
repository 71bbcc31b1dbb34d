//! What the tests of the allocator share: hosts to begin with, and the whole state to compare.

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::port::Protocol;
use crate::port_pool::Foreign;
use crate::time::Monotonic;

use super::host::Host;
use super::release::Released;
use super::waiting::Waiting;
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
    let mut allocator = Allocator::new(AllocatorConfig::default());
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
    allocator: &mut Allocator,
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
    hosts: Vec<Option<Host>>,
    free: Vec<Vec<u8>>,
    names: Vec<(String, HostId)>,
    placed: Vec<(ReplicaId, HostId)>,
    released: Released,
    waiting: Waiting,
    due: Vec<(Monotonic, HostId)>,
    freed: HostSet,
}

pub(super) fn whole(allocator: &Allocator) -> Whole {
    let pools = allocator.hosts.iter().flatten().map(|host| &host.pool);
    Whole {
        now: allocator.now,
        hosts: allocator.hosts.clone(),
        free: pools.map(|pool| pool.free_bytes()).collect(),
        names: allocator
            .names
            .iter()
            .map(|(name, id)| (name.to_string(), *id))
            .collect(),
        placed: allocator.placed.iter().copied().collect(),
        released: allocator.released.clone(),
        waiting: allocator.waiting.clone(),
        due: allocator.due.iter().copied().collect(),
        freed: allocator.freed.clone(),
    }
}
