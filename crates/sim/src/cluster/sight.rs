//! What an onlooker sees of the cluster: the lines of traces and timelines are made of it.

use portreeve::identity::{Incarnation, Run, ServiceName};
use portreeve::supervision::{ExitStatus, Report};
use portreeve::time::Monotonic;

use super::act::HostNo;

/// One thing that is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) at: Monotonic,
    pub(crate) of: Subject,
    pub(crate) what: Seen,
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

/// What is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The machine of a replica told something.
    Report(Report),
    /// The process of a run exists.
    Spawned,
    /// The stop signal was sent.
    Term,
    /// The group was killed.
    Kill,
    /// The main process ended.
    Exited(ExitStatus),
    /// A person's order, and what became of it.
    Person(String),
    /// Something happened to the worker.
    Worker(&'static str),
    /// Something happened to the agent.
    Agent(&'static str),
    /// Something befell the host or the controller, or was decided about it.
    Befell(String),
    /// A replica was placed, with its numbers, or is waiting, with the reason.
    Place(String),
    /// The listed endpoints of a service changed: the revision, and how many are listed of how many wanted.
    Listed {
        revision: u64,
        listed: u32,
        desired: u32,
    },
}
