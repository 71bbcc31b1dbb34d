//! What the uplink wants done.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::residency::ReplicaName;
use crate::time::Monotonic;

/// One thing to do, in the order given. What has a number `no` is a question: exactly one answer of it is due, and an
/// answer with another number has no effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing<O, R> {
    /// Gather what every replica that lives here last told, workers asked first; [`super::Uplink::gathered`] follows.
    Gather,
    /// Report to the controller.
    Report {
        /// The question.
        no: u64,
        /// Greater than that of every earlier report of this boot, also of an agent before this one.
        seq: u64,
        /// What the host itself is like.
        observed: O,
        /// What is told of replicas.
        replicas: BTreeMap<ReplicaName, R>,
        /// Whether these are all replicas that live here.
        full: bool,
    },
    /// Give a sign of life.
    Lease {
        /// The question.
        no: u64,
        /// How far the display clock here was ahead of the controller's; `None` if that is not known.
        skew_ms: Option<i64>,
    },
    /// Say that the host is being shut down.
    Shutdown {
        /// The question.
        no: u64,
    },
    /// Ask for the wanted set. An earlier question of this kind that has no answer yet is given up.
    Wanted {
        /// The question.
        no: u64,
        /// The revision that is acted on; `None`: whatever it is, it is news.
        since: Option<u64>,
    },
    /// The controller acknowledged what it was told of these: [`crate::residency::household::Household::reported`].
    Acknowledged(Vec<ReplicaName>),
    /// The controller heard of this host at this time, and forgives so long a silence; `None`: it does not tell.
    Contact {
        /// When the question left that it answered.
        at: Monotonic,
        /// The grace.
        grace: Option<Duration>,
    },
    /// For people.
    News(News),
}

/// What people may want to read in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The first full report of all was taken.
    Joined,
    /// A full report was taken: questions count anew.
    Told,
    /// The controller does not answer, or refuses; it is tried again.
    Lost,
    /// It answers again after so long a silence.
    Found(Duration),
    /// It is another one than before.
    NewController,
    /// It refuses what changed here, such as while it cannot write an end down; it is told again.
    ChangeRefused,
    /// It refuses the lease.
    LeaseRefused,
    /// It is not told that the host is being shut down.
    ShutdownUntold,
    /// It does not know the word that a host is being shut down.
    ShutdownRefused,
    /// It wants a full report before it says what it wants.
    ReportFirst,
    /// The display clock here is so many milliseconds ahead of the controller's, which is too much.
    Skewed(i64),
}
