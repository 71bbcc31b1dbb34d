//! Addresses of controllers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a controller answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// `host:port`, in the clear.
    Tcp(String),
    /// `host:port`, over TLS.
    Tls(String),
}

impl Target {
    /// Whether it is spoken with over TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl FromStr for Target {
    type Err = ParseTargetError;

    /// Reads `unix:/path`, `/path`, `https://host:port`, `http://host:port` or `host:port`.
    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let (authority, tls) = match text.strip_prefix("https://") {
            Some(rest) => (rest, true),
            None => (text.strip_prefix("http://").unwrap_or(text), false),
        };
        let authority = authority.trim_end_matches('/');
        match authority.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() =>
            {
                let authority = authority.to_owned();
                Ok(if tls {
                    Self::Tls(authority)
                } else {
                    Self::Tcp(authority)
                })
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
            Self::Tls(authority) => write!(f, "https://{authority}"),
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
    "{text:?} is no controller address: write unix:/path/to/controller.sock, https://host:port or http://host:port"
)]
pub struct ParseTargetError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_how_it_is_spoken_with_and_is_written_as_it_is_read() {
        for (text, target, written) in [
            (
                "https://c:7373/",
                Target::Tls("c:7373".into()),
                "https://c:7373",
            ),
            (
                "https://[::1]:1",
                Target::Tls("[::1]:1".into()),
                "https://[::1]:1",
            ),
            (
                "http://c:7373",
                Target::Tcp("c:7373".into()),
                "http://c:7373",
            ),
            ("c:7373", Target::Tcp("c:7373".into()), "http://c:7373"),
            (
                "/run/c.sock",
                Target::Unix("/run/c.sock".into()),
                "unix:/run/c.sock",
            ),
        ] {
            let read: Target = text.parse().unwrap();
            assert_eq!(read, target, "{text}");
            assert_eq!(read.to_string(), written);
            assert_eq!(written.parse::<Target>().unwrap(), target);
        }
        for bad in [
            "https://",
            "https://c",
            "https://c/x:1",
            "ftp://c:1/",
            "",
            "c",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
