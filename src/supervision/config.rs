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
