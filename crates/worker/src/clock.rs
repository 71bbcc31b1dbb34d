//! The two clocks, read in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portreeve::time::{Monotonic, Now, WallClock};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks, now.
pub(crate) fn now() -> Now {
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
