//! The controller's directory: taken by one process at a time, closed to everybody else.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

/// A data directory that this process holds until the value is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Takes `path`, making it (0700) if it is not there.
    pub(crate) fn take(path: &Path) -> Result<Self, TakeError> {
        let io = |path: &Path, cause: std::io::Error| TakeError::Io {
            path: path.to_owned(),
            reason: cause.to_string(),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|cause| io(path, cause))?;
        let lock = path.join("lock");
        let file = take_lock(&lock).map_err(|refused| match refused {
            LockError::Held { pid } => TakeError::InUse {
                path: path.to_owned(),
                pid,
            },
            LockError::Io(cause) => io(&lock, cause),
        })?;
        let data = Self {
            path: path.to_owned(),
            _lock: file,
        };
        data.give_to_owner(&lock)
            .map_err(|cause| io(&lock, cause))?;
        Ok(data)
    }

    /// Gives a file that root made to whom the directory belongs, whose controller has to use it. Without root it
    /// belongs to the right one, or nobody can change that.
    pub(crate) fn give_to_owner(&self, file: &Path) -> std::io::Result<()> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        let owner = std::fs::metadata(&self.path)?;
        let has = std::fs::symlink_metadata(file)?;
        // A second name may be that of a file which is nobody's to give away.
        let is_ours = has.is_file() && has.nlink() == 1;
        if !is_ours || (has.uid(), has.gid()) == (owner.uid(), owner.gid()) {
            return Ok(());
        }
        lchown(file, Some(owner.uid()), Some(owner.gid()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes the lock file at `path` and writes this process's number into it.
///
/// The kernel gives the lock up with the last handle, so a dead holder is in nobody's way.
pub(crate) fn take_lock(path: &Path) -> Result<File, LockError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        // Root may take it in a folder of somebody else, who must not have it write elsewhere.
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)
        .map_err(LockError::Io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let mut head = file.take(32);
            let read = head.read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse().ok());
            return Err(LockError::Held { pid });
        }
        Err(TryLockError::Error(cause)) => return Err(LockError::Io(cause)),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(LockError::Io)?;
    Ok(file)
}

/// Why a lock file could not be taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// A living process has it.
    Held { pid: Option<u32> },
    /// The system refused.
    Io(std::io::Error),
}

/// Why a data directory could not be taken. It is as it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TakeError {
    InUse { path: PathBuf, pid: Option<u32> },
    Io { path: PathBuf, reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_directory_is_never_another_file() {
        let [data, elsewhere] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let other = elsewhere.path().join("other");
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, data.path().join("lock")).unwrap();
        let refused = DataDir::take(data.path()).unwrap_err();
        assert!(matches!(refused, TakeError::Io { .. }), "{refused:?}");
        assert_eq!(std::fs::read(&other).unwrap(), b"kept");
    }

    #[test]
    fn a_taken_directory_names_its_holder_and_is_free_after_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = DataDir::take(&path).unwrap();
        assert_eq!(
            DataDir::take(&path).unwrap_err(),
            TakeError::InUse {
                path: path.clone(),
                pid: Some(std::process::id()),
            }
        );
        drop(first);
        assert_eq!(DataDir::take(&path).unwrap().path(), path);
    }
}
