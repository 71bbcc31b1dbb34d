//! What each host is wanted to run, stop or forget: derived from durable truth, never from a queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::identity::{HostId, HostName};
use crate::port_pool::PortGrant;
use crate::residency::ReplicaName;

use super::machine::Registry;
use super::records::{Phase, Placement, Replica, Service};
use super::truth::ReplicaKey;
use super::{Desired, Effect, Want};

impl Registry {
    /// The wanted set of a host: its number, whether the host must tell everything first, and what is wanted, by
    /// service and index. `None`: the host never reported.
    ///
    /// Cost: linear in what is placed there.
    #[must_use]
    pub fn desired(&self, host: &HostName) -> Option<(u64, bool, Vec<Desired>)> {
        let id = *self.host_names.get(host)?;
        let life = self.lives.get(&id)?;
        let placed = self.residents.on(id).filter_map(|key| {
            let replica = self.truth.replicas.durable(&key)?;
            self.wanted(id, key, replica)
        });
        let mut wanted: Vec<Desired> = placed.collect();
        #[cfg(test)]
        self.assert_all_are_found(id, &wanted);
        let placed: BTreeSet<ReplicaName> = wanted.iter().map(Desired::name).collect();
        for (key, leftover) in &life.leftovers {
            // Until its end is durable it is still wanted as placed.
            if !placed.contains(key) {
                let mut desired = leftover.desired.clone();
                desired.want = if leftover.ended.is_some() {
                    Want::Forget
                } else {
                    Want::Stop
                };
                wanted.push(desired);
            }
        }
        for fenced in self.fenced_orders(id) {
            let name = fenced.name();
            if !placed.contains(&name) && !life.leftovers.contains_key(&name) {
                wanted.push(fenced);
            }
        }
        wanted.sort_by_cached_key(Desired::name);
        let tells_first = !life.reported || self.gives_up_on().any(|it| it == id);
        Some((life.orders, tells_first, wanted))
    }

    /// Hosts of which something is about to be given up. One that is back meanwhile begins nothing before that is
    /// durable: it would begin what is not wanted any more, behind the back of what it told.
    pub(super) fn gives_up_on(&self) -> impl Iterator<Item = HostId> {
        let undurable = self.truth.stranded.undurable();
        undurable
            .filter(|(_, before, now)| before.is_none() && now.is_some())
            .map(|(at, ..)| at.host)
    }

    /// By a look at every replica.
    #[cfg(test)]
    fn assert_all_are_found(&self, host: HostId, wanted: &[Desired]) {
        let all = self.truth.replicas.durable_range(..).into_iter();
        let all = all.filter_map(|(key, replica)| self.wanted(host, *key, replica));
        assert_eq!(wanted, all.collect::<Vec<_>>());
    }

    fn wanted(&self, host: HostId, key: ReplicaKey, replica: &Replica) -> Option<Desired> {
        let Phase::Placed(placement) = &replica.phase else {
            return None;
        };
        let service = self.truth.services.durable(&key.0)?;
        // What was placed in an earlier boot must not begin in this one: its ports are about to be freed.
        (placement.host == host && !self.was_rebooted(placement))
            .then(|| self.placed(service, key.1, replica, placement))
    }

    /// The order for a replica where it is placed.
    pub(super) fn placed(
        &self,
        service: &Service,
        index: u32,
        replica: &Replica,
        placement: &Placement,
    ) -> Desired {
        let profile = service.profile_of(replica.generation);
        Desired {
            service: service.name.clone(),
            service_id: service.id,
            index,
            incarnation: replica.incarnation,
            want: if placement.stop.is_some() {
                Want::Stop
            } else {
                Want::Run
            },
            restart_no: replica.restart_no,
            grant: placement.grant.clone(),
            addresses: self.own_addresses(placement.host, profile),
            profile: Arc::clone(profile),
            user: service.owner.user.clone(),
            uid: service.uid,
            last_status: replica.status.clone(),
            attached: placement.attached.is_some(),
        }
    }

    /// Numbers the wanted sets of these hosts anew and wakes their agents.
    pub(super) fn send_orders(&mut self, hosts: BTreeSet<HostId>, out: &mut Vec<Effect>) {
        for id in hosts {
            let host = self.host_name(id);
            if let Some(life) = self.lives.get_mut(&id) {
                self.shown.last_order += 1;
                life.orders = self.shown.last_order;
                out.push(Effect::Order { host });
            }
        }
    }
}

/// The order for an earlier incarnation of which only the name is known.
pub(super) fn leftover(service: &Service, key: &ReplicaName) -> Desired {
    Desired {
        service: service.name.clone(),
        service_id: service.id,
        index: key.index,
        incarnation: key.incarnation,
        want: Want::Stop,
        restart_no: 0,
        grant: PortGrant::default(),
        addresses: std::collections::BTreeMap::new(),
        profile: Arc::clone(service.profile()),
        user: service.owner.user.clone(),
        uid: service.uid,
        last_status: None,
        attached: service.attached,
    }
}
