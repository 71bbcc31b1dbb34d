//! The folder of one incarnation: prepared before its worker starts, read back after a restart of the agent.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use portreeve::residency::{Life, ReplicaName};
use portreeve::supervision::Status;
use portreeve_api::local::{Assignment, LogStream, ProcessIdentity, ReplicaFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

/// What a folder tells after a restart of the agent.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: ReplicaName,
    pub(super) folder: ReplicaFolder,
    pub(super) life: Life,
    pub(super) assignment: Option<Assignment>,
    pub(super) status: Option<Status>,
    /// Whom the folder calls its worker; looked at again before it is believed.
    pub(super) worker: Option<ProcessIdentity>,
}

/// Makes the folder, 0700, and writes the assignment. On disk when the call returns.
///
/// # Errors
///
/// The system's.
pub(super) fn prepare(folder: &ReplicaFolder, assignment: &Assignment) -> io::Result<()> {
    make(folder)?;
    write_json(&folder.assignment(), assignment)?;
    File::open(folder.path())?.sync_all()
}

/// Makes the folder, if needed, and stores a status that no worker will tell.
///
/// # Errors
///
/// The system's.
pub(super) fn store_status(folder: &ReplicaFolder, status: &Status) -> io::Result<()> {
    make(folder)?;
    write_json(&folder.status(), status)
}

/// Marks the folder as ended and keeps its logs, its record of events and its last status alone: the assignment holds a token.
///
/// # Errors
///
/// The system's; repeated, it goes on where it stopped.
pub(super) fn end(folder: &ReplicaFolder) -> io::Result<()> {
    File::create(folder.ended())?;
    let kept = [
        folder.ended(),
        folder.status(),
        folder.log(LogStream::Stdout),
        folder.log(LogStream::Stderr),
        folder.log(LogStream::Events),
        folder.log(LogStream::EventsBefore),
        worker_log(folder),
    ];
    for entry in fs::read_dir(folder.path())? {
        let entry = entry?;
        let path = entry.path();
        if kept.contains(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// What the worker itself writes for people.
pub(super) fn worker_log(folder: &ReplicaFolder) -> std::path::PathBuf {
    folder.path().join("worker.log")
}

/// Every folder below `state`. One that cannot be read is told and left alone.
///
/// # Errors
///
/// The system's, when the folders cannot be listed.
pub(super) fn scan(state: &Path, boot_id: &str) -> io::Result<Vec<Found>> {
    let replicas = state.join("replicas");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&replicas)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(replicas)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(parse_name) else {
            warn!(
                "{} is no folder of a replica; it is left alone",
                path.display()
            );
            continue;
        };
        found.push(read(name, ReplicaFolder::at(path), boot_id));
    }
    Ok(found)
}

fn read(name: ReplicaName, folder: ReplicaFolder, boot_id: &str) -> Found {
    let assignment: Option<Assignment> = read_json(&folder.assignment());
    let worker: Option<ProcessIdentity> = read_json(&folder.worker());
    let earlier = |boot: &str| boot != boot_id;
    let life = if folder.ended().exists() {
        Life::Ended
    } else if assignment.as_ref().is_some_and(|one| earlier(&one.boot_id)) {
        Life::Rebooted
    } else {
        Life::Orphaned
    };
    Found {
        name,
        life,
        assignment,
        status: read_json(&folder.status()),
        worker,
        folder,
    }
}

/// Reads `web.alice~0~3`.
pub(crate) fn parse_name(text: &str) -> Option<ReplicaName> {
    let mut parts = text.split('~');
    let name = ReplicaName {
        service: parts.next()?.parse().ok()?,
        index: parts.next()?.parse().ok()?,
        incarnation: portreeve::identity::Incarnation(parts.next()?.parse().ok()?),
    };
    parts.next().is_none().then_some(name)
}

/// The newest status on disk.
pub(super) fn status(folder: &ReplicaFolder) -> Option<Status> {
    read_json(&folder.status())
}

fn make(folder: &ReplicaFolder) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder.path())
}

/// Replaces the file in one step, 0600: a reader, and a crash, see the old content or the new.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// The file's content; `None` if there is none. A damaged file is told and counts as none.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    /// Far above anything that is written there.
    const MOST: u64 = 64 << 20;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return None,
        Err(cause) => {
            warn!("{} cannot be read: {cause}", path.display());
            return None;
        }
    };
    let mut content = Vec::new();
    let read = file.take(MOST).read_to_end(&mut content);
    match read.and_then(|_| Ok(serde_json::from_slice(&content)?)) {
        Ok(value) => Some(value),
        Err(cause) => {
            warn!("{} cannot be read: {cause}", path.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn name() -> ReplicaName {
        parse_name("web.alice~0~3").unwrap()
    }

    fn folder_in(state: &Path) -> ReplicaFolder {
        let name = name();
        ReplicaFolder::of(state, &name.service, name.index, name.incarnation)
    }

    #[test]
    fn a_folders_name_is_read_back_and_a_strange_one_is_not() {
        let state = Path::new("/state");
        let folder = folder_in(state);
        let text = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(parse_name(text), Some(name()));
        for strange in [
            "",
            "web.alice",
            "web.alice~0",
            "web.alice~0~1~2",
            "web~0~1",
            "web.alice~x~1",
        ] {
            assert_eq!(parse_name(strange), None, "{strange:?}");
        }
    }

    #[test]
    fn an_ended_folder_keeps_logs_and_status_and_no_secret() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder_in(state.path());
        make(&folder).unwrap();
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for file in [
            "assignment.json",
            "token",
            "machine.json",
            "status.json",
            "stdout.log",
            "supervision.jsonl",
            "worker.log",
        ] {
            fs::write(folder.path().join(file), "x").unwrap();
        }
        fs::create_dir_all(folder.path().join("run/1")).unwrap();
        end(&folder).unwrap();
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "ended",
                "status.json",
                "stdout.log",
                "supervision.jsonl",
                "worker.log"
            ]
        );
        end(&folder).unwrap();
        let found = scan(state.path(), "boot").unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].name, found[0].life), (&name(), Life::Ended));
    }

    #[test]
    fn a_stranger_among_the_folders_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let stranger = state.path().join("replicas/lost+found");
        fs::create_dir_all(&stranger).unwrap();
        assert_eq!(scan(state.path(), "boot").unwrap().len(), 0);
        assert!(stranger.exists());
    }
}
