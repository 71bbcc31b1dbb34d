//! Whose a replica's folder is, and what may be done in it without being led elsewhere.
//!
//! A job can put anything into its folder: links, pipes, files of any size. Whatever the agent makes there,
//! it makes with the rights of the folder's owner and no others, and it reads only plain files of that
//! owner. The folder itself cannot be replaced: what holds it belongs to the agent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use portreeve_api::local::Ids;

/// Whom a folder belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    gid: u32,
}

impl Owner {
    /// Whom this folder belongs to.
    ///
    /// # Errors
    ///
    /// The system's; [`ErrorKind::NotADirectory`] for anything else, a link to a folder too.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let about = fs::symlink_metadata(folder)?;
        if !about.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Self {
            uid: about.uid(),
            gid: about.gid(),
        })
    }

    /// The account that this process runs as.
    pub(crate) fn own() -> Self {
        Self {
            uid: Uid::effective().as_raw(),
            gid: Gid::effective().as_raw(),
        }
    }

    /// Whether this process runs as the owner.
    pub(crate) fn is_own(self) -> bool {
        self.uid == Uid::effective().as_raw()
    }

    /// Does the work with the owner's rights to files and no others; what it makes is the owner's.
    ///
    /// Cost: for another owner, a thread.
    ///
    /// # Errors
    ///
    /// The work's, and the system's when the rights cannot be taken; nothing was done then.
    pub(crate) fn acting<T: Send>(
        self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        if self.is_own() {
            return work();
        }
        std::thread::scope(|scope| {
            // A thread of its own, so that its rights end with it whatever happens. Only those to files are
            // changed: a thread that had the user's number could be killed by the user, and the agent with it.
            let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                self.take_rights()?;
                work()
            })?;
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn take_rights(self) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&[])?;
        setfsgid(gid);
        // With the number go root's rights to files.
        setfsuid(uid);
        // These calls do not say whether they worked; each answers what held before.
        if (setfsuid(uid), setfsgid(gid)) == (uid, gid) {
            Ok(())
        } else {
            Err(ErrorKind::PermissionDenied.into())
        }
    }

    /// Gives the folder to the owner.
    ///
    /// # Errors
    ///
    /// The system's; the folder is as it was.
    pub(crate) fn take(self, folder: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(folder, Some(self.uid), Some(self.gid))
    }

    /// Opens a plain file of the owner's for reading; never waits, never follows a link.
    ///
    /// # Errors
    ///
    /// The system's; [`ErrorKind::InvalidData`] for anything else that is there.
    pub(crate) fn open(self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map_err(|cause| match cause.raw_os_error() {
                Some(libc::ELOOP) => strange("it is a link"),
                _ => cause,
            })?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(strange("it is no plain file"));
        }
        if about.uid() != self.uid {
            return Err(strange("it belongs to somebody else"));
        }
        Ok(file)
    }
}

impl From<&Ids> for Owner {
    fn from(ids: &Ids) -> Self {
        Self {
            uid: ids.uid,
            gid: ids.gid,
        }
    }
}

/// A socket that is held, so that what is connected to is what was looked at.
#[derive(Debug)]
pub(crate) struct HeldSocket(File);

impl HeldSocket {
    /// The owner's socket at `path`.
    ///
    /// # Errors
    ///
    /// The system's; [`ErrorKind::InvalidData`] for anything else that is there.
    pub(crate) fn of(owner: Owner, path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt;
        let held = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
            .open(path)?;
        let about = held.metadata()?;
        if about.file_type().is_socket() && about.uid() == owner.uid {
            Ok(Self(held))
        } else {
            Err(strange("it is no socket of the folder's owner"))
        }
    }

    /// What to give to `connect`; short, however deep the folder lies.
    pub(crate) fn as_path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string())
    }
}

/// Whether other users get through to what is in `state`, by the modes of the folders on the way.
///
/// # Errors
///
/// [`ClosedFolder`]: nobody but its owner gets through.
pub(crate) fn reach(state: &Path) -> Result<(), ClosedFolder> {
    /// Passing through without seeing the names.
    const THROUGH: u32 = 0o001;
    for folder in state.ancestors() {
        let Ok(about) = fs::metadata(folder) else {
            continue;
        };
        if about.mode() & THROUGH == 0 {
            return Err(ClosedFolder {
                state: state.to_owned(),
                folder: folder.to_owned(),
                mode: about.mode() & 0o7777,
            });
        }
    }
    Ok(())
}

/// A folder that only its owner gets through.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "jobs of other users cannot reach their folders below {}: {} has mode {mode:04o}; \
     `chmod o+x` it, or keep the agent's state elsewhere with --data",
    state.display(),
    folder.display()
)]
pub(crate) struct ClosedFolder {
    state: PathBuf,
    folder: PathBuf,
    mode: u32,
}

fn strange(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn named(path: &Path, text: &str) -> PathBuf {
        fs::write(path, text).unwrap();
        path.to_owned()
    }

    #[test]
    fn only_plain_files_of_the_owner_are_opened() {
        let place = tempfile::tempdir().unwrap();
        let owner = Owner::of(place.path()).unwrap();
        let file = named(&place.path().join("file"), "x");
        owner.open(&file).unwrap();
        let link = place.path().join("link");
        symlink(&file, &link).unwrap();
        let pipe = place.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for strange in [&link, &pipe, &place.path().to_owned()] {
            let refused = owner.open(strange).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
        }
        let other = Owner {
            uid: owner.uid + 1,
            ..owner
        };
        let refused = other.open(&file).unwrap_err();
        assert!(refused.to_string().contains("somebody else"), "{refused}");
        assert!(Owner::of(&link).is_err());
    }

    #[test]
    fn a_link_in_place_of_a_socket_is_not_connected_to() {
        let place = tempfile::tempdir().unwrap();
        let owner = Owner::of(place.path()).unwrap();
        let socket = place.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let held = HeldSocket::of(owner, &socket).unwrap();
        std::os::unix::net::UnixStream::connect(held.as_path()).unwrap();
        listener.accept().unwrap();
        let link = place.path().join("link");
        symlink(&socket, &link).unwrap();
        HeldSocket::of(owner, &link).unwrap_err();
    }

    #[test]
    fn a_folder_that_is_closed_to_others_is_named() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        fs::create_dir(&state).unwrap();
        let set = |mode| fs::set_permissions(place.path(), fs::Permissions::from_mode(mode));
        set(0o700).unwrap();
        let refused = reach(&state).unwrap_err();
        assert_eq!(
            (refused.folder.as_path(), refused.mode),
            (place.path(), 0o700)
        );
        set(0o711).unwrap();
        reach(&state).unwrap();
    }

    #[test]
    fn what_is_done_as_another_user_is_done_with_that_users_rights() {
        if !Uid::effective().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let other = Owner {
            uid: 54_321,
            gid: 54_321,
        };
        let secret = named(&place.path().join("secret"), "x");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let refused = other.acting(|| fs::write(&secret, "y")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        let own = place.path().join("own");
        other.acting(|| fs::write(&own, "y")).unwrap();
        let about = fs::metadata(&own).unwrap();
        assert_eq!((about.uid(), about.gid()), (54_321, 54_321));
        // This thread has kept its own.
        fs::write(&secret, "z").unwrap();
    }
}
