//! What a profile calls its ports.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::excerpt;

/// The name of a port in a profile: `[a-z][a-z0-9-]{0,31}`, not ending in `-last` or `-count`.
///
/// The rule makes [`PortName::variable`] injective, so no two ports of one profile can claim one
/// environment variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortName(Arc<str>);

impl PortName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 32;

    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part of a variable's name that stands for this port: upper case, `-` as `_`.
    #[must_use]
    pub fn variable(&self) -> String {
        self.as_variable().to_string()
    }

    /// As [`Self::variable`], to be written somewhere: allocates nothing.
    #[must_use]
    pub fn as_variable(&self) -> impl fmt::Display + '_ {
        Variable(&self.0)
    }
}

/// A name as the part of a variable's.
struct Variable<'a>(&'a str);

impl fmt::Display for Variable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for letter in self.0.chars() {
            f.write_char(if letter == '-' {
                '_'
            } else {
                letter.to_ascii_uppercase()
            })?;
        }
        Ok(())
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<PortName> for String {
    fn from(name: PortName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl TryFrom<String> for PortName {
    type Error = ParsePortNameError;

    fn try_from(text: String) -> Result<Self, ParsePortNameError> {
        text.parse()
    }
}

impl FromStr for PortName {
    type Err = ParsePortNameError;

    fn from_str(text: &str) -> Result<Self, ParsePortNameError> {
        let mut bytes = text.bytes();
        let well_formed = text.len() <= Self::MAX_LEN
            && bytes.next().is_some_and(|byte| byte.is_ascii_lowercase())
            && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        // `PORT_A_LAST` and `PORT_A_COUNT` already mean the end and the size of the block `a`.
        let taken = text.ends_with("-last") || text.ends_with("-count");
        if well_formed && !taken {
            Ok(Self(text.into()))
        } else {
            Err(ParsePortNameError {
                text: excerpt(text),
            })
        }
    }
}

/// Not a name for a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a port name: write 1 to 32 of a-z, 0-9 and -, a letter first, not ending in -last or -count"
)]
pub struct ParsePortNameError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_names_that_would_share_a_variable_are_refused() {
        // ports 21, P41
        for good in ["http", "host-server-service", "a-b", "http-admin"] {
            assert!(good.parse::<PortName>().is_ok(), "{good:?} was refused");
        }
        for bad in [
            "9p",
            "HTTP",
            "a_b",
            "",
            "workers-last",
            "workers-count",
            "ä",
            &"a".repeat(33),
        ] {
            assert!(bad.parse::<PortName>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!(
            "http-admin".parse::<PortName>().unwrap().variable(),
            "HTTP_ADMIN"
        );
    }
}
