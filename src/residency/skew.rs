//! How far the display clock of a host is ahead of the controller's.

use std::time::Duration;

use crate::time::{Now, WallClock};

/// A skew that is further off is warned of.
const WARNED_MS: u64 = 2000;
/// An answer that took longer says too little about when it was written.
const PROMPT: Duration = Duration::from_secs(2);

/// Whether it is so much that people are to be warned of it: more than 2 s.
#[must_use]
pub const fn is_off(skew_ms: i64) -> bool {
    skew_ms.unsigned_abs() > WARNED_MS
}

/// How far, in milliseconds, the clock is ahead that showed `asked` when it was asked, of one that said `theirs` in the
/// answer that has just come, taken to be written half-way; `None` if it took more than 2 s.
#[must_use]
pub fn skew_ms(asked: Now, now: Now, theirs: WallClock) -> Option<i64> {
    let took = now.mono.since(asked.mono);
    let half = i64::try_from((took / 2).as_millis()).ok()?;
    let ours = i64::try_from(asked.wall.as_unix_millis()).ok()? + half;
    let theirs = i64::try_from(theirs.as_unix_millis()).ok()?;
    (took <= PROMPT).then(|| ours.saturating_sub(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Monotonic;

    #[test]
    fn a_skew_is_measured_at_half_of_the_way_and_not_at_all_on_a_long_one() {
        let at = |ms| Now {
            mono: Monotonic::from_millis(ms),
            wall: WallClock::from_unix_millis(10_000),
        };
        let skew =
            |theirs, took: u64| skew_ms(at(7), at(7 + took), WallClock::from_unix_millis(theirs));
        assert_eq!(skew(10_100, 200), Some(0));
        assert_eq!(skew(7_000, 0), Some(3_000));
        assert_eq!(skew(13_000, 1_000), Some(-2_500));
        assert_eq!(skew(10_000, 2_001), None);
        assert_eq!(skew(u64::MAX, 0), None);
        assert!(is_off(-2_500) && !is_off(2_000));
    }
}
