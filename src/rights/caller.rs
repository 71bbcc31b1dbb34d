//! Who asks, whose a thing is, and what the one may do with the other.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::identity::{Audience, Namespace, ParseNamespaceError, Visibility};

use super::{Rights, Role, Scope};

/// Who submitted something, as it is written down with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The account.
    pub user: String,
    /// Its uid on the controller's machine, where there is one.
    pub uid: Option<u32>,
    /// The account's groups at that moment.
    pub groups: Vec<String>,
    /// Whether it was an admin at that moment: no limit holds for such a one.
    pub admin: bool,
}

impl Owner {
    /// The owner as a reader of its own: what it may see whatever else it may.
    #[must_use]
    pub fn as_reader(&self) -> Caller {
        let rights = if self.admin {
            Rights::ADMIN
        } else {
            Rights::USER
        };
        Caller::new(self.user.clone(), self.uid, self.groups.clone(), rights)
    }

    /// The group whose namespace this is, if the owner is in it; none for the owner's own.
    #[must_use]
    pub fn group_of(&self, namespace: &Namespace) -> Option<&str> {
        group_of(&self.user, &self.groups, namespace)
    }
}

/// What is decided about: whose it is, and who else may see it.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// Who submitted it.
    pub owner: &'a str,
    /// The groups of who submitted it.
    pub groups: &'a [String],
    /// Who else may see it.
    pub visibility: &'a Visibility,
}

impl<'a> Holding<'a> {
    /// Something of which only the owner's name is known any more.
    #[must_use]
    pub const fn private_of(owner: &'a str) -> Self {
        Self {
            owner,
            groups: &[],
            visibility: &Visibility::Private,
        }
    }
}

/// Who asks, as the controller authenticated them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The account.
    pub user: String,
    /// Its uid on the controller's machine, where there is one.
    pub uid: Option<u32>,
    /// The account's groups.
    pub groups: Vec<String>,
    /// What it may.
    pub rights: Rights,
    /// Those of its groups through which the scope `group` reaches: all but those that are common to all of the site.
    pub sharing: Vec<String>,
}

impl Caller {
    /// An account whose every group is one to share through.
    #[must_use]
    pub fn new(user: String, uid: Option<u32>, groups: Vec<String>, rights: Rights) -> Self {
        Self {
            user,
            uid,
            sharing: groups.clone(),
            groups,
            rights,
        }
    }

    /// The same, but for groups that everybody of the site is in.
    #[must_use]
    pub fn but_for_common(mut self, common: impl Fn(&str) -> bool) -> Self {
        self.sharing.retain(|group| !common(group));
        self
    }

    /// The same with these rights.
    #[must_use]
    pub fn with_rights(self, rights: Rights) -> Self {
        Self { rights, ..self }
    }

    /// Who it is, as it is written down with what it submits.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            user: self.user.clone(),
            uid: self.uid,
            groups: self.groups.clone(),
            admin: self.is_admin(),
        }
    }

    /// Whether everything may be seen and managed.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        matches!(self.rights.role, Role::Admin)
    }

    /// Whether there is nothing to hide from the caller but secrets.
    #[must_use]
    pub fn sees_all(&self) -> bool {
        *self.rights.sees() == Scope::All
    }

    /// Whether the caller may change anything at all.
    #[must_use]
    pub fn may_change(&self) -> bool {
        self.rights.role >= Role::User
    }

    /// Whether the caller may order hosts about.
    #[must_use]
    pub fn may_operate(&self) -> bool {
        self.rights.role >= Role::Operator
    }

    /// Whether it exists for the caller.
    #[must_use]
    pub fn may_see(&self, it: Holding<'_>) -> bool {
        self.reaches(self.rights.sees(), it)
            || self.may_manage(it)
            || match it.visibility {
                Visibility::Private => false,
                Visibility::Cluster => true,
                Visibility::Listed(audiences) => self.is_among(audiences),
            }
    }

    /// Whether the caller may scale, stop, restart, replace and delete it; to see it does not grant that.
    #[must_use]
    pub fn may_manage(&self, it: Holding<'_>) -> bool {
        let scope = self.rights.manages();
        scope.is_some_and(|scope| self.reaches(scope, it))
    }

    /// Whether the caller may read logs, probe output and reasons; to see it does not grant that.
    #[must_use]
    pub fn may_read_logs(&self, it: Holding<'_>, readers: &[Audience]) -> bool {
        self.may_manage(it) || self.is_among(readers)
    }

    /// Whether the caller may submit a new service into `namespace`: its own, or one of its groups'.
    #[must_use]
    pub fn may_submit_into(&self, namespace: &Namespace) -> bool {
        let is_ours = || {
            is_spelled(&self.user, namespace)
                || self.groups.iter().any(|group| is_spelled(group, namespace))
        };
        self.is_admin() || (self.may_change() && is_ours())
    }

    /// The group whose namespace this is, if the caller is in it; none for the caller's own.
    #[must_use]
    pub fn group_of(&self, namespace: &Namespace) -> Option<&str> {
        group_of(&self.user, &self.groups, namespace)
    }

    /// The namespace of the caller's own services: the account, a backslash as `+`.
    ///
    /// # Errors
    ///
    /// An account whose name holds a character that no namespace may have.
    pub fn namespace(&self) -> Result<Namespace, ParseNamespaceError> {
        spelled(&self.user).parse()
    }

    /// What the caller's lists cover, as the answers write it: `own`, `group`, `group:chem` or `all`.
    #[must_use]
    pub fn view_scope(&self) -> Cow<'static, str> {
        match self.rights.sees() {
            Scope::Own => Cow::Borrowed("own"),
            Scope::All => Cow::Borrowed("all"),
            groups @ Scope::Groups { .. } => Cow::Owned(groups.to_string()),
        }
    }

    fn reaches(&self, scope: &Scope, it: Holding<'_>) -> bool {
        self.user == it.owner || scope.reaches(it.groups, &self.sharing)
    }

    fn is_among(&self, audiences: &[Audience]) -> bool {
        audiences.iter().any(|audience| match audience {
            Audience::User(user) => *user == self.user,
            Audience::Group(group) => self.groups.contains(group),
        })
    }
}

fn group_of<'a>(user: &str, groups: &'a [String], namespace: &Namespace) -> Option<&'a str> {
    if is_spelled(user, namespace) {
        return None;
    }
    let mut groups = groups.iter();
    groups
        .find(|group| is_spelled(group, namespace))
        .map(String::as_str)
}

/// Whether the namespace is the one of this account or group.
fn is_spelled(account: &str, namespace: &Namespace) -> bool {
    let written = account.chars().map(|it| if it == '\\' { '+' } else { it });
    written.eq(namespace.as_str().chars())
}

/// An account or group as a namespace writes it.
fn spelled(account: &str) -> String {
    account.replace('\\', "+")
}
