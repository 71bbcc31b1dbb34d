//! Clusters of hosts: what is used where, and the product's allocator filled with it.

use std::ops::RangeInclusive;

use portreeve::allocator::{Allocator, AllocatorConfig, HostSpec, HostState};
use portreeve::identity::HostId;
use portreeve::port_pool::PortRequest;
use portreeve::time::Monotonic;

use crate::chance::Chance;
use crate::requests::{block, fixed_and_block, replica};

/// Numbers that "any" draws from: the product's default.
pub(crate) const DYNAMIC: RangeInclusive<u16> = 20_000..=32_767;

/// The size of the blocks that fill a host.
const BLOCK: u16 = 256;

/// Fixed numbers, and how many of a thousand hosts use each.
const USED: [(u16, u32); 5] = [
    (8080, 300),
    (8081, 10),
    (8082, 990),
    (9090, 100),
    (5432, 50),
];

/// What is used on each host.
pub(crate) struct Plan(Vec<HostPlan>);

/// What is used on one host.
pub(crate) struct HostPlan {
    /// Fixed numbers, and some of the dynamic range in scattered groups of four.
    pub(crate) numbers: Vec<u16>,
    /// How many more of the dynamic range are used in one run.
    pub(crate) run: u32,
}

impl Plan {
    /// Hosts without anything.
    pub(crate) fn empty(hosts: u32) -> Self {
        let host = |_| HostPlan {
            numbers: Vec::new(),
            run: 0,
        };
        Self((0..hosts).map(host).collect())
    }

    /// A cluster at work: fixed numbers as above, 0 to 80 dynamic ones, and 2 % of the hosts
    /// nearly full, with 0 to 8 free.
    pub(crate) fn cluster(hosts: u32) -> Self {
        let mut chance = Chance::new(u64::from(hosts));
        let host = |_| {
            let used = USED.iter().filter(|(_, of)| chance.below(1_000) < *of);
            let mut numbers: Vec<u16> = used.map(|(number, _)| *number).collect();
            if chance.below(1_000) < 20 {
                let run = DYNAMIC.len() as u32 - chance.below(9);
                return HostPlan { numbers, run };
            }
            // One group of four at most in each of so many parts of the range.
            let groups = chance.below(21);
            for group in 0..groups {
                let part = DYNAMIC.len() as u32 / 20;
                let first = u32::from(*DYNAMIC.start()) + group * part + chance.below(part - 4);
                numbers.extend((first..first + 4).map(|number| number as u16));
            }
            HostPlan { numbers, run: 0 }
        };
        Self((0..hosts).map(host).collect())
    }

    /// Host by host.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostPlan> {
        self.0.iter()
    }
}

/// The product's allocator with these hosts, each in service and used as planned.
pub(crate) fn allocator(plan: &Plan) -> Allocator {
    let allocator = Allocator::new(AllocatorConfig::default());
    let ids = || (0u32..).map(HostId);
    let specs = ids().zip(plan.hosts()).map(|(id, _)| {
        let name = name(id.0).parse().expect("n0, n1.. are host names");
        (id, HostSpec::new(name))
    });
    allocator
        .put_hosts(specs.collect())
        .expect("the hosts are new");
    let mut next = 0;
    let full = block(BLOCK);
    for (id, host) in ids().zip(plan.hosts()) {
        allocator
            .set_host_state(id, HostState::Up)
            .expect("the host is known");
        let mut open = allocator.begin(Monotonic::from_millis(0));
        let mut hold = |request: &PortRequest| {
            open.reserve(id, replica(1, next), request, None)
                .expect("the plan fits");
            next += 1;
        };
        let rest = host.run % u32::from(BLOCK);
        if rest > 0 || !host.numbers.is_empty() {
            hold(&fixed_and_block(&host.numbers, rest as u16));
        }
        (0..host.run / u32::from(BLOCK)).for_each(|_| hold(&full));
        open.commit();
    }
    allocator
}

/// The name of a host.
pub(crate) fn name(host: u32) -> String {
    format!("n{host}")
}
