//! The numbers of incarnations that were given up with their host: held until it is known that nothing of them runs.
//!
//! That is known once the host, back again, told everything and does not name the incarnation or tells its end; once
//! it is in another boot; or by the word of an operator (`host down --fenced`). What still runs there when the host is
//! back is stopped, and its numbers are freed with its end; only what was not replaced yet is taken back.
//!
//! Every decision is made from the records and from what the host told since it is back, so that one which could not
//! be stored is made again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::identity::{HostId, Incarnation, ReplicaId};
use crate::port_pool::PortGrant;
use crate::residency::{ReplicaName, Want};
use crate::supervision::{State, Status};

use super::hosts::Leftover;
use super::machine::Registry;
use super::records::{EndKind, Orphan, Phase, Placement, Replica, Stranded, WaitCause, Wish};
use super::truth::{ReplicaKey, TenureKey};
use super::{Desired, ReplicaReport};

impl Registry {
    /// Leaves the numbers of a placed replica held on its host, which is lost.
    pub(super) fn strand(&mut self, key: ReplicaKey, placement: &Placement) {
        let service = self.truth.services.find(&key.0);
        let Some((service, replica)) = service.zip(self.truth.replicas.find(&key)) else {
            return;
        };
        let lost = self.lost(placement.host);
        let at = TenureKey {
            host: placement.host,
            replica: ReplicaId {
                service: key.0,
                index: key.1,
                incarnation: replica.incarnation,
            },
        };
        let stranded = Stranded {
            name: service.name.clone(),
            grant: placement.grant.clone(),
            boot_id: placement.boot_id.clone(),
            generation: replica.generation,
            restarts: replica.status.as_ref().map_or(0, |it| it.restarts),
            since: self.now.wall,
            why: lost.map_or_else(|| "host lost".to_owned(), super::records::Lost::reason),
            attached: placement.attached.clone(),
            orphan: None,
        };
        self.truth.stranded.insert(at, stranded);
        self.stranded_due.insert(placement.host);
    }

    /// What is stranded on the host.
    pub(super) fn stranded_on(
        &self,
        host: HostId,
    ) -> impl Iterator<Item = (&TenureKey, &Stranded)> {
        self.truth.stranded.range(TenureKey::all_of(host))
    }

    /// What is placed on the host. Cost: a look at every replica.
    pub(super) fn placed_on(&self, host: HostId) -> impl Iterator<Item = (&ReplicaKey, &Replica)> {
        let all = self.truth.replicas.iter();
        all.filter(move |(_, it)| matches!(&it.phase, Phase::Placed(at) if at.host == host))
    }

    /// What readers are shown of the host although a decision that the disk does not have yet moved it away. Cost: a look
    /// at every such decision.
    pub(super) fn still_shown_on(
        &self,
        is_meant: impl Fn(HostId) -> bool,
    ) -> impl Iterator<Item = &ReplicaKey> {
        let changed = self.truth.replicas.undurable();
        changed.filter_map(move |(key, before, _)| match &before?.phase {
            Phase::Placed(at) if is_meant(at.host) => Some(key),
            _ => None,
        })
    }

    /// Something was told that may end what is stranded on the host.
    pub(super) fn look_at_stranded_of(&mut self, host: HostId) {
        if self.stranded_on(host).next().is_some() {
            self.stranded_due.insert(host);
        }
    }

    /// The same of every host: at a start, and after a batch that never became durable.
    pub(super) fn look_at_all_stranded(&mut self) {
        let all = self.truth.stranded.iter();
        self.stranded_due = all.map(|(key, _)| key.host).collect();
    }

    /// What hosts told of incarnations that were about to be given up, and after a refused batch are not: news of
    /// placed replicas like any other.
    pub(super) fn tell_what_was_seen(&mut self) {
        let mut told = Vec::new();
        for (host, life) in &mut self.lives {
            let replicas = &self.truth.replicas;
            let is_placed = |at: &TenureKey| {
                let replica = replicas.find(&(at.replica.service, at.replica.index));
                replica.is_some_and(|it| {
                    it.incarnation == at.replica.incarnation
                        && matches!(&it.phase, Phase::Placed(there) if there.host == *host)
                })
            };
            told.extend(life.seen.extract_if(.., |at, _| is_placed(at)));
        }
        for (at, status) in told {
            let service = self.truth.services.find(&at.replica.service);
            let name = service.map(|service| ReplicaName {
                service: service.name.clone(),
                index: at.replica.index,
                incarnation: at.replica.incarnation,
            });
            if let Some((name, life)) = name.zip(self.lives.get_mut(&at.host)) {
                life.leftovers.remove(&name);
            }
            self.newest_status((at.replica.service, at.replica.index), status);
        }
    }

