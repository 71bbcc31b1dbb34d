//! The parent of a service's process: keeps its exit status, adopts its orphans, outlives the worker.
//!
//! One shim per run, one thread, no async runtime. It starts the service in a clean state, writes down how
//! it ended before it tells anyone, and is the subreaper of everything the service starts, so that no child
//! escapes by a double fork or a session of its own. The worker may be killed at any time: the next one
//! connects to the socket in the run's folder and is told everything again.

mod ending;
mod peers;
mod protocol;
mod spawn;
mod starting;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use portreeve::identity::Run;
use portreeve::time::Monotonic;
use portreeve_api::local::{ProcessIdentity, ReplicaFolder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::clock;
use crate::containment::{self, Hold, OomCount};
use crate::file::{self, Durability};

pub use protocol::Launch;
pub(crate) use protocol::{RunFolder, ShimCommand, ShimState, pre_exec_done};

use peers::{Incoming, Peers};
#[cfg(fuzzing)]
pub(crate) use peers::{read_commands_of, read_launch_of};

/// A service manager gives it to what it starts, and a worker to nobody.
const KEPT_BY_MANAGER: &str = "INVOCATION_ID";
/// How long `pre_exec` may take.
const PRE_EXEC_WINDOW: Duration = Duration::from_mins(10);
/// While killing: how long until the tree is walked again, at first and at most.
const KILL_AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How often and after which pause an empty hold is removed again.
const REMOVE_TRIES: usize = 10;
const REMOVE_AGAIN: Duration = Duration::from_millis(2);
/// How long an attached service goes on when nobody listens any more: its worker is the job, and is not replaced.
const ALONE: Duration = Duration::from_millis(500);
/// How long until a state that could not be written is written again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// Starts and keeps run `run` of the replica in `folder`; returns when no process of the run is left
/// and that is on disk, or was told to a worker, or the run's folder is gone.
///
/// The launch is read from standard input, a socket that stays the first worker's connection.
///
/// # Errors
///
/// [`ShimError`]; no process was started.
pub fn run(folder: &ReplicaFolder, run: Run) -> Result<(), ShimError> {
    let replica = ReplicaFolder::at(std::path::absolute(folder.path())?);
    // It fails only for the leader of a group, which a child of a worker never is; started by hand it may be.
    _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Everything is blocked: a signal for the shim ends nothing, and SIGCHLD is read as data.
    SigSet::all().thread_block()?;
    let mut heard = SigSet::from(Signal::SIGCHLD);
    if std::env::var_os(KEPT_BY_MANAGER).is_some() {
        // The manager's only way to say that the unit shall end, at a shutdown say.
        heard.add(Signal::SIGTERM);
    }
    let children = SignalFd::with_flags(&heard, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;

    let mut first = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let launch = peers::read_launch(&mut first)?;
    let files = RunFolder::of(&replica, run);
    let me = ProcessIdentity::of_self()?;
    let claim = serde_json::to_vec(&me).map_err(io::Error::from)?;
    if launch.run != run || !file::claim(&files.claim(), &claim)? {
        return Err(ShimError::Claimed { run });
    }
    let peers = Peers::new(&files, first)?;
    let hold = Hold::of(&launch.containment, run);
    let shim = Shim {
        replica,
        files,
        launch,
        state: ShimState {
            shim: me,
            pre_exec: false,
            spawned: None,
            failed: None,
            exited: None,
            empty: false,
            alone_since: None,
        },
        phase: Phase::Over,
        hold,
        oom: None,
        peers,
        kill: None,
        stop_asked: false,
        durable: false,
        told: false,
    };
    shim.serve(&children)
}

/// Is the first process of a run's namespace, as a shim starts it: buries what ends there, until it is killed.
///
/// # Errors
///
/// [`ShimError::System`] for a process that is not the first of its namespace; nothing was done then.
pub fn init() -> Result<(), ShimError> {
    Ok(containment::init()?)
}

/// Why a shim did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShimError {
    /// Another shim has this run, or the launch is of another one.
    #[error("run {run} already has a shim; nothing was started")]
    Claimed {
        /// Which run.
        run: Run,
    },
    /// The worker went away before it said what to start.
    #[error("no launch came over standard input: {reason}")]
    NoLaunch {
        /// What came instead.
        reason: String,
    },
    /// The system refused.
    #[error("the shim could not be set up: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for ShimError {
    fn from(cause: rustix::io::Errno) -> Self {
        Self::System(cause.into())
    }
}

impl From<nix::errno::Errno> for ShimError {
    fn from(cause: nix::errno::Errno) -> Self {
        Self::System(cause.into())
    }
}

struct Shim {
    replica: ReplicaFolder,
    files: RunFolder,
    launch: Launch,
    state: ShimState,
    phase: Phase,
    /// Everything of the run is inside.
    hold: Hold,
    /// Since the service was started.
    oom: Option<OomCount>,
    peers: Peers,
    /// Set while every process of the run is to be killed: the wait before the next walk.
    kill: Option<Duration>,
    /// A stop during `pre_exec` must not be followed by a start.
    stop_asked: bool,
    /// The state is on disk as it is.
    durable: bool,
    /// A worker was told the state as it is.
    told: bool,
}

/// Which main process there is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    PreExec { pid: Pid, until: Monotonic },
    Service { pid: Pid },
    Over,
}

