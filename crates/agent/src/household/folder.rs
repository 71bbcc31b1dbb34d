//! The folder of one incarnation: prepared before its worker starts, read back after a restart of the agent.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc;

use portreeve::residency::{Life, ReplicaName};
use portreeve::supervision::Status;
use portreeve_api::local::{Assignment, LogStream, ProcessIdentity, ReplicaFolder};
use portreeve_api::removal::remove_folder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::owner::Owner;

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
    /// Whose it is.
    pub(super) owner: Owner,
}

/// Makes the folder, 0700 and the job's user's, and writes the assignment. On disk when the call returns.
///
/// # Errors
///
/// The system's.
pub(super) fn prepare(folder: &ReplicaFolder, assignment: &Assignment) -> io::Result<()> {
    let user = assignment.user.as_ref();
    let owner = user.map_or_else(Owner::own, |user| Owner::from(&user.ids));
    make(folder, owner)?;
    if !owner.is_own() {
        write_json(&kept_assignment(folder), assignment)?;
    }
    let file = folder.assignment();
    let files = [file.clone(), file.with_extension("new")];
    with_room(folder, &files, || write_json(&file, assignment))?;
    File::open(folder.path())?.sync_all()
}

/// Where the agent keeps its own copy of what a job of another user was assigned: what stands in the folder
/// is the job's to change, and would say who it is and which ports are its own.
fn kept_assignment(folder: &ReplicaFolder) -> PathBuf {
    let name = folder.path().file_name().unwrap_or_default();
    let state = folder.path().ancestors().nth(2).unwrap_or(Path::new("/"));
    let mut file = name.to_owned();
    file.push(".json");
    state.join(KEPT).join(file)
}

/// The folder of the agent's own copies.
const KEPT: &str = "assignments";

/// Makes the folder, if needed, and stores a status that no worker will tell.
///
/// # Errors
///
/// The system's.
pub(super) fn store_status(folder: &ReplicaFolder, status: &Status) -> io::Result<()> {
    match Owner::of(folder.path()) {
        Ok(_) => {}
        Err(cause) if cause.kind() == ErrorKind::NotFound => make(folder, Owner::own())?,
        Err(cause) => return Err(cause),
    }
    let file = folder.status();
    let files = [file.clone(), file.with_extension("new")];
    let written = with_room(folder, &files, || write_json(&file, status));
    written.or_else(|cause| {
        // A name alone needs no room; without it the next agent would have the replica go on.
        let mark = || create(&folder.over()).map(drop);
        with_room(folder, &[folder.over()], mark)?;
        Err(cause)
    })
}

/// Marks the folder as ended; [`clear`] is to follow.
///
/// # Errors
///
/// The system's; repeated, it goes on where it stopped.
pub(super) fn end(folder: &ReplicaFolder) -> io::Result<()> {
    with_room(folder, &[folder.ended()], || {
        create(&folder.ended()).map(drop)
    })?;
    forget_assignment(folder)
}

/// Removes everything of an ended replica but its logs, its record of events and its last status: the assignment
/// holds a token. May take long.
///
/// # Errors
///
/// The system's; repeated, it goes on where it stopped.
pub(super) fn clear(folder: &ReplicaFolder) -> io::Result<()> {
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
        let name = entry.file_name();
        let is_part = |stream: LogStream| stream.part_end(name.to_str()?);
        if kept.contains(&path)
            || LogStream::OUTPUT
                .into_iter()
                .any(|one| is_part(one).is_some())
        {
            continue;
        }
        remove_folder(&path)?;
    }
    Ok(())
}

/// Whether [`end`] was called for it. A job may make the mark itself, but not what the agent keeps go.
pub(super) fn has_ended(folder: &ReplicaFolder) -> bool {
    fs::symlink_metadata(folder.ended()).is_ok()
        && fs::symlink_metadata(kept_assignment(folder)).is_err()
}

/// Does the work with the rights of the folder's owner. If it fails, once more: the job may have closed its folder, or
/// put folders where these files are to be.
fn with_room(
    folder: &ReplicaFolder,
    files: &[PathBuf],
    work: impl Fn() -> io::Result<()> + Sync,
) -> io::Result<()> {
    let owner = Owner::of(folder.path())?;
    owner.acting(&work).or_else(|_| {
        // The folder itself is no link, and what holds it is the agent's.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
        for file in files {
            if fs::symlink_metadata(file).is_ok_and(|found| found.is_dir()) {
                owner.acting(|| remove_folder(file))?;
            }
        }
        owner.acting(&work)
    })
}

pub(super) fn forget_assignment(folder: &ReplicaFolder) -> io::Result<()> {
    match fs::remove_file(kept_assignment(folder)) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}

/// Opens what the worker writes for people, for appending.
///
/// # Errors
///
/// The system's.
pub(super) fn open_worker_log(folder: &ReplicaFolder) -> io::Result<File> {
    let path = worker_log(folder);
    Owner::of(folder.path())?.acting(|| {
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        match log.metadata()?.is_file() {
            true => Ok(log),
            false => Err(ErrorKind::InvalidData.into()),
        }
    })
}

