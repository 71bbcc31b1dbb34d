//! Accounts of this machine: who a uid is as a caller.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use parking_lot::Mutex;
use portreeve::rights::Caller;

use crate::vital;

/// Looks accounts up and remembers them for a moment: a directory service may be slow.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// The controller's own account, which may do everything, as root may.
    own_uid: u32,
    /// Every request asks: what it gets is shared, not copied.
    remembered: Mutex<BTreeMap<u32, (Instant, Arc<Caller>)>>,
}

impl Accounts {
    /// How long a changed group may go unseen.
    const REMEMBERED: Duration = Duration::from_secs(30);
    const MAX_REMEMBERED: usize = 4096;

    pub(crate) const fn new(own_uid: u32) -> Self {
        Self {
            own_uid,
            remembered: Mutex::new(BTreeMap::new()),
        }
    }

    /// Who asks with this uid: by the account's name, or its number where it has none, and its groups' names.
    pub(crate) async fn of_uid(&self, uid: u32) -> Arc<Caller> {
        if let Some((since, caller)) = self.remembered.lock().get(&uid)
            && since.elapsed() < Self::REMEMBERED
        {
            return Arc::clone(caller);
        }
        let admin = uid == 0 || uid == self.own_uid;
        let caller = vital::blocking("account", move || look_up(uid, admin)).await;
        let caller = Arc::new(caller);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= Self::MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(uid, (Instant::now(), Arc::clone(&caller)));
        caller
    }
}

fn look_up(uid: u32, admin: bool) -> Caller {
    // A directory that does not answer counts as one that does not know: fewer rights, never more.
    let (user, groups) = match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => {
            let groups = groups_of(&user.name, user.gid);
            (user.name, groups)
        }
        _ => (uid.to_string(), Vec::new()),
    };
    Caller {
        user,
        uid: Some(uid),
        groups,
        admin,
    }
}

/// The groups of an account by its name; none for an unknown one.
pub(crate) async fn groups_of_user(name: String) -> Vec<String> {
    vital::blocking("account", move || match User::from_name(&name) {
        Ok(Some(user)) => groups_of(&user.name, user.gid),
        _ => Vec::new(),
    })
    .await
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
        let accounts = Accounts::new(3_999_998);
        let root = accounts.of_uid(0).await;
        assert_eq!(root.user, "root");
        assert!(root.admin && accounts.of_uid(3_999_998).await.admin);
        assert!(!accounts.of_uid(3_999_999).await.admin);
        assert!(root.groups.contains(&"root".to_owned()));
        assert_eq!(accounts.of_uid(3_999_999).await.user, "3999999");
        assert_eq!(groups_of_user("root".into()).await, root.groups);
    }
}
