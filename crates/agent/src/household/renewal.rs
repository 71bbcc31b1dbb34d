//! Workers of an older program, replaced one after the other under the services that they supervise.
//!
//! A worker may end at any time, and the household starts another one that goes on with the same run: here that is made
//! use of. The next is only ended once the one before is back, so that a program that does not work costs one replica its
//! supervision for a while, and no more.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve::residency::ReplicaName;
use portreeve_api::attach::Renewing;
use portreeve_api::local::{ProcessIdentity, ReplicaFolder, WorkerCommand};
use tokio::time::Instant;

use super::folder;
use super::worker::{self, Worker};
use crate::Config;
use crate::owner::Owner;

/// How long the next worker may take to answer.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// The rest between two looks whether it does.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Those that are to be replaced, found once.
#[derive(Debug)]
pub(crate) struct Renewal {
    left: Vec<Old>,
    renewed: usize,
}

/// A worker that lives and runs another program than the next one would.
#[derive(Debug)]
struct Old {
    name: ReplicaName,
    folder: ReplicaFolder,
    identity: ProcessIdentity,
}

impl Renewal {
    /// Looks for them in the replicas' folders.
    ///
    /// # Errors
    ///
    /// The system's: the folders cannot be listed, or the program is not there.
    pub(crate) fn find(config: &Config) -> io::Result<Self> {
        let program = file_of(&config.worker_program)?;
        let mut left = Vec::new();
        for entry in fs::read_dir(config.state.join("replicas"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(name) = name.and_then(folder::parse_name) else {
                continue;
            };
            let folder = ReplicaFolder::at(path);
            if let Some((identity, _)) = living(&folder)
                && file_of(&program_of(identity.pid)).is_ok_and(|it| it != program)
            {
                left.push(Old {
                    name,
                    folder,
                    identity,
                });
            }
        }
        left.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { left, renewed: 0 })
    }

    /// How far it is.
    pub(crate) const fn now(&self) -> Renewing {
        Renewing {
            renewed: self.renewed,
            left: self.left.len(),
        }
    }

    /// Replaces the next one, and returns once its successor answers, or the replica has ended.
    ///
    /// # Errors
    ///
    /// [`NotBack`]; the service runs on.
    pub(crate) async fn next(&mut self) -> Result<(), NotBack> {
        let Some(old) = self.left.first() else {
            return Ok(());
        };
        // It may have ended meanwhile, and another one be there.
        if let Some((identity, worker)) = living(&old.folder)
            && identity == old.identity
        {
            worker.end();
        }
        let deadline = Instant::now() + BACK_WITHIN;
        while !old.is_succeeded().await {
            if Instant::now() >= deadline {
                return Err(NotBack {
                    name: old.name.clone(),
                    log: folder::worker_log(&old.folder),
                    now: self.now(),
                });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.left.remove(0);
        self.renewed += 1;
        Ok(())
    }
}

impl Old {
    async fn is_succeeded(&self) -> bool {
        if folder::has_ended(&self.folder) || !self.folder.path().exists() {
            return true;
        }
        let is_another =
            living(&self.folder).is_some_and(|(identity, _)| identity != self.identity);
        is_another
            && worker::tell(&self.folder, &WorkerCommand::Tell)
                .await
                .is_ok()
    }
}

/// The worker of a folder, if it lives.
fn living(folder: &ReplicaFolder) -> Option<(ProcessIdentity, Worker)> {
    if folder::has_ended(folder) {
        return None;
    }
    let owner = Owner::of(folder.path()).ok()?;
    let identity = folder::worker(owner, folder)?;
    let worker = Worker::recognise(&identity, owner)?;
    Some((identity, worker))
}

fn program_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/exe").into()
}

/// Which file it is, also where its name has passed to another one since.
fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    let about = fs::metadata(path)?;
    Ok((about.dev(), about.ino()))
}

/// A worker was ended and none came in its place.
#[derive(Debug, thiserror::Error)]
#[error(
    "the worker of {name} was ended, and none answers in its place after {} s; the service runs on, see {}. {} were renewed, \
     and {} are left as they were",
    BACK_WITHIN.as_secs(),
    log.display(),
    now.renewed,
    now.left.saturating_sub(1)
)]
pub(crate) struct NotBack {
    name: ReplicaName,
    log: PathBuf,
    now: Renewing,
}
