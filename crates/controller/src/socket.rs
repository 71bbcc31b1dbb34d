//! The Unix socket of a controller: one living owner at a time, and none left behind.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::data_dir::{LockError, take_lock};

/// The right to a socket's path, and the socket there.
#[derive(Debug)]
pub(crate) struct SocketPlace {
    path: PathBuf,
    lock_path: PathBuf,
    /// Held as long as the socket is ours; the kernel gives it up when the process dies.
    _lock: File,
}

/// Why no socket could be made. A living controller's socket is as it was.
#[derive(Debug)]
pub(crate) enum SocketError {
    InUse { pid: Option<u32> },
    RunDir { path: PathBuf, reason: String },
    Io(io::Error),
}

impl SocketPlace {
    /// Makes the socket at `path`, replacing that of a dead process. Everybody may connect: who it is,
    /// the kernel tells.
    pub(crate) fn take(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        make_run_dir(path)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let lock = lock_in_place(&lock_path)?;
        // A living owner that knows nothing of the lock file still answers.
        if let Some(pid) = living_owner(path) {
            let _ = std::fs::remove_file(&lock_path);
            return Err(SocketError::InUse { pid });
        }
        match std::fs::remove_file(path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(SocketError::Io(cause));
            }
            _ => {}
        }
        let place = Self {
            path: path.to_owned(),
            lock_path,
            _lock: lock,
        };
        let listener = UnixListener::bind(path).map_err(SocketError::Io)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(SocketError::Io)?;
        Ok((place, listener))
    }

    /// Leaves neither socket nor lock file.
    pub(crate) fn remove(self) {
        for path in [&self.path, &self.lock_path] {
            if let Err(cause) = std::fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %cause, "left behind");
            }
        }
    }
}

/// The longest path of a Unix socket, in bytes: the kernel's field less its end.
const LONGEST_PATH: usize = 107;

fn make_run_dir(socket: &Path) -> Result<(), SocketError> {
    let folder = match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let refused = |reason: String| SocketError::RunDir {
        path: folder.to_owned(),
        reason,
    };
    let length = socket.as_os_str().len();
    if length > LONGEST_PATH {
        return Err(refused(format!(
            "the socket's path would have {length} bytes and may have {LONGEST_PATH}; name a shorter directory with --run-dir"
        )));
    }
    let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    let about = made.and_then(|()| std::fs::metadata(folder));
    let about = about.map_err(|cause| refused(cause.to_string()))?;
    let own = nix::unistd::geteuid().as_raw();
    // Whoever may rename in the folder could put a socket of their own there and be told everything.
    let safe = about.mode() & 0o022 == 0 || about.mode() & 0o1000 != 0;
    if (about.uid() == own || about.uid() == 0) && safe {
        return Ok(());
    }
    Err(refused(format!(
        "it belongs to uid {} with mode {:o}, so others could replace the socket; name another with --run-dir",
        about.uid(),
        about.mode() & 0o7777,
    )))
}

/// Locks the file that is at `path` when the lock is had: a leaving owner removes it while it holds it.
fn lock_in_place(path: &Path) -> Result<File, SocketError> {
    loop {
        let lock = take_lock(path).map_err(|refused| match refused {
            LockError::Held { pid } => SocketError::InUse { pid },
            LockError::Io(cause) => SocketError::Io(cause),
        })?;
        let held = lock.metadata().map_err(SocketError::Io)?;
        let there = std::fs::metadata(path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
            return Ok(lock);
        }
    }
}

/// Whether somebody listens at `path`; the inner value is its process, where the kernel tells.
fn living_owner(path: &Path) -> Option<Option<u32>> {
    let stream = std::os::unix::net::UnixStream::connect(path).ok()?;
    let credentials =
        nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials);
    Some(
        credentials
            .ok()
            .and_then(|peer| u32::try_from(peer.pid()).ok()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_living_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/c.sock");
        let own = Some(std::process::id());
        let (place, listener) = SocketPlace::take(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o666, 0o755));
        let refused = SocketPlace::take(&path).unwrap_err();
        assert!(matches!(refused, SocketError::InUse { pid } if pid == own));
        // As after a kill: the files stay, the locks go.
        drop((place, listener));
        assert!(path.exists());
        let (place, listener) = SocketPlace::take(&path).unwrap();
        drop(listener);
        place.remove();
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            0
        );
    }

    #[tokio::test]
    async fn a_stranger_that_listens_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let _stranger = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let refused = SocketPlace::take(&path).unwrap_err();
        let own = Some(std::process::id());
        assert!(matches!(refused, SocketError::InUse { pid } if pid == own));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let refused = make_run_dir(&folder.path().join("c.sock")).unwrap_err();
        assert!(matches!(refused, SocketError::RunDir { .. }));
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        make_run_dir(&folder.path().join("c.sock")).unwrap();
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(120));
        let Err(SocketError::RunDir { reason, .. }) = make_run_dir(&deep.join("c.sock")) else {
            panic!("it was accepted");
        };
        assert!(reason.contains("--run-dir"), "{reason}");
        assert!(!deep.exists());
    }
}
