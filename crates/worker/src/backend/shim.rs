//! The backends on a real host: one [`crate::shim`] per run, as a child or as a unit of a service manager.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;

use portreeve::attendance::ProcessEvent;
use portreeve::identity::Run;
use portreeve::supervision::StartFailure;
use portreeve_api::containment::Containment;
use portreeve_api::local::ReplicaFolder;
use portreeve_api::service_manager::BackendKind;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::containment;
use crate::probe::owner::Root;
use crate::shim::{Launch, RunFolder, ShimCommand};

use super::follower::{Followed, Follower};
use super::leftovers::Leftovers;
use super::unit::Unit;
use super::{Backend, BackendEvent};

/// The program that can be a shim, and the arguments that make it one; `--folder DIR --run N` follow them.
#[derive(Clone, Debug)]
pub struct ShimProgram {
    /// The program.
    pub program: PathBuf,
    /// The first arguments.
    pub arguments: Vec<OsString>,
}

impl ShimProgram {
    /// This very program as `portreeve shim`.
    ///
    /// # Errors
    ///
    /// The system's, when its path cannot be read.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            arguments: vec!["shim".into()],
        })
    }
}

/// Runs each run below a shim of its own.
pub(crate) struct ShimBackend {
    kind: BackendKind,
    program: ShimProgram,
    folder: ReplicaFolder,
    mark: Mark,
    containment: Containment,
    events: mpsc::UnboundedSender<BackendEvent>,
    newest: Option<Followed>,
    /// What bears the replica's mark was looked for: from then on this worker has seen the end of each run.
    searched: bool,
}

/// Variables that every process of a run inherits, to find those whose shim is lost.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Begins the names.
    pub(crate) prefix: String,
    /// The token file, one per incarnation.
    pub(crate) token_file: String,
}

impl Mark {
    fn of(&self, run: Run) -> [(String, String); 2] {
        let name = |word: &str| format!("{}{word}", self.prefix);
        [
            (name("TOKEN_FILE"), self.token_file.clone()),
            (name("RUN"), run.to_string()),
        ]
    }
}

impl Mark {
    /// What the shim of an attached replica has in its own environment, so that its host finds it with its service.
    fn of_attached<'a>(
        &'a self,
        launch: &'a Launch,
    ) -> impl Iterator<Item = (String, String)> + 'a {
        let words = ["SERVICE", "NAMESPACE", "REPLICA", "INCARNATION"];
        let is_mark = move |name: &str| {
            let word = name.strip_prefix(&self.prefix);
            launch.attached && word.is_some_and(|word| words.contains(&word))
        };
        let env = launch.env.iter();
        env.filter(move |(name, _)| is_mark(name)).cloned()
    }
}

impl ShimBackend {
    pub(crate) fn new(
        kind: BackendKind,
        program: ShimProgram,
        folder: ReplicaFolder,
        mark: Mark,
        containment: Containment,
        events: mpsc::UnboundedSender<BackendEvent>,
    ) -> Self {
        let containment = match kind {
            BackendKind::Process => containment,
            // The manager's own group holds the run, and no process of it may leave that.
            BackendKind::Systemd(_) => Containment::default(),
        };
        Self {
            kind,
            program,
            folder,
            mark,
            containment,
            events,
            newest: None,
            searched: false,
        }
    }

    /// Makes the follower of a run and gives it a way to hear commands.
    fn follow(&mut self, run: Run) -> Follower {
        let (follower, followed) = self.follower(run);
        self.newest = Some(followed);
        follower
    }

    fn follower(&self, run: Run) -> (Follower, Followed) {
        let unit = match self.kind {
            BackendKind::Process => None,
            BackendKind::Systemd(manager) => {
                Some(Unit::of(manager.of_this_user(), &self.folder, run))
            }
        };
        Follower::new(
            run,
            RunFolder::of(&self.folder, run),
            self.mark.of(run),
            self.containment.clone(),
            unit,
            self.events.clone(),
        )
    }

