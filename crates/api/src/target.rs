//! Addresses of controllers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a controller answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(String),
}

impl FromStr for Target {
    type Err = ParseTargetError;

    /// Reads `unix:/path`, `/path`, `http://host:port` or `host:port`.
    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let authority = text
            .strip_prefix("http://")
            .unwrap_or(text)
            .trim_end_matches('/');
        match authority.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() =>
            {
                Ok(Self::Tcp(authority.to_owned()))
            }
            _ => Err(ParseTargetError {
                text: text.chars().take(64).collect(),
            }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

impl serde::Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Target {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Not the address of a controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no controller address: write unix:/path/to/controller.sock or http://host:port"
)]
pub struct ParseTargetError {
    text: String,
}
