//! One replica's folder, its worker and a controller to talk to.

use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portreeve::identity::{Incarnation, ServiceId};
use portreeve::port::{Port, PortRange, PortRanges};
use portreeve::port_pool::{GrantedPort, PortGrant};
use portreeve::profile::Profile;
use portreeve::registry::{Desired, Want};
use portreeve::supervision::Status;
use portreeve_api::containment::{Choice, Containment, Ladder, Rung};
use portreeve_api::local::{
    Assignment, LogBounds, LogStream, ProcessIdentity, ReplicaFolder, SocketPath, Tokens,
    WorkerAnswer, WorkerCommand,
};

use portreeve_api::service_manager::BackendKind;
use portreeve_api::tls::TlsFiles;

use crate::controller::Controller;

/// Ends its worker, and with it everything, when dropped.
pub(crate) struct World {
    pub(crate) controller: Controller,
    pub(crate) assignment: Assignment,
    pub(crate) folder: ReplicaFolder,
    worker: Option<Child>,
    root: tempfile::TempDir,
}

impl World {
    /// A world whose replica runs `command` by `/bin/sh`, with further lines of the profile; ready after
    /// 50 ms, restarted after 100 ms.
    pub(crate) fn running(command: &str, more: &str) -> Self {
        let mut world = Self::prepared(command, more);
        world.start_worker();
        world
    }

    /// The same before the worker is started.
    pub(crate) fn prepared(command: &str, more: &str) -> Self {
        // In a profile `$$` is one dollar.
        let command = toml_text(&command.replace("$$", "$$$$"));
        Self::of_profile(&format!("command = {command}\n{more}"))
    }

    pub(crate) fn of_profile(lines: &str) -> Self {
        let restart = if lines.contains("[restart]") {
            ""
        } else {
            "\n[restart]\nbackoff = { initial = \"100ms\", max = \"1s\" }\n"
        };
        let text =
            format!("kind = \"service\"\nname = \"web\"\nmin_up = \"50ms\"\n{lines}\n{restart}");
        let profile = Profile::from_toml(&text)
            .unwrap_or_else(|errors| panic!("{errors}"))
            .profile;
        let root = tempfile::tempdir().unwrap();
        // As deep as a site may have it: longer than the path of a Unix socket may be.
        let path = root
            .path()
            .join("state-of-the-agent".repeat(8))
            .join("replicas/web.alice~0~1");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .unwrap();
        let controller = Controller::start();
        let me = ProcessIdentity::of_self().unwrap();
        let grant = PortGrant {
            ports: profile
                .ports
                .iter()
                .map(|port| GrantedPort {
                    name: port.name.clone(),
                    protocol: port.protocol,
                    numbers: PortRange::single(free_port()),
                })
                .collect(),
        };
        let assignment = Assignment {
            desired: Desired {
                service: "web.alice".parse().unwrap(),
                service_id: ServiceId(1),
                index: 0,
                incarnation: Incarnation(1),
                want: Want::Run,
                restart_no: 0,
                addresses: std::collections::BTreeMap::new(),
                grant,
                profile: profile.into(),
                user: "alice".into(),
                uid: nix::unistd::geteuid().as_raw(),
                last_status: None,
                attached: false,
            },
            host: "n01".parse().unwrap(),
            host_address: [127, 0, 0, 1].into(),
            single_host: true,
            controller: Some(controller.target()),
            further_controllers: Vec::new(),
            tls: TlsFiles::default(),
            tokens: Tokens {
                worker: "token-of-web".into(),
                job: "token-of-its-job".into(),
            },
            boot_id: me.boot_id,
            lifeline: None,
            prefix: "PORTREEVE_".into(),
            containment: contained(rung(), root.path()),
            user: None,
            backend: BackendKind::Process,
            logs: LogBounds::default(),
            pool: PortRanges::default(),
        };
        assignment.containment.prepare(None).unwrap();
        Self {
            controller,
            assignment,
            folder: ReplicaFolder::at(path),
            worker: None,
            root,
        }
    }

    /// From the next start of the worker on, runs are held by this rung.
    pub(crate) fn hold_by(&mut self, rung: Rung) {
        assert!(self.assignment.containment.remove());
        self.assignment.containment = contained(Choice::Only(rung), self.root.path());
        self.assignment.containment.prepare(None).unwrap();
    }

    /// Starts a worker; an earlier one must be gone.
    pub(crate) fn start_worker(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portreeve-worker-harness"));
        command.args(["worker", "--folder"]).arg(self.folder.path());
        self.start_worker_by(command);
    }

