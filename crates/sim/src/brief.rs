//! The timeline as people read it: what matters, and of what happens to many at once one line.

use std::collections::BTreeMap;
use std::fmt;

use portreeve::identity::{HostName, ServiceName};
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
        // By words, of each service.
        let mut alike = BTreeMap::<_, Vec<Vec<Told>>>::new();
        for ((_, of_replicas, words), places) in kinds {
            let told = |place| Told { place, more: 0 };
            let (words, own) = if let What::Listed { .. } = within[places[0]].what {
                let last = places[places.len() - 1];
                // The newest count is all of them, and a gap, however short, is seen by who asks then.
                let news = dip(within, &places, &listed).into_iter().chain([last]);
                let news = news.filter(|place| is_news(&within[*place], &mut listed));
                (within[last].what.to_string(), news.map(told).collect())
            } else if places.len() <= FEW {
                (words, places.into_iter().map(told).collect())
            } else {
                let (place, more) = (places[0], places.len() - 1);
                (words, vec![Told { place, more }])
            };
            let own: Vec<_> = own;
            if !own.is_empty() {
                alike.entry((of_replicas, words)).or_default().push(own);
            }
        }
        let mut told: Vec<Told> = alike.into_values().flat_map(of_services).collect();
        told.sort_by_key(|it| it.place);
        lines.extend(told.into_iter().map(|Told { place, more }| {
            let entry = &within[place];
            Line { entry, more }
        }));
    }
    lines
}

/// What is told: a place within the second, and how many more it stands for.
struct Told {
    place: usize,
    more: usize,
}

/// What is told of some services of which the same is said: of many, one line.
fn of_services(services: Vec<Vec<Told>>) -> Vec<Told> {
    let is_many = services.len() > FEW;
    let all = services.into_iter().flatten();
    if !is_many {
        return all.collect();
    }
    let one = all.reduce(|one, next| Told {
        place: one.place.min(next.place),
        more: one.more + 1 + next.more,
    });
    one.into_iter().collect()
}

/// Whether it says another count of its service than was told last. The same count again is another list, but no news.
fn is_news<'t>(entry: &'t Entry, told: &mut BTreeMap<Option<&'t ServiceName>, (u32, u32)>) -> bool {
    let What::Listed {
        listed, desired, ..
    } = entry.what
    else {
        return true;
    };
    let count = (listed, desired);
    told.insert(entry.service.as_ref(), count) != Some(count)
}

/// Of the counts of a service within one second, the first lowest, if fewer were listed then than before and after.
fn dip<'t>(
    within: &'t [Entry],
    places: &[usize],
    before: &BTreeMap<Option<&'t ServiceName>, (u32, u32)>,
) -> Option<usize> {
    let count = |place: usize| match within[place].what {
        What::Listed { listed, .. } => listed,
        _ => 0,
    };
    let (first, last) = (*places.first()?, *places.last()?);
    let (before, _) = *before.get(&within[first].service.as_ref())?;
    let lowest = places.iter().copied().min_by_key(|place| count(*place))?;
    (count(lowest) < before.min(count(last))).then_some(lowest)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(ms: u64, listed: u32) -> Entry {
        of("web", ms, listed)
    }

    fn of(service: &str, ms: u64, listed: u32) -> Entry {
        Entry {
            at: Monotonic::from_millis(ms),
            service: Some(format!("{service}.me").parse().unwrap()),
            shown: Some(service.into()),
            replica: None,
            incarnation: None,
            run: None,
            host: None,
            what: What::Listed {
                revision: ms,
                listed,
                desired: 3,
            },
        }
    }

    #[test]
    fn of_many_counts_within_a_second_the_last_is_told_and_a_gap_before_it() {
        let timeline = [
            // It only grows: no gap.
            listed(100, 0),
            listed(200, 1),
            listed(300, 3),
            // It ends as it began, and was none between.
            listed(1100, 0),
            listed(1200, 1),
            listed(1300, 3),
            // It only falls.
            listed(2100, 2),
            listed(2200, 1),
        ];
        let told = brief(&timeline).into_iter();
        let told: Vec<_> = told.map(|line| line.entry.at.as_millis()).collect();
        assert_eq!(told, [300, 1100, 1300, 2200]);
    }

    #[test]
    fn of_many_services_of_which_the_same_is_said_one_line_is_told() {
        let timeline = [
            of("a", 100, 3),
            of("b", 110, 3),
            of("c", 120, 3),
            of("d", 130, 2),
            of("a", 1100, 2),
            of("b", 1110, 2),
            of("c", 1120, 2),
            of("d", 1130, 2),
            of("e", 1140, 2),
            of("f", 1150, 1),
        ];
        let told = brief(&timeline).into_iter();
        let told: Vec<_> = told.map(|it| (it.entry.at.as_millis(), it.more)).collect();
        let few = [(100, 0), (110, 0), (120, 0), (130, 0)];
        // That of `d` is no news.
        assert_eq!(told[..4], few);
        assert_eq!(told[4..], [(1100, 3), (1150, 0)]);
    }
}
