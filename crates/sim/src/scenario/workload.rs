//! What people do at random: `[[workload]]`.

use std::ops::Range;
use std::time::Duration;

use portreeve::time::Monotonic;

use super::names::Names;
use super::read::moment;
use super::table::Table;
use crate::cluster::spec::{Workload, WorkloadKind};

/// The most acts a minute of one table.
const MOST_PER_MINUTE: u64 = 1_000_000;

pub(super) fn workload(
    table: &Table<'_, '_>,
    names: &Names,
    services: usize,
    until: Option<Duration>,
) -> Option<Workload> {
    let from = table.span("from").unwrap_or_default();
    let to = table.span("to").or(until).unwrap_or(Duration::MAX);
    if from >= to {
        table.wrong("to", "it must be later than from", "");
    }
    let per_minute = table.number("per_minute", 1..=MOST_PER_MINUTE);
    if !table.has("per_minute") {
        table.wrong(
            "per_minute",
            "missing",
            "write how often in a minute on average",
        );
    }
    let kinds = [
        ("churn", WorkloadKind::Churn),
        ("scale", WorkloadKind::Scale { most: 0 }),
        ("restart", WorkloadKind::Restart),
        ("replace", WorkloadKind::Replace),
        ("crash", WorkloadKind::Crash),
    ];
    let kind = table.word("kind", &kinds);
    if !table.has("kind") {
        let allowed = "write \"churn\", \"scale\", \"restart\", \"replace\" or \"crash\"";
        table.wrong("kind", "missing", allowed);
    }
    let kind = match kind? {
        WorkloadKind::Scale { .. } => {
            let most = table.number("most", 0..=100_000);
            if !table.has("most") {
                table.wrong("most", "missing", "write up to how many replicas");
            }
            WorkloadKind::Scale { most: most? }
        }
        other => other,
    };
    let among = match names.services(table, "services") {
        Some(named) => in_a_row(named).unwrap_or_else(|| {
            let allowed = "write services that stand one after the other, such as \"job[1-100]\"";
            table.wrong("services", "they do not stand in a row", allowed);
            0..0
        }),
        None => 0..services,
    };
    Some(Workload {
        within: Range::<Monotonic> {
            start: moment(from),
            end: moment(to),
        },
        per_minute: per_minute?,
        kind,
        services: among,
    })
}

fn in_a_row(mut places: Vec<usize>) -> Option<Range<usize>> {
    places.sort_unstable();
    places.dedup();
    let (first, last) = (*places.first()?, *places.last()?);
    (last - first + 1 == places.len()).then_some(first..last + 1)
}