    /// Frees the numbers of what is known to be gone, and takes back what was not replaced.
    pub(super) fn settle_stranded(&mut self) {
        for host in std::mem::take(&mut self.stranded_due) {
            let there = self.truth.stranded.range(TenureKey::all_of(host));
            let there: Vec<TenureKey> = there.map(|(key, _)| *key).collect();
            for at in there {
                if let Some(why) = self.is_gone(&at) {
                    self.free_stranded(&at, &why);
                } else if let Some(status) = self.seen_alive(&at) {
                    if !self.may_take_back(&at) {
                        self.fence_stranded(&at);
                    } else if !is_between_runs(&status.state) {
                        self.take_back(&at, status);
                    }
                }
            }
        }
    }

    /// How it is known that nothing of it runs any more, in words; `None`: it is not.
    fn is_gone(&self, at: &TenureKey) -> Option<String> {
        let stranded = self.truth.stranded.find(at)?;
        let host = self.truth.hosts.find(&at.host)?;
        if host.facts.boot_id != stranded.boot_id {
            return Some("the host was booted".to_owned());
        }
        if let Some(lost) = &host.lost {
            let by = lost.by.as_deref().unwrap_or("portreeve");
            return lost
                .fenced
                .then(|| format!("{by} declared the host fenced"));
        }
        let life = self.lives.get(&at.host).filter(|life| life.reported)?;
        match life.seen.get(at) {
            None => Some("the host is back and does not run it".to_owned()),
            Some(status) => match &status.state {
                State::Final(end) => Some(format!("it ended there: {end}")),
                _ => None,
            },
        }
    }

    /// What the host told of it since it is back, if that is alive.
    fn seen_alive(&self, at: &TenureKey) -> Option<Status> {
        let life = self.lives.get(&at.host).filter(|life| life.reported)?;
        let status = life.seen.get(at)?;
        let is_alive = !matches!(status.state, State::Final(_));
        (is_alive && self.lost(at.host).is_none()).then(|| status.clone())
    }

    fn free_stranded(&mut self, at: &TenureKey, why: &str) {
        let Some(stranded) = self.truth.stranded.find(at).cloned() else {
            return;
        };
        self.truth.stranded.remove(at);
        self.free_grant(at.replica, &format!("{}; {why}", stranded.why));
        self.shown.hosts_truth.insert(at.host);
        let ports = spelled(&stranded.grant);
        if !ports.is_empty() && self.truth.services.find(&at.replica.service).is_some() {
            let host = self.host_name(at.host);
            let text = format!("{ports} of host {host} freed: {why}");
            self.tell_incarnation(at, "released", text);
        }
    }

