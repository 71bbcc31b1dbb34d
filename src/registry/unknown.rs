//! What hosts run that nobody here knows, such as after a restore: shown, left alone, and its numbers held.
//!
//! Kept in memory only: a host that is not known to have told everything takes no new grant, so what it tells of comes
//! before anything could be given twice. An incarnation that somebody unknown has is never given again.

use crate::allocator::{AfterRelease, GrantRecord};
use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId, ServiceName};
use crate::port_pool::PortGrant;
use crate::residency::ReplicaName;
use crate::supervision::Status;

use super::ReplicaReport;
use super::fencing::stop_of;
use super::hosts::Leftover;
use super::machine::Registry;
use super::records::{Host, Phase};

/// How many unknown replicas of one host are remembered, with their numbers.
pub(super) const UNKNOWN_KEPT: usize = 4096;

/// How many of them are named among the warnings of their host.
pub(super) const UNKNOWN_NAMED: usize = 20;

/// A replica that lives on a host and is not known here.
#[derive(Clone, Debug)]
pub(super) struct Unknown {
    /// By which its numbers are held: no service of the store has such a number.
    pub(super) id: ReplicaId,
    /// What it holds; `None`: its agent does not say.
    pub(super) grant: Option<PortGrant>,
    pub(super) status: Status,
}

impl Registry {
    /// Remembers it and holds its numbers.
    pub(super) fn note_unknown(&mut self, host: HostId, report: ReplicaReport) {
        let name = report.name();
        let Some(life) = self.lives.get_mut(&host) else {
            return;
        };
        if let Some(known) = life.unknown.get_mut(&name) {
            known.status = report.status;
            if known.grant.is_some() || report.grant.is_none() {
                return;
            }
            known.grant = report.grant;
        } else {
            if life.unknown.len() >= UNKNOWN_KEPT {
                // What it holds cannot be kept from others, so the host gives nothing until it has fewer.
                life.hides_unknown = true;
                self.pools.set_state(host, self.pool_state(host));
                return;
            }
            self.unknown_numbers += 1;
            let id = ReplicaId {
                service: ServiceId(u64::MAX - self.unknown_numbers),
                index: name.index,
                incarnation: name.incarnation,
            };
            let unknown = Unknown {
                id,
                grant: report.grant,
                status: report.status,
            };
            life.unknown.insert(name.clone(), unknown);
            self.with_unknown.insert(host);
        }
        let held = life.unknown.get(&name).and_then(|it| held(host, it));
        if let Some(record) = held {
            let conflicts = self.pools.restore([record]);
            self.conflicts.extend(conflicts);
        }
        self.shown.hosts_news.insert(host);
    }

    /// It ended: its numbers are free, and one that was fenced is forgotten where it ran.
    pub(super) fn unknown_ended(&mut self, host: HostId, report: &ReplicaReport) {
        let name = report.name();
        let is_fenced = |at: &Host| at.fences.contains(&name);
        if self.truth.hosts.find(&host).is_some_and(is_fenced)
            && let Some(life) = self.lives.get_mut(&host)
            && let Some(unknown) = life.unknown.get(&name)
        {
            let ended = Leftover {
                ended: Some(report.status.number()),
                at: self.now.mono,
                desired: stop_of(&name, unknown),
            };
            life.leftovers.insert(name.clone(), ended);
            self.shown.orders.insert(host);
        }
        self.forget_unknown(host, &name, AfterRelease::Cool);
        self.forget_fences(host, |fenced| *fenced != name);
    }

    /// Keeps the fences of the host that still mean something; as news, since the host tells it again.
    pub(super) fn forget_fences(&mut self, host: HostId, keeps: impl Fn(&ReplicaName) -> bool) {
        let all = self.truth.hosts.find(&host).map(|it| &it.fences);
        if all.is_some_and(|fences| !fences.iter().all(&keeps)) {
            self.truth
                .hosts
                .note(&host, |host| host.fences.retain(|name| keeps(name)));
        }
    }

