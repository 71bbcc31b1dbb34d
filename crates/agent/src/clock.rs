//! The clocks of this host: the one that decisions go by, which every process of this boot shares, and the one for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portreeve::time::{Monotonic, Now, WallClock};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Both of them.
pub(crate) fn now() -> Now {
    Now {
        mono: steady(),
        wall: wall(),
    }
}

/// The line of every process of this boot.
pub(crate) fn steady() -> Monotonic {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    Monotonic::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn wall() -> WallClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.unwrap_or_default().as_millis();
    WallClock::from_unix_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// Returns at this time; never, if there is none.
pub(crate) async fn reached(deadline: Option<Monotonic>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(Instant::now() + deadline.since(steady())).await,
        None => std::future::pending().await,
    }
}