    /// Whether the replica still waits for another place than this one, so that it can have this one again. The
    /// incarnation it waits as was never told to any host: it had no place.
    ///
    /// Never once it is to stop, though what forbade it, such as a restart under way, is over since: a stop is not
    /// taken back by its host, so that it would end there for good.
    pub(super) fn may_take_back(&self, at: &TenureKey) -> bool {
        if self.is_to_stop(at) {
            return false;
        }
        let key = (at.replica.service, at.replica.index);
        let found = self.truth.stranded.find(at).zip(
            self.truth
                .services
                .find(&key.0)
                .zip(self.truth.replicas.find(&key)),
        );
        let Some((stranded, (service, replica))) = found else {
            return false;
        };
        // Of several that are stranded there, only the newest was not replaced.
        let newer = TenureKey {
            host: at.host,
            replica: ReplicaId {
                incarnation: next(at.replica.incarnation),
                ..at.replica
            },
        };
        let last = TenureKey {
            replica: ReplicaId {
                incarnation: Incarnation(u32::MAX),
                ..at.replica
            },
            ..newer
        };
        let is_newest = self.truth.stranded.range(newer..=last).next().is_none();
        let is_wanted = is_newest && service.wish == Wish::Running && service.roll.is_none();
        match &replica.phase {
            Phase::Waiting(waiting) => {
                is_wanted
                    && matches!(waiting.cause, WaitCause::HostLost(_))
                    && stranded.generation == service.generation
                    && replica.generation == stranded.generation
                    && replica.incarnation > at.replica.incarnation
                    && replica.former.as_ref().is_some_and(|former| {
                        (former.host, &former.grant) == (at.host, &stranded.grant)
                    })
            }
            // Its job goes on, and nobody else has the index: only the other scheduler ends it.
            Phase::Ended(ended) => {
                is_wanted
                    && ended.how == EndKind::HostLost
                    && stranded.attached.is_some()
                    && service.profiles.contains_key(&stranded.generation)
                    && replica.incarnation == at.replica.incarnation
            }
            Phase::Placed(_) => false,
        }
    }

    /// Whether its host is told to stop it.
    fn is_to_stop(&self, at: &TenureKey) -> bool {
        let life = self.lives.get(&at.host).zip(self.stranded_name(at));
        life.is_some_and(|(life, name)| life.leftovers.contains_key(&name))
    }

    /// The replica was not replaced while its host was lost: it goes on where it is.
    fn take_back(&mut self, at: &TenureKey, status: Status) {
        let key = (at.replica.service, at.replica.index);
        let Some(stranded) = self.truth.stranded.find(at).cloned() else {
            return;
        };
        let host = self.host_name(at.host);
        let now = self.now.wall;
        let waited_as = self.truth.replicas.find(&key).map(|it| it.incarnation);
        if let Some(service) = self.truth.services.change(&key.0)
            && let Some(waited_as) = waited_as.filter(|it| *it > at.replica.incarnation)
        {
            // People were told of the incarnation that it waited as: it never names another placement.
            let floor = next(waited_as).0;
            service.incarnation_floor = service.incarnation_floor.max(floor);
        }
        let Some(replica) = self.truth.replicas.change(&key) else {
            return;
        };
        replica.incarnation = at.replica.incarnation;
        replica.generation = stranded.generation;
        replica.restarts_earlier = replica.restarts_earlier.saturating_sub(stranded.restarts);
        replica.restart_no = status.restart_no;
        replica.ready_since = status.ready.then_some(now);
        replica.since = now;
        replica.status = Some(status).filter(|status| !status.is_silent());
        replica.phase = Phase::Placed(Placement {
            host: at.host,
            boot_id: stranded.boot_id,
            grant: stranded.grant,
            placed_at: now,
            stop: None,
            attached: stranded.attached,
        });
        self.truth.stranded.remove(at);
        self.waits.forget(key);
        let text = format!(
            "host {host} is back and still runs it: it was not replaced, so it goes on there"
        );
        self.tell_replica(key, "taken-back", text);
        self.count_attached(key.0);
        self.outbox.order(at.host);
        self.shown.hosts_truth.insert(at.host);
        self.shown.truth.insert(key.0);
        self.attention.insert(key.0);
    }

    /// What a host told in full of incarnations that are about to be taken back there: refused, they are stranded again,
    /// and seen alive.
    pub(super) fn seen_of_taken_back(
        &self,
        host: HostId,
        told: &[ReplicaReport],
    ) -> BTreeMap<TenureKey, Status> {
        let undurable = self.truth.stranded.undurable();
        let taken_back = undurable.filter(|(at, _, now)| at.host == host && now.is_none());
        let seen = taken_back.filter_map(|(at, stranded, _)| {
            let name = ReplicaName {
                service: stranded?.name.clone(),
                index: at.replica.index,
                incarnation: at.replica.incarnation,
            };
            let report = told.iter().find(|it| it.name() == name)?;
            Some((*at, report.status.clone()))
        });
        seen.collect()
    }

