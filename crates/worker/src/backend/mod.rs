//! How a run's processes are started, signalled and removed: the border behind which plain process trees,
//! control groups and a service manager's units stand alike.

mod follower;
mod leftovers;
mod remains;
mod shim;
#[cfg(test)]
pub(crate) mod simulated;
mod unit;

use std::pin::Pin;

use portreeve::attendance::{Found, ProcessEvent};
use portreeve::identity::Run;

use crate::probe::owner::Root;

use crate::shim::Launch;

pub use shim::ShimProgram;
pub(crate) use shim::{Mark, ShimBackend};

/// Starts and ends the processes of one replica's runs, one run at a time.
///
/// No call waits; what comes of it is sent as [`BackendEvent`]s over the channel the backend was made with.
/// Calls about a run that is over do nothing, but for [`Backend::kill_group`], which always has an answer.
pub(crate) trait Backend {
    /// Starts a run: [`ProcessEvent::Spawned`] or [`ProcessEvent::SpawnFailed`] follows.
    fn spawn(&mut self, launch: Launch);

    /// Looks for a run that an earlier worker started: [`BackendEvent::Adopted`] follows, then
    /// everything that is known of the run, then what happens to it.
    fn adopt(&mut self, run: Run);

    /// Sends a signal to the main process.
    fn term(&mut self, run: Run, signal: i32);

    /// Kills every process of the run: [`ProcessEvent::GroupEmpty`] follows when none is left.
    fn kill_group(&mut self, run: Run);

    /// Ends every process of a run of this replica that is not the newest, in place of following it. Ready when
    /// none is left.
    fn end_unrecorded(&mut self, run: Run) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Looks for what is left of earlier runs of the replica, which must not live beside the next one; whether
    /// there was nothing. Otherwise it is ended, and [`ProcessEvent::Cleared`] or [`ProcessEvent::SpawnFailed`]
    /// follows for `run`.
    fn clear(&mut self, run: Run) -> bool {
        _ = run;
        true
    }

    /// Where everything of the newest run lives, if there is one.
    fn root(&self) -> Option<Root>;
}

/// What a backend sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackendEvent {
    /// The answer to [`Backend::adopt`].
    Adopted {
        /// Which run.
        run: Run,
        /// What there is of it.
        found: Found,
    },
    /// What became of a run.
    Process(ProcessEvent),
}

impl From<ProcessEvent> for BackendEvent {
    fn from(event: ProcessEvent) -> Self {
        Self::Process(event)
    }
}