    fn command(&self, run: Run, command: ShimCommand) -> bool {
        self.newest
            .as_ref()
            .is_some_and(|newest| newest.run == run && newest.command(command))
    }

    /// Starts the shim; the returned stream is its standard input.
    fn start_shim(&self, launch: &Launch, unit: Option<&mut Unit>) -> io::Result<UnixStream> {
        let run = launch.run;
        let files = RunFolder::of(&self.folder, run);
        let made = DirBuilder::new().mode(0o700).create(files.path());
        if let Err(cause) = made
            && cause.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(cause);
        }
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stdin = Stdio::from(OwnedFd::from(theirs));
        let words = self.folder.path().join("shim.log");
        let log = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&words)
        };
        if let Some(unit) = unit {
            log()?;
            unit.start(&self.program, &self.folder, run, stdin, &words)?;
            return UnixStream::from_std(ours);
        }
        let (stdout, stderr) = if launch.attached {
            (Stdio::inherit(), Stdio::inherit())
        } else {
            (Stdio::null(), log()?.into())
        };
        let mut shim = tokio::process::Command::new(&self.program.program)
            .args(&self.program.arguments)
            .arg("--folder")
            .arg(self.folder.path())
            .args(["--run", &run.to_string()])
            .env_clear()
            .envs(self.mark.of_attached(launch))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        // Buried when it ends; that it ended is seen by its connection.
        tokio::spawn(async move { shim.wait().await });
        UnixStream::from_std(ours)
    }
}

impl Backend for ShimBackend {
    fn spawn(&mut self, mut launch: Launch) {
        let run = launch.run;
        let arguments = self.program.arguments.iter();
        let arguments = arguments.map(|one| one.to_string_lossy().into_owned());
        launch.containment = self.containment.clone();
        launch.init = arguments.chain(["--init".to_owned()]).collect();
        let mut follower = self.follow(run);
        let started = serde_json::to_vec(&launch)
            .map_err(io::Error::from)
            .and_then(|line| Ok((self.start_shim(&launch, follower.unit())?, line)));
        match started {
            Ok((stream, mut line)) => {
                line.push(b'\n');
                tokio::spawn(follower.launch(stream, line));
            }
            Err(cause) => {
                let why = cause.raw_os_error().map_or_else(
                    || StartFailure::Prepare(format!("the shim: {cause}")),
                    StartFailure::Errno,
                );
                // That it is empty is told when it is asked for.
                follower.tell(ProcessEvent::SpawnFailed { run, why });
            }
        }
    }

    fn adopt(&mut self, run: Run) {
        tokio::spawn(self.follow(run).adopt());
    }

    fn term(&mut self, run: Run, signal: i32) {
        self.command(run, ShimCommand::Term(signal));
    }

    fn kill_group(&mut self, run: Run) {
        if !self.command(run, ShimCommand::Kill) {
            // Nobody follows it: it never began, or its end was told.
            tokio::spawn(self.follow(run).bury());
        }
    }

    fn end_unrecorded(&mut self, run: Run) -> Pin<Box<dyn Future<Output = ()>>> {
        let (follower, _) = self.follower(run);
        Box::pin(follower.end())
    }

    fn clear(&mut self, run: Run) -> bool {
        let searched = std::mem::replace(&mut self.searched, true);
        let mut leftovers = Leftovers::of(&self.folder, &self.mark, &self.containment, run);
        if !leftovers.any(!searched) {
            return true;
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            // The driver is gone only when the worker ends.
            _ = events.send(BackendEvent::Process(match leftovers.end().await {
                Ok(()) => ProcessEvent::Cleared { run },
                Err(why) => ProcessEvent::SpawnFailed { run, why },
            }));
        });
        false
    }

    fn root(&self) -> Option<Root> {
        let newest = self.newest.as_ref()?;
        Some(Root {
            pid: newest.shim()?,
            group: containment::group_of(&self.containment, newest.run),
        })
    }
}
