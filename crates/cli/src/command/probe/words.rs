//! What a probe is asked with, as words of the command line.

use std::str::FromStr;

use portreeve::port::{Port, PortRange};

/// Status codes: `200-299,404`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Codes(pub(super) Vec<(u16, u16)>);

impl FromStr for Codes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |text: &str| {
            let (low, high) = text.split_once('-').unwrap_or((text, text));
            let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
            (200 <= low && low <= high && high <= 599).then_some((low, high))
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges
            .map(Self)
            .ok_or_else(|| "write codes from 200 to 599 and ranges, such as 200-299,404".to_owned())
    }
}

/// One header: `Name: value`. Whether both are fit for a request is looked at when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderLine(pub(super) (String, String));

impl FromStr for HeaderLine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once(':')
            .ok_or("write a name, a colon and a value, such as 'Host: model.site'")?;
        Ok(Self((name.trim().to_owned(), value.trim().to_owned())))
    }
}

/// A number, or a block: `9000-9003`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers(pub(super) PortRange);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u16>().ok().and_then(Port::new);
        let range = number(first).zip(number(last));
        range
            .and_then(|(first, last)| PortRange::new(first, last))
            .map(Self)
            .ok_or_else(|| "write a number from 1 to 65535, or two as 9000-9003".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_final_ones_and_ranges_of_them() {
        assert_eq!(
            "200-299,404".parse(),
            Ok(Codes(vec![(200, 299), (404, 404)]))
        );
        for wrong in ["", "100", "200-", "299-200", "600", "200,,404", "ok"] {
            assert!(wrong.parse::<Codes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_one_or_a_block() {
        let both = |text: &str| {
            let numbers: Numbers = text.parse().ok()?;
            Some((numbers.0.first().number(), numbers.0.last().number()))
        };
        assert_eq!(both("80"), Some((80, 80)));
        assert_eq!(both("9000-9003"), Some((9000, 9003)));
        for wrong in ["0", "65536", "9003-9000", "", "-1", "a-b"] {
            assert_eq!(both(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_header_has_a_name_and_a_value() {
        let line: HeaderLine = "Host: a:b ".parse().unwrap();
        assert_eq!(line.0, ("Host".to_owned(), "a:b".to_owned()));
        assert!("Host".parse::<HeaderLine>().is_err());
    }
}
