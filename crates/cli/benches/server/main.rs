//! The rows of the product's performance table that need the whole server: the shipped binary, asked over loopback.
//!
//! `make bench-server` prints one line per row: target, measured, verdict; `make bench` repeats them from the file that
//! this leaves. Ratios are of medians of interleaved rounds; nothing here asserts. `PORTREEVE_ROWS=18,20` runs these
//! rows alone. Row 18 needs Debian's nginx and `taskset`; without them it is told as absent.
#![expect(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a bench reads clocks and waits, and its sizes are its own"
)]

#[expect(dead_code, reason = "the sides here time themselves")]
#[path = "../../../../benches/product/interleaved.rs"]
mod interleaved;
mod keep_alive;
mod load;
mod news;
#[expect(dead_code, reason = "the tests ask more of it")]
#[path = "../../tests/e2e/endpoints/scripted.rs"]
mod scripted;
mod served;
mod steady;
#[expect(dead_code, reason = "the table of growth is the other bench's")]
#[path = "../../../../benches/product/verdict.rs"]
mod verdict;
mod watchers;
#[expect(dead_code, reason = "the tests ask more of it")]
#[path = "../../tests/e2e/endpoints/wire.rs"]
mod wire;

use verdict::Row;

/// One row: its number, and what measures it, if the machine can.
type Measurement = (&'static str, fn() -> Option<Row>);

const MEASUREMENTS: [Measurement; 4] = [
    ("18", keep_alive::row),
    ("19", watchers::row),
    ("20", news::row),
    ("23", steady::row),
];

fn main() {
    let chosen = std::env::var("PORTREEVE_ROWS").ok();
    let is_chosen = |name: &str| {
        let listed = |list: &String| list.split(',').any(|one| one == name);
        chosen.as_ref().is_none_or(listed)
    };
    let chosen = MEASUREMENTS.iter().filter(|(name, _)| is_chosen(name));
    let rows: Vec<Row> = chosen.filter_map(|(_, measure)| measure()).collect();
    verdict::print(&rows, verdict::SERVER_FILE, 18..=23);
}
