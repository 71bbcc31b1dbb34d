//! Row 19: two thousand streams of one service: what an idle one weighs, and when the last has heard of a change.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::interleaved::{Samples, spelled};
use crate::served::{PATIENCE, Served, absent};
use crate::verdict::{Bound, Part, Row};
use crate::wire::Events;

const PATH: &str = "/api/v1/services/web/endpoints";
const WATCHERS: usize = 2_000;
const REPLICAS: usize = 10;
const CHANGES: usize = 21;
/// Longer than changes are gathered: each here is the first after quiet.
const QUIET: Duration = Duration::from_millis(100);
const MOST_MS: f64 = 250.0;
const MOST_BYTES: f64 = 10.0 * 1024.0;

/// The row.
pub(crate) fn row() -> Option<Row> {
    absent(19, measure())
}

fn measure() -> io::Result<Row> {
    allow_files()?;
    let mut served = Served::start(REPLICAS, &[])?;
    // Some come and go first, so that what the server keeps for everybody is there.
    let warm = watchers(&served, 50)?;
    drop(warm);
    std::thread::sleep(Duration::from_secs(1));
    let before = served.controller.resident()?;
    let mut streams = watchers(&served, WATCHERS)?;
    std::thread::sleep(Duration::from_secs(1));
    let weight = (served.controller.resident()? - before) / WATCHERS as f64;
    let mut times = Vec::new();
    for _ in 0..CHANGES {
        std::thread::sleep(QUIET);
        let ready = !served.host.is_ready(0);
        let begun = Instant::now();
        let mut worker = served.host.begin_to_tell(0, ready)?;
        let expected = REPLICAS - usize::from(!ready);
        for stream in &mut streams {
            hear(stream, expected)?;
        }
        times.push(begun.elapsed().as_secs_f64() * 1e9);
        worker.answer()?;
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    let median = Samples::new(times).median();
    let after = (served.controller.resident()? - before) / WATCHERS as f64;
    let time = |case: &str, nanos: f64, bound| Part {
        case: case.to_owned(),
        measured: nanos / 1e6,
        shown: spelled(nanos),
        detail: format!("{CHANGES} changes, {WATCHERS} watchers"),
        bound,
    };
    let kilobytes = |case: &str, bytes: f64, bound| Part {
        case: case.to_owned(),
        measured: bytes,
        shown: format!("{:.1} KiB", bytes / 1024.0),
        detail: "growth of the controller's resident memory by stream".to_owned(),
        bound,
    };
    Ok(Row {
        number: 19,
        what: "one change to the last of 2,000 SSE watchers; resident memory of an idle stream",
        target: "< 250 ms; <= 10 KiB",
        parts: vec![
            time("to the last", median, Bound::AtMost(MOST_MS)),
            time("slowest change", worst, Bound::Told),
            kilobytes("idle stream", weight, Bound::AtMost(MOST_BYTES)),
            kilobytes("after the changes", after, Bound::Told),
        ],
    })
}

/// Streams that have the first full set.
fn watchers(served: &Served, count: usize) -> io::Result<Vec<Events>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = Events::open(&served.place, PATH, None, PATIENCE)?;
        hear(&mut stream, REPLICAS)?;
        streams.push(stream);
    }
    Ok(streams)
}

/// Reads until an event says that so many are ready. Its text is searched and not parsed: the client shares the
/// processors with the server.
fn hear(stream: &mut Events, ready: usize) -> io::Result<()> {
    let wanted = format!("\"ready\":{ready},");
    loop {
        let line = stream.0.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.starts_with("data: ") && line.contains(&wanted) {
            return Ok(());
        }
    }
}

/// Both ends of every stream may need a file: this process, and those that it starts.
fn allow_files() -> io::Result<()> {
    let own = std::process::id().to_string();
    let status = Command::new("prlimit")
        .args(["--pid", &own, "--nofile=16384:16384"])
        .status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(
        "2,000 streams need more open files than are allowed",
    ))
}
