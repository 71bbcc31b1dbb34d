//! The first backend: one [`crate::shim`] per run.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, StartFailure};
use portreeve::time::Monotonic;
use portreeve_api::local::{ProcessIdentity, ReplicaFolder, SocketPath};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use crate::file;
use crate::process;
use crate::shim::{Launch, RunFolder, ShimCommand, ShimState};

use super::{Backend, BackendEvent, Found};

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
    program: ShimProgram,
    folder: ReplicaFolder,
    mark: Mark,
    events: mpsc::UnboundedSender<BackendEvent>,
    newest: Option<Followed>,
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

/// The run whose shim is being followed.
struct Followed {
    run: Run,
    commands: mpsc::UnboundedSender<ShimCommand>,
    shim: watch::Receiver<Option<u32>>,
}

impl ShimBackend {
    pub(crate) fn new(
        program: ShimProgram,
        folder: ReplicaFolder,
        mark: Mark,
        events: mpsc::UnboundedSender<BackendEvent>,
    ) -> Self {
        Self {
            program,
            folder,
            mark,
            events,
            newest: None,
        }
    }

    /// Makes the follower of a run and gives it a way to hear commands.
    fn follow(&mut self, run: Run) -> Follower {
        let (commands, orders) = mpsc::unbounded_channel();
        let (found, shim) = watch::channel(None);
        self.newest = Some(Followed {
            run,
            commands,
            shim,
        });
        Follower {
            run,
            files: RunFolder::of(&self.folder, run),
            mark: self.mark.of(run),
            events: self.events.clone(),
            orders,
            shim: found,
            told: Told::default(),
            adopting: false,
        }
    }

    fn command(&self, run: Run, command: ShimCommand) -> bool {
        self.newest
            .as_ref()
            .is_some_and(|newest| newest.run == run && newest.commands.send(command).is_ok())
    }

    /// Starts the shim; the returned stream is its standard input.
    fn start_shim(&self, run: Run) -> io::Result<UnixStream> {
        let files = RunFolder::of(&self.folder, run);
        let made = DirBuilder::new().mode(0o700).create(files.path());
        if let Err(cause) = made
            && cause.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(cause);
        }
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.folder.path().join("shim.log"))?;
        let mut shim = tokio::process::Command::new(&self.program.program)
            .args(&self.program.arguments)
            .arg("--folder")
            .arg(self.folder.path())
            .args(["--run", &run.to_string()])
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        // Buried when it ends; that it ended is seen by its connection.
        tokio::spawn(async move { shim.wait().await });
        UnixStream::from_std(ours)
    }
}

impl Backend for ShimBackend {
    fn spawn(&mut self, launch: Launch) {
        let run = launch.run;
        let follower = self.follow(run);
        let started = serde_json::to_vec(&launch)
            .map_err(io::Error::from)
            .and_then(|line| Ok((self.start_shim(run)?, line)));
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
                follower.tell(BackendEvent::SpawnFailed { run, why });
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
            // Nobody follows it: it never began, or its end was told. Only that it is empty is asked for.
            let mut follower = self.follow(run);
            follower.told.spawned = true;
            follower.told.failed = true;
            follower.told.exited = true;
            tokio::spawn(follower.lost());
        }
    }

    fn root(&self) -> Option<u32> {
        *self.newest.as_ref()?.shim.borrow()
    }
}

/// Follows one shim until its run is empty, and tells each thing once.
struct Follower {
    run: Run,
    files: RunFolder,
    mark: [(String, String); 2],
    events: mpsc::UnboundedSender<BackendEvent>,
    orders: mpsc::UnboundedReceiver<ShimCommand>,
    shim: watch::Sender<Option<u32>>,
    told: Told,
    /// [`Backend::adopt`] was not answered yet.
    adopting: bool,
}

/// What the driver knows.
#[derive(Default)]
struct Told {
    pre_exec: bool,
    spawned: bool,
    failed: bool,
    exited: bool,
    empty: bool,
}

impl Follower {
    async fn launch(self, mut stream: UnixStream, line: Vec<u8>) {
        // If it fails the shim is gone, and following it finds that out.
        _ = stream.write_all(&line).await;
        self.follow(Some(stream)).await;
    }

    async fn adopt(mut self) {
        let run = self.run;
        if matches!(
            file::read_json::<ProcessIdentity>(&self.files.claim()),
            Ok(None)
        ) {
            // A shim that was started but has not claimed the run yet finds it claimed by the next one, or the
            // next one finds it claimed and is replaced by this one: either way there is one.
            self.tell(BackendEvent::Adopted {
                run,
                found: Found::Nothing,
            });
            return;
        }
        self.adopting = true;
        let stream = self.connect().await;
        self.follow(stream).await;
    }

