//! A set of one host with grants by replica beside it, as the product keeps them.

use std::collections::HashMap;

use portreeve::identity::ReplicaId;

use crate::churn::Ports;
use crate::requests::replica;

/// Ports that a replica gives back by its name.
pub(crate) struct WithGrants<P: Ports<K>, const K: usize> {
    ports: P,
    grants: HashMap<ReplicaId, P::Taken, foldhash::fast::RandomState>,
    next: u32,
}

impl<P: Ports<K>, const K: usize> WithGrants<P, K> {
    /// Nobody holds anything.
    pub(crate) fn new(ports: P) -> Self {
        Self {
            ports,
            grants: HashMap::default(),
            next: 0,
        }
    }
}

impl<P: Ports<K>, const K: usize> Ports<K> for WithGrants<P, K> {
    type Taken = ReplicaId;

    fn take(&mut self) -> Option<ReplicaId> {
        let by = replica(1, self.next);
        self.next += 1;
        let taken = self.ports.take()?;
        self.grants.insert(by, taken);
        Some(by)
    }

    fn give_back(&mut self, by: ReplicaId) {
        if let Some(taken) = self.grants.remove(&by) {
            self.ports.give_back(taken);
        }
    }

    fn occupy(&mut self, number: u16) {
        self.ports.occupy(number);
    }

    fn tidy(&mut self) {
        self.ports.tidy();
    }
}
