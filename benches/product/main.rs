//! The rows of the product's performance table: each hot path beside its baseline, in one process.
//!
//! `make bench` runs criterion's groups, then the rows, and prints one line per row: target,
//! measured, verdict. A row whose code is not built yet is printed as `absent`. Ratios are of
//! medians of interleaved samples; nothing here asserts. `PORTREEVE_ROWS=1,3` runs these rows alone
//! and `PORTREEVE_ROWS=growth` the table of growth; an argument of criterion, as the name of a
//! group, runs criterion alone.
#![expect(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    reason = "a bench reads clocks and starts threads, its baseline is the map that the core avoids, and its sizes are its own"
)]

mod baseline;
mod chance;
mod churn;
mod endpoint_reads;
mod fleet;
mod heap;
mod interleaved;
mod one_host;
mod product_pool;
mod refusal;
mod requests;
mod verdict;

use std::time::Duration;

use criterion::Criterion;
use verdict::Row;

fn main() {
    let chosen = std::env::var("PORTREEVE_ROWS").ok();
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    let criterion_alone = arguments.next().is_some();
    if chosen.is_none() {
        groups();
    }
    if criterion_alone {
        return;
    }
    let is_chosen = |name: &str| {
        let listed = |list: &String| list.split(',').any(|one| one == name);
        chosen.as_ref().is_none_or(listed)
    };
    let rows = ROWS
        .iter()
        .filter(|(numbers, _)| numbers.iter().any(|number| is_chosen(&number.to_string())));
    let rows: Vec<Row> = rows.flat_map(|(_, measure)| measure()).collect();
    verdict::print(&rows);
}

/// Which rows are measured together, and how.
const ROWS: [(&[u32], fn() -> Vec<Row>); 3] = [
    (&[1, 2, 3], || one_host::rows().into()),
    (&[9], || vec![refusal::row()]),
    (&[10], || vec![endpoint_reads::row()]),
];

fn groups() {
    // Few and short: the rows decide, criterion shows the course from run to run.
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .configure_from_args();
    one_host::bench(&mut criterion);
    refusal::bench(&mut criterion);
    endpoint_reads::bench(&mut criterion);
    criterion.final_summary();
}