/// What the worker itself writes for people.
pub(super) fn worker_log(folder: &ReplicaFolder) -> PathBuf {
    folder.path().join("worker.log")
}

/// Every folder below `state`. One that cannot be read is told and left alone.
///
/// # Errors
///
/// The system's, when the folders cannot be listed.
pub(super) fn scan(state: &Path, boot_id: &str) -> io::Result<Vec<Found>> {
    let replicas = state.join("replicas");
    for (folder, mode) in [(&replicas, THROUGH), (&state.join(KEPT), 0o700)] {
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(folder)?;
    }
    open_through(&replicas)?;
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
        match Owner::of(&path) {
            Ok(owner) => found.push(read(name, ReplicaFolder::at(path), owner, boot_id)),
            Err(cause) => warn!(
                "{} cannot be read: {cause}; it is left alone",
                path.display()
            ),
        }
    }
    Ok(found)
}

/// The mode of a folder whose names are the agent's, and through which other users reach what is theirs.
const THROUGH: u32 = 0o711;

/// Lets other users through a folder of this agent's own, if the agent may have jobs of theirs.
///
/// # Errors
///
/// The system's.
pub(crate) fn open_through(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let about = fs::metadata(folder)?;
    let closed = about.mode() & 0o777 == 0o700;
    if nix::unistd::geteuid().is_root() && Owner::of(folder)?.is_own() && closed {
        fs::set_permissions(folder, fs::Permissions::from_mode(THROUGH))?;
    }
    Ok(())
}

fn read(name: ReplicaName, folder: ReplicaFolder, owner: Owner, boot_id: &str) -> Found {
    let assignment: Option<Assignment> = if owner.is_own() {
        read_json(owner, &folder.assignment())
    } else {
        read_json(Owner::own(), &kept_assignment(&folder))
    };
    let worker = worker(owner, &folder);
    let earlier = |boot: &str| boot != boot_id;
    let life = if has_ended(&folder) {
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
        status: read_status(owner, &folder),
        worker,
        owner,
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

/// Whom the folder calls its worker.
pub(super) fn worker(owner: Owner, folder: &ReplicaFolder) -> Option<ProcessIdentity> {
    read_bounded(owner, &folder.worker(), MOST_IDENTITY)
}

/// The newest status on disk.
pub(super) fn status(folder: &ReplicaFolder) -> Option<Status> {
    let owner = Owner::of(folder.path()).ok()?;
    read_status(owner, folder)
}

/// Makes the folder unless it is there, and gives it to its owner.
fn make(folder: &ReplicaFolder, owner: Owner) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder.path())?;
    let found = Owner::of(folder.path())?;
    if found.uid == owner.uid {
        return Ok(());
    }
    if !found.is_own() {
        let words = format!("it belongs to uid {} and not to {}", found.uid, owner.uid);
        return Err(io::Error::new(ErrorKind::AlreadyExists, words));
    }
    // Given away while it is empty: nothing in it can be a link to something else.
    if fs::read_dir(folder.path())?.next().is_some() {
        let words = "it holds files of the agent's own user";
        return Err(io::Error::new(ErrorKind::AlreadyExists, words));
    }
    owner.take(folder.path())
}

/// Replaces the file in one step, 0600: a reader, and a crash, see the old content or the new.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = create(&new)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// An empty file, 0600; a link in its place is not followed.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// The content of the owner's file; `None` if there is none. A damaged file, or one that is not the
/// owner's, is told and counts as none.
pub(crate) fn read_json<T: DeserializeOwned>(owner: Owner, path: &Path) -> Option<T> {
    /// Far above anything that is written there: a profile holds at most a few hundred KiB.
    const MOST: u64 = 16 << 20;
    read_bounded(owner, path, MOST)
}

/// What a job may write has a bound of its own: the agent keeps it, and tells it with that of every other replica.
fn read_status(owner: Owner, folder: &ReplicaFolder) -> Option<Status> {
    read_bounded(owner, &folder.status(), MOST_STATUS)
}

/// Three texts of 4 KiB, each byte of which may be written as six, and the words of two reasons.
pub(super) const MOST_STATUS: u64 = 128 << 10;
/// A boot, a number and a time.
const MOST_IDENTITY: u64 = 4 << 10;

fn read_bounded<T: DeserializeOwned>(owner: Owner, path: &Path, most: u64) -> Option<T> {
    let file = match owner.open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return None,
        Err(cause) => {
            warn!("{} cannot be read: {cause}", path.display());
            return None;
        }
    };
    let mut content = Vec::new();
    let read = file.take(most).read_to_end(&mut content);
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
        make(&folder, Owner::own()).unwrap();
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for file in [
            "assignment.json",
            "token",
            "machine.json",
            "status.json",
            "stdout.log",
            "stdout.4096.log",
            "stdout.moving",
            "supervision.jsonl",
            "worker.log",
        ] {
            fs::write(folder.path().join(file), "x").unwrap();
        }
        fs::create_dir_all(folder.path().join("run/1")).unwrap();
        end(&folder).unwrap();
        clear(&folder).unwrap();
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
                "stdout.4096.log",
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
