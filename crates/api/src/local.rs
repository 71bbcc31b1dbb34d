//! What agent and worker of one host share: the replica's folder, the worker's socket, identities of processes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve::identity::{HostName, Incarnation, ServiceName};
use portreeve::port::{PortName, PortRanges};
use portreeve::registry::{Desired, Want};
use portreeve::supervision::{Leaving, Status};
use serde::{Deserialize, Serialize};

pub use crate::account::{Ids, JobUser, ParseIdsError};
pub use crate::log_parts::LogBounds;

use crate::containment::Containment;
use crate::service_manager::BackendKind;
use crate::tls::TlsFiles;
use crate::{Client, Target};

/// The folder of one incarnation: `<state>/replicas/<service>~<index>~<incarnation>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFolder(PathBuf);

impl ReplicaFolder {
    /// The folder of this incarnation below the agent's state folder.
    #[must_use]
    pub fn of(state: &Path, service: &ServiceName, index: u32, incarnation: Incarnation) -> Self {
        Self(
            state
                .join("replicas")
                .join(format!("{service}~{index}~{incarnation}")),
        )
    }

    /// The folder at this path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What the worker shall run: [`Assignment`], 0600, written by the agent before the worker starts.
    #[must_use]
    pub fn assignment(&self) -> PathBuf {
        self.0.join("assignment.json")
    }

    /// Who the worker is: [`ProcessIdentity`], written by the worker.
    #[must_use]
    pub fn worker(&self) -> PathBuf {
        self.0.join("worker.json")
    }

    /// Where the worker takes [`WorkerCommand`]s, one JSON line each, and answers each with a [`WorkerAnswer`] line.
    #[must_use]
    pub fn worker_socket(&self) -> PathBuf {
        self.0.join("worker.sock")
    }

    /// The newest [`Status`], written before it is sent.
    #[must_use]
    pub fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    /// The stored machine and what else a new worker needs to take over.
    #[must_use]
    pub fn machine(&self) -> PathBuf {
        self.0.join("machine.json")
    }

    /// The token file the job sees, 0600.
    #[must_use]
    pub fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    /// What the service writes, and the record of what happened to it.
    #[must_use]
    pub fn log(&self, stream: LogStream) -> PathBuf {
        self.0.join(match stream {
            LogStream::Stdout => "stdout.log",
            LogStream::Stderr => "stderr.log",
            LogStream::Events => "supervision.jsonl",
            LogStream::EventsBefore => "supervision.1.jsonl",
        })
    }

    /// The page that all workers of the host share, [`crate::host_limits`]; `None` for a folder outside an agent's
    /// state folder.
    #[must_use]
    pub fn host_limits(&self) -> Option<PathBuf> {
        let replicas = self.0.parent()?;
        (replicas.file_name()? == "replicas").then(|| replicas.with_file_name("limits"))
    }

    /// Present once the incarnation ended and its worker could not write that down: the mark is empty, and a disk on which
    /// nothing more fits has room for it. What the record says is older.
    #[must_use]
    pub fn over(&self) -> PathBuf {
        self.0.join("over")
    }

    /// Present once the incarnation ended and the controller knows: only logs are kept.
    #[must_use]
    pub fn ended(&self) -> PathBuf {
        self.0.join("ended")
    }
}

/// What can be read of a replica: the two output streams of its service, and the record of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// What happened, as [`portreeve::supervision::record`] writes it; begins with the machine's state.
    Events,
    /// The part before, if there is one.
    EventsBefore,
}

/// A way to a Unix socket that fits the kernel's 107 bytes however deep its folder lies.
///
/// The folder is held open and named by its descriptor, so the value must live until `bind` or
/// `connect` has returned.
#[derive(Debug)]
pub struct SocketPath {
    _folder: File,
    short: PathBuf,
}

impl SocketPath {
    /// The way to the socket `path`, which need not exist yet; its folder must.
    ///
    /// # Errors
    ///
    /// The system's, if the folder cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let folder = File::open(parent.unwrap_or(Path::new(".")))?;
        let short = Path::new("/proc/self/fd")
            .join(folder.as_raw_fd().to_string())
            .join(name);
        Ok(Self {
            _folder: folder,
            short,
        })
    }

    /// What to give to `bind` or `connect`.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.short
    }
}

/// What one incarnation proves itself with, each to its own end: a job must not tell its own readiness or end.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Speaks for this incarnation; never given to the job.
    pub worker: String,
    /// Reads what the owner may see.
    pub job: String,
}

