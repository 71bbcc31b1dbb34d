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
mod endpoint_flips;
mod endpoint_reads;
mod endpoint_watchers;
mod feasibility;
mod fill_levels;
mod fleet;
mod gang;
mod growth;
mod heap;
mod host_sets;
mod interleaved;
mod one_host;
mod one_host_growth;
mod own_set;
mod plugin_process;
mod plugin_table;
mod product_pool;
mod refusal;
mod requests;
mod transactions;
mod verdict;
mod workers;

use std::time::Duration;

use criterion::Criterion;
// The sources of the product that are built in here name it so.
use portreeve::port;
use verdict::{Growth, Row};

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
    let mut measured = Measured::default();
    for (names, measure) in MEASUREMENTS {
        if names.iter().any(|name| is_chosen(name)) {
            measure(&mut measured);
        }
    }
    verdict::print_growth(&measured.growth);
    verdict::print(&measured.rows, verdict::FILE, 1..=25);
}

/// What was measured so far.
#[derive(Default)]
struct Measured {
    rows: Vec<Row>,
    growth: Vec<Growth>,
}

/// One measurement: what it is called when chosen, and what does it.
type Measurement = (&'static [&'static str], fn(&mut Measured));

const MEASUREMENTS: [Measurement; 16] = [
    (&["1", "2", "3"], |all| all.rows.extend(one_host::rows())),
    (&["4", "growth"], |all| {
        let (row, growth) = fill_levels::row();
        all.rows.push(row);
        all.growth.extend(growth);
    }),
    (&["5", "6"], |all| all.rows.extend(feasibility::rows())),
    (&["7"], |all| all.rows.push(transactions::row())),
    (&["8"], |all| all.rows.push(gang::row())),
    (&["9"], |all| all.rows.push(refusal::row())),
    (&["10"], |all| all.rows.push(endpoint_reads::row())),
    (&["11"], |all| all.rows.push(endpoint_flips::flip_row())),
    (&["12"], |all| all.rows.push(endpoint_flips::storm_row())),
    (&["13"], |all| all.rows.push(endpoint_watchers::row())),
    (&["16"], |all| all.rows.push(plugin_table::row())),
    (&["17"], |all| {
        all.rows.extend(plugin_process::counters_row());
    }),
    (&["25"], |all| all.rows.extend(plugin_process::size_row())),
    (&["22"], |all| all.rows.extend(workers::row())),
    (&["growth"], |all| {
        all.growth.extend(one_host_growth::lines());
        all.growth.extend(host_sets::lines());
    }),
    (&["growth", "cluster"], |all| {
        all.growth.extend(growth::lines());
    }),
];

fn groups() {
    // Few and short: the rows decide, criterion shows the course from run to run.
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .configure_from_args();
    one_host::bench(&mut criterion);
    fill_levels::bench(&mut criterion);
    feasibility::bench(&mut criterion);
    transactions::bench(&mut criterion);
    gang::bench(&mut criterion);
    refusal::bench(&mut criterion);
    endpoint_reads::bench(&mut criterion);
    endpoint_flips::bench(&mut criterion);
    criterion.final_summary();
}
