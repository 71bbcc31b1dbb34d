//! Where everything stands at the end of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use portreeve::identity::{HostName, Incarnation, ServiceName};
use portreeve::registry::{ReplicaView, ServiceView, View};
use portreeve::supervision::Report;
use portreeve::time::Monotonic;

use crate::timeline::{Entry, What};

/// Where one replica stands at the end, as its service's owner would be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whose replica.
    pub service: ServiceName,
    /// Its index.
    pub replica: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// Where it is placed.
    pub host: Option<HostName>,
    /// Its state: `ready`, `backoff`, `gave up`, …
    pub state: String,
    /// Why, in a sentence.
    pub reason: Option<String>,
    /// Whether clients are sent to it.
    pub ready: bool,
    /// How many starts there were in this placement.
    pub runs: u32,
    /// Automatic restarts, of all placements.
    pub restarts: u32,
    /// How long it was ready, all in all.
    pub ready_for: Duration,
}

/// Where one service stands at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceOutcome {
    /// Which.
    pub service: ServiceName,
    /// `running`, `stopped` or `ended`.
    pub state: String,
    /// How many replicas there shall be.
    pub desired: u32,
    /// How many are listed.
    pub listed: u32,
    /// How many were listed at the least, once all had been.
    pub fewest: Option<u32>,
    /// Placements, of all its replicas.
    pub placements: u32,
    /// Automatic restarts, of all its replicas.
    pub restarts: u32,
    /// Replicas that the restart rule ended.
    pub gave_up: u32,
    /// What its waiting replicas wait for, in a few words.
    pub waits_for: Option<String>,
}

/// Every replica that is known at the end, by service and index.
pub(crate) fn outcomes(view: Option<&View>, timeline: &[Entry], ended: Monotonic) -> Vec<Outcome> {
    let ready_for = ready_times(timeline, ended);
    let outcome = |service: &ServiceView, replica: &ReplicaView| Outcome {
        service: service.service.clone(),
        replica: replica.replica,
        incarnation: replica.incarnation,
        host: replica.host.clone(),
        state: replica.state.clone(),
        reason: replica.reason.clone(),
        ready: replica.ready,
        runs: replica.run.0,
        restarts: replica.restarts_total,
        ready_for: ready_for
            .get(&(&service.service, replica.replica))
            .copied()
            .unwrap_or_default(),
    };
    let services = view.into_iter().flat_map(|view| view.services.values());
    let all = services.flat_map(|service| {
        let replicas = service.replicas.iter();
        replicas.map(move |replica| outcome(service, replica))
    });
    all.collect()
}

/// How long each replica was ready, by what its newest placement told: what an older one says later is of a process that is
/// not wanted any more.
fn ready_times(timeline: &[Entry], ended: Monotonic) -> BTreeMap<(&ServiceName, u32), Duration> {
    let mut all = BTreeMap::<_, ReadyTime>::new();
    for entry in timeline {
        let (Some(service), Some(replica)) = (&entry.service, entry.replica) else {
            continue;
        };
        let is_ready = match entry.what {
            What::Report(Report::Ready) => true,
            What::Report(Report::NotReady(_)) | What::Place(_) => false,
            _ => continue,
        };
        let time = all.entry((service, replica)).or_default();
        if entry.incarnation < time.newest {
            continue;
        }
        time.newest = entry.incarnation;
        time.end(entry.at);
        time.since = is_ready.then_some(entry.at);
    }
    let ended = |(key, mut time): (_, ReadyTime)| {
        time.end(ended);
        (key, time.all)
    };
    all.into_iter().map(ended).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct ReadyTime {
    newest: Option<Incarnation>,
    since: Option<Monotonic>,
    all: Duration,
}

impl ReadyTime {
    fn end(&mut self, at: Monotonic) {
        let since = self.since.take();
        self.all += since.map_or(Duration::ZERO, |since| at.since(since));
    }
}

/// Every service that is known at the end, by name.
pub(crate) fn services(view: Option<&View>, timeline: &[Entry]) -> Vec<ServiceOutcome> {
    let mut seen = BTreeMap::<&ServiceName, Seen>::new();
    for entry in timeline {
        let Some(service) = &entry.service else {
            continue;
        };
        let seen = seen.entry(service).or_default();
        match &entry.what {
            What::Place(_) => seen.placements += 1,
            What::Listed {
                listed, desired, ..
            } => {
                seen.was_whole |= listed >= desired;
                if seen.was_whole {
                    seen.fewest = Some(seen.fewest.map_or(*listed, |fewest| fewest.min(*listed)));
                }
            }
            _ => {}
        }
    }
    let services = view.into_iter().flat_map(|view| view.services.values());
    let outcome = |service: &ServiceView| {
        let seen = seen.get(&service.service).copied().unwrap_or_default();
        let replicas = service.replicas.iter();
        ServiceOutcome {
            service: service.service.clone(),
            state: service.state.clone(),
            desired: service.desired,
            listed: service.ready,
            fewest: seen.fewest,
            placements: seen.placements,
            restarts: replicas.clone().map(|one| one.restarts_total).sum(),
            gave_up: u32::try_from(replicas.filter(|one| one.state == "gave up").count())
                .unwrap_or(u32::MAX),
            waits_for: service.waits_for.clone(),
        }
    };
    services.map(|service| outcome(service)).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    placements: u32,
    was_whole: bool,
    fewest: Option<u32>,
}
