//! Our own lines on the job's standard error.
//!
//! A thread of their own writes them: nobody may be reading there, and a full pipe shall keep neither the service from
//! its start nor the job from its stop. The pipe is also the service's, so it cannot be asked not to block.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How many lines may wait to be written; further ones are lost.
const WAITING: usize = 256;
/// How long the last ones may take at the end.
const LAST_LINES: Duration = Duration::from_secs(1);
/// It only writes.
const STACK: usize = 64 << 10;

static LINES: OnceLock<SyncSender<Line>> = OnceLock::new();

enum Line {
    Said(Vec<u8>),
    /// Answered once everything before it is written.
    Last(SyncSender<()>),
}

/// Lines of the log, for [`tracing_subscriber`].
pub(super) struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        hand_on(Line::Said(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line beside the service's own.
pub(super) fn say(words: &str) {
    hand_on(Line::Said(format!("portreeve: {words}\n").into_bytes()));
}

/// Waits until everything said is written, or nobody has taken it for a second.
pub(super) fn finish() {
    let (done, written) = sync_channel(1);
    hand_on(Line::Last(done));
    // Without a place for this line there is nothing more to wait for.
    _ = written.recv_timeout(LAST_LINES);
}

fn hand_on(line: Line) {
    let lines = LINES.get_or_init(|| {
        let (lines, heard) = sync_channel(WAITING);
        // Without it every line is lost, and no job is harmed.
        _ = thread::Builder::new()
            .name("voice".to_owned())
            .stack_size(STACK)
            .spawn(move || write_all(&heard));
        lines
    });
    // Too many wait, or nobody writes them.
    _ = lines.try_send(line);
}

fn write_all(lines: &Receiver<Line>) {
    while let Ok(line) = lines.recv() {
        match line {
            // Nobody may be listening, which is no reason to end.
            Line::Said(line) => _ = io::stderr().write_all(&line),
            Line::Last(done) => _ = done.send(()),
        }
    }
}
