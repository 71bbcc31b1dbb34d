//! The transport a port is held for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::excerpt;

/// The transport a port is held for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Protocol {
    /// TCP, the default.
    #[default]
    #[serde(rename = "tcp")]
    Tcp,
    /// UDP.
    #[serde(rename = "udp")]
    Udp,
    /// One number free on both sides, held on both.
    #[serde(rename = "tcp+udp")]
    TcpUdp,
}

impl Protocol {
    /// Whether it takes the TCP side.
    #[must_use]
    pub const fn has_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::TcpUdp)
    }

    /// Whether it takes the UDP side.
    #[must_use]
    pub const fn has_udp(self) -> bool {
        matches!(self, Self::Udp | Self::TcpUdp)
    }

    /// Whether both take one side in common, so that equal numbers would collide.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.has_tcp() && other.has_tcp() || self.has_udp() && other.has_udp()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::TcpUdp => "tcp+udp",
        })
    }
}

impl FromStr for Protocol {
    type Err = ParseProtocolError;

    fn from_str(text: &str) -> Result<Self, ParseProtocolError> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            "tcp+udp" => Ok(Self::TcpUdp),
            _ => Err(ParseProtocolError {
                text: excerpt(text),
            }),
        }
    }
}

/// Not a protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a protocol: write \"tcp\", \"udp\" or \"tcp+udp\"")]
pub struct ParseProtocolError {
    text: String,
}
