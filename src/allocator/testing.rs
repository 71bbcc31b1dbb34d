//! What the tests of the allocator share: requests from text, and the whole state to compare.

use std::num::NonZeroU16;

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::port::Port;
use crate::port_pool::{GrantedPort, PoolRanges, PortGrant, PortRequest, Want, WantedPort};
use crate::time::Monotonic;

use super::host::Host;
use super::release::Released;
use super::waiting::Waiting;
use super::{Allocator, AllocatorConfig, HostSet, HostSpec, HostState};

/// The ports of `a=any b=9100 c=any:4 d=53/tcp+udp e=any@20000-20999`.
pub(super) fn ask(text: &str) -> PortRequest {
    let port = |text: &str| {
        let (name, want) = text.split_once('=').unwrap();
        let (want, within) = want.split_once('@').map_or((want, None), |(want, within)| {
            (want, Some(within.parse().unwrap()))
        });
        let (want, protocol) = want.split_once('/').unwrap_or((want, "tcp"));
        let (want, count) = want.split_once(':').unwrap_or((want, "1"));
        let want = match want {
            "any" => Want::Any {
                count: NonZeroU16::new(count.parse().unwrap()).unwrap(),
            },
            number => Want::Fixed(number.parse().unwrap()),
        };
        WantedPort {
            name: name.parse().unwrap(),
            protocol: protocol.parse().unwrap(),
            want,
            within,
        }
    };
    PortRequest::new(text.split_whitespace().map(port).collect()).unwrap()
}

/// The grant of `a=9100 b=53/tcp+udp c=20000-20003`.
pub(super) fn granted(text: &str) -> PortGrant {
    let port = |text: &str| {
        let (name, numbers) = text.split_once('=').unwrap();
        let (numbers, protocol) = numbers.split_once('/').unwrap_or((numbers, "tcp"));
        let ranges: crate::port::PortRanges = numbers.parse().unwrap();
        GrantedPort {
            name: name.parse().unwrap(),
            protocol: protocol.parse().unwrap(),
            numbers: ranges.as_slice()[0],
        }
    };
    PortGrant {
        ports: text.split_whitespace().map(port).collect(),
    }
}

/// The numbers of a grant as text, in the order of the request: `20000 20001-20004`.
pub(super) fn numbers(grant: &PortGrant) -> String {
    let texts: Vec<String> = grant
        .ports
        .iter()
        .map(|port| port.numbers.to_string())
        .collect();
    texts.join(" ")
}

pub(super) fn replica(service: u64, index: u32, incarnation: u32) -> ReplicaId {
    ReplicaId {
        service: ServiceId(service),
        index,
        incarnation: Incarnation(incarnation),
    }
}

pub(super) fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

pub(super) fn seconds(s: u64) -> Monotonic {
    Monotonic::from_millis(s * 1000)
}

pub(super) fn ranges(dynamic: &str, fixed: &str, reserved: &str) -> PoolRanges {
    PoolRanges {
        dynamic: dynamic.parse().unwrap(),
        fixed: fixed.parse().unwrap(),
        reserved: reserved.to_owned().try_into().unwrap(),
    }
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
