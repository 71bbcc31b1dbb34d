//! The product's pool of one host as the rows drive it: choice, grant, its phase, release.

use portreeve::identity::ReplicaId;
use portreeve::port_pool::{Ask, Awaited, Choice, Draw, Phase, PoolRanges, PortPool, PortRequest};
use portreeve::time::Monotonic;

use crate::churn::{DYNAMIC, Ports};
use crate::requests::{any, fixed_and_any, replica};

/// One pool, with the grants that it keeps by replica.
pub(crate) struct ProductPool<const K: usize> {
    pool: PortPool,
    request: PortRequest,
    choice: Choice,
    awaited: Awaited,
    next: u32,
}

impl<const K: usize> ProductPool<K> {
    /// A pool in which nothing is held.
    pub(crate) fn new() -> Self {
        let ranges = PoolRanges {
            dynamic: format!("{}-{}", DYNAMIC.start(), DYNAMIC.end())
                .parse()
                .expect("the range is one"),
            ..PoolRanges::default()
        };
        Self {
            pool: PortPool::new(ranges, Draw::default()),
            request: any(K),
            choice: Choice::default(),
            awaited: Awaited::default(),
            next: 0,
        }
    }

    fn hold(&mut self, request: &PortRequest) -> Option<ReplicaId> {
        let by = replica(1, self.next);
        let ask = Ask {
            service: by.service,
            request,
            former: None,
            awaited: [&self.awaited, &self.awaited],
            now: Monotonic::from_millis(0),
        };
        if !self.pool.choose(&ask, &mut self.choice, None) {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        self.pool.take(by, request, &self.choice);
        self.pool.set_phase(by, Phase::Held);
        Some(by)
    }
}

impl<const K: usize> Ports<K> for ProductPool<K> {
    type Taken = ReplicaId;

    fn take(&mut self) -> Option<ReplicaId> {
        let request = self.request.clone();
        self.hold(&request)
    }

    fn give_back(&mut self, taken: ReplicaId) {
        self.pool.release(taken, None);
    }

    fn occupy(&mut self, number: u16) {
        self.hold(&fixed_and_any(&[number], 0))
            .expect("the number is free");
    }
}
