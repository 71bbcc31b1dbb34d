//! A backup becomes the store of a data directory, whole or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Backup, BackupError, BackupHead};
use crate::data_dir::DataDir;
use crate::lineage::Lineage;
use crate::store::RedbStore;
use crate::tally::Tally;
use crate::token::TokenKey;

/// What a restore did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Restored {
    /// The backup.
    pub head: BackupHead,
    /// How many records it had.
    pub records: u64,
    /// The store that was there before lies beside it as [`Restored::FORMER`].
    pub kept_former: bool,
    /// The secret is neither in the backup nor in the directory: the next controller makes one, and the workers that
    /// run now are not believed until their agents tell of them.
    pub new_secret: bool,
}

impl Restored {
    /// What the store that was there before is called.
    pub const FORMER: &str = "portreeve.redb.before-restore";
    /// What its secret is called, where the backup has another one.
    pub const FORMER_SECRET: &str = "secret.before-restore";
}

/// Whether a store that is there already may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    /// It is left, and the restore refused.
    Refuse,
    /// It is left beside as [`Restored::FORMER`].
    SetAside,
}

/// Restores the backup into `data`, which no controller has; it is made (0700) if it is not there. The next controller
/// that starts there begins a new epoch. Everything is checked before anything changes, and a crash at any step leaves
/// the store that was there, or the restored one; what it left is done anew by the next restore. What root restores
/// belongs to whom the directory does.
///
/// # Errors
///
/// [`BackupError`].
pub fn restore(data: &Path, from: impl Read, former: Former) -> Result<Restored, BackupError> {
    step_by_step(data, from, former, &mut || ())
}

/// [`restore`], which calls `step` before each thing that it changes.
pub(super) fn step_by_step(
    data: &Path,
    from: impl Read,
    former: Former,
    step: &mut dyn FnMut(),
) -> Result<Restored, BackupError> {
    let backup = Backup::read(from)?;
    let data = DataDir::take(data)?;
    let folder = data.path();
    let path = folder.join(RedbStore::FILE);
    let there = path.try_exists().map_err(|cause| io_at(&path, &cause))?;
    if there && former == Former::Refuse {
        return Err(BackupError::StoreThere {
            data: folder.display().to_string(),
            kept: Restored::FORMER,
        });
    }
    let kept = folder.join(Restored::FORMER);
    let secret = folder.join(TokenKey::FILE);
    let kept_secret = folder.join(Restored::FORMER_SECRET);
    let other_secret = backup.secret.filter(|new| {
        let old = TokenKey::bytes_of(folder);
        old.map_or(true, |old| old != *new)
    });
    let loses_secret = other_secret.is_some() && TokenKey::is_in(folder);
    if there {
        is_free(&path, &kept)?;
    }
    if loses_secret {
        is_free(&secret, &kept_secret)?;
    }
    step();
    let begun = RedbStore::restored(folder, backup.head.store_format, &backup.stored)?;
    let give = |file: &Path| {
        data.give_to_owner(file)
            .map_err(|cause| io_at(file, &cause))
    };
    give(&begun)?;
    if there {
        step();
        set_aside(&path, &kept)?;
    }
    if loses_secret {
        step();
        set_aside(&secret, &kept_secret)?;
    }
    step();
    // A directory without a witness of the last start is a copy: whichever store it has, its next epoch is a new one.
    Lineage::forget(folder).map_err(|cause| io_at(folder, &cause))?;
    step();
    gone(&folder.join(Tally::FILE)).map_err(|cause| io_at(folder, &cause))?;
    if let Some(new) = &other_secret {
        step();
        TokenKey::put(folder, new)?;
        give(&secret)?;
    }
    // On the disk before the store that needs it is.
    synced(folder)?;
    step();
    fs::rename(&begun, &path).map_err(|cause| io_at(&path, &cause))?;
    step();
    synced(folder)?;
    Ok(Restored {
        records: backup.records(),
        kept_former: there,
        new_secret: !TokenKey::is_in(folder),
        head: backup.head,
    })
}

/// Refuses to lose what is called `kept`, unless it is the file itself: left by a restore that did not end.
fn is_free(file: &Path, kept: &Path) -> Result<(), BackupError> {
    match is_same(file, kept) {
        Ok(false) => Err(BackupError::KeptThere {
            kept: kept.display().to_string(),
        }),
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(io_at(kept, &cause)),
        _ => Ok(()),
    }
}

fn is_same(file: &Path, other: &Path) -> io::Result<bool> {
    let (other, file) = (fs::symlink_metadata(other)?, fs::symlink_metadata(file)?);
    Ok((file.dev(), file.ino()) == (other.dev(), other.ino()))
}

/// Has the file be there under both names, so that at no moment there is none.
fn set_aside(file: &Path, kept: &Path) -> Result<(), BackupError> {
    match fs::hard_link(file, kept) {
        // It is the file itself: nothing else was there.
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => Err(io_at(kept, &cause)),
        _ => Ok(()),
    }
}

fn synced(folder: &Path) -> Result<(), BackupError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|cause| io_at(folder, &cause))
}

fn io_at(path: &Path, cause: &io::Error) -> BackupError {
    BackupError::io(path.display(), cause)
}

fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}
