//! Whose services somebody reaches.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whose services somebody sees or manages; their own are among them in any case.
///
/// Written `own`, `group`, `group:chem`, `all`, or several of these with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// Only their own.
    #[default]
    Own,
    /// Those of groups: made by [`Scope::group`] and [`Scope::of_group`]. One of the two says more than `Own`.
    Groups {
        /// Whoever shares a group with them that is not common to all of the site.
        shared: bool,
        /// Whoever is in one of these groups.
        named: BTreeSet<String>,
    },
    /// Everybody's.
    All,
}

impl Scope {
    /// Whoever shares a group with them.
    #[must_use]
    pub const fn group() -> Self {
        Self::Groups {
            shared: true,
            named: BTreeSet::new(),
        }
    }

    /// Whoever is in this group.
    #[must_use]
    pub fn of_group(name: impl Into<String>) -> Self {
        Self::Groups {
            shared: false,
            named: BTreeSet::from([name.into()]),
        }
    }

    fn of(shared: bool, named: BTreeSet<String>) -> Self {
        if shared || !named.is_empty() {
            Self::Groups { shared, named }
        } else {
            Self::Own
        }
    }

    /// Whoever one of the two reaches.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Own, scope) | (scope, Self::Own) => scope.clone(),
            (
                Self::Groups { shared, named },
                Self::Groups {
                    shared: also,
                    named: others,
                },
            ) => Self::of(*shared || *also, named | others),
        }
    }

    /// Whoever both reach.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, scope) | (scope, Self::All) => scope.clone(),
            (Self::Own, _) | (_, Self::Own) => Self::Own,
            (
                Self::Groups { shared, named },
                Self::Groups {
                    shared: also,
                    named: others,
                },
            ) => Self::of(*shared && *also, named & others),
        }
    }

    /// The same for somebody who shares through these groups, each of them by name too.
    pub(super) fn spelled_out(&self, sharing: &[String]) -> Self {
        match self {
            Self::Groups {
                shared: true,
                named,
            } => Self::Groups {
                shared: true,
                named: named.iter().chain(sharing).cloned().collect(),
            },
            other => other.clone(),
        }
    }

    /// Whether whoever has these groups is reached by somebody who shares through those.
    pub(super) fn reaches(&self, groups: &[String], sharing: &[String]) -> bool {
        match self {
            Self::Own => false,
            Self::All => true,
            Self::Groups { shared, named } => groups
                .iter()
                .any(|group| named.contains(group) || (*shared && sharing.contains(group))),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::All => f.write_str("all"),
            Self::Groups { shared, named } => {
                f.write_str(if *shared { "group" } else { "" })?;
                for (nth, name) in named.iter().enumerate() {
                    let comma = if nth > 0 || *shared { "," } else { "" };
                    write!(f, "{comma}group:{name}")?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Scope {
    type Err = ParseScopeError;

    fn from_str(text: &str) -> Result<Self, ParseScopeError> {
        let one = |word: &str| match word {
            "own" => Some(Self::Own),
            "all" => Some(Self::All),
            "group" => Some(Self::group()),
            other => other
                .strip_prefix("group:")
                .filter(|name| is_name(name))
                .map(Self::of_group),
        };
        let scopes = text.split(',').map(|word| one(word.trim()));
        let scope = scopes.reduce(|all, next| Some(all?.or(&next?)));
        scope.flatten().ok_or_else(|| ParseScopeError {
            text: text.to_owned(),
        })
    }
}

/// Whether it can be written in a scope and read back.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(|it: char| it == ',' || it.is_control())
        && name.trim() == name
}

impl TryFrom<String> for Scope {
    type Error = ParseScopeError;

    fn try_from(text: String) -> Result<Self, ParseScopeError> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

/// A text that is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no scope: write own, group, group:NAME or all")]
pub struct ParseScopeError {
    /// What was written.
    pub text: String,
}
