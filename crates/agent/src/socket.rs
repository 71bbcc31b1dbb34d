//! A Unix socket of the agent: one living owner at a time, and none left behind.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tracing::debug;

/// The socket, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    pub(crate) listener: Option<UnixListener>,
}

/// Why there is no socket. One that another agent listens at is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another agent answers there.
    #[error("{} is another agent's; name another with --socket", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Others could put a socket of their own in its place.
    #[error(
        "{} belongs to uid {uid} with mode {mode:o}, so others could replace the socket; name another place with --socket",
        folder.display()
    )]
    Unsafe {
        /// The folder.
        folder: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its mode.
        mode: u32,
    },
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// Its words.
        cause: io::Error,
    },
}

impl Socket {
    /// Makes the socket, 0666, replacing that of a dead agent; its folder is made 0755 if it is not there.
    ///
    /// # Errors
    ///
    /// [`SocketError`].
    pub(crate) fn take(path: &Path) -> Result<Self, SocketError> {
        let refused = |cause| SocketError::System {
            path: path.to_owned(),
            cause,
        };
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let mut make = DirBuilder::new();
        let made = make.recursive(true).mode(0o755).create(folder);
        let about = made.and_then(|()| fs::metadata(folder)).map_err(refused)?;
        let own = rustix::process::geteuid().as_raw();
        let (uid, mode) = (about.uid(), about.mode() & 0o7777);
        if ![own, 0].contains(&uid) || mode & 0o022 != 0 && mode & 0o1000 == 0 {
            return Err(SocketError::Unsafe {
                folder: folder.to_owned(),
                uid,
                mode,
            });
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(SocketError::InUse {
                path: path.to_owned(),
            });
        }
        match fs::remove_file(path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(refused(cause)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(refused)?;
        fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(refused)?;
        Ok(Self {
            path: path.to_owned(),
            listener: Some(listener),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(cause) = fs::remove_file(&self.path) {
            debug!("{} is left behind: {cause}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_agents_socket_is_replaced_and_a_living_ones_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/agent.sock");
        let socket = Socket::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(matches!(
            Socket::take(&path),
            Err(SocketError::InUse { .. })
        ));
        // As after a kill: the file stays.
        std::mem::forget(fs::File::open(folder.path()).unwrap());
        let listener = { socket }.listener.take();
        drop(listener);
        let again = Socket::take(&path).unwrap();
        drop(again);
        assert!(!path.exists());
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let open = Socket::take(&folder.path().join("agent.sock"));
        assert!(matches!(open, Err(SocketError::Unsafe { .. })));
    }
}
