//! Prints what `make bench` promises: one line per row of the table, and a JSON file beside it.

use serde_json::{Value, json};

use crate::interleaved::{Ratio, spelled};

/// One row that is built.
pub(crate) struct Row {
    /// Its number in the table.
    pub(crate) number: u32,
    /// What is compared.
    pub(crate) what: &'static str,
    /// What it shall be.
    pub(crate) target: &'static str,
    /// What was measured, case by case; never empty.
    pub(crate) parts: Vec<Part>,
}

/// One case of a row.
pub(crate) struct Part {
    /// Which case.
    pub(crate) case: String,
    /// The figure that is held against the bound.
    pub(crate) measured: f64,
    /// The figure with its unit.
    pub(crate) shown: String,
    /// What it was made of.
    pub(crate) detail: String,
    /// What the figure shall be.
    pub(crate) bound: Bound,
}

/// What a figure shall be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// Whatever it is: told beside the others, no part of the verdict.
    Told,
}

impl Part {
    /// A ratio of two sides, called by these names.
    pub(crate) fn ratio(
        case: impl Into<String>,
        ratio: &Ratio,
        sides: (&str, &str),
        bound: Bound,
    ) -> Self {
        let Ratio {
            value,
            low,
            high,
            medians,
            quiet,
        } = *ratio;
        Self {
            case: case.into(),
            measured: value,
            shown: format!("{value:.1}x"),
            detail: format!(
                "{} {} / {} {}, eight of ten rounds {low:.1} to {high:.1}, quietest tenth {} / {}",
                sides.0,
                spelled(medians.0),
                sides.1,
                spelled(medians.1),
                spelled(quiet.0),
                spelled(quiet.1)
            ),
            bound,
        }
    }

    fn holds(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.measured <= bound,
            Bound::AtLeast(bound) => self.measured >= bound,
            Bound::Told => true,
        }
    }

    fn limit(&self) -> String {
        match self.bound {
            Bound::AtMost(bound) => format!("at most {bound}"),
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::Told => "no bound".to_owned(),
        }
    }
}

impl Row {
    fn verdict(&self) -> &'static str {
        if self.parts.iter().all(Part::holds) {
            "ok"
        } else {
            "short"
        }
    }

    fn measured(&self) -> String {
        let judged = self.parts.iter().filter(|part| part.bound != Bound::Told);
        let shown: Vec<String> = judged
            .map(|part| {
                let missed = if part.holds() { "" } else { "!" };
                format!("{}: {}{missed}", part.case, part.shown)
            })
            .collect();
        shown.join(", ")
    }
}

/// Where the rows of this bench are left, those of the one that needs the whole server, those of the store's, and those
/// of the virtual cluster's.
pub(crate) const FILE: &str = "bench-rows.json";
pub(crate) const SERVER_FILE: &str = "bench-server-rows.json";
pub(crate) const CONTROLLER_FILE: &str = "bench-controller-rows.json";
pub(crate) const SIM_FILE: &str = "bench-sim-rows.json";

/// Prints what each row was made of, then the rows of these numbers, and leaves what was measured in `file` in the
/// target folder. Rows that were not measured now are told from the last run that did, of any bench.
pub(crate) fn print(rows: &[Row], file: &str, numbers: impl IntoIterator<Item = u32>) {
    let earlier = [FILE, SERVER_FILE, CONTROLLER_FILE, SIM_FILE]
        .map(kept)
        .concat();
    leave_rows(file, print_with(rows, &earlier, numbers));
}

/// Prints these rows; gives those that were measured.
fn print_with(rows: &[Row], kept: &[Value], numbers: impl IntoIterator<Item = u32>) -> Vec<Value> {
    for row in rows {
        println!("\nrow {}: {}", row.number, row.what);
        for part in &row.parts {
            let (shown, detail) = (&part.shown, &part.detail);
            println!("  {} | {shown} | {} | {detail}", part.case, part.limit());
        }
    }
    println!();
    let (mut ok, mut short) = (0, 0);
    let mut json = Vec::new();
    for number in numbers {
        let (row, age) = match rows.iter().find(|row| row.number == number) {
            Some(row) => {
                json.push(described(row));
                (json.last(), "")
            }
            None => (
                kept.iter().find(|row| row["row"] == number),
                " (an earlier run)",
            ),
        };
        let Some(row) = row else {
            println!("ROW {number} | not built or not measured yet | - | - | absent");
            continue;
        };
        let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        let verdict = text("verdict");
        *if verdict == "ok" { &mut ok } else { &mut short } += 1;
        println!(
            "ROW {number} | {} | {} | {}{age} | {verdict}",
            text("what"),
            text("target"),
            text("measured")
        );
    }
    println!("{ok} ok, {short} short");
    json
}

/// The rows that an earlier run left.
fn kept(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place(name)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn described(row: &Row) -> Value {
    let parts: Vec<Value> = row
        .parts
        .iter()
        .map(|part| {
            json!({
                "case": part.case, "measured": part.measured, "bound": part.limit(), "detail": part.detail,
            })
        })
        .collect();
    json!({
        "row": row.number, "what": row.what, "target": row.target, "measured": row.measured(),
        "verdict": row.verdict(), "parts": parts,
    })
}

/// One line of the second table: how a cost grows. It has no target.
pub(crate) struct Growth {
    /// What is measured.
    pub(crate) what: String,
    /// At which size.
    pub(crate) at: String,
    /// The figures with their units.
    pub(crate) measured: String,
}

/// Prints the second table and leaves `bench-growth.json` in the target folder.
pub(crate) fn print_growth(lines: &[Growth]) {
    println!("\ngrowth | at | measured");
    for Growth { what, at, measured } in lines {
        println!("{what} | {at} | {measured}");
    }
    let json: Vec<Value> = lines
        .iter()
        .map(|line| json!({ "what": line.what, "at": line.at, "measured": line.measured }))
        .collect();
    leave("bench-growth.json", &Value::from(json));
}

/// Leaves these rows beside those that the last runs measured and this one did not.
fn leave_rows(name: &str, rows: Vec<Value>) {
    let mut all = kept(name);
    all.retain(|old| !rows.iter().any(|new| new["row"] == old["row"]));
    all.extend(rows);
    leave(name, &Value::from(all));
}

fn leave(name: &str, json: &Value) {
    let file = place(name);
    if let Err(cause) = std::fs::write(&file, format!("{json:#}\n")) {
        eprintln!("{file}: {cause}");
    }
}

fn place(name: &str) -> String {
    format!("{}/../{name}", env!("CARGO_TARGET_TMPDIR"))
}
