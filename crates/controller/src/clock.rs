//! The clocks, read in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portreeve::time::{Monotonic, Now, WallClock};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks now.
///
/// `CLOCK_MONOTONIC`, which tokio's timers use too, does not run while the machine is suspended: a
/// controller that slept must not conclude that its hosts are lost.
pub(crate) fn now() -> Now {
    let mono = clock_gettime(ClockId::Monotonic);
    let ms = mono.tv_sec.unsigned_abs() * 1000 + mono.tv_nsec.unsigned_abs() / 1_000_000;
    Now {
        mono: Monotonic::from_millis(ms),
        wall: wall(),
    }
}

/// The time for people.
pub(crate) fn wall() -> WallClock {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    WallClock::from_unix_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
