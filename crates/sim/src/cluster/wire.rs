//! What agents, workers and the controller say to each other: the bodies of production without HTTP around them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::{HostName, Run, ServiceId};
use portreeve::registry::{AgentIdentity, Desired, HostFacts};
use portreeve::residency::ReplicaName;
use portreeve::supervision::{State, Status};
use portreeve::time::WallClock;

use super::act::HostNo;

/// Who asks: answers find only the process that asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asker {
    pub(crate) host: HostNo,
    pub(crate) who: Who,
    /// Counts the processes of this kind on the host: an answer to one that died is lost.
    pub(crate) life: u64,
    /// Counts the questions of that process.
    pub(crate) question: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Agent,
    Worker(ReplicaName),
}

/// A question to the controller.
#[derive(Clone, Debug)]
pub enum Question {
    /// `PUT /hosts/{host}/report`.
    Report(Box<HostFacts>),
    /// `POST /hosts/{host}/lease`.
    Lease {
        /// Which host.
        host: HostName,
        /// Who speaks for it.
        agent: AgentIdentity,
        /// How far its clock is ahead of the controller's, in milliseconds, where it measured that.
        skew_ms: Option<i64>,
    },
    /// `POST /hosts/{host}/shutdown`.
    Shutdown {
        /// Which host.
        host: HostName,
        /// Who speaks for it.
        agent: AgentIdentity,
    },
    /// `GET /hosts/{host}/desired`: held while there is nothing new.
    Wanted {
        /// Which host.
        host: HostName,
        /// Who speaks for it.
        agent: AgentIdentity,
        /// The revision of the set that it has.
        since: Option<u64>,
    },
    /// `PUT /replicas/{service}/{index}/{incarnation}/status`; the token says of which service.
    Status {
        /// Which incarnation.
        name: ReplicaName,
        /// Of which service.
        service_id: ServiceId,
        /// The newest status.
        status: Box<Status>,
    },
}

/// What came back.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To a report, a lease, a shutdown or a status.
    Lease(Lease),
    /// To a question for what is wanted.
    Wanted(Arc<WantedOfHost>),
    /// It was refused.
    Refused {
        /// The HTTP status.
        status: u16,
        /// Why, in words.
        reason: String,
    },
    /// Nobody listens where the controller should be.
    Unreachable,
}

/// Body of an acknowledgement.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Random per start of the controller.
    pub instance: Arc<str>,
    /// The controller's time.
    pub now: WallClock,
    /// How long the silence of a host is forgiven.
    pub host_grace: Duration,
    /// How often a host is to give a sign of life.
    pub period: Duration,
}

/// What is wanted of a host.
#[derive(Clone, Debug)]
pub struct WantedOfHost {
    /// Random per start of the controller.
    pub instance: Arc<str>,
    /// The number of the set.
    pub revision: u64,
    /// Whether the host must tell everything before it begins anything of the set.
    pub report_first: bool,
    /// What is wanted, by service and index.
    pub replicas: Arc<[Desired]>,
}

/// A line of a trace: enough to tell two messages apart.
impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            who,
            life,
            question,
        } = self;
        match who {
            Who::Agent => write!(f, "h{host} agent {life}.{question}"),
            Who::Worker(name) => write!(
                f,
                "h{host} worker {life}.{question} of {}/{}.{}",
                name.service, name.index, name.incarnation
            ),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report(facts) => {
                let full = if facts.full { "full" } else { "change" };
                let foreign = facts.foreign.len();
                write!(f, "report ({full}, {foreign} foreign)")?;
                for replica in &facts.replicas {
                    let (name, status) = (replica.name(), Told(&replica.status));
                    write!(
                        f,
                        " {}/{}.{} {status}",
                        name.service, name.index, name.incarnation
                    )?;
                }
                Ok(())
            }
            Self::Lease { skew_ms, .. } => write!(f, "lease (skew {skew_ms:?})"),
            Self::Shutdown { .. } => f.write_str("shutdown"),
            Self::Wanted { since, .. } => write!(f, "wanted since {since:?}"),
            Self::Status { status, .. } => write!(f, "status {}", Told(status)),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(lease) => write!(f, "acknowledged by {}", lease.instance),
            Self::Wanted(wanted) => {
                let WantedOfHost {
                    instance,
                    revision,
                    report_first,
                    replicas,
                } = wanted.as_ref();
                let first = if *report_first { ", report first" } else { "" };
                write!(f, "wanted {revision} by {instance}{first}:")?;
                for desired in replicas.iter() {
                    let want = desired.want;
                    let (index, incarnation) = (desired.index, desired.incarnation);
                    write!(f, " {}/{index}.{incarnation} {want:?}", desired.service)?;
                }
                Ok(())
            }
            Self::Refused { status, reason } => write!(f, "refused {status}: {reason}"),
            Self::Unreachable => f.write_str("unreachable"),
        }
    }
}

struct Told<'a>(&'a Status);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status {
            run,
            seq,
            state,
            ready,
            ..
        } = self.0;
        let ready = if *ready { " ready" } else { "" };
        write!(f, "{run}.{seq} {state:?}{ready}")
    }
}

/// What a question told, in short, for onlookers.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    Report {
        is_full: bool,
        /// The boot it was told in, and its number among those of that boot.
        number: Option<(String, u64)>,
        told: Vec<Word>,
    },
    Lease,
    Shutdown,
    Wanted,
    Status(Word),
}

/// One status in short.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) name: ReplicaName,
    pub(crate) run: Run,
    pub(crate) seq: u64,
    pub(crate) is_ready: bool,
    /// Nothing of it runs any more, nor will.
    pub(crate) has_ended: bool,
}

impl Word {
    fn of(name: ReplicaName, status: &Status) -> Self {
        Self {
            name,
            run: status.run,
            seq: status.seq,
            is_ready: status.ready && status.state == State::Up,
            has_ended: matches!(status.state, State::Final(_)),
        }
    }
}

impl Question {
    /// What it tells. Cost: two counts for each status.
    pub(crate) fn heard(&self) -> Heard {
        match self {
            Self::Report(facts) => {
                let told = facts.replicas.iter();
                let told = told.map(|it| Word::of(it.name(), &it.status));
                Heard::Report {
                    is_full: facts.full,
                    number: facts.seq.map(|seq| (facts.boot_id.clone(), seq)),
                    told: told.collect(),
                }
            }
            Self::Lease { .. } => Heard::Lease,
            Self::Shutdown { .. } => Heard::Shutdown,
            Self::Wanted { .. } => Heard::Wanted,
            Self::Status { name, status, .. } => Heard::Status(Word::of(name.clone(), status)),
        }
    }
}
