//! Sizes as they are written: `64k`, `50M`, `2G`.

use std::fmt;
use std::str::FromStr;

use portreeve_api::local::LogBounds;

/// How large a log file grows, in bytes: `k`, `M` and `G` are thousands, as disks are sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseSizeError {
            text: text.chars().take(32).collect(),
        };
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit: u64 = match &text[digits.len()..] {
            "" => 1,
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            _ => return Err(refused()),
        };
        let bytes = digits.parse::<u64>().ok();
        let bytes = bytes.and_then(|number| number.checked_mul(unit));
        bytes
            .filter(|bytes| (LogBounds::MIN_SIZE..=LogBounds::MAX_SIZE).contains(bytes))
            .map(Self)
            .ok_or_else(refused)
    }
}

/// A text that is no size, or one that no log file may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseSizeError {
    text: String,
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no size from {} bytes to 1000G; write a number with a unit, such as 512K, 50M or 2G",
            self.text,
            LogBounds::MIN_SIZE
        )
    }
}

impl std::error::Error for ParseSizeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit_and_within_their_bounds() {
        assert_eq!("50M".parse(), Ok(Size(50_000_000)));
        assert_eq!("100k".parse(), Ok(Size(100_000)));
        assert_eq!("70000".parse(), Ok(Size(70_000)));
        for strange in [
            "",
            "M",
            "1",
            "64B",
            "5000G",
            "-5M",
            "99999999999999G",
            "5 M",
        ] {
            assert!(strange.parse::<Size>().is_err(), "{strange:?}");
        }
    }
}
