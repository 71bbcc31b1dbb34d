//! What happened to a service or on a host, for people: bounded, in words.

use std::collections::BTreeSet;

use crate::identity::{HostId, HostName, Incarnation, ServiceId, ServiceName};
use crate::supervision::{State, Status};
use crate::time::WallClock;

use super::EventView;
use super::event_log::Standing;
use super::machine::Registry;
use super::records::Phase;
use super::truth::{ReplicaKey, TenureKey};

/// How long an event is kept, the newest failures of its log apart: 30 days.
pub(super) const EVENTS_KEPT_FOR: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);

/// Logs of which an open batch holds events.
pub(super) struct OpenLogs {
    services: BTreeSet<ServiceId>,
    hosts: BTreeSet<HostId>,
}

impl Registry {
    /// Notes a decision about a service; it is shown when the decision is durable.
    pub(super) fn tell_service(&mut self, service: ServiceId, kind: &str, text: String) {
        let event = self.event(kind, text);
        self.log(service, event, Standing::Truth);
        self.shown.truth.insert(service);
    }

    /// Notes a decision about a replica; it is shown when the decision is durable.
    pub(super) fn tell_replica(&mut self, key: ReplicaKey, kind: &str, text: String) {
        let incarnation = self.truth.replicas.find(&key).map(|it| it.incarnation);
        let event = EventView {
            replica: incarnation.map(|_| key.1),
            incarnation,
            host: self.place_of(key),
            ..self.event(kind, text)
        };
        self.log(key.0, event, Standing::Truth);
        self.shown.truth.insert(key.0);
    }

    /// Notes a decision about an incarnation that may not be the present one.
    pub(super) fn tell_incarnation(&mut self, of: &TenureKey, kind: &str, text: String) {
        let event = EventView {
            replica: Some(of.replica.index),
            incarnation: Some(of.replica.incarnation),
            host: Some(self.host_name(of.host)),
            ..self.event(kind, text)
        };
        self.log(of.replica.service, event, Standing::Truth);
        self.shown.truth.insert(of.replica.service);
    }

    /// Notes what a host told of a replica; it is shown at once.
    pub(super) fn relay(
        &mut self,
        key: ReplicaKey,
        incarnation: Incarnation,
        (kind, text): (&str, String),
    ) {
        let event = EventView {
            replica: Some(key.1),
            incarnation: Some(incarnation),
            host: self.place_of(key),
            ..self.event(kind, text)
        };
        self.log(key.0, event, Standing::News);
        self.shown.news.insert_replica(key);
    }

    /// Notes a decision about a host in its own log, which every user may read: it names no service.
    pub(super) fn tell_host(&mut self, host: HostId, kind: &str, text: String) {
        let event = self.event(kind, text);
        self.log_host(host, event, Standing::Truth);
    }

    /// Notes what a host told of itself, or its silence, in its own log, which every user may read: it names no
    /// service.
    pub(super) fn relay_host(&mut self, host: HostId, kind: &str, text: String) {
        let event = self.event(kind, text);
        self.log_host(host, event, Standing::News);
    }

    /// What happened to a service, oldest first; at most [`EVENTS_KEPT`](super::EVENTS_KEPT).
    #[must_use]
    pub fn events(&self, service: &ServiceName) -> Vec<EventView> {
        let Some(view) = self.shown.view.services.get(service) else {
            return Vec::new();
        };
        let all = (view.id, 0)..=(view.id, u64::MAX);
        let events = self.truth.events.durable_range(all);
        events.into_iter().map(|(_, event)| event.clone()).collect()
    }

    /// What happened to a host, oldest first; at most [`EVENTS_KEPT`](super::EVENTS_KEPT). `None`: an unknown host.
    #[must_use]
    pub fn host_events(&self, host: &HostName) -> Option<Vec<EventView>> {
        let id = *self.host_names.get(host)?;
        let all = (id, 0)..=(id, u64::MAX);
        let events = self.truth.host_events.durable_range(all);
        Some(events.into_iter().map(|(_, event)| event.clone()).collect())
    }

    /// The logs of which the open batch holds events, to be looked at again if it is undone.
    pub(super) fn open_logs(&self) -> OpenLogs {
        let services = self.truth.events.undurable();
        let hosts = self.truth.host_events.undurable();
        OpenLogs {
            services: services.map(|(key, ..)| key.0).collect(),
            hosts: hosts.map(|(key, ..)| key.0).collect(),
        }
    }

    /// Takes up logs as they are after events of theirs were undone.
    pub(super) fn reopen_logs(&mut self, open: OpenLogs) {
        for service in open.services {
            self.event_logs.index(&self.truth.events, service);
        }
        for host in open.hosts {
            self.host_logs.index(&self.truth.host_events, host);
        }
    }

    /// Forgets what is too old in every log.
    pub(super) fn expire_events(&mut self, now: WallClock) {
        let before = now.before(EVENTS_KEPT_FOR);
        self.event_logs.expire(&mut self.truth.events, before);
        self.host_logs.expire(&mut self.truth.host_events, before);
    }

    fn event(&self, kind: &str, text: String) -> EventView {
        EventView {
            at: self.now.wall,
            replica: None,
            incarnation: None,
            host: None,
            kind: kind.to_owned(),
            text,
            times: 1,
            first: None,
        }
    }

    /// Where the replica is, or was when it ended.
    fn place_of(&self, key: ReplicaKey) -> Option<HostName> {
        let host = match &self.truth.replicas.find(&key)?.phase {
            Phase::Placed(placement) => placement.host,
            Phase::Ended(ended) => ended.host?,
            Phase::Waiting(_) => return None,
        };
        self.truth.hosts.find(&host).map(|host| host.name().clone())
    }

    fn log(&mut self, service: ServiceId, event: EventView, standing: Standing) {
        let events = &mut self.truth.events;
        self.event_logs.append(events, service, event, standing);
    }

    fn log_host(&mut self, host: HostId, event: EventView, standing: Standing) {
        let events = &mut self.truth.host_events;
        self.host_logs.append(events, host, event, standing);
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
