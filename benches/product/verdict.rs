//! Prints what `make bench` promises: one line per row of the table, and a JSON file beside it.

use std::fmt;

/// One row that is built.
pub(crate) struct Row {
    /// Its number in the table.
    pub(crate) number: u32,
    /// What is compared.
    pub(crate) what: &'static str,
    /// What it shall be.
    pub(crate) target: &'static str,
    /// The ratio in each pair of interleaved samples.
    pub(crate) measured: Ratios,
    /// Whether the ratio meets the target.
    pub(crate) ok: fn(f64) -> bool,
}

/// The rows of the table.
const ROWS: std::ops::RangeInclusive<u32> = 1..=25;

/// Prints every row, built or not, and leaves `bench-rows.json` in the target folder.
pub(crate) fn print(rows: &[Row]) {
    let (mut ok, mut short) = (0, 0);
    let mut json = Vec::new();
    for number in ROWS {
        let Some(row) = rows.iter().find(|row| row.number == number) else {
            println!("ROW {number} | not built yet | - | - | absent");
            continue;
        };
        let verdict = if (row.ok)(row.measured.median()) {
            "ok"
        } else {
            "short"
        };
        if verdict == "ok" {
            ok += 1;
        } else {
            short += 1;
        }
        println!(
            "ROW {number} | {} | {} | {} | {verdict}",
            row.what, row.target, row.measured
        );
        json.push(serde_json::json!({
            "row": number, "what": row.what, "target": row.target, "measured": row.measured.median(), "verdict": verdict,
        }));
    }
    println!("{ok} ok, {short} short");
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/../bench-rows.json");
    if let Err(cause) = std::fs::write(file, format!("{:#}\n", serde_json::Value::from(json))) {
        eprintln!("{file}: {cause}");
    }
}

/// How often the baseline's time holds ours, pair by pair, ascending; never empty.
pub(crate) struct Ratios(Vec<f64>);

impl Ratios {
    /// The ratios of these pairs.
    pub(crate) fn new(mut pairs: Vec<f64>) -> Self {
        assert!(!pairs.is_empty(), "a row measures something");
        pairs.sort_by(f64::total_cmp);
        Self(pairs)
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.0[0], self.0[self.0.len() - 1]);
        write!(
            f,
            "{:.1}x ({least:.1} to {most:.1} in {} pairs)",
            self.median(),
            self.0.len()
        )
    }
}
