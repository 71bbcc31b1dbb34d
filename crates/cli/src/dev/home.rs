//! The folder of one `dev`: the user's own with `--data`, else a temporary one that goes with it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use portreeve_api::local::ProcessIdentity;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::exit::Failure;

/// Begins the name of every temporary folder.
const PREFIX: &str = "portreeve-dev-";
/// Held locked by the `dev` whose folder it is.
const LOCK: &str = "dev.lock";

/// Where everything of this `dev` is kept.
pub(crate) struct Home {
    path: PathBuf,
    temporary: Option<TempDir>,
    _lock: File,
}

impl Home {
    /// Opens `data`, or makes a temporary folder and removes those that killed predecessors left.
    pub(crate) fn open(data: Option<PathBuf>) -> Result<Self, Failure> {
        let (path, temporary) = match data {
            Some(data) => {
                std::fs::create_dir_all(&data).map_err(|cause| {
                    let place = data.display();
                    Failure::plain(format!(
                        "the folder {place} cannot be made: {cause}; name another with --data"
                    ))
                })?;
                (std::path::absolute(data)?, None)
            }
            None => {
                remove_leftovers(&std::env::temp_dir());
                let made = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
                (made.path().to_owned(), Some(made))
            }
        };
        let lock = File::create(path.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let place = path.display();
            Failure::plain(format!(
                "another `portreeve dev` uses {place}; stop it, or name another folder with --data"
            ))
        })?;
        Ok(Self {
            path,
            temporary,
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Without `--data` nobody could adopt the workers later, so they end with this process.
    pub(crate) fn lifeline(&self) -> Result<Option<ProcessIdentity>, Failure> {
        match self.temporary {
            Some(_) => Ok(Some(ProcessIdentity::of_self()?)),
            None => Ok(None),
        }
    }

    /// Keeps log lines out of the live view: they go to `dev.log`.
    pub(crate) fn log_to_file(&self) -> Result<(), Failure> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.path.join("dev.log"))?;
        let filter = tracing_subscriber::EnvFilter::try_from_env("PORTREEVE_LOG")
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(file)
            .with_ansi(false)
            .with_target(false)
            // It would say on standard error that a line is lost, and die where that is closed.
            .log_internal_errors(false)
            .init();
        Ok(())
    }

    /// Removes the temporary folder.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Some(temporary) = self.temporary else {
            return Ok(());
        };
        let place = temporary.path().display().to_string();
        temporary
            .close()
            .map_err(|cause| Failure::plain(format!("{place} is left behind: {cause}")))
    }
}

/// Removes our own temporary folders whose `dev` was killed: nobody holds their lock any more.
fn remove_leftovers(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let own = nix::unistd::geteuid().as_raw();
    for entry in entries.flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|about| about.is_dir() && about.uid() == own);
        let unlocked = || {
            let lock = File::open(path.join(LOCK)).ok()?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()
        };
        if ours && unlocked().is_some() {
            // What cannot be removed now is tried again by the next one.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_predecessors_folder_is_removed_and_a_living_ones_kept() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            File::create(path.join(LOCK)).unwrap()
        };
        let dead = make("portreeve-dev-dead");
        drop(dead);
        let living = make("portreeve-dev-living");
        flock(&living, FlockOperation::LockExclusive).unwrap();
        make("other");
        remove_leftovers(folder.path());
        let mut left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["other", "portreeve-dev-living"]);
    }
}
