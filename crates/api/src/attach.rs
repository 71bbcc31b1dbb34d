//! What `portreeve run`, and who shuts a host down, and the host's agent say to each other: one JSON line each, over the
//! agent's Unix socket.
//!
//! The run begins with one [`Opening`] and then sends its [`Status`] whenever it changes; the agent answers with
//! [`FromAgent`] lines. The connection is kept: it carries what the owner wants, and after an agent's restart the run
//! comes back with [`Opening::Again`]. The path is the socket and nothing else, since a job may have folders that its
//! host does not see.

use std::path::PathBuf;

use portreeve::identity::{Incarnation, ServiceName};
use portreeve::supervision::Status;
use serde::{Deserialize, Serialize};

use crate::Problem;
use crate::body::DesiredReplica;
use crate::local::{Assignment, WorkerCommand};

/// The longest line either side takes, in bytes: a profile may have 1 MiB, and JSON quotes it.
pub const MAX_LINE: u64 = 4 << 20;

/// The name of an agent's socket in its run directory.
pub const SOCKET: &str = "agent.sock";

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opening {
    /// It wants ports.
    Attach(Box<Ask>),
    /// It has them and was cut off from the agent.
    Again(Box<Again>),
    /// The host is being shut down: everything that was placed here is to end. Answered with [`FromAgent::Closing`] lines
    /// until nothing of it is left. Only root's or the agent's own account may say it.
    Shutdown,
    /// Workers of an older program are to be replaced under their services, one after the other. Answered with
    /// [`FromAgent::Renewing`] lines until none is left. Only root's or the agent's own account may say it.
    RenewWorkers,
}

/// How far the replacing of workers is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewing {
    /// Workers that were replaced.
    pub renewed: usize,
    /// Those of an older program that are left.
    pub left: usize,
}

/// How far the shutdown of a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// Replicas of which something still runs.
    pub running: usize,
    /// Those that ended and whose end the controller does not know yet.
    pub untold: usize,
    /// Replicas inside jobs of another scheduler, which ends them.
    pub attached: usize,
}

impl Closing {
    /// Whether nothing is left to do here.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.running == 0 && self.untold == 0
    }
}

/// What a job asks for. Who it is, the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The profile as written.
    pub profile: String,
    /// How it is written.
    pub form: ProfileForm,
    /// What is set over it, `FIELD=VALUE` each.
    pub set: Vec<String>,
    /// The service, if not what the profile says; a label alone is in the asker's own namespace.
    pub name: Option<String>,
    /// Which copy; `None`: the next that is free.
    pub index: Option<u32>,
    /// Random: the same ask again is answered with the same grant.
    pub key: String,
    /// The job in its scheduler's words, such as `slurm 4711`.
    pub job: Option<String>,
    /// The run's private folder, as the job sees it: there the record of what happened is.
    pub folder: PathBuf,
}

/// How a profile is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileForm {
    /// As in files.
    Toml,
    /// As over REST.
    Json,
}

/// A run that lives and comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// Whose copy.
    pub service: ServiceName,
    /// Which copy.
    pub index: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// What it proves itself with where the agent lost its records.
    pub token: String,
    /// Its newest status.
    pub status: Option<Status>,
    /// Its private folder, as the job sees it.
    pub folder: PathBuf,
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromAgent {
    /// The ports are the run's, durably.
    Granted {
        /// Everything a worker needs to begin.
        assignment: Box<Assignment>,
        /// What to know at once, one sentence each.
        notes: Vec<String>,
    },
    /// Nothing was granted; [`Problem::passes`] says whether to ask again.
    Refused(Box<Problem>),
    /// The run that came back is known.
    Known,
    /// What is wanted of it now; idempotent.
    Order(WorkerCommand),
    /// How far the shutdown is, whenever that changed.
    Closing(Closing),
    /// How far the replacing of workers is, after each.
    Renewing(Renewing),
}

/// `POST /hosts/{host}/attach`: what an agent relays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relayed {
    /// The asker's uid, as the kernel told the agent.
    pub uid: u32,
    /// What is asked for.
    pub ask: Ask,
}

/// The answer to [`Relayed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// What was granted, with the tokens.
    pub replica: DesiredReplica,
    /// What to know at once, one sentence each.
    pub notes: Vec<String>,
}

impl Problem {
    /// The code of a refusal for want of ports.
    pub const NO_PORT: &str = "no_port";
    /// The code of a refusal because the index lives.
    pub const REPLICA_TAKEN: &str = "replica_taken";
    /// The code of a refusal because the agent does not know the replica, or not as the asker's.
    pub const REPLICA_UNKNOWN: &str = "replica_unknown";

    /// Whether the same ask may be granted later: want of ports, or somebody who is away for a while.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.code == Self::NO_PORT || self.status >= 500 || self.status == 429
    }
}
