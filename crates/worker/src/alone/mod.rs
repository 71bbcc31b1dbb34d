//! A worker without a controller: a scheduler gives it a profile and a grant, hears what happens as lines of
//! JSON, and says what it wants the same way.

mod commands;
#[cfg(fuzzing)]
pub(crate) use commands::read_lines;
mod grant_file;
mod status_lines;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use portreeve::attendance::Ended;
use portreeve::identity::{Incarnation, Run};
use portreeve::supervision::Final;
use portreeve_api::containment::{Choice, Containment, Ladder};
use portreeve_api::local::{Assignment, ProcessIdentity, ReplicaFolder, WorkerCommand};
use portreeve_api::service_manager::BackendKind;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::backend::ShimProgram;
use crate::containment;
use crate::file::{self, Durability};
use crate::limits::Limits;
use crate::orders::Order;
use crate::shim::RunFolder;
use crate::worker::{Teller, lock, run_on_one_thread, supervise};

pub use grant_file::{GrantErrors, GrantFile};
pub(crate) use status_lines::StatusLines;

use status_lines::Who;

/// How long the last lines may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a worker without a controller begins with.
#[derive(Debug)]
pub struct Alone {
    /// Where it keeps everything about the replica; made 0700 if missing. A worker that is started again with
    /// the same folder takes over what runs.
    pub folder: ReplicaFolder,
    /// What it runs; without a controller and without tokens.
    pub assignment: Assignment,
    /// Where the status lines go.
    pub status: OwnedFd,
}

/// The scratch directory of a run of the replica that has this folder; there once the run is.
#[must_use]
pub fn scratch(folder: &ReplicaFolder, run: Run) -> PathBuf {
    RunFolder::of(folder, run).scratch()
}

/// Supervises the replica until it ended. Takes commands from standard input; TERM and INT are a stop.
///
/// # Errors
///
/// [`AloneError`] where the folder is another replica's; else as for [`crate::run`]. Nothing was started and a
/// living service was left alone.
pub fn run_alone(alone: Alone) -> anyhow::Result<Final> {
    let shim = ShimProgram::current().context("the path of this program cannot be read")?;
    run_on_one_thread(work(alone, shim))
}

/// Takes the descriptor with this number from whoever started this process: a pipe, a socket or a file.
/// No program that is started later inherits it.
///
/// Call it before anything else opens a descriptor.
///
/// # Errors
///
/// The system's; EBADF: there is none with this number; EACCES: it cannot be written to.
pub fn take_descriptor(number: i32) -> io::Result<OwnedFd> {
    use rustix::fs::OFlags;
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    // A copy by way of the process itself: a bare number is nothing that safe code may hold.
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let taken = pidfd_getfd(this.as_fd(), number, PidfdGetfdFlags::empty())?;
    let mode = rustix::fs::fcntl_getfl(&taken)?;
    if !mode.intersects(OFlags::WRONLY | OFlags::RDWR) {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    if number > 2 {
        nix::unistd::close(number)?;
    }
    Ok(taken)
}

async fn work(alone: Alone, shim: ShimProgram) -> anyhow::Result<Final> {
    let Alone {
        folder,
        mut assignment,
        status,
    } = alone;
    // First of all, so that none that comes early ends this process unprepared.
    let term = signal(SignalKind::terminate()).context("signals")?;
    let interrupt = signal(SignalKind::interrupt()).context("signals")?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder.path())
        .with_context(|| format!("{} cannot be made", folder.path().display()))?;
    let folder = ReplicaFolder::at(std::path::absolute(folder.path())?);
    let lock = lock(&folder)?;
    assignment.containment = match earlier(&folder, &assignment)? {
        Some(earlier) => earlier.containment,
        None => containment(&folder, assignment.backend)?,
    };
    let held = assignment.containment.clone();
    held.prepare(None)
        .context("its control group cannot be made")?;
    file::write_json(&folder.assignment(), &assignment, Durability::Synced)
        .context("assignment.json cannot be written")?;

    let lines = StatusLines::to(File::from(status), Who::of(&assignment.desired))
        .context("no thread for the status")?;
    let (send_order, orders) = mpsc::channel(16);
    commands::serve(io::stdin(), send_order.clone(), lines.clone())
        .context("no thread for commands")?;
    let stopper = tokio::spawn(stop_when_told(term, interrupt, send_order.clone()));
    let teller = (Teller::Lines(lines.clone()), Limits::of_process());
    let ended = supervise(folder, assignment, shim, teller, (send_order, orders)).await;
    stopper.abort();
    lines.finish(LAST_WORDS);
    if matches!(ended, Ok(Ended::Over(_))) {
        containment::leave_for_good(&held);
        if let Some(of_all) = held.group.as_deref().and_then(Path::parent) {
            // Only this replica was in it.
            _ = fs::remove_dir(of_all);
        }
    }
    drop(lock);
    match ended? {
        Ended::Over(end) => Ok(end),
        // Somebody told it so over its socket.
        Ended::Forgotten(_) | Ended::LifelineGone => Ok(Final::Stopped),
    }
}

