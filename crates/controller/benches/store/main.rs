//! The rows of the product's performance table that are about the controller's store.
//!
//! `make bench-controller` prints one line per row: target, measured, verdict; `make bench` repeats them from the file
//! that this leaves. Ratios are of medians of interleaved rounds; nothing here asserts. `PORTREEVE_ROWS=14,21` runs these
//! rows alone. The store lies in the target folder, so that it is the disk that is measured and not a memory.
#![expect(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    reason = "a bench's sizes are its own, and what it cannot do ends it"
)]

mod durability;
mod filled;
#[expect(dead_code, reason = "the sides here time themselves")]
#[path = "../../../../benches/product/interleaved.rs"]
mod interleaved;
mod start;
#[expect(dead_code, reason = "the table of growth is the other bench's")]
#[path = "../../../../benches/product/verdict.rs"]
mod verdict;

use tempfile::TempDir;
use verdict::Row;

/// One row: its number, and what measures it.
type Measurement = (&'static str, fn() -> Row);

const MEASUREMENTS: [Measurement; 3] = [
    ("14", durability::group_row),
    ("15", durability::engine_row),
    ("21", start::row),
];

fn main() {
    let chosen = std::env::var("PORTREEVE_ROWS").ok();
    let is_chosen = |name: &str| {
        let listed = |list: &String| list.split(',').any(|one| one == name);
        chosen.as_ref().is_none_or(listed)
    };
    let mut rows = Vec::new();
    for (name, measure) in MEASUREMENTS {
        if is_chosen(name) {
            rows.push(measure());
        }
    }
    verdict::print(&rows, verdict::CONTROLLER_FILE, [14, 15, 21]);
}

/// A folder on the disk that the target folder is on; gone with the value.
fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the target folder can be written to")
}
