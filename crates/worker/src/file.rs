//! Small files that are whole or absent, readable by their owner only.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Whether the file must survive the machine, or only us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It is on disk when the call returns.
    Synced,
    /// It outlives the process; a crash of the machine ends what it tells of anyway.
    Written,
}

/// Replaces `path` by `value` as JSON in one step, 0600.
///
/// # Errors
///
/// The system's; the old content is then untouched.
pub(crate) fn write_json(
    path: &Path,
    value: &impl Serialize,
    durability: Durability,
) -> io::Result<()> {
    write(path, &serde_json::to_vec(value)?, durability)
}

/// Replaces `path` by `content` in one step, 0600.
///
/// # Errors
///
/// The system's; the old content is then untouched.
pub(crate) fn write(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let new = beside(path);
    let mut file = create(&new)?;
    file.write_all(content)?;
    if durability == Durability::Synced {
        file.sync_all()?;
    }
    fs::rename(&new, path)
}

/// Makes `path` whole in one step unless it exists; says whether it was made.
///
/// # Errors
///
/// The system's.
pub(crate) fn claim(path: &Path, content: &[u8]) -> io::Result<bool> {
    let new = beside(path);
    create(&new)?.write_all(content)?;
    let linked = fs::hard_link(&new, path);
    fs::remove_file(&new)?;
    match linked {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Makes `path` an empty file: a name alone, for which a disk on which nothing more fits has room.
///
/// # Errors
///
/// The system's.
pub(crate) fn mark(path: &Path) -> io::Result<()> {
    create(path).map(drop)
}

/// Reads a JSON file of ours; `None` if there is none.
///
/// # Errors
///
/// The system's, or [`io::ErrorKind::InvalidData`].
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    /// Far above anything we write.
    const MOST: u64 = 64 << 20;
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let mut content = Vec::new();
    file.take(MOST).read_to_end(&mut content)?;
    serde_json::from_slice(&content)
        .map(Some)
        .map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause))
}

/// A name beside `path` that no other process uses.
fn beside(path: &Path) -> std::path::PathBuf {
    path.with_added_extension(format!("new-{}", std::process::id()))
}

fn create(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_claimed_file_cannot_be_claimed_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claim");
        assert!(claim(&path, b"1").unwrap());
        assert!(!claim(&path, b"2").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"1");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_written_file_is_its_owners_alone_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value.json");
        assert_eq!(read_json::<u32>(&path).unwrap(), None);
        write_json(&path, &7, Durability::Synced).unwrap();
        write_json(&path, &8, Durability::Written).unwrap();
        assert_eq!(read_json(&path).unwrap(), Some(8));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&path, b"{").unwrap();
        assert!(read_json::<u32>(&path).is_err());
    }
}