/// How a new replica is held: by the highest rung that this host allows, or by its unit.
fn containment(folder: &ReplicaFolder, backend: BackendKind) -> anyhow::Result<Containment> {
    if backend != BackendKind::Process {
        return Ok(Containment::default());
    }
    let ladder = Ladder::climb(Choice::Auto, folder.path())?;
    Ok(ladder.containment(REPLICA, true)?)
}

/// The name of the one replica of a folder among the groups made for that folder.
const REPLICA: &str = "replica";

/// What an earlier worker of the folder was given. A folder belongs to one incarnation, whose profile and ports
/// never change.
fn earlier(
    folder: &ReplicaFolder,
    assignment: &Assignment,
) -> Result<Option<Assignment>, AloneError> {
    let earlier: Option<Assignment> =
        file::read_json(&folder.assignment()).map_err(|cause| AloneError::Unreadable {
            folder: folder.path().display().to_string(),
            cause,
        })?;
    let Some(earlier) = earlier else {
        return Ok(None);
    };
    let (was, is) = (&earlier.desired, &assignment.desired);
    let place = || folder.path().display().to_string();
    if (&was.service, was.index, was.incarnation) != (&is.service, is.index, is.incarnation) {
        return Err(AloneError::Other {
            folder: place(),
            service: was.service.to_string(),
            replica: was.index,
            incarnation: was.incarnation,
        });
    }
    let mut changed = Vec::new();
    if was.profile != is.profile {
        changed.push("profile");
    }
    if was.grant != is.grant {
        changed.push("grant");
    }
    if earlier.backend != assignment.backend {
        changed.push("backend");
    }
    if changed.is_empty() {
        return Ok(Some(earlier));
    }
    Err(AloneError::Changed {
        folder: place(),
        what: changed.join(" and "),
        incarnation: was.incarnation,
    })
}

/// Why a folder is not taken. Nothing was started, and what runs there was left alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AloneError {
    /// It is another replica's, or another incarnation's.
    #[error(
        "{folder} is that of {service}/{replica}, incarnation {incarnation}; name another with --folder"
    )]
    Other {
        /// Which folder.
        folder: String,
        /// Whose it is.
        service: String,
        /// Which copy.
        replica: u32,
        /// Which placement.
        incarnation: Incarnation,
    },
    /// The replica is the same and what it is to run is not.
    #[error(
        "the {what} changed since incarnation {incarnation} began in {folder}; an incarnation keeps its own: \
         give the old one to take over, or a new incarnation in the grant"
    )]
    Changed {
        /// Which folder.
        folder: String,
        /// What changed.
        what: String,
        /// Which placement.
        incarnation: Incarnation,
    },
    /// What an earlier worker was given cannot be read.
    #[error("{folder}/assignment.json cannot be read: {cause}")]
    Unreadable {
        /// Which folder.
        folder: String,
        /// The system's words.
        cause: io::Error,
    },
}

async fn stop_when_told(
    mut term: tokio::signal::unix::Signal,
    mut interrupt: tokio::signal::unix::Signal,
    orders: mpsc::Sender<Order>,
) {
    loop {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        let (reply, _) = oneshot::channel();
        let stop = WorkerCommand::Stop { grace: None };
        if orders.send((stop, reply)).await.is_err() {
            return;
        }
    }
}

/// The boot and everything else of this machine that an assignment names.
///
/// # Errors
///
/// The system's, when `/proc` cannot be read.
pub fn boot_id() -> io::Result<String> {
    ProcessIdentity::of_self().map(|me| me.boot_id)
}
