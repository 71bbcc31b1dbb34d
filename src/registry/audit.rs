//! What an auditor looks at: the pools as decisions see them, which may be ahead of the disk, and whose numbers are whose.
//!
//! Readers are served from elsewhere (`port_views`): what is told here may never become durable.

use crate::allocator::{Conflict, HostState, PoolCounts};
use crate::identity::{HostId, HostName, ReplicaId};
use crate::port::PortRanges;
use crate::port_pool::{Foreign, ListedPorts, PortGrant};
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
    /// What the host said that strangers listen on.
    pub foreign: Vec<Foreign>,
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
            foreign: facts.foreign.clone(),
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
        let replica = self.truth.replicas.find(&(by.service, by.index))?;
        let service = self.truth.services.find(&by.service)?;
        let is_here = matches!(&replica.phase, Phase::Placed(it) if it.host == host);
        (is_here && replica.incarnation == by.incarnation).then(|| ReplicaName {
            service: service.name.clone(),
            index: by.index,
            incarnation: by.incarnation,
        })
    }

    /// Whether a host runs this and nobody here knows it: it is left alone until somebody speaks of it.
    #[must_use]
    pub fn is_unknown(&self, host: &HostName, name: &ReplicaName) -> bool {
        let id = self.host_names.get(host);
        id.is_some_and(|id| self.unknown_on(*id).any(|(it, _)| it == name))
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

    /// Somebody who waits for a place although a host would take it now, and that host: nobody woke it. `None` also while
    /// a decision is due or with the store. Cost: a question to every host for each who waits.
    #[must_use]
    pub fn overlooked(&self) -> Option<(ReplicaName, HostName)> {
        let now = self.now.mono;
        let is_due = self.is_undecided() || self.waits.is_due();
        if is_due || self.outbox.is_busy() || self.outbox.is_resting(now) {
            return None;
        }
        let crowd = self.crowd();
        self.waiting().into_iter().find_map(|(key, claim)| {
            let replica = self.truth.replicas.find(&key)?;
            let service = self.truth.services.find(&key.0)?;
            let usages = self.usages_for([&claim]);
            if self.waits.rest_left(key, now).is_some() || usages.reached(&claim).is_some() {
                return None;
            }
            let profile = service.profile_of(replica.generation);
            // The order of choice may refuse what fits, and find it once another has taken a number. Nobody is woken by that.
            if !profile.request().is_exact() {
                return None;
            }
            let limited = usages.reached_on(&claim, |host| self.host_name(host));
            let candidates = self.candidates(key.0, profile, &crowd);
            let candidates = candidates.into_iter();
            let among = candidates.filter(|it| !limited.contains_key(it)).collect();
            let fits = (self.pools).feasible(now, key.0, &profile.request(), &among);
            let host = fits.iter().next()?;
            let name = ReplicaName {
                service: service.name.clone(),
                index: key.1,
                incarnation: replica.incarnation,
            };
            Some((name, self.host_name(host)))
        })
    }

    /// Grants that contradict each other; all of them are kept.
    #[must_use]
    pub fn contradictions(&self) -> &[Conflict] {
        &self.conflicts
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, facts, with_port};
    use super::super::{HostFacts, Input};
    use super::*;
    use crate::allocator::AfterRelease;

    /// A host with one number, which `first` holds and `second` waits for.
    fn two_for_one() -> Rig {
        let mut rig = Rig::new();
        let facts = HostFacts {
            dynamic: "20000".parse().unwrap(),
            ..facts("n1")
        };
        rig.tell(Input::HostReport(facts));
        rig.submit(&with_port("first", 1, "\"any\"")).unwrap();
        rig.submit(&with_port("second", 1, "\"any\"")).unwrap();
        rig
    }

    #[test]
    fn an_auditor_sees_holders_by_name_and_the_sums_of_the_pool() {
        let rig = two_for_one();
        let host = "n1".parse().unwrap();
        let pool = rig.registry.pool_audit(&host).unwrap();
        assert_eq!(pool.state, HostState::Up);
        assert_eq!((pool.counts.dynamic, pool.counts.free_tcp), (1, 0));
        let placed: Vec<_> = rig.registry.placed_audit(&host).collect();
        assert_eq!(placed.len(), 1);
        let name = rig.registry.holder_audit(pool.host, placed[0].id);
        assert_eq!(name.as_ref(), Some(&placed[0].name));
        assert!(rig.registry.contradictions().is_empty());
        assert!(rig.registry.pool_audit(&"n2".parse().unwrap()).is_none());
    }

    #[test]
    fn who_waits_for_what_is_there_was_overlooked() {
        let mut rig = two_for_one();
        assert_eq!(rig.registry.overlooked(), None);
        let host = "n1".parse().unwrap();
        let holder = rig.registry.placed_audit(&host).next().unwrap().id;
        // As if an end had woken nobody.
        let now = rig.now.mono;
        (rig.registry.pools).release(holder, now, AfterRelease::Free);
        let (name, at) = rig.registry.overlooked().unwrap();
        assert_eq!(
            (name.service, at),
            (super::super::rig::name("second"), host)
        );
    }
}
