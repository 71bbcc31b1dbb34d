//! Keeps what the service writes within bounds, without coming between it and its files.
//!
//! The service has its log file open and appends by itself, so that neither a full disk nor a slow reader nor
//! our own death can block it. What is too old is cut off the file's beginning: copied to a part, then taken
//! out by `FALLOC_FL_COLLAPSE_RANGE`, which moves no byte and loses none. Where the file system cannot do
//! that, the file is copied whole and emptied, and what is written in that instant is lost.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use portreeve_api::local::{LogBounds, LogStream, ReplicaFolder};

use crate::log_cut::Log;
use crate::own_log;

/// How long until the files are looked at again: while they grow fast, and while they do not.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// How often what the worker and its shims say of themselves is looked at. They say little.
pub(crate) const OWN_LOOK: Duration = Duration::from_secs(60);

/// Keeps the output of the replica in `folder` within `bounds` for ever, and what is said of it within its own.
///
/// Looks at two sizes every 10 s while little is written and more often the faster the files grow; copies on
/// another thread.
pub(crate) async fn keep(folder: ReplicaFolder, bounds: LogBounds) {
    let mut pace = Pace::default();
    let mut own_look = Instant::now();
    loop {
        if own_look <= Instant::now() {
            let place = folder.clone();
            // A thread of its own is for the rare case.
            if own_log::is_too_long(&folder)
                && let Err(cause) =
                    tokio::task::spawn_blocking(move || own_log::bound(&place)).await
            {
                tracing::error!("cutting the worker's own log broke: {cause}");
            }
            own_look = Instant::now() + OWN_LOOK;
        }
        tokio::time::sleep(pace.wait).await;
        let lengths = LogStream::OUTPUT.map(|stream| length(&folder.log(stream)));
        let longest = lengths.into_iter().max().unwrap_or(0);
        pace.saw(lengths.iter().sum(), bounds.size.saturating_sub(longest));
        if longest <= bounds.size {
            continue;
        }
        let place = folder.clone();
        let cut = tokio::task::spawn_blocking(move || {
            LogStream::OUTPUT.map(|stream| Log::new(&place, stream, bounds).cut())
        });
        match cut.await {
            Ok(results) => {
                for cause in results.into_iter().filter_map(Result::err) {
                    tracing::warn!("the log cannot be cut: {cause}");
                }
            }
            Err(cause) => tracing::error!("cutting the log broke: {cause}"),
        }
        let lengths = LogStream::OUTPUT.map(|stream| length(&folder.log(stream)));
        pace.seen = lengths.iter().sum();
    }
}

/// How often to look: so often that a file is not much larger than it may be when it is seen.
#[derive(Debug)]
struct Pace {
    seen: u64,
    wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            seen: 0,
            wait: LOOK.0 * 10,
        }
    }
}

impl Pace {
    /// Chooses the next wait from what came since the last look, and from how much more is allowed.
    fn saw(&mut self, sum: u64, left: u64) {
        let grown = sum.saturating_sub(self.seen);
        self.seen = sum;
        // At most twice as long as before: what was slow may become fast.
        let longest = self.wait * 2;
        let wanted = if grown == 0 {
            longest
        } else {
            // Half the time in which it would be full.
            let waits = left as f64 / grown as f64 / 2.0;
            self.wait.mul_f64(waits.min(2.0))
        };
        self.wait = wanted.min(longest).clamp(LOOK.0, LOOK.1);
    }
}

fn length(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |about| about.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_log_is_looked_at_ever_less_and_a_growing_one_in_time() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.saw(100, 1_000_000);
        }
        assert_eq!(pace.wait, LOOK.1);
        // A fifth of what is left came: half of five times the wait is too long to be sure.
        pace.saw(200_100, 1_000_000);
        assert_eq!(pace.wait, LOOK.1);
        pace.saw(1_200_100, 100_000);
        assert_eq!(pace.wait, LOOK.1.mul_f64(0.05));
        pace.saw(9_200_100, 0);
        assert_eq!(pace.wait, LOOK.0);
        // Emptied under us: no growth.
        pace.saw(0, 1_000_000);
        assert_eq!(pace.wait, LOOK.0 * 2);
    }
}
