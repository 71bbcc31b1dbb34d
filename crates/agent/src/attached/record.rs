//! Who has what, on disk: written before a job is told of its ports, so that no restart of the agent forgets it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use portreeve::identity::ServiceName;
use portreeve::registry::Desired;
use portreeve::residency::ReplicaName;
use portreeve::supervision::{State, Status};
use portreeve_api::local::{LogStream, ProcessIdentity, ReplicaFolder};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::household::{parse_name, read_json, write_json};
use crate::owner::Owner;

/// One attached replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// What was granted.
    pub(super) desired: Desired,
    /// The job's `portreeve run`.
    pub(super) run: ProcessIdentity,
    /// Whose job it is.
    pub(super) uid: u32,
    /// The job's private folder, as the job sees it.
    #[serde(default)]
    pub(super) folder: PathBuf,
    /// Its newest status, as far as it was worth a write: an end always is.
    pub(super) status: Option<Status>,
}

impl Record {
    pub(super) fn has_ended(&self) -> bool {
        let state = self.status.as_ref().map(|status| &status.state);
        matches!(state, Some(State::Final(_)))
    }
}

/// Opens a file of the living job that has this copy of a service: its record of events, which it keeps in a folder of
/// its own. `None`: no job of this host has it, or it has no such file.
///
/// The folder is what the job says, so only what belongs to the job's own account is opened, and no link is followed
/// to it.
///
/// # Errors
///
/// The system's.
pub(crate) fn open_of_job(
    state: &Path,
    (service, index): (&ServiceName, u32),
    stream: LogStream,
) -> io::Result<Option<fs::File>> {
    let records = Records(state.join("attached"));
    let entries = match fs::read_dir(&records.0) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let names = entries.flatten().filter_map(|entry| {
        let path = entry.path();
        parse_name(path.file_stem()?.to_str()?)
    });
    let newest = names
        .filter(|name| name.copy() == (service, index))
        .max_by_key(|name| name.incarnation);
    let Some(record) =
        newest.and_then(|name| read_json::<Record>(Owner::own(), &records.path(&name)))
    else {
        return Ok(None);
    };
    // A job may have folders that only it sees.
    let root = PathBuf::from(format!("/proc/{}/root", record.run.pid));
    let Ok(folder) = record.folder.strip_prefix("/") else {
        return Ok(None);
    };
    let path = ReplicaFolder::at(root.join(folder)).log(stream);
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path);
    let file = match file {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let about = file.metadata()?;
    let is_its_own = about.is_file() && about.uid() == record.uid;
    // Looked at last: until here the number was the job's.
    Ok((is_its_own && record.run.is_alive()).then_some(file))
}

/// The folder of the records.
#[derive(Clone, Debug)]
pub(super) struct Records(PathBuf);

impl Records {
    /// Below the agent's state folder; made 0700 if missing.
    pub(super) fn below(state: &Path) -> io::Result<Self> {
        let folder = state.join("attached");
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }

    /// Every record of this boot. What an earlier boot left is removed: none of it can live, and the controller
    /// knows by the boot.
    pub(super) fn read(&self, boot_id: &str) -> io::Result<Vec<(ReplicaName, Record)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let name = name.and_then(parse_name);
            let record =
                name.and_then(|name| Some((name, read_json::<Record>(Owner::own(), &path)?)));
            match record {
                Some((name, record)) if record.run.boot_id == boot_id => found.push((name, record)),
                Some((name, _)) => self.remove(&name),
                None => warn!("{} is no record of a replica", path.display()),
            }
        }
        Ok(found)
    }

    /// On disk when the call returns.
    pub(super) fn write(&self, name: &ReplicaName, record: &Record) -> io::Result<()> {
        write_json(&self.path(name), record)?;
        fs::File::open(&self.0)?.sync_all()
    }

    pub(super) fn remove(&self, name: &ReplicaName) {
        if let Err(cause) = fs::remove_file(self.path(name))
            && cause.kind() != io::ErrorKind::NotFound
        {
            warn!("the record of {name} cannot be removed: {cause}");
        }
    }

    fn path(&self, name: &ReplicaName) -> PathBuf {
        let ReplicaName {
            service,
            index,
            incarnation,
        } = name;
        self.0.join(format!("{service}~{index}~{incarnation}.json"))
    }
}
