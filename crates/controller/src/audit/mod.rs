//! The audit log: every change and every refusal, with who, what, from where and what came of it; a JSON object a line.
//!
//! Who is answered never waits for it: lines go to a thread of their own, and those that find no room there or on the
//! disk are counted and told, not kept. No line holds a secret: neither headers nor bodies are looked at, and what looks
//! like a token in a path or a query is left out.

mod line;
mod noted;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use line::{Call, Entry, Outcome};
pub(crate) use noted::Noted;

use crate::rate::Rates;
use writer::{Message, Writer};

/// Lines that wait to be written.
const MOST_WAITING: usize = 8_192;

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditPlace {
    /// A file (0600) in parts of 50 MB, of which three are kept: `audit.log`, `audit.log.1`, `audit.log.2`.
    InParts(PathBuf),
    /// A file (0600) that is never cut: the site moves it away, and it is made anew.
    File(PathBuf),
}

/// The refusals that one account, machine or host may have written at once; after them one a second. Who is refused
/// again and again would otherwise push out of the parts what others did.
const REFUSALS_AT_ONCE: u32 = 200;

/// The way to the file. Without one, nothing is written.
#[derive(Debug)]
pub(crate) struct AuditLog {
    lines: Mutex<Option<SyncSender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    counts: Arc<Counts>,
    refusals: Rates,
}

impl Default for AuditLog {
    fn default() -> Self {
        Self {
            lines: Mutex::default(),
            writer: Mutex::default(),
            counts: Arc::default(),
            refusals: Rates::slow(REFUSALS_AT_ONCE),
        }
    }
}

/// What became of lines since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
}

impl AuditLog {
    /// Opens the file, and begins to write.
    pub(crate) fn begin(place: Option<&AuditPlace>) -> io::Result<Self> {
        let log = Self::default();
        let Some(place) = place else {
            return Ok(log);
        };
        let (sender, receiver) = sync_channel(MOST_WAITING);
        let writer = Writer::open(place, Arc::clone(&log.counts))?;
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let running = thread.spawn(move || writer.run(&receiver))?;
        *log.lines.lock() = Some(sender);
        *log.writer.lock() = Some(running);
        Ok(log)
    }

    /// Whether there is a file.
    pub(crate) fn is_kept(&self) -> bool {
        self.lines.lock().is_some()
    }

    /// One more line. Never waits.
    pub(crate) fn add(&self, Entry { line, refused }: Entry) {
        let one_too_many =
            refused.is_some_and(|whose| self.refusals.take(&whose, Instant::now()).is_err());
        if one_too_many {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(Message::Line(line));
    }

    /// Opens the file by its name again.
    pub(crate) fn reopen(&self) {
        self.send(Message::Reopen);
    }

    fn send(&self, message: Message) {
        let lines = self.lines.lock();
        let Some(sender) = &*lines else {
            return;
        };
        match sender.try_send(message) {
            Err(TrySendError::Full(Message::Line(_)) | TrySendError::Disconnected(_)) => {
                self.counts.lost.fetch_add(1, Ordering::Relaxed);
            }
            // The writer looks by itself whether the file was moved.
            Err(TrySendError::Full(Message::Reopen)) | Ok(()) => {}
        }
    }

    /// Writes what waits, and ends. Blocks for as long.
    pub(crate) fn end(&self) {
        drop(self.lines.lock().take());
        if let Some(writer) = self.writer.lock().take() {
            // What panicked has said why.
            let _ = writer.join();
        }
    }

    /// Lines that were written since the start.
    pub(crate) fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Lines that were not.
    pub(crate) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}
