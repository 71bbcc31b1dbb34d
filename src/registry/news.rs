//! What hosts tell of their replicas. News: never refused, shown at once, decided upon later.

use std::collections::BTreeSet;

use crate::allocator::AfterRelease;
use crate::identity::HostId;
use crate::residency::ReplicaName;
use crate::supervision::Status;
use crate::time::WallClock;

use super::ReplicaReport;
use super::events::told_by;
use super::hosts::Leftover;
use super::machine::Registry;
use super::orders::leftover;
use super::records::{Phase, Replica, Service};
use super::truth::ReplicaKey;

impl Registry {
    /// Takes in a replica's newest status from its worker.
    pub(super) fn status(&mut self, report: ReplicaReport) {
        if let Some(host) = self.host_names.get(&report.host) {
            self.status_on(*host, report);
        }
    }

    /// Takes in what `host` tells of a replica that lives there.
    pub(super) fn status_on(&mut self, host: HostId, report: ReplicaReport) {
        let key = self
            .names
            .get(&report.service)
            .map(|id| (*id, report.index));
        let replica = key.and_then(|key| Some((key, self.truth.replicas.find(&key)?)));
        match replica {
            Some((key, replica)) if is_at(replica, host, &report) => {
                // One that was adopted is known now.
                self.forget_unknown(host, &report.name(), AfterRelease::Free);
                self.newest_status(key, report.status);
            }
            _ => {
                if let Some(key) = key {
                    self.newest_of_given_up(key, host, &report);
                }
                self.strange_replica(host, report);
            }
        }
    }

    /// Keeps the status if it is newer, and tells what it changed.
    pub(super) fn newest_status(&mut self, key: ReplicaKey, mut status: Status) {
        let Some(replica) = self.truth.replicas.find(&key) else {
            return;
        };
        let old = replica.status.as_ref();
        // Of an attached replica whose job was killed, only its host tells the end, and does not know the newest number.
        let stays = |old: &Status| !status.outdates(old) || is_attached(replica) && old.has_ended();
        // A worker that has said nothing is no news of a replica that is known to be placed there.
        if old.is_some_and(stays) || old.is_none() && status.is_silent() {
            return;
        }
        if let Some(old) = old.filter(|old| status.number() < old.number()) {
            // What was told before it stays older.
            (status.run, status.seq) = old.number();
        }
        let incarnation = replica.incarnation;
        let told = told_by(old, &status);
        let now = self.now.wall;
        let is_final = status.has_ended();
        self.truth.replicas.note(&key, |replica| {
            if replica.incarnation == incarnation {
                replica.hear(&status, now);
            }
        });
        for event in told {
            self.relay(key, incarnation, event);
        }
        self.shown.news.insert_replica(key);
        let rolls = |service: &Service| service.roll.is_some() || service.moving.is_some();
        if is_final || self.truth.services.find(&key.0).is_some_and(rolls) {
            self.attention.insert(key.0);
        }
    }

    /// What is stored of replicas on this host that its first full report since our start leaves out: they do not run
    /// there any more, as after a restore, and begin anew with the first run and number. So nothing of what was told
    /// before counts, or they would be listed, and what they tell from now on be taken for old.
    ///
    /// Only the first one: until then the host began nothing by our word, so none can have crossed it.
    pub(super) fn forget_what_is_gone(&mut self, host: HostId, told: &BTreeSet<ReplicaName>) {
        let here: Vec<ReplicaKey> = self.residents.on(host).collect();
        for key in here {
            let service = self.truth.services.find(&key.0);
            let Some((service, replica)) = service.zip(self.truth.replicas.find(&key)) else {
                continue;
            };
            let incarnation = replica.incarnation;
            let name = ReplicaName {
                service: service.name.clone(),
                index: key.1,
                incarnation,
            };
            let runs_by_us = matches!(
                &replica.phase,
                Phase::Placed(it) if it.host == host && it.attached.is_none() && it.stop.is_none()
            );
            let was_ready = replica.status.as_ref().is_some_and(|status| status.ready);
            let status = replica.status.as_ref();
            if !runs_by_us || told.contains(&name) || status.is_none_or(Status::has_ended) {
                continue;
            }
            let now = self.now;
            self.truth.replicas.note(&key, |replica| {
                if replica.incarnation == incarnation {
                    replica.forget_status(now);
                }
            });
            if was_ready {
                let text = "its host does not run it any more; it begins there anew".to_owned();
                self.relay(key, incarnation, ("not-ready", text));
            }
            self.shown.news.insert_replica(key);
        }
    }