/// Whoever prints one shows no secret.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// Everything a worker needs to begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The replica as the controller wants it.
    pub desired: Desired,
    /// This host.
    pub host: HostName,
    /// Its published address.
    pub host_address: IpAddr,
    /// Whether loopback listeners are as good as published ones.
    pub single_host: bool,
    /// Where the controller answers; `None`: nobody but the scheduler that started the worker is told.
    #[serde(default)]
    pub controller: Option<Target>,
    /// Further addresses of it, tried in order where the first does not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_controllers: Vec<Target>,
    /// What is believed and shown where that is spoken with over TLS.
    #[serde(default, skip_serializing_if = "TlsFiles::is_usual")]
    pub tls: TlsFiles,
    /// What the worker and its job prove themselves with.
    pub tokens: Tokens,
    /// The boot in which it was written; in another one every run is lost.
    pub boot_id: String,
    /// When this process ends, the service shall end too: for `dev` with a temporary folder.
    pub lifeline: Option<ProcessIdentity>,
    /// Begins every variable: `PORTREEVE_`.
    pub prefix: String,
    /// How its runs are held; the same as long as it lives, also when the agent's configuration changes.
    #[serde(default)]
    pub containment: Containment,
    /// As whom everything of the job runs; `None`: as the agent itself.
    #[serde(default)]
    pub user: Option<JobUser>,
    /// What starts its processes.
    #[serde(default)]
    pub backend: BackendKind,
    /// How much of its output is kept.
    #[serde(default)]
    pub logs: LogBounds,
    /// Numbers that replicas of this host are given: connections of ours begin on none of them.
    #[serde(default)]
    pub pool: PortRanges,
}

impl Assignment {
    /// A client of its controller; `None` where nobody is told.
    #[must_use]
    pub fn client(&self) -> Option<Client> {
        let client = Client::new(self.controller.clone()?);
        let further = self.further_controllers.iter().cloned();
        Some(client.with_further(further).with_tls(self.tls.clone()))
    }
}

/// A process that cannot be mistaken for a later one with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// Its start time in clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
    /// The boot.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// The identity of this process.
    ///
    /// # Errors
    ///
    /// The system's, when `/proc` cannot be read.
    pub fn of_self() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The identity of the process that has this number now.
    ///
    /// # Errors
    ///
    /// The system's: there is no such process, or `/proc` cannot be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The command's name stands in parentheses and may itself hold blanks and parentheses.
        let after = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
        let start_ticks = after
            .split_ascii_whitespace()
            .nth(19)
            .and_then(|field| field.parse().ok());
        let start_ticks = start_ticks.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "unreadable /proc/PID/stat")
        })?;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned();
        Ok(Self {
            pid,
            start_ticks,
            boot_id,
        })
    }

    /// Whether this very process still exists. A zombie does.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }
}

/// What an agent tells a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerCommand {
    /// What is wanted now; idempotent.
    Want {
        /// Run or stop; `Forget` after a final status: exit.
        want: Want,
        /// Above the one acted on: restart.
        restart_no: u64,
    },
    /// Where clients are sent now; takes effect at the next start and for probes.
    Address {
        /// The host's published address.
        address: IpAddr,
        /// Those of ports that name a network; what was told of a port before stands where it is left out.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        ports: BTreeMap<PortName, IpAddr>,
    },
    /// What it and its job prove themselves with from now on: a controller that was set up anew does not know the tokens
    /// of an earlier one.
    Renew {
        /// The new ones.
        tokens: Tokens,
    },
    /// Stop, and wait no longer: what is left of drain and grace is skipped.
    Hurry,
    /// The end, within this time rather than the profile's; a later one can only shorten it.
    Stop {
        /// From now until the group is killed; `None`: the profile's.
        grace: Option<Duration>,
    },
    /// The host ends the replica by itself: a stop by the profile's rule, told as what it is.
    Leave {
        /// Why.
        why: Leaving,
    },
    /// One restart, now.
    Restart,
    /// Only tell the newest status.
    Tell,
}

/// A worker's answer to each command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerAnswer {
    /// The newest status; `None` before the first.
    pub status: Option<Status>,
    /// What was wrong with the command, if anything.
    pub refused: Option<String>,
    /// What the worker did since its start.
    #[serde(default)]
    pub counters: WorkerCounters,
}

/// What a worker did since its start; in the steady state only the probes go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounters {
    /// Probes that ended.
    pub probes: u64,
    /// Messages to the controller, repeated ones too.
    pub messages: u64,
    /// Writes of its record and its status.
    pub writes: u64,
}
