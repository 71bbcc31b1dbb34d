//! How long a cluster may take, once nothing goes wrong any more, until it is as people asked: the bound of convergence, part by part.

use std::fmt;
use std::time::Duration;

use portreeve::profile::Replicas;
use portreeve::supervision::{ProbeTiming, Then};
use portreeve::time::Spelled;

use super::super::act::{Act, HostAct};
use super::super::spec::{ServiceSpec, Spec};
use crate::scenario::{Binds, RunScript};

/// The longest that settling may take, as a sum with reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settling {
    parts: Vec<(&'static str, Duration)>,
}

impl Settling {
    /// Of the clusters of this spec, from the moment at which everything is mended and nobody orders anything.
    ///
    /// What never comes to rest by its own script (a service that crashes for ever) is not waited for: of that only
    /// the reasons are looked at.
    pub(crate) fn of(spec: &Spec) -> Self {
        let config = &spec.config;
        let grace = config.silence.map_or(Duration::ZERO, |it| it.host_grace());
        let slowest = |span: fn(&ServiceSpec) -> Duration| {
            let all = spec.services.iter().map(span);
            all.max().unwrap_or_default()
        };
        let rolls = spec.services.iter().map(|it| roll(it, spec));
        let round_trip = spec.network.delay.end * 2;
        let parts = vec![
            ("a question in flight is given up", PATIENCE),
            (
                "a worker's or an agent's longest wait before it asks again",
                ASK_AGAIN * 2,
            ),
            // Whoever is heard of at all is heard of now; only who was removed or stays away is waited for.
            ("a silent host is given up", grace),
            (
                "hosts whose names or addresses were another's a moment ago",
                HELD_FOR * 2,
            ),
            ("the store takes what it refused", config.news_delay * 4),
            (
                "a commit on its way, and what follows from it",
                spec.disk.commit.end * 8 + round_trip * 8,
            ),
            ("freed numbers rest", config.cooling),
            (
                "numbers rest on which strangers were met, and the window of such conflicts",
                strangers(spec),
            ),
            ("the last run stops", slowest(stop)),
            ("the longest wait before a restart", slowest(backoff)),
            ("a rest after giving up", slowest(rest)),
            // Rolls of different services do not wait for each other.
            (
                "replicas taken one after the other",
                rolls.max().unwrap_or_default(),
            ),
            (
                "restarts of one host wait for each other",
                Duration::from_millis(50) * copies(spec),
            ),
        ];
        Self { parts }
    }

    /// The bound.
    pub(crate) fn total(&self) -> Duration {
        let parts = self.parts.iter().map(|(_, part)| *part);
        parts.fold(Duration::ZERO, Duration::saturating_add)
    }
}

impl fmt::Display for Settling {
    /// One line for each part that counts, then the sum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, part) in self.parts.iter().filter(|(_, part)| !part.is_zero()) {
            writeln!(f, "{:>8}  {why}", Spelled(*part).to_string())?;
        }
        write!(f, "{:>8}  in all", Spelled(self.total()).to_string())
    }
}

/// How long agents and workers wait for an answer.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long they wait at most before they ask again.
const ASK_AGAIN: Duration = Duration::from_secs(15);
/// How long a seat or an address is kept for who had it.
const HELD_FOR: Duration = Duration::from_secs(20);
/// How long placements after strangers' ports count: [`portreeve::registry`] gives five of them.
const CONFLICT_WINDOW: Duration = Duration::from_secs(600);

/// Nothing, where no stranger ever takes a number and nothing listens beside its own.
fn strangers(spec: &Spec) -> Duration {
    let takes = |act: &Act| {
        matches!(
            act,
            Act::Host(_, HostAct::StrangerTakes(_)) | Act::HostOf(_, HostAct::StrangerTakes(_))
        )
    };
    let mut scripts = spec.services.iter().flat_map(scripts);
    let is_beside = scripts.any(|it| it.binds != Binds::Granted || it.leftover_listens);
    if is_beside || spec.acts.iter().any(|it| takes(&it.act)) {
        spec.config.foreign_rest + CONFLICT_WINDOW
    } else {
        Duration::ZERO
    }
}

/// What outlives the kill of its run for longer is not waited for: such a copy is not well.
pub(super) const OUTLIVES: Duration = Duration::from_secs(120);

/// From the order to the last process: drain, grace, and what outlives the kill.
fn stop(service: &ServiceSpec) -> Duration {
    let rule = &service.profile.supervision.stop;
    let outlives = scripts(service).filter_map(|it| it.leftover);
    let outlives = outlives.filter(|it| *it <= OUTLIVES).max();
    rule.drain + rule.grace + outlives.unwrap_or_default()
}

fn backoff(service: &ServiceSpec) -> Duration {
    service.profile.supervision.backoff.max
}

fn scripts(service: &ServiceSpec) -> impl Iterator<Item = &RunScript> {
    service.scripts.values().flat_map(|it| it.each())
}

/// From the place to READY, where it gets there: its start-up as long as it may take, and a restart before.
fn start(service: &ServiceSpec) -> Duration {
    let rules = &service.profile.supervision;
    let startup = rules
        .startup
        .as_ref()
        .map_or(Duration::ZERO, ProbeTiming::span);
    let ready = rules.readiness.as_ref().map_or(rules.min_up, |it| {
        it.initial_delay + it.slowest_pace() * (it.success_threshold + 1)
    });
    let script = scripts(service).map(|it| {
        let pre_exec = it.pre_exec.map_or(Duration::ZERO, |(takes, _)| takes);
        pre_exec + it.spawn_takes + it.binds_after
    });
    startup + ready + script.max().unwrap_or_default() + rules.backoff.max
}

/// The rest of one that gave up and is placed again.
fn rest(service: &ServiceSpec) -> Duration {
    let rule = service.profile.supervision.give_up.as_ref();
    match rule.map(|rule| &rule.then) {
        Some(Then::Requeue { rest, .. }) => *rest,
        Some(Then::Exit) | None => Duration::ZERO,
    }
}

fn roll(service: &ServiceSpec, spec: &Spec) -> Duration {
    let copies = match service.profile.replicas {
        Replicas::Count(copies) => copies.max(MOST_SCALED),
        Replicas::PerHost => u32::try_from(spec.hosts.len()).unwrap_or(u32::MAX),
    };
    (stop(service) + start(service)).saturating_mul(copies)
}

/// People may have scaled a service beyond its profile.
const MOST_SCALED: u32 = 6;

fn copies(spec: &Spec) -> u32 {
    let services = u32::try_from(spec.services.len()).unwrap_or(u32::MAX);
    services.saturating_mul(MOST_SCALED)
}
