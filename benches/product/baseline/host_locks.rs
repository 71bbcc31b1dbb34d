//! A lock per host and nothing over them: each replica of a gang is placed for itself.

use std::collections::HashMap;

use parking_lot::Mutex;
use portreeve::identity::ReplicaId;
use portreeve::port_pool::{Draw, PoolRanges, PortGrant, PortPool, PortRequest};

use crate::product_pool::Kept;

/// Where replicas hold ports, in so many parts, each with a lock.
const SHARDS: u64 = 64;

/// The hosts of a cluster, each with the product's own pool.
pub(crate) struct HostLocks {
    hosts: Vec<Mutex<PortPool>>,
    placed: Vec<Mutex<HashMap<ReplicaId, u32, foldhash::fast::RandomState>>>,
}

impl HostLocks {
    /// Hosts on which nothing is held.
    pub(crate) fn new(hosts: u32) -> Self {
        let pool = |_| Mutex::new(PortPool::new(PoolRanges::default(), Draw::default()));
        Self {
            hosts: (0..hosts).map(pool).collect(),
            placed: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Takes what `request` asks for, if it is there, and tells it as a grant.
    pub(crate) fn hold(
        &self,
        host: u32,
        by: ReplicaId,
        request: &PortRequest,
        kept: &mut Kept,
    ) -> Option<PortGrant> {
        if self.shard(by).lock().insert(by, host).is_some() {
            return None;
        }
        let mut pool = self.hosts[host as usize].lock();
        if kept.hold(&mut pool, by, request) {
            return pool.grant(by);
        }
        drop(pool);
        self.shard(by).lock().remove(&by);
        None
    }

    /// Gives everything back that a replica holds; whether it held something.
    pub(crate) fn release(&self, by: ReplicaId) -> bool {
        let Some(host) = self.shard(by).lock().remove(&by) else {
            return false;
        };
        let mut pool = self.hosts[host as usize].lock();
        pool.release(by, None).is_some()
    }

    fn shard(&self, by: ReplicaId) -> &Mutex<HashMap<ReplicaId, u32, foldhash::fast::RandomState>> {
        let at = (by.service.0.wrapping_mul(31) + u64::from(by.index)) % SHARDS;
        &self.placed[at as usize]
    }
}
