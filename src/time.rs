//! Time as an argument: monotonic and wall-clock milliseconds, and durations as people write them.
//!
//! The core never reads a clock. Decisions use [`Monotonic`] only; [`WallClock`] is for display.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::port::excerpt;

/// A moment on one machine's monotonic clock, in milliseconds since an arbitrary start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The moment `ms` milliseconds after the start of the clock.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the start of the clock.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ms))
    }
}

impl Sub<Duration> for Monotonic {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(ms))
    }
}

/// A moment people can read, in milliseconds since 1970-01-01 UTC. Never part of a decision.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallClock(u64);

impl WallClock {
    /// The moment `ms` milliseconds after the epoch.
    #[must_use]
    pub const fn from_unix_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_unix_millis(self) -> u64 {
        self.0
    }

    /// What a clock that is `ahead_ms` ahead of another one's shows, by that other one.
    #[must_use]
    pub fn on_a_clock_behind(self, ahead_ms: i64) -> Self {
        Self(self.0.saturating_add_signed(ahead_ms.saturating_neg()))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` after this one.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// The moment `age` before this one.
    #[must_use]
    pub fn before(self, age: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

/// Both clocks, sampled once per wake-up of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For decisions.
    pub mono: Monotonic,
    /// For people.
    pub wall: WallClock,
}

/// Reads a duration with units: `"500ms"`, `"10s"`, `"1m30s"`, `"2h"`, `"1d"`.
///
/// Units must descend and appear once; blanks, signs, fractions and bare numbers are refused.
///
/// # Errors
///
/// [`ParseDurationError`] with the text and what is allowed.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    const UNITS: [(&str, u64); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let refuse = || ParseDurationError {
        text: excerpt(text),
    };
    let mut rest = text;
    let mut total: u64 = 0;
    let mut allowed = &UNITS[..];
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| refuse())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let place = allowed
            .iter()
            .position(|(unit, _)| *unit == &rest[..letters]);
        let place = place.ok_or_else(refuse)?;
        let ms = number.checked_mul(allowed[place].1).ok_or_else(refuse)?;
        total = total.checked_add(ms).ok_or_else(refuse)?;
        allowed = &allowed[place + 1..];
        rest = &rest[letters..];
    }
    if text.is_empty() {
        return Err(refuse());
    }
    Ok(Duration::from_millis(total))
}

/// Not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a duration: write a number with a unit, such as \"500ms\", \"10s\" or \"1m30s\""
)]
pub struct ParseDurationError {
    text: String,
}

/// A duration in the form that [`parse_duration`] reads back: `1m30s`, `500ms`, `0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelled(pub Duration);

impl fmt::Display for Spelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ms = self.0.as_millis();
        if ms == 0 {
            return f.write_str("0s");
        }
        for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if ms >= size {
                write!(f, "{}{unit}", ms / size)?;
                ms %= size;
            }
        }
        Ok(())
    }
}

/// A moment as people read it: `2026-01-31T10:00:00Z`, by the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc(pub WallClock);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_unix_millis() / 1000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // The calendar repeats after 400 years of 146,097 days; a year of it begins in March, so that the leap day is
        // its last one.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let date = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_told_as_dates_and_times() {
        let told = |seconds: u64| Utc(WallClock::from_unix_millis(seconds * 1000)).to_string();
        assert_eq!(told(0), "1970-01-01T00:00:00Z");
        assert_eq!(told(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(told(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(told(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(told(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(told(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn durations_need_units_in_descending_order() {
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for bad in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "10 s",
            "30s1m",
            "1s1s",
            "99999999999999999999s",
            "300000000000d",
            "1μs",
            "1ü",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn a_spelled_duration_reads_back_equal(ms in 0u64..1_000_000_000_000) {
            let span = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&Spelled(span).to_string()), Ok(span));
        }
    }
}
