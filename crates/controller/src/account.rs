//! Accounts of this machine: a uid's name and groups.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use parking_lot::Mutex;

use crate::vital;

/// Looks accounts up and remembers them for a moment: a directory service may be slow.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<BTreeMap<u32, (Instant, Account)>>);

/// One account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its name, or its number where it has none.
    pub(crate) user: String,
    /// The names of its groups.
    pub(crate) groups: Vec<String>,
}

impl Accounts {
    /// How long a changed group may go unseen.
    const REMEMBERED: Duration = Duration::from_secs(30);
    const MAX_REMEMBERED: usize = 4096;

    /// The account of this uid.
    pub(crate) async fn of_uid(&self, uid: u32) -> Account {
        if let Some((since, account)) = self.0.lock().get(&uid)
            && since.elapsed() < Self::REMEMBERED
        {
            return account.clone();
        }
        let account = vital::blocking("account", move || look_up(uid)).await;
        let mut remembered = self.0.lock();
        if remembered.len() >= Self::MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(uid, (Instant::now(), account.clone()));
        account
    }
}

fn look_up(uid: u32) -> Account {
    // A directory that does not answer counts as one that does not know: fewer rights, never more.
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else {
        return Account {
            user: uid.to_string(),
            groups: Vec::new(),
        };
    };
    Account {
        groups: groups_of(&user.name, user.gid),
        user: user.name,
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
        let accounts = Accounts::default();
        let root = accounts.of_uid(0).await;
        assert_eq!(root.user, "root");
        assert!(root.groups.contains(&"root".to_owned()));
        assert_eq!(accounts.of_uid(3_999_999).await.user, "3999999");
        assert_eq!(groups_of_user("root".into()).await, root.groups);
    }
}
