//! Prints what `make bench` promises: one line per row of the table, and a JSON file beside it.

/// One row that is built.
pub(crate) struct Row {
    /// Its number in the table.
    pub(crate) number: u32,
    /// What is compared.
    pub(crate) what: &'static str,
    /// What it shall be.
    pub(crate) target: &'static str,
    /// The ratio of medians.
    pub(crate) measured: f64,
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
        let verdict = if (row.ok)(row.measured) {
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
            "ROW {number} | {} | {} | {:.1}x | {verdict}",
            row.what, row.target, row.measured
        );
        json.push(serde_json::json!({
            "row": number, "what": row.what, "target": row.target, "measured": row.measured, "verdict": verdict,
        }));
    }
    println!("{ok} ok, {short} short");
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/../bench-rows.json");
    if let Err(cause) = std::fs::write(file, format!("{:#}\n", serde_json::Value::from(json))) {
        eprintln!("{file}: {cause}");
    }
}

/// The middle of the samples.
pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
