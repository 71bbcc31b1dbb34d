//! What was seen, and when.

use std::fmt;

use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, Report};
use portreeve::time::Monotonic;
use serde::Serialize;

/// One thing that was seen of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Milliseconds of virtual time.
    #[serde(rename = "at_ms")]
    pub at: Monotonic,
    /// Which replica.
    pub replica: u32,
    /// Its newest start.
    pub run: Run,
    /// What it was. In JSON its words stand beside it.
    #[serde(flatten, serialize_with = "with_words")]
    pub what: What,
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
    /// A user's order came.
    User(&'static str),
    /// Something happened to the worker.
    Worker(&'static str),
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
        }
    }
}

/// One line of a timeline: seconds, replica, run, words.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            replica,
            run,
            what,
        } = self;
        write!(
            f,
            "{:>11}  {replica:>7}  {:>3}  {what}",
            Seconds(*at),
            run.0
        )
    }
}

impl Entry {
    /// The heading over lines of a timeline.
    pub const HEADING: &str = "    SECONDS  REPLICA  RUN  WHAT";
}

/// Seconds with milliseconds behind the point.
pub(crate) struct Seconds(pub(crate) Monotonic);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        f.pad(&format!("{}.{:03}", ms / 1000, ms % 1000))
    }
}

fn with_words<S: serde::Serializer>(what: &What, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Both<'a> {
        what: String,
        detail: &'a What,
    }
    let what_words = what.to_string();
    Both {
        what: what_words,
        detail: what,
    }
    .serialize(serializer)
}
