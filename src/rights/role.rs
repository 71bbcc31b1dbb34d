//! What somebody is here, and how far that reaches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Scope;

/// What somebody is to the controller; each may what the one before it may.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads, and changes nothing: not its own services either.
    Viewer,
    /// Submits services and manages them.
    #[default]
    User,
    /// Orders hosts about.
    Operator,
    /// Sees and manages everything, takes backups, and makes tokens for others.
    Admin,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::User, Self::Operator, Self::Admin];

    /// The word people write.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let found = Self::ALL.into_iter().find(|role| role.word() == text);
        found.ok_or_else(|| ParseRoleError {
            text: text.to_owned(),
        })
    }
}

/// A word that is no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no role: write viewer, user, operator or admin")]
pub struct ParseRoleError {
    /// What was written.
    pub text: String,
}

/// What somebody may: a role, and whose services it reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// What they are.
    pub role: Role,
    /// Whose services they see, beside those whose profiles let them; an admin sees all.
    pub view: Scope,
    /// Whose services they manage, if their role manages any; an admin manages all.
    pub manage: Scope,
}

impl Rights {
    /// What everybody has whom nothing names: their own services.
    pub const USER: Self = Self::own(Role::User);
    /// Whoever reads their own services and changes nothing.
    pub const VIEWER: Self = Self::own(Role::Viewer);
    /// Everything.
    pub const ADMIN: Self = Self {
        role: Role::Admin,
        view: Scope::All,
        manage: Scope::All,
    };

    const fn own(role: Role) -> Self {
        Self {
            role,
            view: Scope::Own,
            manage: Scope::Own,
        }
    }

    /// What a role has if nothing else is said: an operator sees all, and manages its own.
    #[must_use]
    pub const fn of_role(role: Role) -> Self {
        match role {
            Role::Viewer => Self::VIEWER,
            Role::User => Self::USER,
            Role::Operator => Self {
                role: Role::Operator,
                view: Scope::All,
                manage: Scope::Own,
            },
            Role::Admin => Self::ADMIN,
        }
    }

    /// Whose services are seen.
    #[must_use]
    pub const fn sees(&self) -> &Scope {
        match self.role {
            Role::Admin => &Scope::All,
            _ => &self.view,
        }
    }

    /// Whose services are managed; `None`: nobody's.
    #[must_use]
    pub const fn manages(&self) -> Option<&Scope> {
        match self.role {
            Role::Viewer => None,
            Role::Admin => Some(&Scope::All),
            Role::User | Role::Operator => Some(&self.manage),
        }
    }

    /// What whoever has both has: the widest of each.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        // What a viewer would manage were it more is no right it has.
        let manages = |rights: &Self| rights.manages().cloned().unwrap_or_default();
        Self {
            role: self.role.max(other.role),
            view: self.sees().or(other.sees()),
            manage: manages(self).or(&manages(other)),
        }
    }

    /// What is left of it within the rights of somebody who shares through these groups: wider in nothing than both.
    #[must_use]
    pub fn within(&self, bounds: &Self, sharing: &[String]) -> Self {
        let narrowed = |own: &Scope, bound: &Scope| own.and(&bound.spelled_out(sharing));
        let manage = match (self.manages(), bounds.manages()) {
            (Some(own), Some(bound)) => narrowed(own, bound),
            _ => Scope::Own,
        };
        Self {
            role: self.role.min(bounds.role),
            view: narrowed(self.sees(), bounds.sees()),
            manage,
        }
    }

    /// Whether somebody with `bounds` who shares through these groups may hand it on: it is wider in nothing.
    #[must_use]
    pub fn is_within(&self, bounds: &Self, sharing: &[String]) -> bool {
        let within = |own: &Scope, bound: &Scope| own.and(&bound.spelled_out(sharing)) == *own;
        let manages = match (self.manages(), bounds.manages()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(bound)) => within(own, bound),
        };
        self.role <= bounds.role && within(self.sees(), bounds.sees()) && manages
    }
}

impl Default for Rights {
    fn default() -> Self {
        Self::USER
    }
}
