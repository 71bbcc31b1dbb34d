//! The timeline as people read it: what matters, and of what happens to many at once one line.

use std::collections::BTreeMap;
use std::fmt;

use portreeve::identity::HostName;
use portreeve::supervision::{Final, Report};
use portreeve::time::{Monotonic, Spelled};

use crate::outcome::{Outcome, ServiceOutcome};
use crate::play::Played;
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
    let mut listed = BTreeMap::new();
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
        for (place, more) in told {
            let entry = &within[place];
            if let What::Listed {
                listed: now,
                desired,
                ..
            } = entry.what
            {
                // The same count again is another list, but no news.
                let count = (now, desired);
                if listed.insert(entry.service.as_ref(), count) == Some(count) {
                    continue;
                }
            }
            lines.push(Line { entry, more });
        }
    }
    lines
}

/// What mattered of a run, and where everything stands at the end: what `portreeve sim FILE` prints.
#[must_use]
pub fn account(played: &Played) -> String {
    let lines = brief(&played.timeline).into_iter();
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    let end = if played.outcomes.len() <= FEW_REPLICAS {
        replicas(&played.outcomes)
    } else {
        services(&played.services)
    };
    let span = played.ended.since(Monotonic::default());
    format!(
        "{}\n{lines}\nafter {}:\n{end}",
        Entry::HEADING,
        Spelled(span)
    )
}

/// So many replicas are told one by one at the end, else services.
const FEW_REPLICAS: usize = 20;

fn replicas(outcomes: &[Outcome]) -> String {
    let row = |one: &Outcome| {
        [
            format!("{}/{}", one.service.label(), one.replica),
            one.host.as_ref().map_or("-", HostName::as_str).to_owned(),
            one.state.clone(),
            one.runs.to_string(),
            one.restarts.to_string(),
            Spelled(one.ready_for).to_string(),
            one.reason.clone().unwrap_or_default(),
        ]
    };
    let heading = [
        "REPLICA",
        "HOST",
        "STATE",
        "RUNS",
        "RESTARTS",
        "READY FOR",
        "WHY",
    ];
    aligned(heading, outcomes.iter().map(row))
}

fn services(outcomes: &[ServiceOutcome]) -> String {
    let alike = |one: &ServiceOutcome, next: &ServiceOutcome| {
        let service = one.service.clone();
        *one == ServiceOutcome {
            service,
            ..next.clone()
        }
    };
    let row = |some: &[ServiceOutcome]| {
        let one = &some[0];
        let name = match some.len() - 1 {
            0 => one.service.to_string(),
            more => format!("{} and {more} more", one.service),
        };
        [
            name,
            one.state.clone(),
            format!("{} of {}", one.listed, one.desired),
            one.fewest
                .map_or("-".to_owned(), |fewest| fewest.to_string()),
            one.placements.to_string(),
            one.restarts.to_string(),
            one.gave_up.to_string(),
            one.waits_for.clone().unwrap_or_default(),
        ]
    };
    let heading = [
        "SERVICE",
        "STATE",
        "LISTED",
        "FEWEST",
        "PLACED",
        "RESTARTS",
        "GAVE UP",
        "WAITS FOR",
    ];
    aligned(heading, outcomes.chunk_by(alike).map(row))
}

/// Columns, each as wide as its widest cell.
fn aligned<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut all = vec![heading.map(str::to_owned)];
    all.extend(rows);
    let width = |column: usize| {
        let cells = all.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}  "));
        format!("{}\n", cells.collect::<String>().trim_end())
    };
    all.iter().map(line).collect()
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
    let words = match entry.what {
        What::Agent(_) | What::Worker(_) => said,
        _ => first.to_owned(),
    };
    (entry.shown.as_deref(), entry.replica.is_some(), words)
}
