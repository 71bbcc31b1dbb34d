//! One lock around everything: hosts by name, and grants by replica in the same lock.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use portreeve::identity::ReplicaId;
use portreeve::port_pool::{Draw, PoolRanges, PortPool, PortRequest};

use crate::product_pool::Kept;

/// The hosts of a cluster, each with the product's own pool, so that only the way to it differs.
pub(crate) struct LockedMap(RwLock<Inside>);

struct Inside {
    hosts: HashMap<Arc<str>, PortPool>,
    placed: HashMap<ReplicaId, Arc<str>>,
    kept: Kept,
}

impl LockedMap {
    /// Hosts of these names, on which nothing is held.
    pub(crate) fn new(names: impl Iterator<Item = String>) -> Self {
        let pool = || PortPool::new(PoolRanges::default(), Draw::default());
        Self(RwLock::new(Inside {
            hosts: names.map(|name| (name.into(), pool())).collect(),
            placed: HashMap::new(),
            kept: Kept::default(),
        }))
    }

    /// Takes what `request` asks for, if it is there.
    pub(crate) fn hold(&self, host: &str, by: ReplicaId, request: &PortRequest) -> bool {
        let mut inside = self.0.write().expect("no writer panics");
        let Inside {
            hosts,
            placed,
            kept,
        } = &mut *inside;
        let Some((name, _)) = hosts.get_key_value(host) else {
            return false;
        };
        let name = Arc::clone(name);
        let Some(pool) = hosts.get_mut(host) else {
            return false;
        };
        if placed.contains_key(&by) || !kept.hold(pool, by, request) {
            return false;
        }
        placed.insert(by, name);
        true
    }

    /// Gives everything back that a replica holds; whether it held something.
    pub(crate) fn release(&self, by: ReplicaId) -> bool {
        let mut inside = self.0.write().expect("no writer panics");
        let Some(name) = inside.placed.remove(&by) else {
            return false;
        };
        let pool = inside.hosts.get_mut(&name);
        pool.is_some_and(|pool| pool.release(by, None).is_some())
    }
}
