//! What worker and shim say to each other: one launch, then command lines one way and state lines the other.

use std::path::PathBuf;

use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, StartFailure};
use portreeve::time::Monotonic;
use portreeve_api::containment::Containment;
use portreeve_api::local::{ProcessIdentity, ReplicaFolder};
use serde::{Deserialize, Serialize};

/// Everything a shim needs to start one run. The first line on its standard input.
///
/// It holds the job's secrets and is therefore never written to disk and has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub struct Launch {
    /// Which start.
    pub run: Run,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Run before it, once per placement; `None` when it succeeded already.
    pub pre_exec: Option<Vec<String>>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Where to run it.
    pub working_dir: PathBuf,
    /// How its processes are held together.
    #[serde(default)]
    pub containment: Containment,
    /// The arguments by which the shim's program becomes the first process of a namespace.
    #[serde(default)]
    pub init: Vec<String>,
}

impl Launch {
    /// The longest launch line, in bytes: beyond what any system passes to a program.
    pub(crate) const MAX_LINE: usize = 16 << 20;

    /// The variables by which what is left of the run is found, whatever their prefix; no secret is among them.
    pub(crate) fn mark(&self) -> Vec<(String, String)> {
        let is_mark = |name: &str| name.ends_with("_TOKEN_FILE") || name.ends_with("_RUN");
        let env = self.env.iter().filter(|(name, _)| is_mark(name));
        env.cloned().collect()
    }
}

/// One line from the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShimCommand {
    /// Send this signal, then CONT, to the main process.
    Term(i32),
    /// Kill every process of the run until none is left.
    Kill,
}

impl ShimCommand {
    /// The longest command line, in bytes.
    pub(crate) const MAX_LINE: usize = 256;
}

/// One line from the shim, and its file: everything so far, so that a lost line loses nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimState {
    /// The shim itself.
    pub(crate) shim: ProcessIdentity,
    /// `pre_exec` was started.
    pub(crate) pre_exec: bool,
    /// The main process, once it was started.
    pub(crate) spawned: Option<ProcessIdentity>,
    /// Why it could not be started.
    pub(crate) failed: Option<StartFailure>,
    /// How the main process ended.
    pub(crate) exited: Option<ExitStatus>,
    /// No process of the run is left, and none will come.
    pub(crate) empty: bool,
    /// Since when no worker listens.
    pub(crate) alone_since: Option<Monotonic>,
}

impl ShimState {
    /// The longest state line, in bytes; a start failure's text is the only part that varies.
    pub(crate) const MAX_LINE: usize = 64 << 10;
}

/// The files of one run: `<replica>/run-N`.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    pub(crate) fn of(replica: &ReplicaFolder, run: Run) -> Self {
        Self(replica.path().join(format!("{}{run}", Self::PREFIX)))
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// Which shim has the run; made whole in one step, so there is never a second.
    pub(crate) fn claim(&self) -> PathBuf {
        self.0.join("shim.json")
    }

    /// The newest [`ShimState`].
    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// Where the shim answers a later worker.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("shim.sock")
    }

    /// The run's private directory, new and empty.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.0.join("scratch")
    }

    /// Begins the name of every run's folder.
    pub(crate) const PREFIX: &str = "run-";
}

/// Present once `pre_exec` succeeded for this placement.
pub(crate) fn pre_exec_done(replica: &ReplicaFolder) -> PathBuf {
    replica.path().join("pre-exec-done")
}
