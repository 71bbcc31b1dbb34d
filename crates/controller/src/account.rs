//! Accounts of this machine: who a uid or a name is, as a caller with rights.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use parking_lot::{Mutex, RwLock};
use portreeve::rights::{Caller, Owner, Rights, Role};
use tokio::sync::Semaphore;

use crate::bindings::Bindings;
use crate::vital;

/// Looks accounts up and remembers them for a moment: a directory service may be slow.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// The controller's own account, which may do everything, as root may.
    own_uid: u32,
    bindings: RwLock<Arc<Bindings>>,
    /// Every request asks: what it gets is shared, not copied.
    remembered: Mutex<BTreeMap<Asked, (Instant, Arc<Caller>)>>,
    /// Accounts that the machine need not have: for tests.
    #[cfg(test)]
    invented: Mutex<Vec<Account>>,
    /// For those whom hosts name: one that makes up accounts has its like wait for a slow directory, and nobody else.
    told_of: Semaphore,
}

/// How somebody is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    /// The kernel of this machine says so.
    Uid(u32),
    /// A host's agent says so.
    Relayed(u32),
    /// A token says so.
    Name(String),
}

impl Accounts {
    /// How long a changed group may go unseen.
    const REMEMBERED: Duration = Duration::from_secs(30);
    const MAX_REMEMBERED: usize = 4096;
    /// How many whom hosts name are looked up at once.
    const TOLD_OF: usize = 16;

    pub(crate) fn new(own_uid: u32, bindings: Bindings) -> Self {
        Self {
            own_uid,
            bindings: RwLock::new(Arc::new(bindings)),
            remembered: Mutex::new(BTreeMap::new()),
            #[cfg(test)]
            invented: Mutex::default(),
            told_of: Semaphore::new(Self::TOLD_OF),
        }
    }

    /// From now on there is this account, or it has these groups.
    #[cfg(test)]
    pub(crate) fn invent(&self, user: &str, uid: u32, groups: &[&str]) {
        let mut invented = self.invented.lock();
        invented.retain(|it| it.uid != Some(uid));
        invented.push(Account {
            user: user.to_owned(),
            uid: Some(uid),
            groups: groups.iter().map(ToString::to_string).collect(),
        });
        self.remembered.lock().clear();
    }

    #[cfg(test)]
    fn invented(&self, asked: &Asked) -> Option<Account> {
        let invented = self.invented.lock();
        let found = invented.iter().find(|it| match asked {
            Asked::Uid(uid) | Asked::Relayed(uid) => it.uid == Some(*uid),
            Asked::Name(name) => it.user == *name,
        });
        found.cloned()
    }

    /// Other rights hold from now on.
    pub(crate) fn bind(&self, bindings: Bindings) {
        *self.bindings.write() = Arc::new(bindings);
        // Who is in which group is still known; what that grants is not.
        self.remembered.lock().clear();
    }

    /// Who asks with this uid: by the account's name, or its number where it has none, and its groups' names. Root and
    /// the controller's own account are admins.
    pub(crate) async fn of_uid(&self, uid: u32) -> Arc<Caller> {
        self.of(Asked::Uid(uid)).await
    }

    /// Whether to be this account on this machine is to be an admin.
    pub(crate) const fn is_powerful(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own_uid
    }

    /// Who asks with this uid on another machine, as its agent says. Whoever rules that machine can say so of any: it is
    /// never an admin; root of it is nobody, and so is the controller's account, whose jobs here could be more.
    pub(crate) async fn of_relayed(&self, uid: u32) -> Arc<Caller> {
        self.of(Asked::Relayed(uid)).await
    }

    /// The account of this name, which need not be one of this machine; as itself, not as an admin by its uid.
    pub(crate) async fn of_name(&self, name: &str) -> Arc<Caller> {
        self.of(Asked::Name(name.to_owned())).await
    }

    /// Somebody of whom nothing is known.
    #[expect(clippy::unused_self, reason = "it is asked as the others are")]
    pub(crate) fn nobody(&self) -> Arc<Caller> {
        Arc::new(nobody())
    }

    /// Somebody whose groups another than this machine knows. An account that is powerful here is not believed from there.
    pub(crate) async fn of_claim(&self, user: &str, groups: &[String]) -> Option<Caller> {
        let uid = self.of_name(user).await.uid;
        if uid.is_some_and(|uid| self.is_powerful(uid)) {
            return None;
        }
        Some(
            self.bindings()
                .caller(user.to_owned(), uid, groups.to_vec()),
        )
    }

    /// What somebody may now who made something before.
    pub(crate) async fn of_maker(&self, maker: &Owner) -> Arc<Caller> {
        if let Some(uid) = maker.uid {
            let now = self.of_uid(uid).await;
            if now.user == maker.user {
                return now;
            }
        }
        let bindings = self.bindings();
        Arc::new(bindings.caller(maker.user.clone(), None, maker.groups.clone()))
    }

    fn bindings(&self) -> Arc<Bindings> {
        Arc::clone(&self.bindings.read())
    }

    async fn of(&self, asked: Asked) -> Arc<Caller> {
        if let Some(caller) = self.recalled(&asked) {
            return caller;
        }
        let turn = match asked {
            // It is never closed.
            Asked::Relayed(_) => self.told_of.acquire().await.ok(),
            _ => None,
        };
        // Whoever waited beside this one for the same account may have it by now.
        if turn.is_some()
            && let Some(caller) = self.recalled(&asked)
        {
            return caller;
        }
        let wanted = asked.clone();
        let account = vital::blocking("account", move || wanted.look_up()).await;
        #[cfg(test)]
        let account = self.invented(&asked).unwrap_or(account);
        // Read after the look-up, and before what was remembered is forgotten for others.
        let mut remembered = self.remembered.lock();
        let caller = Arc::new(self.caller(&asked, account));
        if remembered.len() >= Self::MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(asked, (Instant::now(), Arc::clone(&caller)));
        caller
    }

