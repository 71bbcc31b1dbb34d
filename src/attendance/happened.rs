//! What happens to a replica on its host, as its worker sees it.

use serde::{Deserialize, Serialize};

use crate::identity::Run;
use crate::port::{Port, Protocol};
use crate::supervision::{Event, ExitStatus, ProbeKind, ProbeNumber, ProbeOutcome, StartFailure};
use crate::time::Monotonic;

use super::order::Order;

/// What happened in one instant. [`super::Attendance::turn`] takes it out and leaves it empty, to be filled again.
///
/// `A` is where the answer to an order goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened<A> {
    /// The process ended that the replica's life hangs on.
    pub lifeline_ended: bool,
    /// What was ordered, in that order.
    pub orders: Vec<(Order, A)>,
    /// What became of processes; brought into the order of one instant by the turn, equal ranks stay as they are.
    pub processes: Vec<ProcessEvent>,
    /// Probes that ended.
    pub probes: Vec<ProbeEnd>,
}

impl<A> Default for Happened<A> {
    fn default() -> Self {
        Self {
            lifeline_ended: false,
            orders: Vec::new(),
            processes: Vec::new(),
            probes: Vec::new(),
        }
    }
}

/// What became of a run's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The `pre_exec` command runs.
    PreExecStarted {
        /// Which run.
        run: Run,
    },
    /// The main process exists.
    Spawned {
        /// Which run.
        run: Run,
        /// The main process.
        process: MainProcess,
    },
    /// The main process could not be started.
    SpawnFailed {
        /// Which run.
        run: Run,
        /// Why.
        why: StartFailure,
    },
    /// It was not started, for somebody else has one of its numbers.
    PortConflict {
        /// Which run.
        run: Run,
        /// Who has which.
        stranger: Stranger,
    },
    /// Nothing of earlier runs lives beside this one: it may be started.
    Cleared {
        /// The run that may be started now.
        run: Run,
    },
    /// The main process ended.
    Exited {
        /// Which run.
        run: Run,
        /// How.
        status: ExitStatus,
    },
    /// No process of the run is left.
    GroupEmpty {
        /// Which run.
        run: Run,
    },
}

impl ProcessEvent {
    /// Its place inside one instant, which is that of [`Event::rank`]; a start that failed, or may go on, stands where
    /// one that succeeded does.
    #[must_use]
    pub const fn rank(&self) -> u8 {
        match self {
            Self::PreExecStarted { run } => Event::PreExecStarted { run: *run }.rank(),
            Self::Spawned { run, .. }
            | Self::SpawnFailed { run, .. }
            | Self::PortConflict { run, .. }
            | Self::Cleared { run } => Event::Spawned { run: *run }.rank(),
            Self::Exited { run, status } => Event::Exited {
                run: *run,
                status: *status,
            }
            .rank(),
            Self::GroupEmpty { run } => Event::GroupEmpty { run: *run }.rank(),
        }
    }
}

/// The main process of a run: not to be mistaken for a later one with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MainProcess {
    /// Its number.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_ticks: u64,
    /// The boot.
    pub boot_id: String,
}

/// Somebody else who has a granted number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The number.
    pub port: Port,
    /// On which side.
    pub protocol: Protocol,
    /// The process, where readable.
    pub pid: Option<u32>,
    /// Its command name, where readable.
    pub comm: Option<String>,
}

impl Stranger {
    /// What the machine is told in place of `Spawned` or `Exited`.
    pub(super) fn conflict(self, run: Run) -> Event {
        Event::PortConflict {
            run,
            port: self.port,
            protocol: self.protocol,
            pid: self.pid,
            comm: self.comm,
        }
    }
}

/// How a probe ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEnd {
    /// Of which run.
    pub run: Run,
    /// Which kind.
    pub kind: ProbeKind,
    /// Which probe of that kind.
    pub probe: ProbeNumber,
    /// What it found. A timeout during a stall of the worker itself is taken for what it is, nothing.
    pub outcome: ProbeOutcome,
    /// The same in words for people; at most 4 KiB are kept.
    pub text: String,
}

/// What an earlier worker left of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was never begun: it can be started as if nothing had been.
    Nothing,
    /// It was begun.
    Begun {
        /// Since when nobody watched; `None`: until just now.
        alone_since: Option<Monotonic>,
    },
}
