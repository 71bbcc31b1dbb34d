//! A backup becomes the store of a data directory, whole or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
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
/// the store that was there, or the restored one.
///
/// # Errors
///
/// [`BackupError`].
pub fn restore(data: &Path, from: impl Read, former: Former) -> Result<Restored, BackupError> {
    let backup = Backup::read(from)?;
    let data = DataDir::take(data)?;
    let folder = data.path();
    let path = folder.join(RedbStore::FILE);
    let io = |path: &Path, cause: &io::Error| BackupError::io(path.display(), cause);
    let there = path.try_exists().map_err(|cause| io(&path, &cause))?;
    if there && former == Former::Refuse {
        return Err(BackupError::StoreThere {
            data: folder.display().to_string(),
            kept: Restored::FORMER,
        });
    }
    let begun = RedbStore::restored(folder, &backup.stored)?;
    if there {
        let kept = folder.join(Restored::FORMER);
        gone(&kept).map_err(|cause| io(&kept, &cause))?;
        // Under both names, so that at no moment there is none.
        fs::hard_link(&path, &kept).map_err(|cause| io(&kept, &cause))?;
    }
    // A directory without a witness of the last start is a copy: whichever store it has, its next epoch is a new one.
    Lineage::forget(folder).map_err(|cause| io(folder, &cause))?;
    gone(&folder.join(Tally::FILE)).map_err(|cause| io(folder, &cause))?;
    if let Some(secret) = &backup.secret {
        TokenKey::put(folder, secret)?;
    }
    fs::rename(&begun, &path).map_err(|cause| io(&path, &cause))?;
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|cause| io(folder, &cause))?;
    Ok(Restored {
        records: backup.records(),
        kept_former: there,
        new_secret: !TokenKey::is_in(folder),
        head: backup.head,
    })
}

fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}
