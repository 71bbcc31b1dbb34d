//! Port numbers, ranges, protocols and names: the words every other module speaks.
//!
//! Everything here is parsed once, strictly; a value that exists is valid. "Any free" is a request
//! (see [`crate::port_pool::Want`]), never a [`Port`].

mod name;
mod protocol;
mod range;

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use name::{ParsePortNameError, PortName};
pub use protocol::{ParseProtocolError, Protocol};
pub use range::{ParsePortRangesError, PortRange, PortRanges};

/// A port a replica can hold: 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Port(NonZeroU16);

impl Port {
    /// The lowest port, 1.
    pub const MIN: Self = Self(NonZeroU16::MIN);
    /// The highest port, 65535.
    pub const MAX: Self = Self(NonZeroU16::MAX);

    /// The port with this number, or `None` for 0.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number, 1 to 65535.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Port> for u16 {
    fn from(port: Port) -> Self {
        port.number()
    }
}

impl TryFrom<u16> for Port {
    type Error = ParsePortError;

    fn try_from(number: u16) -> Result<Self, ParsePortError> {
        Self::new(number).ok_or_else(|| ParsePortError {
            text: number.to_string(),
        })
    }
}

impl FromStr for Port {
    type Err = ParsePortError;

    /// Reads a plain decimal number without sign, blank or leading zero.
    fn from_str(text: &str) -> Result<Self, ParsePortError> {
        let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if plain { text.parse().ok() } else { None };
        number.and_then(Self::new).ok_or_else(|| ParsePortError {
            text: excerpt(text),
        })
    }
}

/// Not a port number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a port: write a number from 1 to 65535, without sign or leading zero")]
pub struct ParsePortError {
    text: String,
}

/// The beginning of a refused text, so that a message never grows with hostile input.
pub(crate) fn excerpt(text: &str) -> String {
    const MOST: usize = 64;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_from_1_to_65535_are_ports() {
        // ports 3
        for bad in [
            "0",
            "-1",
            "65536",
            "080",
            "",
            " 80",
            "+80",
            "8e1",
            "99999999999999999999",
        ] {
            assert!(bad.parse::<Port>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!("65535".parse(), Ok(Port::MAX));
        assert_eq!("1".parse(), Ok(Port::MIN));
    }
}
