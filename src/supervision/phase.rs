//! Where the machine stands, with exactly the data that place needs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::status::{Final, State};
use super::track::Track;
use super::vocabulary::{ProbeKind, Reason};
use crate::time::Monotonic;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    Idle,
    Starting {
        /// What this start replaces; `None` for the first.
        replaces: Option<Respawn>,
        pre_exec: PreExec,
    },
    Startup {
        probe: Track,
    },
    Up(Up),
    Stopping {
        cause: Cause,
        step: Step,
        stable_since: Option<Monotonic>,
    },
    Reaping {
        stuck_at: Monotonic,
        next: Next,
    },
    /// The main process outlived the kill.
    StuckProcess {
        cause: Cause,
        stable_since: Option<Monotonic>,
    },
    /// The main process ended; others outlive the kill.
    StuckGroup {
        next: Next,
    },
    Backoff(Respawn),
    Final(Final),
}

/// The `pre_exec` command of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PreExec {
    /// None runs.
    Absent,
    Running,
    /// A stop signalled it.
    Signalled {
        /// `None` once killed.
        kill_at: Option<Monotonic>,
    },
}

/// A run that serves, or will once its probes say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Up {
    pub(super) liveness: Option<Track>,
    pub(super) readiness: Option<Track>,
    /// When a run without a readiness probe becomes ready.
    pub(super) ready_at: Option<Monotonic>,
    /// From when on the run counts towards the reset of the backoff.
    pub(super) stable_since: Option<Monotonic>,
}

/// Why a run is being ended by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Cause {
    Startup { failures: u32 },
    Liveness { failures: u32 },
    User,
    Stop,
}

impl Cause {
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Startup { failures } => Reason::Startup { failures },
            Self::Liveness { failures } => Reason::Liveness { failures },
            Self::User => Reason::User,
            Self::Stop => Reason::Stop,
        }
    }
}

/// How far the ending of a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    /// Not ready, still serving whoever is connected.
    Draining {
        until: Monotonic,
        grace: Duration,
        /// It was ready until then.
        #[serde(default)]
        serving: bool,
    },
    /// Signalled.
    Signalled { kill_at: Monotonic },
    /// The group was killed; its main process has not been reaped.
    Killed { stuck_at: Monotonic },
}

/// What follows once the group is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Next {
    Respawn(Respawn),
    End(Final),
}

/// A start that replaces an ended run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Respawn {
    pub(super) at: Monotonic,
    pub(super) reason: Reason,
    pub(super) by: By,
}

/// Who wants a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum By {
    Policy,
    User,
}

/// Something that is due at a moment. The order is the order inside one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Kill,
    Drain,
    Unkillable,
    Probe(ProbeKind),
    MinUp,
    Backoff,
}

impl Phase {
    pub(super) fn state(&self) -> State {
        match self {
            Self::Idle => State::Idle,
            Self::Starting { .. } => State::Starting,
            Self::Startup { .. } => State::Startup,
            Self::Up(_) => State::Up,
            Self::Stopping { .. } => State::Stopping,
            Self::Reaping { .. } => State::Reaping,
            Self::StuckProcess { .. } | Self::StuckGroup { .. } => State::Stuck,
            Self::Backoff(_) => State::Backoff,
            Self::Final(end) => State::Final(end.clone()),
        }
    }

    /// Everything that is due at some moment, in the order inside one instant.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = (Monotonic, Deadline)> {
        let due = |track: &Option<Track>| track.as_ref().and_then(Track::due);
        let mut found = [None; 3];
        match self {
            Self::Starting {
                pre_exec:
                    PreExec::Signalled {
                        kill_at: Some(kill_at),
                    },
                ..
            } => found[0] = Some((*kill_at, Deadline::Kill)),
            Self::Startup { probe } => {
                found[0] = probe
                    .due()
                    .map(|at| (at, Deadline::Probe(ProbeKind::Startup)));
            }
            Self::Up(up) => {
                found[0] = due(&up.liveness).map(|at| (at, Deadline::Probe(ProbeKind::Liveness)));
                found[1] = due(&up.readiness).map(|at| (at, Deadline::Probe(ProbeKind::Readiness)));
                found[2] = up.ready_at.map(|at| (at, Deadline::MinUp));
            }
            Self::Stopping { step, .. } => {
                found[0] = Some(match step {
                    Step::Signalled { kill_at } => (*kill_at, Deadline::Kill),
                    Step::Draining { until, .. } => (*until, Deadline::Drain),
                    Step::Killed { stuck_at } => (*stuck_at, Deadline::Unkillable),
                });
            }
            Self::Reaping { stuck_at, .. } => found[0] = Some((*stuck_at, Deadline::Unkillable)),
            Self::Backoff(respawn) => found[0] = Some((respawn.at, Deadline::Backoff)),
            Self::Idle
            | Self::Starting { .. }
            | Self::StuckProcess { .. }
            | Self::StuckGroup { .. }
            | Self::Final(_) => {}
        }
        found.into_iter().flatten()
    }
}
