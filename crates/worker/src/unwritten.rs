//! How far a worker went beyond what it could write down, such as on a full disk: the name of an empty file says it, for
//! which there is room, so that the next worker does not tell by old numbers what is new.

use std::fs;
use std::io;
use std::path::PathBuf;

use portreeve::identity::Run;
use portreeve_api::local::ReplicaFolder;

use crate::file;

const PREFIX: &str = "unwritten-";

fn mark(folder: &ReplicaFolder, run: Run) -> PathBuf {
    folder.path().join(format!("{PREFIX}{run}"))
}

/// The newest run of which something was told that is not written down.
pub(crate) fn newest(folder: &ReplicaFolder) -> Option<Run> {
    let entries = fs::read_dir(folder.path()).into_iter().flatten().flatten();
    let runs = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix(PREFIX)?.parse().ok().map(Run)
    });
    runs.max()
}

/// Something of `run` is not written down; `before` is what was noted so far.
///
/// # Errors
///
/// The system's.
pub(crate) fn note(folder: &ReplicaFolder, before: Option<Run>, run: Run) -> io::Result<()> {
    match before {
        Some(before) if before >= run => Ok(()),
        Some(before) => fs::rename(mark(folder, before), mark(folder, run)),
        None => file::mark(&mark(folder, run)),
    }
}

/// Everything is written down.
pub(crate) fn forget(folder: &ReplicaFolder, noted: Run) {
    // One that stays only makes the numbers of the next worker larger.
    _ = fs::remove_file(mark(folder, noted));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_run_that_is_not_written_down_is_noted_by_a_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = ReplicaFolder::at(place.path());
        assert_eq!(newest(&folder), None);
        note(&folder, None, Run(3)).unwrap();
        note(&folder, Some(Run(3)), Run(3)).unwrap();
        note(&folder, Some(Run(3)), Run(12)).unwrap();
        assert_eq!(newest(&folder), Some(Run(12)));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        forget(&folder, Run(12));
        assert_eq!(newest(&folder), None);
    }
}
