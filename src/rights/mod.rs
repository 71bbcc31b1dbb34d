//! Who may see and do what: one pure decision under every output.
//!
//! Invariant: what a caller may not see is answered exactly like what does not exist; so every reader asks
//! [`Caller::may_see`] first, and a refusal that names the owner comes only after it.

use serde::{Deserialize, Serialize};

use crate::identity::{Audience, Namespace, ParseNamespaceError, Visibility};

/// Who asks, as the controller authenticated them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The account.
    pub user: String,
    /// Its uid on the controller's machine, where there is one.
    pub uid: Option<u32>,
    /// The account's groups.
    pub groups: Vec<String>,
    /// Whether every service may be seen and managed: root, and the controller's own account.
    pub admin: bool,
}

impl Caller {
    /// Whether the service that `owner` submitted with this `visibility` exists for the caller.
    #[must_use]
    pub fn may_see(&self, owner: &str, visibility: &Visibility) -> bool {
        self.may_manage(owner)
            || match visibility {
                Visibility::Private => false,
                Visibility::Cluster => true,
                Visibility::Listed(audiences) => self.is_among(audiences),
            }
    }

    /// Whether the caller may scale, stop, restart, replace and delete what `owner` submitted.
    #[must_use]
    pub fn may_manage(&self, owner: &str) -> bool {
        self.admin || self.user == owner
    }

    /// Whether the caller may read logs, probe output and reasons; to be seen does not grant it.
    #[must_use]
    pub fn may_read_logs(&self, owner: &str, readers: &[Audience]) -> bool {
        self.may_manage(owner) || self.is_among(readers)
    }

    /// Whether the caller may submit a new service into `namespace`: its own, or one of its groups'.
    #[must_use]
    pub fn may_submit_into(&self, namespace: &Namespace) -> bool {
        self.admin
            || is_spelled(&self.user, namespace)
            || self.groups.iter().any(|group| is_spelled(group, namespace))
    }

    /// The group whose namespace this is, if the caller is in it; none for the caller's own.
    #[must_use]
    pub fn group_of(&self, namespace: &Namespace) -> Option<&str> {
        if is_spelled(&self.user, namespace) {
            return None;
        }
        let mut groups = self.groups.iter();
        groups
            .find(|group| is_spelled(group, namespace))
            .map(String::as_str)
    }

    /// The namespace of the caller's own services: the account, a backslash as `+`.
    ///
    /// # Errors
    ///
    /// An account whose name holds a character that no namespace may have.
    pub fn namespace(&self) -> Result<Namespace, ParseNamespaceError> {
        spelled(&self.user).parse()
    }

    /// What the caller's lists cover, in the word of the answers: `own` or `all`.
    #[must_use]
    pub const fn view_scope(&self) -> &'static str {
        if self.admin { "all" } else { "own" }
    }

    fn is_among(&self, audiences: &[Audience]) -> bool {
        audiences.iter().any(|audience| match audience {
            Audience::User(user) => *user == self.user,
            Audience::Group(group) => self.groups.contains(group),
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(user: &str, groups: &[&str]) -> Caller {
        Caller {
            user: user.into(),
            uid: None,
            groups: groups.iter().map(ToString::to_string).collect(),
            admin: false,
        }
    }

    fn admin() -> Caller {
        Caller {
            admin: true,
            ..caller("root", &[])
        }
    }

    #[test]
    fn only_the_owner_the_named_and_the_admin_see_and_manage() {
        let chem = || Audience::Group("chem".into());
        let bob = || Audience::User("bob".into());
        let listed = |audiences: Vec<Audience>| Visibility::Listed(audiences);
        // Of alice's service: (caller, visibility, sees, manages).
        let table = [
            (caller("alice", &[]), Visibility::Private, true, true),
            (caller("bob", &["chem"]), Visibility::Private, false, false),
            (admin(), Visibility::Private, true, true),
            (caller("bob", &[]), Visibility::Cluster, true, false),
            (admin(), Visibility::Cluster, true, true),
            (caller("bob", &[]), listed(vec![bob()]), true, false),
            (caller("carol", &[]), listed(vec![bob()]), false, false),
            (
                caller("carol", &["chem"]),
                listed(vec![chem()]),
                true,
                false,
            ),
            (caller("chem", &[]), listed(vec![chem()]), false, false),
            (caller("carol", &["bob"]), listed(vec![bob()]), false, false),
            (
                caller("carol", &["chem"]),
                listed(vec![bob(), chem()]),
                true,
                false,
            ),
            (caller("bob", &[]), listed(vec![]), false, false),
            (caller("alice", &[]), listed(vec![bob()]), true, true),
            (caller("Alice", &[]), Visibility::Private, false, false),
        ];
        for (caller, visibility, sees, manages) in table {
            let case = format!("{} under {visibility:?}", caller.user);
            assert_eq!(caller.may_see("alice", &visibility), sees, "see: {case}");
            assert_eq!(caller.may_manage("alice"), manages, "manage: {case}");
        }
    }

    #[test]
    fn being_seen_does_not_open_the_logs() {
        let chem = [Audience::Group("chem".into())];
        assert!(caller("alice", &[]).may_read_logs("alice", &[]));
        assert!(admin().may_read_logs("alice", &[]));
        assert!(!caller("bob", &["chem"]).may_read_logs("alice", &[]));
        assert!(caller("bob", &["chem"]).may_read_logs("alice", &chem));
        assert!(!caller("bob", &["bio"]).may_read_logs("alice", &chem));
    }

    #[test]
    fn a_namespace_is_the_account_or_one_of_its_groups() {
        let user = caller("SITE\\alice", &["chem"]);
        assert_eq!(user.namespace().unwrap().as_str(), "SITE+alice");
        for (namespace, allowed) in [("SITE+alice", true), ("chem", true), ("bob", false)] {
            assert_eq!(
                user.may_submit_into(&namespace.parse().unwrap()),
                allowed,
                "{namespace}"
            );
        }
        let group = |namespace: &str| user.group_of(&namespace.parse().unwrap());
        assert_eq!(group("chem"), Some("chem"));
        assert_eq!((group("SITE+alice"), group("bob")), (None, None));
        assert_eq!(
            caller("chem", &["chem"]).group_of(&"chem".parse().unwrap()),
            None
        );
        assert!(admin().may_submit_into(&"bob".parse().unwrap()));
        assert!(caller("a b", &[]).namespace().is_err());
    }
}
