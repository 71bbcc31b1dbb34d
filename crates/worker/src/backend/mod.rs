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

use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, StartFailure};
use portreeve::time::Monotonic;
use portreeve_api::local::ProcessIdentity;

use crate::probe::owner::Root;

use crate::shim::Launch;

pub use shim::ShimProgram;
pub(crate) use shim::{Mark, ShimBackend};

/// Starts and ends the processes of one replica's runs, one run at a time.
///
/// No call waits; what comes of it is sent as [`BackendEvent`]s over the channel the backend was made with.
/// Calls about a run that is over do nothing, but for [`Backend::kill_group`], which always has an answer.
pub(crate) trait Backend {
    /// Starts a run: [`BackendEvent::Spawned`] or [`BackendEvent::SpawnFailed`] follows.
    fn spawn(&mut self, launch: Launch);

    /// Looks for a run that an earlier worker started: [`BackendEvent::Adopted`] follows, then
    /// everything that is known of the run, then what happens to it.
    fn adopt(&mut self, run: Run);

    /// Sends a signal to the main process.
    fn term(&mut self, run: Run, signal: i32);

    /// Kills every process of the run: [`BackendEvent::GroupEmpty`] follows when none is left.
    fn kill_group(&mut self, run: Run);

    /// Ends every process of a run of this replica that is not the newest, in place of following it. Ready when
    /// none is left.
    fn end_unrecorded(&mut self, run: Run) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Looks for what is left of earlier runs of the replica, which must not live beside the next one; whether
    /// there was nothing. Otherwise it is ended, and [`BackendEvent::Cleared`] or [`BackendEvent::SpawnFailed`]
    /// follows for `run`.
    fn clear(&mut self, run: Run) -> bool {
        _ = run;
        true
    }

    /// Where everything of the newest run lives, if there is one.
    fn root(&self) -> Option<Root>;
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackendEvent {
    /// The answer to [`Backend::adopt`].
    Adopted {
        /// Which run.
        run: Run,
        /// What there is of it.
        found: Found,
    },
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
        process: ProcessIdentity,
    },
    /// The main process could not be started.
    SpawnFailed {
        /// Which run.
        run: Run,
        /// Why.
        why: StartFailure,
    },
    /// The main process ended.
    Exited {
        /// Which run.
        run: Run,
        /// How.
        status: ExitStatus,
    },
    /// The answer to [`Backend::clear`] where there was something: it is gone.
    Cleared {
        /// The run that may be started now.
        run: Run,
    },
    /// No process of the run is left.
    GroupEmpty {
        /// Which run.
        run: Run,
    },
}

/// What an earlier worker left of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It was never begun: it can be started as if nothing had been.
    Nothing,
    /// It was begun. Nobody watched since then; `None`: until just now.
    Begun {
        /// Since when nobody watched.
        alone_since: Option<Monotonic>,
    },
}
