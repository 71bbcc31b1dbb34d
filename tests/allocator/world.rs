//! What the tests of the core's promises share: hosts to begin with, requests, and dice that fall the same each time.

use std::num::NonZeroU16;

use portreeve::allocator::{Allocator, AllocatorConfig, HostSpec, HostState};
use portreeve::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use portreeve::port::{Port, PortRange, PortRanges, Protocol};
use portreeve::port_pool::{PoolRanges, PortRequest, Want, WantedPort};

pub(crate) fn replica(service: u64, index: u32, incarnation: u32) -> ReplicaId {
    ReplicaId {
        service: ServiceId(service),
        index,
        incarnation: Incarnation(incarnation),
    }
}

/// Hosts `n0`, `n1`, … that are up and offer `first` to `last` to "any" and 1024-65535 to fixed requests.
pub(crate) fn hosts(count: u32, first: u16, last: u16) -> Allocator {
    hosts_of(count, first, last, AllocatorConfig::default())
}

/// The same with spans and limits of its own.
pub(crate) fn hosts_of(count: u32, first: u16, last: u16, config: AllocatorConfig) -> Allocator {
    let allocator = Allocator::new(config);
    for id in (0..count).map(HostId) {
        let mut spec = HostSpec::new(format!("n{}", id.0).parse().unwrap());
        spec.ranges = PoolRanges {
            dynamic: range(first, last),
            ..PoolRanges::default()
        };
        allocator.put_host(id, spec).unwrap();
        allocator.set_host_state(id, HostState::Up).unwrap();
    }
    allocator
}

pub(crate) fn range(first: u16, last: u16) -> PortRanges {
    let port = |number| Port::new(number).unwrap();
    PortRanges::new([PortRange::new(port(first), port(last)).unwrap()])
}

/// So many ports, any number each.
pub(crate) fn any(count: usize) -> PortRequest {
    let want = Want::Any {
        count: NonZeroU16::MIN,
    };
    request((0..count).map(|_| want))
}

/// One port with this number.
pub(crate) fn fixed(number: u16) -> PortRequest {
    request([Want::Fixed(Port::new(number).unwrap())])
}

fn request(wants: impl IntoIterator<Item = Want>) -> PortRequest {
    let wanted = wants
        .into_iter()
        .enumerate()
        .map(|(place, want)| WantedPort {
            name: format!("p{place}").parse().unwrap(),
            protocol: Protocol::Tcp,
            want,
            within: None,
        });
    PortRequest::new(wanted.collect()).unwrap()
}

/// How many rounds: `usual`, or ten times as many where `PORTREEVE_LONG` is set.
#[expect(
    clippy::disallowed_methods,
    reason = "the test asks how long it may run; the core reads no environment"
)]
pub(crate) fn rounds(usual: u64) -> u64 {
    let long = std::env::var_os("PORTREEVE_LONG").is_some();
    if long { usual * 10 } else { usual }
}

/// Numbers that look random and are the same for the same seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`, which the wanted type must be able to hold.
    pub(crate) fn below<T>(&mut self, limit: u64) -> T
    where
        T: TryFrom<u64, Error: std::fmt::Debug>,
    {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        T::try_from((mixed ^ mixed >> 31) % limit).unwrap()
    }

    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below::<u64>(of) == 0
    }
}
