//! What happened to a service, for people: bounded, in words.

use crate::identity::{Incarnation, ReplicaId, ServiceId};
use crate::supervision::{State, Status};

use super::EventView;
use super::machine::Registry;
use super::truth::ReplicaKey;

/// How many events of one service are kept; the oldest go first.
pub const EVENTS_KEPT: u64 = 1000;

impl Registry {
    /// Notes a decision about a service; it is shown when the decision is durable.
    pub(super) fn tell_service(&mut self, service: ServiceId, kind: &str, text: String) {
        let event = self.event(None, kind, text);
        let key = self.next_event(service);
        self.truth.events.insert(key, event);
        self.shown.truth.insert(service);
    }

    /// Notes a decision about a replica; it is shown when the decision is durable.
    pub(super) fn tell_replica(&mut self, key: ReplicaKey, kind: &str, text: String) {
        let incarnation = self.truth.replicas.find(&key).map(|it| it.incarnation);
        let event = self.event(incarnation.map(|it| (key.1, it)), kind, text);
        let key = self.next_event(key.0);
        self.truth.events.insert(key, event);
        self.shown.truth.insert(key.0);
    }

    /// Notes a decision about an incarnation that may not be the present one.
    pub(super) fn tell_incarnation(&mut self, of: ReplicaId, kind: &str, text: String) {
        let event = self.event(Some((of.index, of.incarnation)), kind, text);
        let key = self.next_event(of.service);
        self.truth.events.insert(key, event);
        self.shown.truth.insert(of.service);
    }

    /// Notes what a host told of a replica; it is shown at once.
    pub(super) fn relay(
        &mut self,
        key: ReplicaKey,
        incarnation: Incarnation,
        (kind, text): (&str, String),
    ) {
        let event = self.event(Some((key.1, incarnation)), kind, text);
        let number = self.next_event(key.0);
        self.truth.events.note_whole(number, event);
        self.shown.news.insert_replica(key);
    }

    fn event(&self, of: Option<(u32, Incarnation)>, kind: &str, text: String) -> EventView {
        EventView {
            at: self.now.wall,
            replica: of.map(|(index, _)| index),
            incarnation: of.map(|(_, incarnation)| incarnation),
            kind: kind.to_owned(),
            text,
        }
    }

    /// A number that no other event of the service has or had, also if this one is undone.
    fn next_event(&mut self, service: ServiceId) -> (ServiceId, u64) {
        let next = self.event_numbers.entry(service).or_default();
        let number = *next;
        *next += 1;
        let all = (service, 0)..=(service, u64::MAX);
        let oldest = self.truth.events.range(all).next().map(|(key, _)| *key);
        if let Some(oldest) = oldest.filter(|oldest| oldest.1 + EVENTS_KEPT <= number) {
            self.truth.events.note_gone(&oldest);
        }
        (service, number)
    }
}

/// What a newer status tells beside the older one. Ends are not among it: they are decisions.
pub(super) fn told_by(old: Option<&Status>, new: &Status) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    let was_ready = old.is_some_and(|old| old.ready);
    let failure = |status: &Status| status.last_failure.as_ref().map(|it| it.reason.to_string());
    if was_ready && !new.ready && !matches!(new.state, State::Final(_)) {
        let why = new.not_ready_reason.clone().or_else(|| match new.state {
            State::Stopping => Some("stopping".to_owned()),
            _ => failure(new),
        });
        told.push(("not-ready", why.unwrap_or_else(|| "not ready".to_owned())));
    }
    if let Some(last) = &new.last_failure
        && old.and_then(|old| old.last_failure.as_ref()) != Some(last)
    {
        told.push(("failed", last.reason.to_string()));
    }
    let counted = old.map_or(0, |old| old.restarts);
    if new.restarts > counted {
        let why = failure(new).map_or(String::new(), |why| format!(" after {why}"));
        told.push(("restarted", format!("restart {}{why}", new.restarts)));
    }
    if matches!(new.state, State::Backoff | State::Final(_)) {
        // One report of a restart and of a failure, and it does not run: the failure is the restarted run's.
        told.sort_by_key(|(kind, _)| *kind == "failed");
    }
    if new.user_restarts > old.map_or(0, |old| old.user_restarts) {
        told.push(("restarted", "restarted as ordered".to_owned()));
    }
    if new.state == State::Stuck && old.is_none_or(|old| old.state != State::Stuck) {
        let text = "its processes cannot be removed; its ports stay held until they are gone";
        told.push(("stuck", text.to_owned()));
    }
    if !was_ready && new.ready {
        told.push(("ready", "ready".to_owned()));
    }
    told
}
