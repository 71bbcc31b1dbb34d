//! What an auditor looks at: the pools as decisions see them, which may be ahead of the disk, and whose numbers are whose.
//!
//! Readers are served from elsewhere (`port_views`): what is told here may never become durable.

use crate::allocator::{Conflict, HostState, PoolCounts};
use crate::identity::{HostId, HostName, ReplicaId};
use crate::port::PortRanges;
use crate::port_pool::{ListedPorts, PortGrant};
use crate::residency::{ReplicaName, Want};

use super::machine::Registry;
use super::records::Phase;
use super::truth::TenureKey;

/// The pool of one host, from which the next grant would be taken.
#[derive(Clone, Debug)]
pub struct PoolAudit {
    /// By which number decisions know the host.
    pub host: HostId,
    /// Whether it takes new grants.
    pub state: HostState,
    /// The numbers that "any" draws from.
    pub dynamic: PortRanges,
    /// The numbers never given.
    pub reserved: PortRanges,
    /// Every number that is not free, ascending.
    pub ports: Vec<ListedPorts>,
    /// The pool's own sums.
    pub counts: PoolCounts,
}

/// One incarnation that the disk has on a host, with what the host is told of it.
#[derive(Clone, Debug)]
pub struct PlacedAudit<'a> {
    /// Which.
    pub name: ReplicaName,
    /// By which number decisions know it.
    pub id: ReplicaId,
    /// Its numbers.
    pub grant: &'a PortGrant,
    /// Whether it shall run.
    pub want: Want,
}

impl Registry {
    /// The pool of a host; `None`: an unknown host. Cost: linear in what is not free there.
    #[must_use]
    pub fn pool_audit(&self, host: &HostName) -> Option<PoolAudit> {
        let id = *self.host_names.get(host)?;
        let facts = &self.truth.hosts.find(&id)?.facts;
        Some(PoolAudit {
            host: id,
            state: self.pool_state(id),
            dynamic: facts.dynamic.clone(),
            reserved: facts.reserved.clone(),
            ports: self.pools.listed(id),
            counts: self.pools.counts(id),
        })
    }

    /// Who holds numbers of the host in this name; `None`: nobody that is known. Cost: a few look-ups, and for one that
    /// only its host knows one step for each of those.
    #[must_use]
    pub fn holder_audit(&self, host: HostId, by: ReplicaId) -> Option<ReplicaName> {
        let stranded = TenureKey { host, replica: by };
        if let Some(stranded) = self.truth.stranded.find(&stranded) {
            return Some(ReplicaName {
                service: stranded.name.clone(),
                index: by.index,
                incarnation: by.incarnation,
            });
        }
        if let Some((name, _)) = self.unknown_by(host, by) {
            return Some(name.clone());
        }
        let service = self.truth.services.find(&by.service)?;
        Some(ReplicaName {
            service: service.name.clone(),
            index: by.index,
            incarnation: by.incarnation,
        })
    }

    /// What the disk has on a host, by service and index. Cost: linear in that.
    pub fn placed_audit(&self, host: &HostName) -> impl Iterator<Item = PlacedAudit<'_>> {
        let id = self.host_names.get(host).copied();
        let keys = id.into_iter().flat_map(|id| self.residents.on(id));
        keys.filter_map(|key| {
            let replica = self.truth.replicas.durable(&key)?;
            let service = self.truth.services.durable(&key.0)?;
            let Phase::Placed(placement) = &replica.phase else {
                return None;
            };
            Some(PlacedAudit {
                name: ReplicaName {
                    service: service.name.clone(),
                    index: key.1,
                    incarnation: replica.incarnation,
                },
                id: ReplicaId {
                    service: key.0,
                    index: key.1,
                    incarnation: replica.incarnation,
                },
                grant: &placement.grant,
                want: if placement.stop.is_some() {
                    Want::Stop
                } else {
                    Want::Run
                },
            })
        })
    }

    /// Grants that contradict each other; all of them are kept.
    #[must_use]
    pub fn contradictions(&self) -> &[Conflict] {
        &self.conflicts
    }
}