    /// What was replaced is stopped where it still runs; its numbers follow with its end.
    fn fence_stranded(&mut self, at: &TenureKey) {
        let host = at.host;
        let Some(name) = self.stranded_name(at) else {
            return;
        };
        let Some(desired) = self.stranded_order(at) else {
            return;
        };
        let now = self.now.mono;
        let Some(life) = self.lives.get_mut(&at.host) else {
            return;
        };
        if let Entry::Vacant(place) = life.leftovers.entry(name) {
            let ended = None;
            let at = now;
            place.insert(Leftover { ended, at, desired });
            self.shown.orders.insert(host);
        }
    }

    fn stranded_name(&self, at: &TenureKey) -> Option<ReplicaName> {
        let stranded = self.truth.stranded.find(at)?;
        Some(ReplicaName {
            service: stranded.name.clone(),
            index: at.replica.index,
            incarnation: at.replica.incarnation,
        })
    }

    /// Which stranded incarnation a host means by a name. Cost: a look-up, but for names of deleted services.
    pub(super) fn stranded_as(&self, host: HostId, name: &ReplicaName) -> Option<TenureKey> {
        let is_it = |at: &TenureKey| {
            let found = self.truth.stranded.find(at);
            found.is_some_and(|it| it.name == name.service)
        };
        if let Some(service) = self.names.get(&name.service) {
            let at = TenureKey {
                host,
                replica: ReplicaId {
                    service: *service,
                    index: name.index,
                    incarnation: name.incarnation,
                },
            };
            if is_it(&at) {
                return Some(at);
            }
        }
        let mut orphans = self.truth.stranded.range(TenureKey::all_of(host));
        let of = |at: &TenureKey| (at.replica.index, at.replica.incarnation);
        let orphan = orphans.find(|(at, it)| {
            it.orphan.is_some()
                && it.name == name.service
                && of(at) == (name.index, name.incarnation)
        });
        orphan.map(|(at, _)| *at)
    }

    /// The order to stop a stranded incarnation.
    pub(super) fn stranded_order(&self, at: &TenureKey) -> Option<Desired> {
        let stranded = self.truth.stranded.find(at)?;
        let (user, uid, profile) = match &stranded.orphan {
            Some(orphan) => (orphan.user.clone(), orphan.uid, &orphan.profile),
            None => {
                let service = self.truth.services.find(&at.replica.service)?;
                let profile = service.profile_of(stranded.generation);
                (service.owner.user.clone(), service.uid, profile)
            }
        };
        Some(Desired {
            service: stranded.name.clone(),
            service_id: at.replica.service,
            index: at.replica.index,
            incarnation: at.replica.incarnation,
            want: Want::Stop,
            restart_no: 0,
            grant: stranded.grant.clone(),
            addresses: BTreeMap::new(),
            profile: Arc::clone(profile),
            user,
            uid,
            last_status: None,
            attached: stranded.attached.is_some(),
        })
    }

    /// The service is about to be deleted: what is stranded of it keeps what its host is to be told.
    pub(super) fn orphan_stranded(&mut self, service: crate::identity::ServiceId) {
        let Some(of) = self.truth.services.find(&service) else {
            return;
        };
        let orphan = Orphan {
            user: of.owner.user.clone(),
            uid: of.uid,
            profile: Arc::clone(of.profile()),
        };
        let all = self.truth.stranded.iter();
        let its = all.filter(|(at, _)| at.replica.service == service);
        let its: Vec<TenureKey> = its.map(|(at, _)| *at).collect();
        for at in its {
            if let Some(stranded) = self.truth.stranded.change(&at) {
                stranded.orphan = Some(orphan.clone());
            }
        }
    }
}

/// Whether the next word tells if it goes on, after a restart, or ends, by an order of an earlier controller.
const fn is_between_runs(state: &State) -> bool {
    matches!(state, State::Stopping | State::Reaping)
}

const fn next(of: Incarnation) -> Incarnation {
    Incarnation(of.0.saturating_add(1))
}

/// `http 20001, rpc 20004-20007`; empty without ports.
pub(super) fn spelled(grant: &PortGrant) -> String {
    let ports = grant.ports.iter();
    let ports: Vec<String> = ports
        .map(|port| format!("{} {}", port.name, port.numbers))
        .collect();
    ports.join(", ")
}
