//! Moments as people write them: `2026-11-30T02:00:00Z`, milliseconds since 1970, or `-2h` before now.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use portreeve::time::{WallClock, parse_duration};

/// A moment, or how long before now one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This one.
    At(WallClock),
    /// So long before now.
    Before(Duration),
}

impl Moment {
    /// A number below it is one of seconds, or of a day before any controller ran: 1973-03-03 in milliseconds.
    const LEAST_MS: u64 = 100_000_000_000;

    /// The moment, if it is `now`.
    #[must_use]
    pub fn at(self, now: WallClock) -> WallClock {
        match self {
            Self::At(moment) => moment,
            Self::Before(span) => now.before(span),
        }
    }
}

impl FromStr for Moment {
    type Err = ParseMomentError;

    fn from_str(text: &str) -> Result<Self, ParseMomentError> {
        let refused = |reason| {
            let text = text.chars().take(64).collect();
            Err(ParseMomentError { text, reason })
        };
        if let Some(span) = text.strip_prefix('-') {
            return match parse_duration(span) {
                Ok(span) => Ok(Self::Before(span)),
                Err(_) => refused("write a duration behind the -, such as -2h or -1d12h"),
            };
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse() {
                Ok(ms) if ms >= Self::LEAST_MS && i64::try_from(ms).is_ok() => {
                    Ok(Self::At(WallClock::from_unix_millis(ms)))
                }
                _ => refused("a number is one of milliseconds since 1970: 13 digits"),
            };
        }
        match text.parse::<jiff::Timestamp>() {
            Ok(moment) => match u64::try_from(moment.as_millisecond()) {
                Ok(ms) => Ok(Self::At(WallClock::from_unix_millis(ms))),
                Err(_) => refused("it is before 1970"),
            },
            Err(_) => refused(
                "write 2026-11-30T02:00:00Z (or +01:00 for Z), milliseconds since 1970, or -2h for two hours ago",
            ),
        }
    }
}

impl fmt::Display for Moment {
    /// In the form that [`Moment::from_str`] reads back, to the millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(moment) => write!(f, "{}", moment.as_unix_millis()),
            Self::Before(span) => write!(f, "-{}ms", span.as_millis()),
        }
    }
}

/// Not a moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no moment: {reason}")]
pub struct ParseMomentError {
    text: String,
    reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_in_each_form_that_people_write() {
        let at = |ms| Moment::At(WallClock::from_unix_millis(ms));
        for (text, expected) in [
            ("2023-11-14T22:13:20Z", at(1_700_000_000_000)),
            ("2023-11-14T23:13:20.5+01:00", at(1_700_000_000_500)),
            ("1700000000000", at(1_700_000_000_000)),
            ("-2h", Moment::Before(Duration::from_secs(7200))),
        ] {
            let moment: Moment = text.parse().unwrap();
            assert_eq!(moment, expected, "{text}");
            assert_eq!(moment.to_string().parse(), Ok(expected), "{text}");
        }
        let ago: Moment = "-1s".parse().unwrap();
        let now = WallClock::from_unix_millis(5_000);
        assert_eq!(ago.at(now), WallClock::from_unix_millis(4_000));
    }

    #[test]
    fn anything_else_is_refused_with_what_to_write() {
        for bad in [
            "",
            "-",
            "-2",
            "yesterday",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "1700000000",
            "99999999999999999999",
            "1969-01-01T00:00:00Z",
            "２０２３",
        ] {
            let refused = bad.parse::<Moment>().unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("{bad:?} is no moment: ")),
                "{refused}"
            );
        }
        let long = "x".repeat(100_000).parse::<Moment>().unwrap_err();
        assert!(long.to_string().len() < 300);
    }
}