    pub(crate) fn start_worker_by(&mut self, mut command: Command) {
        assert!(self.worker.is_none());
        let assignment = serde_json::to_vec(&self.assignment).unwrap();
        fs::write(self.folder.assignment(), assignment).unwrap();
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.path("worker.log"))
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.worker = Some(command.spawn().unwrap());
    }

    pub(crate) fn kill_worker(&mut self) {
        let mut worker = self.worker.take().unwrap();
        worker.kill().unwrap();
        worker.wait().unwrap();
    }

    pub(crate) fn signal_worker(&self, of: Signal) {
        signal(self.worker.as_ref().unwrap().id(), of);
    }

    /// Waits for the worker to end by itself.
    pub(crate) fn worker_ends(&mut self) -> bool {
        let mut worker = self.worker.take().unwrap();
        until("the worker ends", || worker.try_wait().unwrap().is_some());
        worker.wait().unwrap().success()
    }

    pub(crate) fn ready(&self) -> Status {
        self.controller.until("ready", |status| status.ready)
    }

    /// Tells the worker something over its socket.
    pub(crate) fn order(&self, command: &WorkerCommand) -> WorkerAnswer {
        let mut line = serde_json::to_vec(command).unwrap();
        line.push(b'\n');
        self.converse(&line)
    }

    pub(crate) fn converse(&self, line: &[u8]) -> WorkerAnswer {
        let path = SocketPath::of(&self.folder.worker_socket()).unwrap();
        let mut stream = UnixStream::connect(path.as_path()).unwrap();
        stream.write_all(line).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    pub(crate) fn want(&self, want: Want, restart_no: u64) -> WorkerAnswer {
        self.order(&WorkerCommand::Want { want, restart_no })
    }

    /// A file in the replica's folder, which is the service's working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|cause| panic!("{name}: {cause}"))
    }

    /// The text once the file exists whole: its last line ends.
    pub(crate) fn text_once_there(&self, name: &str) -> String {
        let there = || fs::read_to_string(self.path(name)).is_ok_and(|text| text.ends_with('\n'));
        until(name, there);
        self.text(name)
    }

    pub(crate) fn log(&self, stream: LogStream) -> String {
        fs::read_to_string(self.folder.log(stream)).unwrap()
    }

    /// The pid of the shim of this run.
    pub(crate) fn shim(&self, run: u32) -> u32 {
        let claim = self.text(&format!("run-{run}/shim.json"));
        serde_json::from_str::<ProcessIdentity>(&claim).unwrap().pid
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            _ = worker.kill();
            _ = worker.wait();
        }
        // What a killed worker leaves goes on by design; here it must not outlive the test.
        for entry in fs::read_dir(self.folder.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let claim = fs::read(entry.path().join("shim.json"));
            let claim = claim
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            let Some(shim) = claim.filter(ProcessIdentity::is_alive) else {
                continue;
            };
            let path = SocketPath::of(&entry.path().join("shim.sock")).unwrap();
            if let Ok(mut stream) = UnixStream::connect(path.as_path()) {
                _ = stream.write_all(b"\"kill\"\n");
                until("the shim ends", || is_gone(shim.pid));
            }
        }
        let containment = self.assignment.containment.clone();
        if !std::thread::panicking() {
            until("its control group is removed", || containment.remove());
        }
        if std::thread::panicking() {
            for name in ["worker.log", "shim.log", "stdout.log", "stderr.log"] {
                let text = fs::read_to_string(self.path(name)).unwrap_or_default();
                eprintln!("--- {name}\n{text}");
            }
            eprintln!("--- {}", self.root.path().display());
        }
    }
}

/// The rung on which the tests run: that of `PORTREEVE_TEST_CONTAINMENT`, else the highest of this host.
fn rung() -> Choice {
    let forced = std::env::var("PORTREEVE_TEST_CONTAINMENT").ok();
    match forced.map(|rung| rung.parse().unwrap()) {
        Some(Choice::Only(rung)) if crate::rungs::is_there(rung) => Choice::Only(rung),
        _ => Choice::Auto,
    }
}

fn contained(rung: Choice, state: &std::path::Path) -> Containment {
    let ladder = Ladder::climb(rung, state).unwrap();
    ladder.containment("web.alice~0~1", true).unwrap()
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Whether the process ended; one that waits to be reaped did.
pub(crate) fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| {
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.starts_with(" Z"))
    })
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

pub(crate) fn free_port() -> Port {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    Port::new(listener.local_addr().unwrap().port()).unwrap()
}

pub(crate) fn write_private(path: &std::path::Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// As a TOML string.
fn toml_text(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}
