//! What goes in, what comes out, and the reasons both carry.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::Run;
use crate::port::{Port, Protocol};

use super::status::Final;

/// Something that happened. An event of an earlier run or an earlier probe has no effect at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Begin with the first run.
    Start,
    /// End the replica. Repeated, the earlier kill deadline wins.
    Stop {
        /// From the signal to the kill; `None`: as configured.
        grace: Option<Duration>,
    },
    /// The user wants a fresh run; not charged to the restart budget.
    UserRestart,
    /// The `pre_exec` command of `run` is running: a stop signals it.
    PreExecStarted {
        /// Which start.
        run: Run,
    },
    /// The process of `run` exists.
    Spawned {
        /// Which start.
        run: Run,
    },
    /// The process of `run` could not be started.
    SpawnFailed {
        /// Which start.
        run: Run,
        /// Why.
        why: StartFailure,
    },
    /// A stranger has one of the granted ports.
    PortConflict {
        /// Which start.
        run: Run,
        /// The number.
        port: Port,
        /// On which side.
        protocol: Protocol,
        /// The stranger, where readable.
        pid: Option<u32>,
        /// Its command name, where readable.
        comm: Option<String>,
    },
    /// The main process of `run` ended.
    Exited {
        /// Which start.
        run: Run,
        /// How.
        status: ExitStatus,
    },
    /// No process of `run` is left.
    GroupEmpty {
        /// Which start.
        run: Run,
    },
    /// A probe ended.
    ProbeResult {
        /// Which start.
        run: Run,
        /// Which kind.
        kind: ProbeKind,
        /// Which probe of that kind.
        probe: ProbeNumber,
        /// Its outcome.
        outcome: ProbeOutcome,
    },
    /// A new worker took over from this state. Its own order: probes in flight are forgotten.
    Adopt {
        /// The wait before each next probe; `None`: drawn from the seed, below one interval, so that the
        /// probes of many adopted replicas do not come at once.
        spread: Option<Duration>,
        /// The stored record is older than the host grace, so readiness must be proved again.
        stale: bool,
    },
}

impl Event {
    /// The start it speaks of; `None` for a command.
    #[must_use]
    pub const fn run(&self) -> Option<Run> {
        match self {
            Self::Start | Self::Stop { .. } | Self::UserRestart | Self::Adopt { .. } => None,
            Self::PreExecStarted { run }
            | Self::Spawned { run }
            | Self::SpawnFailed { run, .. }
            | Self::PortConflict { run, .. }
            | Self::Exited { run, .. }
            | Self::GroupEmpty { run }
            | Self::ProbeResult { run, .. } => Some(*run),
        }
    }

    /// Its place among the events of one instant, lowest first; deadlines follow the last.
    #[must_use]
    pub const fn rank(&self) -> u8 {
        match self {
            Self::Start
            | Self::Stop { .. }
            | Self::UserRestart
            | Self::Adopt { .. }
            | Self::PreExecStarted { .. } => 0,
            Self::Spawned { .. } | Self::SpawnFailed { .. } | Self::PortConflict { .. } => 1,
            Self::Exited { .. } => 2,
            Self::GroupEmpty { .. } => 3,
            Self::ProbeResult { .. } => 4,
        }
    }

    /// A new worker takes over a run that nobody watched for `alone`.
    #[must_use]
    pub fn taken_over(alone: Duration) -> Self {
        Self::Adopt {
            spread: None,
            stale: alone > HOST_GRACE,
        }
    }
}

/// A record older than this is not believed about readiness: the controller's default host grace.
pub const HOST_GRACE: Duration = Duration::from_secs(90);

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Start the process of `run` with its granted ports.
    Spawn {
        /// Which start.
        run: Run,
    },
    /// Send the stop signal (and CONT) to the main process, or to the running `pre_exec` command.
    Term {
        /// Which start.
        run: Run,
    },
    /// Kill every process of `run`; answer with [`Event::GroupEmpty`] when none is left, at once if there
    /// never was one. Follows every exit, every failed start and every port conflict.
    KillGroup {
        /// Which start.
        run: Run,
    },
    /// Run one probe and answer with [`Event::ProbeResult`].
    Probe {
        /// Which start.
        run: Run,
        /// Which kind.
        kind: ProbeKind,
        /// Which probe of that kind.
        probe: ProbeNumber,
        /// How long it may take.
        timeout: Duration,
    },
    /// Give the probe up; its result would be stale.
    CancelProbe {
        /// Which start.
        run: Run,
        /// Which kind.
        kind: ProbeKind,
        /// Which probe of that kind.
        probe: ProbeNumber,
    },
    /// Tell the controller and the log.
    Report(Report),
}

/// The kinds of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeKind {
    /// Must succeed once after each start.
    Startup,
    /// Whether to restart.
    Liveness,
    /// Whether clients may be sent here.
    Readiness,
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        })
    }
}

/// Counts the probes of one kind in one run, from 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ProbeNumber(pub u32);

/// How one probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// It succeeded.
    Ok,
    /// It failed.
    Fail,
    /// It took too long.
    Timeout,
    /// It says nothing about the service, for example after a stall of our own.
    Inconclusive,
}

/// How a process ended; never folded into 128+n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// It exited by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// Its number.
        signal: i32,
        /// Whether a core was dumped.
        core: bool,
        /// Whether the kernel ran out of memory for it.
        oom: bool,
    },
    /// The status was lost with the shim.
    Unknown,
}

/// An end that a profile can name in `success_exit` and `no_restart_exit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitCause {
    /// An exit code.
    Code(i32),
    /// A signal's number.
    Signal(i32),
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartFailure {
    /// The system refused; its error number.
    Errno(i32),
    /// The system refused to run the program of the command.
    Exec {
        /// The program as the command names it.
        program: String,
        /// The system's error number.
        errno: i32,
    },
    /// The `pre_exec` command ended like this.
    PreExec(ExitStatus),
    /// The environment, the directory or a file of ours could not be prepared.
    Prepare(String),
}

/// A change worth telling. There is none in the steady state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// Clients may be sent here.
    Ready,
    /// Clients may not be sent here any more.
    NotReady(Reason),
    /// The next run begins after this delay.
    Backoff {
        /// Why the last run ended.
        reason: Reason,
        /// How long.
        delay: Duration,
    },
    /// A run replaced an earlier one.
    Restarted {
        /// Automatic restarts of this incarnation so far.
        count: u32,
        /// Why.
        reason: Reason,
        /// Restarts by the user so far.
        user_restarts: u32,
    },
    /// Processes of a run that ended are still there.
    Stuck,
    /// Nothing follows.
    Final(Final),
}

/// Why something happened, as a class and its detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The process ended by itself or by a signal nobody here sent.
    Exit(ExitStatus),
    /// It could not be started.
    StartFailed(StartFailure),
    /// The startup probe failed too often.
    Startup {
        /// How often in a row.
        failures: u32,
    },
    /// The liveness probe failed too often.
    Liveness {
        /// How often in a row.
        failures: u32,
    },
    /// The readiness probe failed too often.
    Probe {
        /// How often in a row.
        failures: u32,
    },
    /// The user asked for a restart.
    User,
    /// The user asked for the end.
    Stop,
    /// The record was too old to be believed.
    StaleRecord,
}
