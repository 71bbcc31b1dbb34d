//! One agent per state folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Held as long as it lives; the kernel lets it go with the process, however that ends.
#[derive(Debug)]
pub(crate) struct StateLock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl StateLock {
    /// Takes the lock of `state`.
    pub(crate) fn take(state: &Path) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state.join("agent.lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.take(16).read_to_string(&mut pid)?;
                return Err(LockError::Held(pid.trim().parse().ok()));
            }
            Err(cause) => return Err(io::Error::from(cause).into()),
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process has it; its number, if it wrote one.
    Held(Option<u32>),
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(cause: io::Error) -> Self {
        Self::Io(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_names_the_holder_and_a_dropped_one_is_free() {
        let state = tempfile::tempdir().unwrap();
        let first = StateLock::take(state.path()).unwrap();
        match StateLock::take(state.path()) {
            Err(LockError::Held(pid)) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        StateLock::take(state.path()).unwrap();
    }
}
