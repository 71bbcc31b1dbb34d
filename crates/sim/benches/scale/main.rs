//! The row of the product's performance table that is about the virtual cluster: what an hour of a large one costs, and
//! how that grows.
//!
//! `make bench` runs it before the others. Each size is a process of its own, so that what one leaves in memory is not
//! the next one's. `PORTREEVE_ROWS=24` runs it alone; `PORTREEVE_SCALE=2500` takes this number of hosts for 4x instead of
//! 10,000, `PORTREEVE_SCALE_WATCHED=1` holds every promise against each step.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a bench reads clocks and starts processes; what it cannot do ends it"
)]

#[expect(dead_code, reason = "the sides here time themselves")]
#[path = "../../../../benches/product/interleaved.rs"]
mod interleaved;
#[expect(dead_code, reason = "the table of growth is the other bench's")]
#[path = "../../../../benches/product/verdict.rs"]
mod verdict;

use std::process::Command;
use std::time::Instant;

use portreeve_sim::scale::{Run, Size};
use serde::{Deserialize, Serialize};
use verdict::{Bound, Part, Row};

/// Which one process measures: hosts, replicas of a host, minutes.
const ONE: &str = "PORTREEVE_SCALE_ONE";

/// What one size cost.
#[derive(Debug, Deserialize, Serialize)]
struct Cost {
    hosts: usize,
    replicas: usize,
    steps: u64,
    messages: u64,
    ready: u32,
    desired: u32,
    /// Of the clock: the whole run.
    seconds: f64,
    /// Of the processor: the whole run, and its first two minutes, in which everything starts. On a machine that others
    /// use too, only this says how cost grows.
    busy: f64,
    start: f64,
    /// Once everything runs, and the most.
    resident_kb: u64,
    peak_kb: u64,
}

fn main() {
    if let Some(one) = std::env::var_os(ONE) {
        let one = one.into_string().expect("it is text");
        let numbers = one.split(',').map(|one| one.parse().expect("a number"));
        let numbers: Vec<usize> = numbers.collect();
        let size = Size {
            hosts: numbers[0],
            replicas_of_a_host: numbers[1],
            minutes: numbers[2] as u64,
        };
        println!("{}", serde_json::json!(measure(size)));
        return;
    }
    let chosen = std::env::var("PORTREEVE_ROWS").ok();
    if chosen.is_none_or(|list| list.split(',').any(|one| one == "24")) {
        verdict::print(&[row()], verdict::SIM_FILE, [24]);
    }
}

fn row() -> Row {
    let largest = std::env::var("PORTREEVE_SCALE").ok();
    let largest = largest.map_or(10_000, |hosts| hosts.parse().expect("a number of hosts"));
    let sizes = [(1, largest / 4), (2, largest / 2), (4, largest)];
    let empty = apart(largest, 0, 3);
    let costs = sizes.map(|(factor, hosts)| (factor, apart(hosts, 10, 60)));
    let first = costs[0].1.busy;
    let mut parts = Vec::new();
    for (factor, cost) in &costs {
        let growth = cost.busy / first / f64::from(*factor);
        parts.push(Part {
            case: format!("{factor}x"),
            measured: growth,
            shown: format!(
                "{:.0} s, {:.0} events/s{}",
                cost.busy,
                cost.steps as f64 / cost.busy,
                if *factor == 1 { String::new() } else { format!(", {growth:.2}x of linear") }
            ),
            detail: format!(
                "{} hosts, {} replicas, {} of {} ready at the end; {} events, {} messages; the start took {:.1} s, all {:.0} s by the clock; {} MB \
                 resident, {} MB at most",
                cost.hosts,
                cost.replicas,
                cost.ready,
                cost.desired,
                cost.steps,
                cost.messages,
                cost.start,
                cost.seconds,
                cost.resident_kb / 1024,
                cost.peak_kb / 1024,
            ),
            bound: Bound::AtMost(1.25),
        });
    }
    let bytes = |kb: u64, by: usize| kb as f64 * 1024.0 / by as f64;
    let full = &costs[2].1;
    let of_a_host = bytes(empty.resident_kb, empty.hosts);
    let of_replicas = full.resident_kb.saturating_sub(empty.resident_kb);
    let of_a_replica = bytes(of_replicas, full.replicas);
    for (case, measured) in [
        ("memory of a host", of_a_host),
        ("of a replica", of_a_replica),
    ] {
        parts.push(Part {
            case: case.to_owned(),
            measured,
            shown: format!("{:.1} KB", measured / 1024.0),
            detail: "resident, everything in it: controller, store, network, agents, workers"
                .to_owned(),
            bound: Bound::Told,
        });
    }
    Row {
        number: 24,
        what: "virtual cluster, an hour with 1 % churn a minute at 1x, 2x, 4x",
        target: "report; linear wanted (at most 1.25x of it)",
        parts,
    }
}

/// In a process of its own.
fn apart(hosts: usize, of_a_host: usize, minutes: u64) -> Cost {
    let program = std::env::current_exe().expect("it runs");
    let output = Command::new(program)
        .env(ONE, format!("{hosts},{of_a_host},{minutes}"))
        .stderr(std::process::Stdio::inherit())
        .output();
    let output = output.expect("the bench starts itself");
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).expect("it tells what it measured")
}

fn measure(size: Size) -> Cost {
    let watched = std::env::var_os("PORTREEVE_SCALE_WATCHED").is_some();
    let before = memory("VmRSS:");
    let begun = Instant::now();
    let mut run = Run::new(size, watched);
    let (mut start, mut resident_kb) = (0.0, 0);
    let mut goes_on = true;
    for minute in 1_u64.. {
        goes_on = match run.minute() {
            Ok(goes_on) => goes_on,
            Err(broken) => panic!("a promise was broken in minute {minute}: {broken}"),
        };
        if minute == 2 {
            start = busy();
            resident_kb = memory("VmRSS:").saturating_sub(before);
        }
        if minute % 10 == 0 || minute <= 3 {
            let stand = run.stand();
            let seconds = busy();
            let mb = memory("VmRSS:") / 1024;
            eprintln!(
                "  {} hosts, minute {minute}: {seconds:.1} s, {} events, {} of {} ready, {mb} MB",
                size.hosts, stand.steps, stand.ready, stand.desired
            );
        }
        if !goes_on {
            break;
        }
    }
    assert!(!goes_on, "a run ends");
    let seconds = begun.elapsed().as_secs_f64();
    let stand = run.stand();
    Cost {
        hosts: size.hosts,
        replicas: size.replicas(),
        steps: stand.steps,
        messages: stand.messages,
        ready: stand.ready,
        desired: stand.desired,
        seconds,
        busy: busy(),
        start,
        resident_kb,
        peak_kb: memory("VmHWM:").saturating_sub(before),
    }
}

/// Seconds for which this process had a processor.
fn busy() -> f64 {
    // In nanoseconds; the file is of Linux, as the product is.
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    let nanos: u64 = first.and_then(|it| it.parse().ok()).unwrap_or_default();
    nanos as f64 / 1e9
}

/// In KB, of this process.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|kb| kb.parse().ok()).unwrap_or_default()
}
