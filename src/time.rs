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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
