//! Follows the shim of one run, across its worker's death and its own.

use std::io;
use std::time::Duration;

use portreeve::attendance::{Found, MainProcess, ProcessEvent};
use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, StartFailure};
use portreeve::time::Monotonic;
use portreeve_api::containment::Containment;
use portreeve_api::local::{ProcessIdentity, SocketPath};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use crate::containment::{self, Hold};
use crate::file;
use crate::process::{self, Stat};
use crate::shim::{RunFolder, ShimCommand, ShimState};

use super::BackendEvent;
use super::remains::Remains;
use super::unit::Unit;

/// Follows one shim until its run is empty, and tells each thing once.
pub(super) struct Follower {
    run: Run,
    files: RunFolder,
    mark: [(String, String); 2],
    containment: Containment,
    /// Where a service manager keeps the run.
    unit: Option<Unit>,
    events: mpsc::UnboundedSender<BackendEvent>,
    orders: mpsc::UnboundedReceiver<ShimCommand>,
    shim: watch::Sender<Option<u32>>,
    told: Told,
    /// The main process and its shim, once told of.
    main: Option<(ProcessIdentity, u32)>,
    /// That the run is adopted was not told yet.
    adopting: bool,
    /// The run is to be killed; said again to a shim that may not have heard it.
    killing: bool,
}

/// The driver's side of a [`Follower`].
pub(super) struct Followed {
    pub(super) run: Run,
    commands: mpsc::UnboundedSender<ShimCommand>,
    shim: watch::Receiver<Option<u32>>,
}

impl Followed {
    /// Passes a command on; whether anybody follows the run still.
    pub(super) fn command(&self, command: ShimCommand) -> bool {
        self.commands.send(command).is_ok()
    }

    /// The shim, once it was heard of and until it is gone.
    pub(super) fn shim(&self) -> Option<u32> {
        *self.shim.borrow()
    }
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
    /// Of `run` in its folder; `mark` is what its processes inherit, `containment` what holds them.
    pub(super) fn new(
        run: Run,
        files: RunFolder,
        mark: [(String, String); 2],
        containment: Containment,
        unit: Option<Unit>,
        events: mpsc::UnboundedSender<BackendEvent>,
    ) -> (Self, Followed) {
        let (commands, orders) = mpsc::unbounded_channel();
        let (found, shim) = watch::channel(None);
        let follower = Self {
            run,
            files,
            mark,
            containment,
            unit,
            events,
            orders,
            shim: found,
            told: Told::default(),
            main: None,
            adopting: false,
            killing: false,
        };
        let followed = Followed {
            run,
            commands,
            shim,
        };
        (follower, followed)
    }

    /// The unit in which the run is, where a service manager keeps it.
    pub(super) fn unit(&mut self) -> Option<&mut Unit> {
        self.unit.as_mut()
    }

    /// Sends the launch to a shim that was just started, and follows it.
    pub(super) async fn launch(self, mut stream: UnixStream, line: Vec<u8>) {
        // If it fails the shim is gone, and following it finds that out.
        _ = stream.write_all(&line).await;
        self.follow(Some(stream)).await;
    }

