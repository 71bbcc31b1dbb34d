//! What an onlooker sees of the cluster: the lines of traces and timelines are made of it.

use std::fmt;

use portreeve::identity::{Incarnation, Run, ServiceName};
use portreeve::supervision::{ExitStatus, Report};
use portreeve::time::Monotonic;
use serde::Serialize;

use super::act::HostNo;

/// One thing that is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) at: Monotonic,
    pub(crate) of: Subject,
    pub(crate) what: What,
}

/// Of whom it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Replica {
        service: ServiceName,
        index: u32,
        incarnation: Incarnation,
        run: Run,
        host: HostNo,
    },
    Service(ServiceName),
    Host(HostNo),
    Controller,
}

/// What can be seen. Reports are said in capital letters, everything else in small ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The machine told something.
    Report(Report),
    /// The process of a run exists.
    Spawned,
    /// The stop signal was sent.
    Term,
    /// The group was killed.
    Kill,
    /// The main process ended.
    Exited(ExitStatus),
    /// A user's order, and what became of it.
    User(String),
    /// Something happened to the worker.
    Worker(&'static str),
    /// Something happened to the agent.
    Agent(&'static str),
    /// Something befell the host or the controller, or was decided about it.
    Befell(String),
    /// A replica was placed, with its numbers, or is waiting, with the reason.
    Place(String),
    /// What clients see of a service changed.
    Listed {
        /// Of which number.
        revision: u64,
        /// How many replicas are listed.
        listed: u32,
        /// Of how many that there shall be.
        desired: u32,
    },
}

/// One line of a trace, without its time.
impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = &self.of;
        match &self.what {
            What::User(words) => write!(f, "{of}: person: {words}"),
            // Which revision it is in is nothing for people, but tells runs apart.
            what @ What::Listed { revision, .. } => {
                write!(f, "{of}: {what} at revision {revision}")
            }
            what => write!(f, "{of}: {what}"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica {
                service,
                index,
                incarnation,
                run,
                host,
            } => write!(f, "{service}/{index}.{incarnation}.{run} on h{host}"),
            Self::Service(service) => service.fmt(f),
            Self::Host(no) => write!(f, "h{no}"),
            Self::Controller => f.write_str("controller"),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report(report) => report.fmt(f),
            Self::Spawned => f.write_str("spawned"),
            Self::Term => f.write_str("term"),
            Self::Kill => f.write_str("kill"),
            Self::Exited(status) => write!(f, "exited: {status}"),
            Self::User(act) => write!(f, "user: {act}"),
            Self::Worker(what) => write!(f, "worker {what}"),
            Self::Agent(what) => write!(f, "agent {what}"),
            Self::Befell(words) | Self::Place(words) => f.write_str(words),
            Self::Listed {
                listed, desired, ..
            } => write!(f, "listed {listed} of {desired}"),
        }
    }
}

/// Every word that something seen begins with: of reports first, then of what processes, people, the world and the
/// controller do. What begins with no such word is never seen.
pub(crate) const FIRST_WORDS: [&str; 73] = [
    "BACKOFF",
    "FAILED",
    "GAVEUP",
    "NOTREADY",
    "PORT_CONFLICT",
    "READY",
    "RESTARTED",
    "STOPPED",
    "STUCK",
    "SUCCEEDED",
    "exited",
    "kill",
    "spawned",
    "term",
    "listed",
    "placed",
    "agent",
    "user",
    "worker",
    // The world.
    "back",
    "backed",
    "boots",
    "cannot",
    "cut",
    "died",
    "everything",
    "goes",
    "halted",
    "hears",
    "is",
    "its",
    "killed",
    "listens",
    "loses",
    "not",
    "restored",
    "starts",
    "stopped",
    "the",
    // Events that the controller keeps.
    "address",
    "adopted",
    "attached",
    "completed",
    "down",
    "drain",
    "fenced",
    "gave-up",
    "host-drained",
    "host-lost",
    "host-rebooted",
    "host-shutdown",
    "joined",
    "left-host",
    "lost",
    "owner",
    "port-conflict",
    "ports",
    "rebooted",
    "released",
    "replaced",
    "requeued",
    "restart",
    "restarting",
    "roll-stopped",
    "rolled",
    "scaled",
    "scaled-down",
    "shutdown",
    "started",
    "stopping",
    "submitted",
    "taken-back",
    "undrain",
];

/// The word that something seen begins with; some are followed by a colon.
pub(crate) fn first_word(said: &str) -> &str {
    let word = said.split(' ').next().unwrap_or_default();
    word.strip_suffix(':').unwrap_or(word)
}
