//! Accounts of this host: as whom a job runs here.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{Uid, User, getgrouplist};
use portreeve_api::local::{Ids, JobUser};
use tokio::time::Instant;

/// Looks accounts up and remembers them for a moment: a directory service may be slow, and a host may start
/// a thousand replicas of one user at once.
#[derive(Debug, Default)]
pub(crate) struct Accounts(BTreeMap<(String, u32), (Instant, Looked)>);

type Looked = Result<JobUser, AccountError>;

impl Accounts {
    /// How long a change of an account may go unseen.
    const REMEMBERED: Duration = Duration::from_secs(30);
    /// How long a directory that does not answer is not asked again.
    const AGAIN: Duration = Duration::from_secs(5);
    /// How long a directory may take.
    const PATIENCE: Duration = Duration::from_secs(10);
    const MAX_REMEMBERED: usize = 4096;

    /// As whom a job of the user `name`, submitted as `uid`, runs here; `None`: as this agent itself.
    ///
    /// # Errors
    ///
    /// [`AccountError`]; of these only [`AccountError::Silent`] may pass by itself.
    pub(crate) async fn job_user(
        &mut self,
        name: &str,
        uid: u32,
    ) -> Result<Option<JobUser>, AccountError> {
        let own = Uid::effective();
        if uid == own.as_raw() {
            return Ok(None);
        }
        if !own.is_root() {
            return Err(AccountError::NotRoot {
                name: name.to_owned(),
                uid,
                own: own.as_raw(),
            });
        }
        let key = (name.to_owned(), uid);
        if let Some((until, looked)) = self.0.get(&key)
            && Instant::now() < *until
        {
            return looked.clone().map(Some);
        }
        let asked = name.to_owned();
        let looking = tokio::task::spawn_blocking(move || look_up(&asked, uid));
        let looked = match tokio::time::timeout(Self::PATIENCE, looking).await {
            Ok(looked) => looked.expect("looking an account up does not panic"),
            Err(_) => Err(AccountError::Silent {
                name: name.to_owned(),
                why: format!("no answer within {} s", Self::PATIENCE.as_secs()),
            }),
        };
        let remembered = match looked {
            Err(AccountError::Silent { .. }) => Self::AGAIN,
            _ => Self::REMEMBERED,
        };
        if self.0.len() >= Self::MAX_REMEMBERED {
            self.0.clear();
        }
        self.0
            .insert(key, (Instant::now() + remembered, looked.clone()));
        looked.map(Some)
    }
}

fn look_up(name: &str, uid: u32) -> Looked {
    let silent = |cause: Errno| AccountError::Silent {
        name: name.to_owned(),
        why: cause.to_string(),
    };
    let unknown = || AccountError::Unknown {
        name: name.to_owned(),
        uid,
    };
    let text = CString::new(name).map_err(|_| unknown())?;
    let user = User::from_name(name).map_err(silent)?.ok_or_else(unknown)?;
    if user.uid.as_raw() != uid {
        return Err(AccountError::OtherNumber {
            name: name.to_owned(),
            uid,
            here: user.uid.as_raw(),
        });
    }
    let groups = getgrouplist(&text, user.gid).map_err(silent)?;
    Ok(JobUser {
        name: user.name,
        ids: Ids {
            uid,
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        },
        home: user.dir,
        shell: user.shell,
    })
}

/// Why a job cannot run as its user here. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccountError {
    /// This agent may not become anybody else.
    #[error(
        "it is to run as {name} (uid {uid}) and this host's agent runs as uid {own}: only an agent that runs \
         as root can run jobs of other users"
    )]
    NotRoot { name: String, uid: u32, own: u32 },
    /// There is no such account.
    #[error(
        "it is to run as {name} (uid {uid}) and this host has no account {name}; \
         make it here, or keep the service off this host with `placement`"
    )]
    Unknown { name: String, uid: u32 },
    /// The name means somebody else here.
    #[error(
        "it is to run as {name} (uid {uid}) and {name} has uid {here} on this host; \
         make the accounts agree, or keep the service off this host with `placement`"
    )]
    OtherNumber { name: String, uid: u32, here: u32 },
    /// It is not known now.
    #[error("the account {name} cannot be looked up: {why}")]
    Silent { name: String, why: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_its_numbers_and_a_strange_one_is_refused_with_them() {
        let daemon = look_up("daemon", 1).unwrap();
        assert_eq!((daemon.name.as_str(), daemon.ids.uid), ("daemon", 1));
        assert!(daemon.ids.groups.contains(&daemon.ids.gid));
        let unknown = look_up("nobody-of-that-name", 77).unwrap_err().to_string();
        assert!(
            unknown.contains("no account nobody-of-that-name"),
            "{unknown}"
        );
        let other = look_up("daemon", 77).unwrap_err().to_string();
        assert!(other.contains("(uid 77) and daemon has uid 1"), "{other}");
        assert!(look_up("a\0b", 77).is_err());
    }

    #[tokio::test]
    async fn a_job_of_the_agents_own_user_needs_no_account() {
        let own = Uid::effective().as_raw();
        let mut accounts = Accounts::default();
        assert_eq!(
            accounts.job_user("nobody-of-that-name", own).await,
            Ok(None)
        );
        assert!(
            accounts
                .job_user("nobody-of-that-name", own + 7)
                .await
                .is_err()
        );
    }
}