impl Shim {
    fn serve(mut self, children: &SignalFd) -> Result<(), ShimError> {
        self.begin();
        loop {
            self.reap();
            self.walk();
            if !self.durable {
                // A full disk blocks no service: the state is kept here and written when there is room.
                self.durable =
                    file::write_json(&self.files.state(), &self.state, Durability::Synced).is_ok();
            }
            if !self.told {
                self.told = self.peers.tell(&self.state);
            }
            if self.state.empty && (self.durable || self.told || self.is_forgotten()) {
                self.remove_hold();
                if self.left_alone() == Some(Duration::ZERO) {
                    // The job's own folder; whoever made it is gone, and nobody comes to ask.
                    _ = portreeve_api::removal::remove_folder(self.replica.path());
                }
                return Ok(());
            }
            self.wait(children)?;
            while let Some(signal) = children.read_signal()? {
                if Signal::try_from(signal.ssi_signo.cast_signed()) == Ok(Signal::SIGTERM) {
                    let term = ShimCommand::Term(Signal::SIGTERM as i32);
                    self.on_peer(Incoming::Command(term));
                }
            }
            for incoming in self.peers.receive() {
                self.on_peer(incoming);
            }
        }
    }

    /// Blocks until a child ends, a worker speaks or a deadline passes.
    fn wait(&self, children: &SignalFd) -> Result<(), ShimError> {
        let mut deadlines = [None; 4];
        deadlines[0] = self.kill;
        deadlines[1] = (!self.durable).then_some(WRITE_AGAIN);
        if let Phase::PreExec { until, .. } = self.phase
            && self.kill.is_none()
        {
            deadlines[2] = Some(until.since(clock::monotonic()));
        }
        deadlines[3] = self.left_alone().filter(|_| self.kill.is_none());
        let timeout = deadlines.into_iter().flatten().min();
        let timeout = timeout.and_then(|span| Timespec::try_from(span).ok());
        let mut fds = vec![PollFd::new(children, PollFlags::IN)];
        fds.extend(self.peers.poll_fds());
        // Of a group that is removed it would stay ready.
        let changes = (!self.state.empty).then(|| self.hold.changes()).flatten();
        let changes = changes.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::PRI));
        fds.extend(changes);
        let polled = poll(&mut fds, timeout.as_ref());
        drop(fds);
        // Read, or it would stay ready; what it says is asked again where it matters.
        _ = self.hold.is_empty();
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(cause) => Err(cause.into()),
        }
    }

    fn changed(&mut self) {
        self.durable = false;
        self.told = false;
    }

    fn on_peer(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Joined => {
                // Told with the time alone, which then ends.
                self.told = self.peers.tell(&self.state);
                self.state.alone_since = None;
            }
            Incoming::Command(ShimCommand::Kill) => {
                self.stop_asked = true;
                self.kill = Some(KILL_AGAIN.0);
            }
            Incoming::Command(ShimCommand::Term(signal)) => {
                self.stop_asked = true;
                if let Phase::PreExec { pid, .. } | Phase::Service { pid } = self.phase {
                    let signal = Signal::try_from(signal).unwrap_or(Signal::SIGTERM);
                    let pid = nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
                    // Our own unreaped child: the number is still its own. A stopped one must run to take it.
                    _ = nix::sys::signal::kill(pid, signal);
                    _ = nix::sys::signal::kill(pid, Signal::SIGCONT);
                }
            }
            Incoming::AllGone => self.state.alone_since = Some(clock::monotonic()),
        }
    }
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
