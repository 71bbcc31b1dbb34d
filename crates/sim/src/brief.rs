//! The timeline as people read it: what matters, and of what happens to many at once one line.

use std::collections::BTreeMap;
use std::fmt;

use portreeve::supervision::{Final, Report};

use crate::timeline::{Entry, What};

/// So many of one kind within a second are told one by one.
const FEW: usize = 3;

/// One line: something that was seen, and how many more like it within the same second are not told.
#[derive(Clone, Copy, Debug)]
pub struct Line<'t> {
    /// The first of them.
    pub entry: &'t Entry,
    /// How many more there are.
    pub more: usize,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.entry)?;
        match self.more {
            0 => Ok(()),
            more => write!(f, " (and {more} more within a second)"),
        }
    }
}

/// What matters of a timeline, in its order.
#[must_use]
pub fn brief(timeline: &[Entry]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let second = |entry: &Entry| entry.at.as_millis() / 1000;
    for within in timeline.chunk_by(|one, next| second(one) == second(next)) {
        let mut kinds = BTreeMap::<_, Vec<usize>>::new();
        for (place, entry) in within.iter().enumerate() {
            if matters(entry) {
                kinds.entry(kind(entry)).or_default().push(place);
            }
        }
        let mut told = BTreeMap::new();
        for places in kinds.into_values() {
            let is_count = matches!(within[places[0]].what, What::Listed { .. });
            if is_count {
                // The newest count is all of them.
                told.insert(places[places.len() - 1], 0);
            } else if places.len() <= FEW {
                told.extend(places.into_iter().map(|place| (place, 0)));
            } else {
                told.insert(places[0], places.len() - 1);
            }
        }
        let line = |(place, more): (usize, usize)| Line {
            entry: &within[place],
            more,
        };
        lines.extend(told.into_iter().map(line));
    }
    lines
}

/// Whether somebody who asks what became of a service wants to know it.
fn matters(entry: &Entry) -> bool {
    match &entry.what {
        What::Spawned | What::Term | What::Kill | What::Exited(_) => false,
        // What clients see of it is told by what is listed.
        What::Report(Report::Ready | Report::Final(Final::Stopped | Final::Succeeded)) => false,
        What::Report(_)
        | What::User(_)
        | What::Worker(_)
        | What::Agent(_)
        | What::Befell(_)
        | What::Place(_)
        | What::Listed { .. } => true,
    }
}

/// What is alike: of one service, or of hosts, and said in the same words but for numbers and names.
fn kind(entry: &Entry) -> (Option<&str>, bool, String) {
    let said = entry.what.to_string();
    let first = said.split([' ', ':']).next().unwrap_or_default();
    (
        entry.shown.as_deref(),
        entry.replica.is_some(),
        first.to_owned(),
    )
}
