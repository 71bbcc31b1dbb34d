//! The product's pool of one host as the rows drive it: choice, grant, its phase, release.

use portreeve::identity::ReplicaId;
use portreeve::port_pool::{
    Ask, Awaited, Causes, Choice, Draw, Phase, PoolRanges, PortPool, PortRequest, UndoLog,
};
use portreeve::time::Monotonic;

use crate::churn::{DYNAMIC, Ports};
use crate::requests::{any, fixed_and_any, replica};

/// What a caller of pools keeps and uses again.
#[derive(Default)]
pub(crate) struct Kept {
    choice: Choice,
    log: UndoLog,
    awaited: Awaited,
}

impl Kept {
    /// Takes what `request` asks for and holds it for `by`, if it is there.
    pub(crate) fn hold(
        &mut self,
        pool: &mut PortPool,
        by: ReplicaId,
        request: &PortRequest,
    ) -> bool {
        if !self.fits(pool, by, request) {
            return false;
        }
        pool.take(by, request, &self.choice, &mut self.log);
        pool.set_phase(by, Phase::Held);
        self.log.clear();
        true
    }

    /// Whether `by` could have what `request` asks for.
    fn fits(&mut self, pool: &PortPool, by: ReplicaId, request: &PortRequest) -> bool {
        let ask = Ask {
            service: by.service,
            request,
            former: None,
            awaited: [&self.awaited, &self.awaited],
            now: Monotonic::from_millis(0),
        };
        pool.choose(&ask, &mut self.choice, Causes::Untold)
    }
}

/// One pool, with the grants that it keeps by replica.
pub(crate) struct ProductPool<const K: usize> {
    pool: PortPool,
    request: PortRequest,
    kept: Kept,
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
            kept: Kept::default(),
            next: 0,
        }
    }

    /// Whether somebody new could have what `request` asks for. Takes nothing.
    pub(crate) fn fits(&mut self, request: &PortRequest) -> bool {
        self.kept.fits(&self.pool, replica(3, 0), request)
    }
}

impl<const K: usize> Ports<K> for ProductPool<K> {
    type Taken = ReplicaId;

    fn take(&mut self) -> Option<ReplicaId> {
        let by = replica(1, self.next);
        self.next += 1;
        let fits = self.kept.hold(&mut self.pool, by, &self.request);
        fits.then_some(by)
    }

    fn give_back(&mut self, taken: ReplicaId) {
        self.pool.release(taken, None);
    }

    fn occupy(&mut self, number: u16) {
        let by = replica(2, u32::from(number));
        let fits = self
            .kept
            .hold(&mut self.pool, by, &fixed_and_any(&[number], 0));
        assert!(fits, "the number is free");
    }

    fn tidy(&mut self) {
        self.pool.compact();
    }
}
