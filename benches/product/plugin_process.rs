//! Rows 17 and 25: what the shipped shared object takes from the process that loads it, watched by hosts in C.
//!
//! They need `cargo build --profile plugin -p portreeve-plugin` before them and a C compiler; without them the rows are told
//! as absent.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::verdict::{Bound, Part, Row};

const CYCLES: u32 = 1_000_000;
/// Starts of a process, of which the median counts.
const LOADS: usize = 21;
const MOST_BYTES: f64 = 2_097_152.0;
const MOST_LOAD_MS: f64 = 5.0;

/// Row 17, if the plugin is built.
pub(crate) fn counters_row() -> Option<Row> {
    let plugin = plugin("17")?;
    let host = host("counters", &["-rdynamic"])?;
    let said = said(Command::new(host).arg(plugin).arg(CYCLES.to_string()))?;
    let mut parts = Vec::new();
    for line in said.lines() {
        let Some((name, counted)) = line.split_once(" times, ") else {
            continue;
        };
        let (name, times) = name.trim_end().rsplit_once(' ')?;
        let mut numbers = counted.split(", ");
        let mut next = || -> Option<f64> { numbers.next()?.split(' ').next()?.parse().ok() };
        let blocks = next()?;
        let calls = next();
        parts.push(Part {
            case: name.trim_end().to_owned(),
            measured: blocks + calls.unwrap_or(0.0),
            shown: "0".to_owned(),
            detail: format!("{counted} in {times} calls"),
            bound: Bound::AtMost(0.0),
        });
        if let Some(part) = parts.last_mut().filter(|part| part.measured > 0.0) {
            part.shown = counted.to_owned();
        }
    }
    (!parts.is_empty()).then_some(Row {
        number: 17,
        what: "class H once warm: blocks of memory taken and system calls made over 1,000,000 cycles of a host in C",
        target: "0 and 0",
        parts,
    })
}

/// Row 25, if the plugin is built.
pub(crate) fn size_row() -> Option<Row> {
    let plugin = plugin("25")?;
    let size = std::fs::metadata(&plugin).ok()?.len() as f64;
    let host = host("load", &[])?;
    let mut loads = Vec::new();
    let mut threads = Vec::new();
    for _ in 0..LOADS {
        let said = said(Command::new(&host).arg(&plugin))?;
        let numbers: Vec<f64> = said
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [nanos, before, loaded, used] = numbers[..] else {
            return None;
        };
        loads.push(nanos / 1e6);
        threads.push(loaded.max(used) - before);
    }
    loads.sort_by(f64::total_cmp);
    let median = loads[LOADS / 2];
    let more = threads.into_iter().fold(0.0, f64::max);
    Some(Row {
        number: 25,
        what: "the shared object, stripped",
        target: "<= 2 MB, loads in < 5 ms, never a thread",
        parts: vec![
            Part {
                case: "size".to_owned(),
                measured: size,
                shown: format!("{:.2} MB", size / 1_048_576.0),
                detail: format!("{size} bytes"),
                bound: Bound::AtMost(MOST_BYTES),
            },
            Part {
                case: "dlopen".to_owned(),
                measured: median,
                shown: format!("{median:.2} ms"),
                detail: format!(
                    "median of {LOADS} processes, {:.2} to {:.2} ms",
                    loads[0],
                    loads[LOADS - 1]
                ),
                bound: Bound::AtMost(MOST_LOAD_MS),
            },
            Part {
                case: "threads after load and a cycle".to_owned(),
                measured: more,
                shown: format!("{more}"),
                detail: "more than before the load".to_owned(),
                bound: Bound::AtMost(0.0),
            },
        ],
    })
}

/// The shipped plugin, beside this binary.
fn plugin(row: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let target = own.parent()?.parent()?.parent()?;
    let plugin = target.join("plugin/libportreeve_plugin.so");
    if plugin.is_file() {
        return Some(plugin);
    }
    eprintln!(
        "row {row} is absent: `cargo build --profile plugin -p portreeve-plugin` makes what it measures"
    );
    None
}

/// A host of the plugin's tests.
fn host(name: &str, more: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let host = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = format!("crates/plugin/tests/c/instruments/{name}.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-I"])
        .arg(root.join("include"))
        .arg(root.join(source))
        .args(more)
        .args(["-ldl", "-o"])
        .arg(&host);
    said(&mut compiler).map(|_| host)
}

/// What it printed, also where it found something; nothing if it cannot be run or is broken.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() || said.contains(" times, ") {
        return Some(said);
    }
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    None
}
