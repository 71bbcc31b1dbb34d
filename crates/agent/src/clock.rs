//! The clock of people here beside the controller's.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use portreeve::time::WallClock;

/// A skew that is further off is warned of.
pub(crate) const WARNED_MS: u64 = 2000;
/// An answer that took longer says too little about when it was written.
const PROMPT: Duration = Duration::from_secs(2);

/// When a question was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    wall: WallClock,
    steady: Instant,
}

impl Moment {
    /// Now.
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = since.unwrap_or_default().as_millis();
        Self {
            wall: WallClock::from_unix_millis(u64::try_from(ms).unwrap_or(u64::MAX)),
            steady: Instant::now(),
        }
    }

    /// How far the clock here is ahead of one that said `theirs` in the answer that has just come, taken to be
    /// written half-way; `None` if it took too long.
    pub(crate) fn skew_ms(self, theirs: WallClock) -> Option<i64> {
        self.skew_after(theirs, self.steady.elapsed())
    }

    fn skew_after(self, theirs: WallClock, took: Duration) -> Option<i64> {
        let half = i64::try_from((took / 2).as_millis()).ok()?;
        let ours = i64::try_from(self.wall.as_unix_millis()).ok()? + half;
        let theirs = i64::try_from(theirs.as_unix_millis()).ok()?;
        (took <= PROMPT).then(|| ours.saturating_sub(theirs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skew_is_measured_at_half_of_the_way_and_not_at_all_on_a_long_one() {
        let asked = Moment {
            wall: WallClock::from_unix_millis(10_000),
            steady: Instant::now(),
        };
        let skew = |theirs, took| {
            asked.skew_after(
                WallClock::from_unix_millis(theirs),
                Duration::from_millis(took),
            )
        };
        assert_eq!(skew(10_100, 200), Some(0));
        assert_eq!(skew(7_000, 0), Some(3_000));
        assert_eq!(skew(13_000, 1_000), Some(-2_500));
        assert_eq!(skew(10_000, 2_001), None);
        assert_eq!(skew(u64::MAX, 0), None);
    }
}