    fn recalled(&self, asked: &Asked) -> Option<Arc<Caller>> {
        let remembered = self.remembered.lock();
        let (since, caller) = remembered.get(asked)?;
        (since.elapsed() < Self::REMEMBERED).then(|| Arc::clone(caller))
    }

    fn caller(&self, asked: &Asked, account: Account) -> Caller {
        let Account { user, uid, groups } = account;
        match asked {
            Asked::Relayed(uid) if self.is_powerful(*uid) => nobody(),
            Asked::Relayed(_) => {
                let caller = self.bindings().caller(user, uid, groups);
                let rights = Rights {
                    role: caller.rights.role.min(Role::Operator),
                    view: caller.rights.sees().clone(),
                    manage: caller.rights.manage.clone(),
                };
                caller.with_rights(rights)
            }
            Asked::Name(_) => self.bindings().caller(user, uid, groups),
            Asked::Uid(asked) => {
                let caller = self.bindings().caller(user, uid, groups);
                if self.is_powerful(*asked) {
                    caller.with_rights(Rights::ADMIN)
                } else {
                    caller
                }
            }
        }
    }
}

/// No account has such a name, and so it owns nothing.
pub(crate) const NOBODY: &str = "(nobody)";

fn nobody() -> Caller {
    Caller::new(NOBODY.to_owned(), None, Vec::new(), Rights::VIEWER)
}

#[derive(Clone, Debug)]
struct Account {
    user: String,
    uid: Option<u32>,
    groups: Vec<String>,
}

impl Asked {
    /// A directory that does not answer counts as one that does not know: fewer rights, never more.
    fn look_up(self) -> Account {
        let found = match &self {
            Self::Uid(uid) | Self::Relayed(uid) => User::from_uid(Uid::from_raw(*uid)),
            Self::Name(name) => User::from_name(name),
        };
        match (found, self) {
            (Ok(Some(user)), _) => Account {
                groups: groups_of(&user.name, user.gid),
                uid: Some(user.uid.as_raw()),
                user: user.name,
            },
            (_, Self::Uid(uid) | Self::Relayed(uid)) => Account {
                user: uid.to_string(),
                uid: Some(uid),
                groups: Vec::new(),
            },
            (_, Self::Name(user)) => Account {
                // What has no name is known by its number.
                uid: user.parse().ok(),
                user,
                groups: Vec::new(),
            },
        }
    }
}

fn groups_of(name: &str, gid: Gid) -> Vec<String> {
    let Ok(name) = CString::new(name) else {
        return Vec::new();
    };
    let groups = getgrouplist(&name, gid).unwrap_or_default();
    groups
        .into_iter()
        .filter_map(|gid| Some(Group::from_gid(gid).ok()??.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_account_has_its_name_and_an_unknown_one_its_number() {
        let accounts = Accounts::new(3_999_998, Bindings::default());
        let root = accounts.of_uid(0).await;
        assert_eq!(root.user, "root");
        assert!(root.is_admin() && accounts.of_uid(3_999_998).await.is_admin());
        assert!(!accounts.of_uid(3_999_999).await.is_admin());
        assert!(root.groups.contains(&"root".to_owned()));
        assert_eq!(accounts.of_uid(3_999_999).await.user, "3999999");
        let by_name = accounts.of_name("root").await;
        assert_eq!((&by_name.groups, by_name.uid), (&root.groups, Some(0)));
        assert!(!by_name.is_admin(), "a name alone makes no admin");
    }

    #[tokio::test]
    async fn root_of_another_machine_is_nobody_and_no_admin_comes_from_there() {
        let bindings = Bindings::read("[user.3999997]\nrole = \"admin\"").unwrap();
        let accounts = Accounts::new(3_999_998, bindings);
        for uid in [0, 3_999_998] {
            let nobody = accounts.of_relayed(uid).await;
            assert_eq!((nobody.user.as_str(), nobody.uid), (NOBODY, None));
            assert_eq!(nobody.rights, Rights::VIEWER);
            assert!(nobody.namespace().is_err(), "it owns no name");
        }
        assert!(accounts.of_uid(3_999_997).await.is_admin());
        let relayed = accounts.of_relayed(3_999_997).await;
        assert_eq!(
            (relayed.rights.role, relayed.uid),
            (Role::Operator, Some(3_999_997))
        );
    }

    #[tokio::test]
    async fn other_bindings_hold_at_once_for_who_was_looked_up_before() {
        let accounts = Accounts::new(0, Bindings::default());
        assert_eq!(accounts.of_uid(3_999_997).await.rights, Rights::USER);
        accounts.bind(Bindings::read("[user.3999997]\nrole = \"operator\"").unwrap());
        let operator = accounts.of_uid(3_999_997).await;
        assert_eq!(operator.rights, Rights::of_role(Role::Operator));
        let maker = operator.owner();
        assert_eq!(accounts.of_maker(&maker).await.rights.role, Role::Operator);
        accounts.bind(Bindings::default());
        assert_eq!(accounts.of_maker(&maker).await.rights.role, Role::User);
    }
}
