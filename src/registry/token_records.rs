//! Tokens as they are written down: never with their secrets.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::identity::HostName;
use crate::rights::{Owner, Rights};
use crate::time::WallClock;

/// Names one token, for people and in its own text; drawn by chance, and no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenId(pub u64);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for TokenId {
    type Err = ParseTokenIdError;

    fn from_str(text: &str) -> Result<Self, ParseTokenIdError> {
        let refused = || ParseTokenIdError {
            text: text.chars().take(40).collect(),
        };
        let number = nibbles::<16>(text).ok_or_else(refused)?;
        let number = number
            .iter()
            .fold(0, |number, nibble| number << 4 | u64::from(*nibble));
        Ok(Self(number))
    }
}

impl TryFrom<String> for TokenId {
    type Error = ParseTokenIdError;

    fn try_from(text: String) -> Result<Self, ParseTokenIdError> {
        text.parse()
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> Self {
        id.to_string()
    }
}

/// A text that names no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no token's id: it has 16 digits, 0 to 9 and a to f")]
pub struct ParseTokenIdError {
    /// What was written.
    pub text: String,
}

/// The SHA-256 of a token's secret, which is 32 bytes of chance: nobody finds the secret from it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretHash(pub [u8; 32]);

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever logs a record logs nothing to compare with.
        f.write_str("SecretHash(..)")
    }
}

impl TryFrom<String> for SecretHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let nibbles = nibbles::<64>(&text).ok_or("a hash has 64 digits, 0 to 9 and a to f")?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(nibbles.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

impl From<SecretHash> for String {
    fn from(hash: SecretHash) -> Self {
        hash.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The digits of a hexadecimal text of this length, in lower case.
fn nibbles<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes: [u8; N] = text.as_bytes().try_into().ok()?;
    let mut digits = [0; N];
    for (digit, byte) in digits.iter_mut().zip(bytes) {
        *digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
    }
    Some(digits)
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// What proves that somebody has it.
    pub hash: SecretHash,
    /// For whom it speaks, and what for.
    pub bearer: TokenBearer,
    /// Who made it; it may no more than they may now.
    pub by: Owner,
    /// When.
    pub created: WallClock,
    /// When it ends; `None`: when it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<WallClock>,
    /// The token that it was made through, and goes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TokenId>,
    /// What it is for, in its maker's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// For whom a token speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TokenBearer {
    /// For an account.
    User {
        /// Its name.
        user: String,
        /// Its uid on the controller's machine, where there is one.
        uid: Option<u32>,
        /// What it may at most.
        rights: Rights,
    },
    /// For nobody: a machine trades it for a host's.
    Join {
        /// How many more may.
        uses_left: u32,
        /// Whether those hosts may say who asks.
        relay: bool,
    },
    /// For a host.
    Host {
        /// Its name.
        host: HostName,
        /// The machine that has the name.
        machine: String,
        /// Whether it may say which account of its machine asks.
        relay: bool,
    },
}

impl TokenBearer {
    /// The word people write.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::User { .. } => "user",
            Self::Join { .. } => "join",
            Self::Host { .. } => "host",
        }
    }
}

impl Token {
    /// How far clocks may differ before it counts that a token is over.
    pub const LEEWAY: std::time::Duration = std::time::Duration::from_secs(60);

    /// Whether it is over at `now`, and for longer than clocks may differ.
    #[must_use]
    pub fn is_over(&self, now: WallClock) -> bool {
        let over = |expires: WallClock| now.since(expires) > Self::LEEWAY;
        self.expires.is_some_and(over)
    }

    /// Whose it is, if it speaks for an account.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        match &self.bearer {
            TokenBearer::User { user, .. } => Some(user),
            _ => None,
        }
    }

    /// The host it speaks for, if it does.
    #[must_use]
    pub const fn host(&self) -> Option<&HostName> {
        match &self.bearer {
            TokenBearer::Host { host, .. } => Some(host),
            _ => None,
        }
    }
}
