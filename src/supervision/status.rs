//! What a replica's supervision looks like from outside: the newest status, not a history.

use serde::{Deserialize, Serialize};

use crate::identity::Run;
use crate::port::{Port, Protocol};
use crate::time::WallClock;

use super::vocabulary::{ExitStatus, Reason};

/// The newest status of one incarnation. The controller keeps the last word: [`Status::outdates`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The newest start.
    pub run: Run,
    /// Counts the reports of this incarnation, over all runs.
    pub seq: u64,
    /// Where it stands.
    pub state: State,
    /// Whether clients may be sent here.
    pub ready: bool,
    /// Whether it still answers those who know it, although it was told to end: until it is signalled.
    #[serde(default)]
    pub serving: bool,
    /// Why it is not ready, in words for people; the newest failed probe's text where there is one.
    pub not_ready_reason: Option<String>,
    /// Automatic restarts of this incarnation; never falls.
    pub restarts: u32,
    /// Restarts by the user in this incarnation.
    pub user_restarts: u32,
    /// The user's restart that was last acted on.
    pub restart_no: u64,
    /// The process of the living run.
    pub pid: Option<u32>,
    /// The first failure of this incarnation.
    pub first_failure: Option<Failure>,
    /// The newest failure of this incarnation.
    pub last_failure: Option<Failure>,
    /// In [`State::Backoff`]: when the next run begins.
    pub next_start: Option<WallClock>,
}

impl Status {
    /// Stands for the status of a replica that has begun on its host and has told nothing yet: older than any other.
    #[must_use]
    pub const fn silent() -> Self {
        Self {
            run: Run(0),
            seq: 0,
            state: State::Idle,
            ready: false,
            serving: false,
            not_ready_reason: None,
            restarts: 0,
            user_restarts: 0,
            restart_no: 0,
            pid: None,
            first_failure: None,
            last_failure: None,
            next_start: None,
        }
    }

    /// Whether it tells nothing but that the replica is there.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.run.0 == 0 && self.seq == 0 && matches!(self.state, State::Idle)
    }

    /// How it ended, after this was the last that was told: said by others, since nobody is left who could tell it.
    #[must_use]
    pub fn concluded(self, end: Final, failure: Option<Failure>) -> Self {
        Self {
            seq: self.seq.saturating_add(1),
            state: State::Final(end),
            ready: false,
            serving: false,
            not_ready_reason: None,
            pid: None,
            first_failure: self.first_failure.or_else(|| failure.clone()),
            last_failure: failure.or(self.last_failure),
            next_start: None,
            ..self
        }
    }

    /// What orders the words of one incarnation.
    #[must_use]
    pub const fn number(&self) -> (Run, u64) {
        (self.run, self.seq)
    }

    /// Whether nothing of the incarnation runs any more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, State::Final(_))
    }

    /// Whether this is a later word than `known`: by its number; and the end is the last word whatever its number, since
    /// who tells it may not know the newest that was told, as of a worker that could write nothing down.
    #[must_use]
    pub fn outdates(&self, known: &Self) -> bool {
        self.number() > known.number() || self.has_ended() && !known.has_ended()
    }

    /// The same by the clock of a reader, which the teller's is so many milliseconds ahead of.
    #[must_use]
    pub fn by_a_clock_behind(mut self, ahead_ms: i64) -> Self {
        let failures = [&mut self.first_failure, &mut self.last_failure];
        for failure in failures.into_iter().flatten() {
            failure.at = failure.at.on_a_clock_behind(ahead_ms);
        }
        let next = self.next_start;
        self.next_start = next.map(|at| at.on_a_clock_behind(ahead_ms));
        self
    }
}

/// Where a replica stands on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Not begun.
    Idle,
    /// The process is being made.
    Starting,
    /// It waits for the startup probe.
    Startup,
    /// It runs.
    Up,
    /// It was told to end; draining or signalled.
    Stopping,
    /// The main process ended; its group is being removed.
    Reaping,
    /// It waits to be started again.
    Backoff,
    /// Processes of it cannot be removed.
    Stuck,
    /// Nothing follows; its ports can be freed.
    Final(Final),
}

/// How a replica ended on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Final {
    /// It ended in success and is not to be restarted.
    Succeeded,
    /// It failed and is not to be restarted.
    Failed(Reason),
    /// It was told to end.
    Stopped,
    /// Its host ended it by itself, without an order of the controller; nothing was charged.
    Left(Leaving),
    /// The restart rule ended it.
    GaveUp {
        /// The last cause.
        reason: Reason,
        /// How many restarts it had.
        count: u32,
    },
    /// A stranger has one of its ports; nothing was charged.
    PortConflict {
        /// The number.
        port: Port,
        /// On which side.
        protocol: Protocol,
        /// The stranger, where readable.
        pid: Option<u32>,
        /// Its command name, where readable.
        comm: Option<String>,
    },
}

/// Why a host ends a replica by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaving {
    /// The host was cut off from the controller for longer than the grace, after which the replica may run elsewhere, and
    /// its profile says `on_cut_off = "stop"`.
    CutOff,
    /// The host is being shut down.
    Shutdown,
}

/// One failure, kept for people: the first and the last of an incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class and its detail.
    pub reason: Reason,
    /// How the process ended, where one did.
    pub exit: Option<ExitStatus>,
    /// In which run.
    pub run: Run,
    /// When.
    pub at: WallClock,
    /// The newest output of the deciding probe, at most 4 KiB.
    pub probe_output: Option<String>,
}