    /// It is gone, or not unknown any more: nothing is held for it as such.
    pub(super) fn forget_unknown(&mut self, host: HostId, name: &ReplicaName, after: AfterRelease) {
        let Some(life) = self.lives.get_mut(&host) else {
            return;
        };
        if let Some(unknown) = life.unknown.remove(name) {
            if life.unknown.is_empty() {
                self.with_unknown.remove(&host);
            }
            let now = self.now.mono;
            self.pools.release(unknown.id, now, after);
            self.end_conflicts_of(unknown.id);
            self.waits.wake();
            self.shown.hosts_news.insert(host);
        }
    }

    /// Forgets those that a full report of the host leaves out.
    pub(super) fn keep_unknown(&mut self, host: HostId, is_told: impl Fn(&ReplicaName) -> bool) {
        let all = self.lives.get(&host).map(|life| life.unknown.keys());
        let gone: Vec<ReplicaName> = all
            .into_iter()
            .flatten()
            .filter(|name| !is_told(name))
            .cloned()
            .collect();
        for name in gone {
            self.forget_unknown(host, &name, AfterRelease::Cool);
        }
    }

    /// What the host runs and nobody here knows, by name. One that is told to stop is known.
    pub(super) fn unknown_on(
        &self,
        host: HostId,
    ) -> impl Iterator<Item = (&ReplicaName, &Unknown)> {
        let known = self.lives.get(&host).map(|life| &life.leftovers);
        self.unplaced_on(host)
            .filter(move |(name, _)| known.is_none_or(|known| !known.contains_key(*name)))
    }

    /// What lives on the host and has no place there: the unknown, and what is told to stop and has nothing but this by
    /// which its numbers are held. One that was adopted has a place.
    pub(super) fn unplaced_on(
        &self,
        host: HostId,
    ) -> impl Iterator<Item = (&ReplicaName, &Unknown)> {
        let all = self.lives.get(&host).map(|life| life.unknown.iter());
        let all = all.into_iter().flatten();
        all.filter(move |(name, _)| !self.is_placed_on(host, name))
    }

    fn is_placed_on(&self, host: HostId, name: &ReplicaName) -> bool {
        let service = self.names.get(&name.service);
        let replica = service.and_then(|id| self.truth.replicas.find(&(*id, name.index)));
        replica.is_some_and(|it| {
            it.incarnation == name.incarnation
                && matches!(&it.phase, Phase::Placed(placement) if placement.host == host)
        })
    }

    /// What is held for the unknown on all hosts.
    pub(super) fn held_by_unknown(&self) -> Vec<GrantRecord> {
        let hosts = self.lives.keys();
        let all = hosts.flat_map(|host| self.unplaced_on(*host).map(|(_, it)| (*host, it)));
        all.filter_map(|(host, it)| held(host, it)).collect()
    }

    /// The unknown replica by which numbers of the host are held.
    pub(super) fn unknown_by(
        &self,
        host: HostId,
        id: ReplicaId,
    ) -> Option<(&ReplicaName, &Unknown)> {
        self.lives
            .get(&host)?
            .unknown
            .iter()
            .find(|(_, it)| it.id == id)
    }

    /// The incarnation that follows `from`: above all that is remembered of its service, and all that hosts tell of.
    pub(super) fn next_incarnation(
        &self,
        service: ServiceId,
        index: u32,
        from: Incarnation,
    ) -> Incarnation {
        let found = self.truth.services.find(&service);
        let floor = found.map_or(0, |service| service.incarnation_floor);
        let unknown = found.map_or(0, |service| self.above_unknown(&service.name, Some(index)));
        Incarnation(from.0.saturating_add(1).max(floor).max(unknown))
    }

    /// Above every incarnation of this name that hosts tell of and nobody here knows. Cost: a look at each host that
    /// has such.
    pub(super) fn above_unknown(&self, service: &ServiceName, index: Option<u32>) -> u32 {
        let hosts = self.with_unknown.iter();
        let lives = hosts.filter_map(|host| self.lives.get(host));
        let all = lives.flat_map(|life| life.unknown.keys());
        let its = all.filter(|name| {
            name.service == *service && index.is_none_or(|index| name.index == index)
        });
        its.map(|name| name.incarnation.0.saturating_add(1))
            .max()
            .unwrap_or(0)
    }
}

fn held(host: HostId, unknown: &Unknown) -> Option<GrantRecord> {
    Some(GrantRecord {
        host,
        replica: unknown.id,
        grant: unknown.grant.clone()?,
        releasing: false,
    })
}