    /// Passes orders and news on until the run is empty.
    async fn follow(mut self, mut stream: Option<UnixStream>) {
        while let Some(connected) = stream {
            self.listen(connected).await;
            if self.told.empty {
                return;
            }
            stream = self.connect().await;
        }
        self.lost().await;
    }

    /// Connects to the shim that has the run, as long as it lives.
    ///
    /// It answers soon after it claimed the run. One that dropped us, because we did not read in time, is
    /// asked again; and one of an earlier worker may have claimed the run before ours did.
    async fn connect(&self) -> Option<UnixStream> {
        let mut wait = Self::AGAIN.0;
        while matches!(file::read_json(&self.files.claim()), Ok(Some(shim)) if process::lives(&shim))
        {
            let path = SocketPath::of(&self.files.socket()).ok()?;
            if let Ok(stream) = UnixStream::connect(path.as_path()).await {
                return Some(stream);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Self::AGAIN.1);
        }
        None
    }

    async fn listen(&mut self, stream: UnixStream) {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            tokio::select! {
                // `read_until` keeps what it has read in `line` when it is dropped.
                read = read_line(&mut lines, &mut line) => {
                    let state = read.ok().and_then(|()| serde_json::from_slice(&line).ok());
                    line.clear();
                    let Some(state) = state else { return };
                    self.learn(&state);
                    if self.told.empty {
                        return;
                    }
                }
                order = self.orders.recv() => {
                    let Some(order) = order else {
                        // The driver follows another run: this one is over for it.
                        self.told.empty = true;
                        return;
                    };
                    let mut text = serde_json::to_vec(&order).unwrap_or_default();
                    text.push(b'\n');
                    // If it fails, the end of the connection is read next.
                    _ = writer.write_all(&text).await;
                }
            }
        }
    }

    /// The shim is gone. What it wrote down is told; what it left running is killed.
    async fn lost(mut self) {
        let run = self.run;
        if let Ok(Some(state)) = file::read_json::<ShimState>(&self.files.state()) {
            self.learn(&state);
        }
        self.shim.send_replace(None);
        if self.told.empty {
            return;
        }
        self.adopted(None);
        if !self.told.spawned && !self.told.failed {
            self.tell(BackendEvent::SpawnFailed {
                run,
                why: StartFailure::Prepare("its shim ended before the service was started".into()),
            });
        } else if self.told.spawned && !self.told.exited {
            self.tell(BackendEvent::Exited {
                run,
                status: ExitStatus::Unknown,
            });
        }
        let mut wait = Self::AGAIN.0;
        loop {
            let left = process::with_variables(&self.mark);
            if left.is_empty() {
                break;
            }
            for stat in &left {
                process::kill(stat);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Self::AGAIN.1);
        }
        self.tell(BackendEvent::GroupEmpty { run });
    }

    /// How long until a shim is connected to again, or it is looked again whether a killed process is
    /// gone: at first and at most.
    const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

    /// Answers [`Backend::adopt`], once.
    fn adopted(&mut self, alone_since: Option<Monotonic>) {
        if std::mem::take(&mut self.adopting) {
            self.tell(BackendEvent::Adopted {
                run: self.run,
                found: Found::Begun { alone_since },
            });
        }
    }

    /// Tells what is new in the shim's state.
    fn learn(&mut self, state: &ShimState) {
        let run = self.run;
        self.shim.send_replace(Some(state.shim.pid));
        self.adopted(state.alone_since);
        if state.pre_exec && !std::mem::replace(&mut self.told.pre_exec, true) {
            self.tell(BackendEvent::PreExecStarted { run });
        }
        if let Some(process) = &state.spawned
            && !std::mem::replace(&mut self.told.spawned, true)
        {
            self.tell(BackendEvent::Spawned {
                run,
                process: process.clone(),
            });
        }
        if let Some(why) = &state.failed
            && !std::mem::replace(&mut self.told.failed, true)
        {
            self.tell(BackendEvent::SpawnFailed {
                run,
                why: why.clone(),
            });
        }
        if let Some(status) = state.exited
            && !std::mem::replace(&mut self.told.exited, true)
        {
            self.tell(BackendEvent::Exited { run, status });
        }
        if state.empty && !std::mem::replace(&mut self.told.empty, true) {
            self.shim.send_replace(None);
            self.tell(BackendEvent::GroupEmpty { run });
        }
    }

    fn tell(&self, event: BackendEvent) {
        // The driver is gone only when the worker ends.
        _ = self.events.send(event);
    }
}

/// Reads one line of at most [`ShimState::MAX_LINE`] bytes into `line`.
async fn read_line(
    lines: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<()> {
    let left = ShimState::MAX_LINE.saturating_sub(line.len());
    lines.take(left as u64).read_until(b'\n', line).await?;
    if line.ends_with(b"\n") {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
