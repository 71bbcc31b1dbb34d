//! Becoming the job's user: the first thing a worker does that an agent started as root.

use std::io;

use nix::unistd::{Gid, Uid, getgroups, getresgid, getresuid, setgroups, setresgid, setresuid};
use portreeve_api::local::Ids;
use rustix::fs::Mode;

/// Makes this process, and everything it will start, the account's for good: groups, user, no new
/// privileges, and a umask of 022.
///
/// Call it first of all, while the process has one thread and has read nothing that is the user's.
///
/// # Errors
///
/// [`BecomeError`]. The process may then be neither; it must end.
pub(crate) fn become_user(ids: &Ids) -> Result<(), BecomeError> {
    let refused = |what| {
        move |cause: nix::errno::Errno| BecomeError::Refused {
            what,
            uid: ids.uid,
            cause: cause.into(),
        }
    };
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    let mut groups: Vec<Gid> = ids.groups.iter().copied().map(Gid::from_raw).collect();
    if Uid::effective() != uid || Gid::effective() != gid {
        // The groups first: with the user goes the right to change them.
        setgroups(&groups).map_err(refused("its groups"))?;
        setresgid(gid, gid, gid).map_err(refused("its group"))?;
        setresuid(uid, uid, uid).map_err(refused("its user"))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(|cause| BecomeError::Refused {
        what: "no new privileges",
        uid: ids.uid,
        cause: cause.into(),
    })?;
    rustix::process::umask(Mode::WGRP | Mode::WOTH);

    // Believed only when seen: what runs from here on is the user's.
    let users = getresuid().map_err(refused("a look at its user"))?;
    let own = getresgid().map_err(refused("a look at its group"))?;
    let mut has = getgroups().map_err(refused("a look at its groups"))?;
    let in_order = |groups: &mut Vec<Gid>| {
        groups.sort_unstable_by_key(|group| group.as_raw());
        groups.dedup();
    };
    in_order(&mut has);
    in_order(&mut groups);
    let is_it = [users.real, users.effective, users.saved] == [uid; 3]
        && [own.real, own.effective, own.saved] == [gid; 3]
        && has == groups;
    let can_return = !uid.is_root() && setresuid(uid, Uid::from_raw(0), uid).is_ok();
    if is_it && !can_return {
        Ok(())
    } else {
        Err(BecomeError::StillOther { uid: ids.uid })
    }
}

/// Why a worker is not the job's user. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BecomeError {
    /// The system refused.
    #[error("it cannot become uid {uid}: the system refuses {what}: {cause}")]
    Refused {
        /// Which step.
        what: &'static str,
        /// The user.
        uid: u32,
        /// The system's words.
        cause: io::Error,
    },
    /// The system agreed to everything, and yet.
    #[error("it became uid {uid} and is still somebody else as well")]
    StillOther {
        /// The user.
        uid: u32,
    },
}
