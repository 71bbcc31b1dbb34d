//! Durations on the command line, written as in profiles.

use std::str::FromStr;
use std::time::Duration;

use portreeve::time::{ParseDurationError, parse_duration};

/// A duration with a unit: `500ms`, `10s`, `1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, ParseDurationError> {
        parse_duration(text).map(Self)
    }
}
