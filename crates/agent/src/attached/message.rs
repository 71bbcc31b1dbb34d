//! What other tasks say to the moorage, and hear of it.

use std::path::PathBuf;

use portreeve::registry::ReplicaReport;
use portreeve::residency::ReplicaName;
use portreeve::supervision::Status;
use portreeve_api::Problem;
use portreeve_api::attach::FromAgent;
use portreeve_api::body::DesiredReplica;
use portreeve_api::local::Assignment;
use tokio::sync::{mpsc, oneshot, watch};

use super::listen::Job;
use crate::facts::{Granted, Observed};

/// What other tasks say to the moorage.
#[derive(Debug)]
pub(crate) enum Message {
    /// Everything attached that the controller wants of this host.
    Wanted(Vec<DesiredReplica>),
    /// How many replicas live inside jobs.
    Living(oneshot::Sender<usize>),
    /// A controller wants to know everything.
    Newest(oneshot::Sender<Vec<ReplicaReport>>),
    /// A job of this account is about to ask: whether one more may be had.
    Room {
        uid: u32,
        reply: oneshot::Sender<Result<(), Box<Problem>>>,
    },
    /// The controller granted something to a job.
    Moor(Box<Mooring>),
    /// A job that was cut off is back.
    Back {
        name: ReplicaName,
        job: Job,
        folder: PathBuf,
        token: String,
        status: Option<Box<Status>>,
        orders: mpsc::Sender<FromAgent>,
        /// Whether it is known.
        reply: oneshot::Sender<bool>,
    },
    /// A job's newest status.
    Told {
        name: ReplicaName,
        status: Box<Status>,
    },
}

/// A job with its grant.
#[derive(Debug)]
pub(crate) struct Mooring {
    pub(super) replica: DesiredReplica,
    pub(super) job: Job,
    pub(super) folder: PathBuf,
    pub(super) orders: mpsc::Sender<FromAgent>,
    /// Answered once it is written down.
    pub(super) reply: Reply,
}

/// Where a job's connection hears what it was given.
pub(super) type Reply = oneshot::Sender<Result<Box<Assignment>, Box<Problem>>>;

/// Its ends of the channels to the other tasks.
pub(crate) struct Channels {
    pub(crate) inbox: mpsc::Receiver<Message>,
    pub(crate) ends: mpsc::UnboundedSender<ReplicaReport>,
    pub(crate) granted: watch::Sender<Granted>,
    pub(crate) observed: watch::Receiver<Observed>,
}
