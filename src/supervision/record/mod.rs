//! What happened to one replica, written so that it can be played again: for `portreeve why` and `replay`.
//!
//! A record is a text of lines, one [`Entry`] in JSON each. It begins with the machine as it was, then holds each
//! event that was handed to it, and what it reported. Equal results of a probe that change nothing are counted:
//! silence is the steady state here too. [`Recorder`] makes entries, [`replay()`] plays them through the same machine,
//! [`why()`] names the rule behind each turn. Nothing here writes or reads a file.

mod recorder;
mod replay;
mod why;

#[cfg(test)]
mod record_test;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::vocabulary::{Event, ProbeKind, ProbeOutcome, Report};
use crate::identity::Run;
use crate::time::{Monotonic, WallClock};

pub use recorder::Recorder;
pub use replay::{Difference, ReplayError, Replayed, Told, replay};
pub use why::{Because, why};

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, on the host's monotonic clock.
    pub at: Monotonic,
    /// What.
    pub what: What,
    /// What the machine reported then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<Report>,
    /// What a probe said, at most [`Entry::LONGEST_TEXT`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What an entry tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Where the machine stood. A record begins with it, and goes on with it after a gap.
    State(Box<Start>),
    /// An event was handed over.
    Event(Event),
    /// Deadlines were due, and something came of it.
    Deadlines,
    /// Results like the one before, which changed nothing; the newest of them at this moment.
    Probes {
        /// Which start.
        run: Run,
        /// Which kind.
        kind: ProbeKind,
        /// How each of them ended.
        outcome: ProbeOutcome,
        /// How many.
        count: u32,
    },
}

/// Where a record begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The machine: its rules, its seed and where it stood.
    pub machine: Machine,
    /// When the replica began, on the same clock as every other moment.
    pub began: Monotonic,
    /// The same moment as the entry's, for people.
    pub wall: WallClock,
}

impl Entry {
    /// The most that is kept of a probe's words.
    pub const LONGEST_TEXT: usize = 1024;

    /// The entry as a line of a record, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self)
            .expect("numbers, texts and tables with text keys can be written as JSON");
        line.push('\n');
        line
    }
}