    /// A replica that is about to be given up with its host is listed until the store has that; what is told of it
    /// meanwhile is shown at once, like all news.
    fn newest_of_given_up(&mut self, key: ReplicaKey, host: HostId, report: &ReplicaReport) {
        let shown = self.truth.replicas.durable(&key);
        let Some(shown) = shown.filter(|replica| is_at(replica, host, report)) else {
            return;
        };
        let status = &report.status;
        let old = shown.status.as_ref();
        if old.is_none_or(|old| !status.outdates(old)) {
            return;
        }
        let told = told_by(old, status);
        let now = self.now.wall;
        self.truth.replicas.note(&key, |replica| {
            // What was decided of it since is not what the host speaks of.
            if is_at(replica, host, report) {
                replica.hear(status, now);
            }
        });
        for event in told {
            self.relay(key, report.incarnation, event);
        }
        self.shown.news.insert_replica(key);
    }

    /// Something lives on the host that is not placed there: ended and to be forgotten, replaced and to be
    /// stopped, or unknown and left alone.
    fn strange_replica(&mut self, host: HostId, report: ReplicaReport) {
        let number = report.status.number();
        let ended = report.status.has_ended().then_some(number);
        let key = report.name();
        let service = self
            .names
            .get(&key.service)
            .and_then(|id| self.truth.services.find(id))
            .filter(|service| self.was_replaced(service, &key));
        let mut desired = service.map(|service| leftover(service, &key));
        let stranded = self.stranded_as(host, &key);
        if let Some(at) = stranded {
            if ended.is_some() {
                self.stranded_due.insert(host);
            }
            if let Some(life) = self.lives.get_mut(&host) {
                let seen = life.seen.get(&at);
                if ended.is_none() && seen.is_some_and(|it| number < it.number()) {
                    return;
                }
                life.seen.insert(at, report.status.clone());
            }
            if ended.is_none() && self.may_take_back(&at) {
                // Whether it is, is decided with the next flush; until then it is left alone.
                self.stranded_due.insert(host);
                return;
            }
            // By its name it is taken for one of the service that has the name now, of which its worker does not speak.
            desired = self.stranded_order(&at).or(desired);
        }
        let Some(life) = self.lives.get_mut(&host) else {
            return;
        };
        let at = self.now.mono;
        match (life.leftovers.get_mut(&key), desired) {
            // It was on its way for longer than the end.
            (Some(leftover), _) if ended.is_none() && leftover.ended >= Some(number) => {}
            (Some(leftover), _) => {
                leftover.at = at;
                let had_ended = std::mem::replace(&mut leftover.ended, ended).is_some();
                if had_ended != ended.is_some() {
                    self.shown.orders.insert(host);
                }
                if ended.is_some() {
                    self.forget_unknown(host, &key, AfterRelease::Cool);
                } else if !had_ended && stranded.is_none() {
                    self.note_unknown(host, report);
                }
            }
            (None, Some(desired)) => {
                let found = Leftover { ended, at, desired };
                life.leftovers.insert(key, found);
                self.shown.orders.insert(host);
                if ended.is_none() && stranded.is_none() {
                    // Its numbers were freed by the word of an operator, who erred: held again until its end.
                    self.note_unknown(host, report);
                }
            }
            (None, None) if ended.is_some() => self.unknown_ended(host, &report),
            (None, None) => self.note_unknown(host, report),
        }
    }

    /// Whether this incarnation was ours and something newer, or nothing, took its place.
    fn was_replaced(&self, service: &Service, key: &ReplicaName) -> bool {
        if service.is_skipped(key.incarnation) {
            return false;
        }
        match self.truth.replicas.find(&(service.id, key.index)) {
            None => {
                key.incarnation.0 < service.incarnation_floor
                    && !service.is_skipped_anew(key.incarnation)
            }
            Some(replica) => match replica.phase {
                Phase::Ended(_) => key.incarnation <= replica.incarnation,
                // On another host than the one it is placed on it cannot be ours.
                Phase::Waiting(_) | Phase::Placed(_) => key.incarnation < replica.incarnation,
            },
        }
    }
}

impl Replica {
    fn hear(&mut self, status: &Status, now: WallClock) {
        let old = self.status.as_ref();
        if old.is_none_or(|old| (&old.state, old.ready) != (&status.state, status.ready)) {
            self.since = now;
        }
        if !status.ready {
            self.ready_since = None;
        } else if old.is_none_or(|old| !old.ready) {
            self.ready_since = Some(now);
        }
        self.status = Some(status.clone());
    }
}

fn is_attached(replica: &Replica) -> bool {
    matches!(&replica.phase, Phase::Placed(placement) if placement.attached.is_some())
}

fn is_at(replica: &Replica, host: HostId, report: &ReplicaReport) -> bool {
    replica.incarnation == report.incarnation
        && matches!(&replica.phase, Phase::Placed(placement) if placement.host == host)
}
