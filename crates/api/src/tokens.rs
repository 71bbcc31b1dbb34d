//! Bodies about tokens: what is asked and told of them. A token's text is in an answer once, when it is made.

use std::fmt;

use portreeve::identity::HostName;
use portreeve::time::WallClock;
use serde::{Deserialize, Serialize};

/// `POST /tokens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenAsk {
    /// `user`: it speaks for an account; `join`: it lets machines join.
    pub kind: String,
    /// For which account; without it the asker's own. Another's is for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `viewer`, `user`, `operator` or `admin`; without it what the account is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whose services it sees: `own`, `group`, `group:NAME` or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// Whose services it manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manage: Option<String>,
    /// How long it is good for, such as `8h`; without it 8h, to join 1d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// It is good until it is revoked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_expiry: bool,
    /// How many machines it lets join; without it 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// The hosts that join with it may say which account of theirs asks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub relay: bool,
    /// What it is for, for the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A token that was just made or renewed: the only answer that has its text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMade {
    /// Its name in the list.
    pub id: String,
    /// What its bearer keeps, and shows to nobody else.
    pub token: String,
    /// When it ends, if it does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WallClock>,
}

impl fmt::Debug for TokenMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever logs an answer does not log the token.
        f.debug_struct("TokenMade")
            .field("id", &self.id)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// `GET /tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenList {
    /// The asker's own, the oldest first; an admin's list has all.
    pub tokens: Vec<TokenView>,
}

/// One token, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    /// Its name.
    pub id: String,
    /// `user`, `join` or `host`.
    pub kind: String,
    /// The account it speaks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it may at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whose services it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_scope: Option<String>,
    /// Whose services it manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manage_scope: Option<String>,
    /// The host it speaks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The machine that has the host's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    /// Whether its host may say which account of its machine asks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub relay: bool,
    /// How many more machines it lets join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// Who made it.
    pub by: String,
    /// When.
    pub created_at: WallClock,
    /// When it ends, if it does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WallClock>,
    /// Whether it has.
    #[serde(default, skip_serializing_if = "is_false")]
    pub expired: bool,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// `POST /join`, with a token to join as the bearer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JoinAsk {
    /// The name the machine takes.
    pub host: HostName,
    /// What tells the machine from every other, such as the contents of `/etc/machine-id`.
    pub machine_id: String,
    /// It takes the name from another machine.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replace: bool,
}

/// What a machine that joined keeps.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Joined {
    /// Its host's token.
    pub token: String,
    /// Its name.
    pub host: HostName,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}
