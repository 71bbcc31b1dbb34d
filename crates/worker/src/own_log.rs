//! Keeps what a worker and its shims say of themselves within bounds: `worker.log` and `shim.log`.
//!
//! They are read by people and never by position, so they need no parts: what is too old goes. Who writes has the file
//! open for appending and is not told. A line that is written in the very instant of a cut may be lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use portreeve_api::local::ReplicaFolder;

/// The most bytes of one file; a look comes each [`crate::logs::OWN_LOOK`], so for so long it may be larger.
const MOST: u64 = 1 << 20;
/// How much of its end stays when it is cut.
const KEPT: u64 = MOST / 2;

const NAMES: [&str; 2] = ["worker.log", "shim.log"];

/// Whether one of the files in `folder` is to be cut. Cost: two looks at a size.
pub(crate) fn is_too_long(folder: &ReplicaFolder) -> bool {
    NAMES.iter().any(|name| {
        let about = fs::symlink_metadata(folder.path().join(name));
        about.is_ok_and(|about| about.is_file() && about.len() > MOST)
    })
}

/// Cuts each of them that is too long.
pub(crate) fn bound(folder: &ReplicaFolder) {
    for name in NAMES {
        let path = folder.path().join(name);
        if let Err(cause) = bound_one(&path)
            && cause.kind() != ErrorKind::NotFound
        {
            tracing::warn!("{name} cannot be cut: {cause}");
        }
    }
}

fn bound_one(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.len() <= MOST {
        return Ok(());
    }
    // The job may have put anything in its place, which is neither followed nor waited for.
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "it is no plain file",
        ));
    }
    let end = tail(&mut file, about.len());
    // The bound is worth more than old lines, above all on a full disk.
    file.set_len(0)?;
    let end = end?;
    file.write_all(b"earlier lines are not kept\n")?;
    file.write_all(&end)
}

/// The whole lines of the last [`KEPT`] bytes.
fn tail(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(length.saturating_sub(KEPT)))?;
    let mut end = Vec::new();
    Read::take(&mut *file, KEPT).read_to_end(&mut end)?;
    let first = end.iter().position(|byte| *byte == b'\n');
    Ok(end.split_off(first.map_or(0, |newline| newline + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, ReplicaFolder) {
        let place = tempfile::tempdir().unwrap();
        let folder = ReplicaFolder::at(place.path());
        (place, folder)
    }

    #[test]
    fn a_log_that_is_too_long_keeps_its_last_lines_and_who_writes_goes_on() {
        let (_place, folder) = folder();
        let path = folder.path().join("worker.log");
        let mut writer = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        // Nothing to do, and a neighbour that is not there.
        bound(&folder);
        for number in 0..40_000 {
            writeln!(writer, "line {number} of what the worker says").unwrap();
        }
        assert!(is_too_long(&folder));
        bound(&folder);
        writeln!(writer, "after").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() as u64 <= KEPT + 100, "{}", text.len());
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("earlier lines are not kept"));
        assert!(lines.next().unwrap().starts_with("line "));
        let mut last = text.lines().rev();
        assert_eq!(last.next(), Some("after"));
        assert_eq!(last.next(), Some("line 39999 of what the worker says"));
        bound(&folder);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(!is_too_long(&folder));
    }

    #[test]
    fn what_a_job_put_in_its_place_is_neither_followed_nor_waited_for() {
        let (_place, folder) = folder();
        let other = folder.path().join("other");
        fs::write(&other, vec![b'x'; 2 << 20]).unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("worker.log")).unwrap();
        let fifo = folder.path().join("shim.log");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        bound(&folder);
        assert_eq!(other.metadata().unwrap().len(), 2 << 20);
        // One line without an end.
        fs::remove_file(&fifo).unwrap();
        fs::write(&fifo, vec![b'x'; 2 << 20]).unwrap();
        bound(&folder);
        assert!(fifo.metadata().unwrap().len() <= KEPT + 100);
    }
}
