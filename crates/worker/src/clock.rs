//! The two clocks, read in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portreeve::time::{Monotonic, Now, WallClock};
use rustix::time::{ClockId, clock_gettime};

/// Which time a driver lives in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Clock {
    /// That of this host.
    #[default]
    Host,
    /// That of the event loop since this instant, which a test stops and moves.
    #[cfg(test)]
    EventLoop(tokio::time::Instant),
}

impl Clock {
    /// Both clocks, now.
    pub(crate) fn now(self) -> Now {
        match self {
            Self::Host => now(),
            #[cfg(test)]
            Self::EventLoop(_) => Now {
                mono: self.monotonic(),
                wall: WallClock::from_unix_millis(1_000_000_000 + self.monotonic().as_millis()),
            },
        }
    }

    /// The clock that no one sets.
    pub(crate) fn monotonic(self) -> Monotonic {
        match self {
            Self::Host => monotonic(),
            #[cfg(test)]
            Self::EventLoop(begin) => Monotonic::from_millis(millis(begin.elapsed())),
        }
    }
}

/// Both clocks, now.
fn now() -> Now {
    Now {
        mono: monotonic(),
        wall: WallClock::from_unix_millis(millis(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        )),
    }
}

/// CLOCK_MONOTONIC, the same line for every process of this boot.
pub(crate) fn monotonic() -> Monotonic {
    let now = clock_gettime(ClockId::Monotonic);
    let span = Duration::try_from(now).unwrap_or_default();
    Monotonic::from_millis(millis(span))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