    /// Looks for what an earlier worker started, and follows it.
    pub(super) async fn adopt(mut self) {
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

    /// Sees to it that nothing of a run is left that nobody follows, and tells only that.
    pub(super) async fn bury(mut self) {
        self.told.spawned = true;
        self.told.failed = true;
        self.told.exited = true;
        self.lost().await;
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
        while self.may_live() {
            if let Ok(path) = SocketPath::of(&self.files.socket())
                && let Ok(stream) = UnixStream::connect(path.as_path()).await
            {
                return Some(stream);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Self::AGAIN.1);
        }
        None
    }

    /// Whether a shim has the run and is not known to be gone.
    fn may_live(&self) -> bool {
        match file::read_json::<ProcessIdentity>(&self.files.claim()) {
            Ok(Some(shim)) => process::lives(&shim),
            Ok(None) => false,
            // Out of descriptors, say. To take it for dead would cost the service its life.
            Err(_) => self.files.claim().exists(),
        }
    }

    async fn listen(&mut self, stream: UnixStream) {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader);
        let mut line = Vec::new();
        if self.killing {
            say(&mut writer, ShimCommand::Kill).await;
        }
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
                    self.killing |= order == ShimCommand::Kill;
                    say(&mut writer, order).await;
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
            let refusal = match &mut self.unit {
                Some(unit) => unit.refusal().await,
                None => None,
            };
            let words =
                refusal.unwrap_or_else(|| "its shim ended before the service was started".into());
            self.tell(ProcessEvent::SpawnFailed {
                run,
                why: StartFailure::Prepare(words),
            });
        } else if self.told.spawned && !self.told.exited {
            self.tell(ProcessEvent::Exited {
                run,
                status: ExitStatus::Unknown,
            });
        }
        self.end_remains(true).await;
        self.tell(ProcessEvent::GroupEmpty { run });
    }

    /// Ends what there is of a run that nobody follows, its shim with it, and tells nothing.
    pub(super) async fn end(mut self) {
        if let Ok(Some(shim)) = file::read_json::<ProcessIdentity>(&self.files.claim()) {
            let mut wait = Self::AGAIN.0;
            while process::lives(&shim) {
                let below = process::descendants(shim.pid);
                below.iter().for_each(process::kill);
                if below.is_empty()
                    && let Ok(found) = Stat::read(shim.pid)
                    && found.start_ticks == shim.start_ticks
                {
                    // It may wait for room to write down how the run ended, which nobody asks for.
                    process::kill(&found);
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Self::AGAIN.1);
            }
        }
        if let Ok(Some(state)) = file::read_json::<ShimState>(&self.files.state()) {
            self.main = state.spawned.map(|main| (main, state.shim.pid));
        }
        // A living run beside it may be what its worker takes over next.
        self.end_remains(false).await;
    }

    /// Kills what is left of the run until nothing is; `alone`: no other run of the replica lives.
    async fn end_remains(&self, alone: bool) {
        let run = self.run;
        let mut hold = Hold::of(&self.containment, run);
        if let Some(unit) = &self.unit {
            unit.end().await;
        }
        let mut remains = Remains {
            mark: &self.mark,
            main: self.main.clone(),
            found: Vec::new(),
        };
        let mut wait = Self::AGAIN.0;
        loop {
            let empty = hold.is_empty();
            if !matches!(empty, Ok(true)) {
                hold.kill();
            }
            let strays = match alone {
                true => containment::strays(&self.containment),
                false => Ok(Vec::new()),
            };
            match (remains.living(), empty, strays) {
                (Ok([]), Ok(true), Ok(strays)) if strays.is_empty() => break,
                (Ok(left), Ok(_), Ok(strays)) => left.iter().chain(&strays).for_each(process::kill),
                (Err(cause), _, _) | (_, Err(cause), _) | (_, _, Err(cause)) => {
                    tracing::warn!("what run {run} left cannot be looked for: {cause}");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Self::AGAIN.1);
        }
        // It may be busy for a moment; then it is removed before the next start.
        hold.remove();
    }

    /// How long until a shim is connected to again, or it is looked again whether a killed process is
    /// gone: at first and at most.
    const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

    /// Tells that the run is adopted, once.
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
        if let Some(unit) = &mut self.unit {
            unit.heard(state.shim.pid);
        }
        if let Some(main) = &state.spawned {
            self.main = Some((main.clone(), state.shim.pid));
        }
        self.adopted(state.alone_since);
        if state.pre_exec && !std::mem::replace(&mut self.told.pre_exec, true) {
            self.tell(ProcessEvent::PreExecStarted { run });
        }
        if let Some(process) = &state.spawned
            && !std::mem::replace(&mut self.told.spawned, true)
        {
            self.tell(ProcessEvent::Spawned {
                run,
                process: named(process),
            });
        }
        if let Some(why) = &state.failed
            && !std::mem::replace(&mut self.told.failed, true)
        {
            self.tell(ProcessEvent::SpawnFailed {
                run,
                why: why.clone(),
            });
        }
        if let Some(status) = state.exited
            && !std::mem::replace(&mut self.told.exited, true)
        {
            self.tell(ProcessEvent::Exited { run, status });
        }
        if state.empty && !std::mem::replace(&mut self.told.empty, true) {
            self.shim.send_replace(None);
            self.tell(ProcessEvent::GroupEmpty { run });
        }
    }

    pub(super) fn tell(&self, event: impl Into<BackendEvent>) {
        // The driver is gone only when the worker ends.
        _ = self.events.send(event.into());
    }
}

/// The main process, as the core names it.
fn named(process: &ProcessIdentity) -> MainProcess {
    MainProcess {
        pid: process.pid,
        start_ticks: process.start_ticks,
        boot_id: process.boot_id.clone(),
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

/// Says one line. If it fails, the end of the connection is read next.
async fn say(writer: &mut (impl AsyncWriteExt + Unpin), command: ShimCommand) {
    let mut text = serde_json::to_vec(&command).unwrap_or_default();
    text.push(b'\n');
    _ = writer.write_all(&text).await;
}
