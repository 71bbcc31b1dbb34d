//! What is to be done for a replica, and what is asked of its host meanwhile.

use std::time::Duration;

use crate::identity::Run;
use crate::supervision::{ExitStatus, Final, ProbeKind, ProbeNumber, Report};
use crate::time::Monotonic;

use super::happened::Stranger;

/// Something to do. What comes of it, if anything, is told at the next turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A> {
    /// Write [`super::Attendance::record`] down in one step; it need not survive the machine. If that fails,
    /// [`super::Attendance::not_written`] follows, and everything else goes on.
    Write {
        /// Write the newest status down too, where others of the host read it.
        status: bool,
    },
    /// Tell the newest status to whom the replica is told to, unless a newer one replaces it.
    Tell {
        /// What happened, for those who hear more than the status.
        reports: Vec<Report>,
    },
    /// See to it that nothing of earlier runs lives beside `run`: [`super::ProcessEvent::Cleared`] follows, or
    /// [`super::ProcessEvent::SpawnFailed`].
    Clear {
        /// The run that is to be started.
        run: Run,
    },
    /// Start the run, if nobody listens on a granted number: [`super::ProcessEvent::Spawned`],
    /// [`super::ProcessEvent::SpawnFailed`] or [`super::ProcessEvent::PortConflict`] follows.
    Spawn {
        /// Which run.
        run: Run,
    },
    /// Send the stop signal to the main process, or to its `pre_exec` command.
    Term {
        /// Which run.
        run: Run,
    },
    /// Kill every process of the run: [`super::ProcessEvent::GroupEmpty`] follows when none is left, at once if there
    /// never was one.
    KillGroup {
        /// Which run.
        run: Run,
    },
    /// Run one probe: [`super::ProbeEnd`] follows.
    Probe {
        /// Of which run.
        run: Run,
        /// Which kind.
        kind: ProbeKind,
        /// Which probe of that kind.
        probe: ProbeNumber,
        /// How long it may take.
        timeout: Duration,
    },
    /// Give the probe up; nothing that comes of it counts.
    CancelProbe {
        /// Which kind.
        kind: ProbeKind,
        /// Which probe of that kind.
        probe: ProbeNumber,
    },
    /// Answer an order with the newest status.
    Answer {
        /// Whom.
        to: A,
        /// Why nothing was done, if so.
        refused: Option<String>,
    },
}

/// What only a look at the host can tell, asked in the middle of a turn. No call waits.
pub trait Surroundings {
    /// When the controller last heard of this host, if an agent notes that.
    fn contact(&mut self) -> Option<Contact>;

    /// Takes the token of a service that is started again, of a bucket that all workers of the host share.
    fn restart_token(&mut self, now: Monotonic, run: Run) -> Token;

    /// Somebody else who listens on a granted number, now that the main process of `run` has ended.
    fn stranger_after(&mut self, run: Run) -> Option<Stranger>;
}

/// When a service may be started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// At once or after this time; the token is taken.
    After(Duration),
    /// Ask again soon: another worker has the bucket in its hands.
    Busy,
}

/// When the controller last heard of this host for sure, and how long it forgives silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// When the lease was sent that the controller acknowledged last, by the monotonic clock.
    pub at: Monotonic,
    /// From then on; in whole milliseconds, more than zero and at most [`Contact::LONGEST`].
    pub grace: Duration,
}

impl Contact {
    /// A longer grace is no configuration but damage.
    pub const LONGEST: Duration = Duration::from_hours(24 * 366);
}

/// Why an attendance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The replica ended and the controller knows; with how its newest run ended, where it began and that is known.
    Forgotten(Option<ExitStatus>),
    /// The process ended that the replica's life hung on, and the replica with it.
    LifelineGone,
    /// The replica ended like this, and nobody else has to know.
    Over(Final),
}
