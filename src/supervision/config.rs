//! The rules of one replica, as numbers. [`crate::profile`] makes them from what a user writes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::vocabulary::ExitCause;

/// When to restart, when to give up, how often to probe, how to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Which ends are followed by a restart.
    pub restart: RestartPolicy,
    /// How long to wait before a restart.
    pub backoff: Backoff,
    /// When to stop restarting; `None`: never.
    pub give_up: Option<GiveUp>,
    /// Ends that count as success.
    pub success_exit: BTreeSet<ExitCause>,
    /// Ends after which nothing is restarted, whatever the policy.
    pub no_restart_exit: BTreeSet<ExitCause>,
    /// Must succeed once before the other probes begin.
    pub startup: Option<ProbeTiming>,
    /// Whether to restart.
    pub liveness: Option<ProbeTiming>,
    /// Whether clients may be sent here.
    pub readiness: Option<ProbeTiming>,
    /// Uptime after which a run without a readiness probe is ready.
    pub min_up: Duration,
    /// How to stop.
    pub stop: StopRule,
}

/// Which ends are followed by a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Every end.
    #[default]
    Always,
    /// Every end that is no success.
    OnFailure,
    /// None.
    Never,
}

/// The wait before the k-th restart in a row: `min(max, initial * 2^(k-1))`, shortened by jitter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait; jitter never exceeds it.
    pub max: Duration,
    /// The most that jitter takes off a wait, in thousandths of it: 0 to 1000.
    pub jitter_permille: u16,
    /// A run that was stable this long begins again at `initial`.
    pub reset_after: Duration,
}

impl Backoff {
    /// The wait after `in_a_row` restarts in a row, jitter left out.
    #[must_use]
    pub fn wait(&self, in_a_row: u32) -> Duration {
        let doubled = 2_u32
            .checked_pow(in_a_row)
            .and_then(|factor| self.initial.checked_mul(factor));
        doubled.map_or(self.max, |wait| wait.min(self.max))
    }

    /// The sum of the waits before the first `restarts` restarts, jitter left out. Cost: one step a restart.
    #[must_use]
    pub fn waits_of(&self, restarts: u32) -> Duration {
        let waits = (0..restarts).map(|in_a_row| self.wait(in_a_row));
        waits.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// The least that jitter leaves of a wait, or of a sum of waits.
    #[must_use]
    pub fn shortest(&self, wait: Duration) -> Duration {
        let kept = u32::from(1000 - self.jitter_permille.min(1000));
        wait.saturating_mul(kept) / 1000
    }
}

/// The sliding window of granted restarts, and what follows when it is full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GiveUp {
    /// How many restarts the window may hold; 0: the first failure gives up.
    pub max_restarts: u32,
    /// How long a granted restart counts.
    pub window: Window,
    /// What follows.
    pub then: Then,
}

impl GiveUp {
    /// No window by the rule is shorter.
    pub const SHORTEST_WINDOW: Duration = Duration::from_secs(600);

    /// The window of a rule that names none: wide enough that crashes and start-ups that time out reach it.
    #[must_use]
    pub fn unwritten_window(
        max_restarts: u32,
        backoff: &Backoff,
        startup: Option<&ProbeTiming>,
    ) -> Duration {
        let startups = startup.map_or(Duration::ZERO, ProbeTiming::span);
        let startups = startups.saturating_mul(max_restarts);
        let spread = backoff.waits_of(max_restarts).saturating_add(startups);
        Self::SHORTEST_WINDOW.max(spread.saturating_mul(2))
    }
}

/// How long a granted restart counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Window {
    /// For this long; an entry exactly this old is out.
    Span(Duration),
    /// For ever within the incarnation.
    Lifetime,
}

/// What follows after giving up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// The replica ends.
    Exit,
    /// It rests, then is placed again, elsewhere if possible.
    Requeue {
        /// The first rest; doubles up to an hour.
        rest: Duration,
        /// How often, then it ends.
        max_requeues: u32,
    },
}

/// When a probe runs and how many results decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeTiming {
    /// From the spawn (startup) or from up (liveness, readiness) to the first probe.
    pub initial_delay: Duration,
    /// From start to start.
    pub interval: Duration,
    /// How long one probe may take.
    pub timeout: Duration,
    /// Consecutive failures that decide, at least 1.
    pub failure_threshold: u32,
    /// Consecutive successes that decide, at least 1; above 1 only for readiness.
    pub success_threshold: u32,
}

impl ProbeTiming {
    /// From the beginning until every probe that may fail has had its interval.
    #[must_use]
    pub const fn span(&self) -> Duration {
        let probes = self.interval.saturating_mul(self.failure_threshold);
        self.initial_delay.saturating_add(probes)
    }

    /// From start to start of probes that each take their whole timeout.
    #[must_use]
    pub fn slowest_pace(&self) -> Duration {
        self.interval.max(self.timeout)
    }
}

/// How a run is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRule {
    /// From not ready to the signal, still serving.
    pub drain: Duration,
    /// From the signal to the kill of the group.
    pub grace: Duration,
    /// From the exit to reporting the group as stuck.
    pub unkillable_after: Duration,
}
