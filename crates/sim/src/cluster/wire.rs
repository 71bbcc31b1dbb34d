//! What agents, workers and the controller say to each other: the bodies of production without HTTP around them.

use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::{HostName, ServiceId};
use portreeve::registry::{AgentIdentity, Desired, HostFacts};
use portreeve::residency::ReplicaName;
use portreeve::supervision::Status;
use portreeve::time::WallClock;

use super::act::HostNo;

/// Who asks: answers find only the process that asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asker {
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
pub(crate) enum Question {
    /// `PUT /hosts/{host}/report`.
    Report(Box<HostFacts>),
    /// `POST /hosts/{host}/lease`.
    Lease {
        host: HostName,
        agent: AgentIdentity,
        skew_ms: Option<i64>,
    },
    /// `POST /hosts/{host}/shutdown`.
    Shutdown {
        host: HostName,
        agent: AgentIdentity,
    },
    /// `GET /hosts/{host}/desired`: held while there is nothing new.
    Wanted {
        host: HostName,
        agent: AgentIdentity,
        since: Option<u64>,
    },
    /// `PUT /replicas/{service}/{index}/{incarnation}/status`; the token says of which service.
    Status {
        name: ReplicaName,
        service_id: ServiceId,
        status: Box<Status>,
    },
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// To a report, a lease, a shutdown or a status.
    Lease(Lease),
    /// To a question for what is wanted.
    Wanted(Arc<WantedOfHost>),
    /// Refused with this HTTP status and code.
    Refused { status: u16, reason: String },
    /// Nobody listens where the controller should be.
    Unreachable,
}

/// Body of an acknowledgement.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) instance: Arc<str>,
    pub(crate) now: WallClock,
    pub(crate) host_grace: Duration,
    pub(crate) period: Duration,
}

/// What is wanted of a host.
#[derive(Clone, Debug)]
pub(crate) struct WantedOfHost {
    pub(crate) instance: Arc<str>,
    pub(crate) revision: u64,
    pub(crate) report_first: bool,
    pub(crate) replicas: Arc<[Desired]>,
}
