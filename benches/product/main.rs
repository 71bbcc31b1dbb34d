//! The rows of the product's performance table: each hot path beside its baseline, in one process.
//!
//! `make bench` runs them and prints one line per row: target, measured, verdict. A row whose code is not
//! built yet is printed as `absent`. Ratios are of medians of interleaved samples; nothing here asserts.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    reason = "a bench reads clocks and starts threads, and its baseline is the map that the core avoids"
)]

mod endpoint_reads;
mod refusal;
mod verdict;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    refusal::bench(&mut criterion);
    endpoint_reads::bench(&mut criterion);
    criterion.final_summary();
    verdict::print(&[refusal::row(), endpoint_reads::row()]);
}
