//! How many commits the store has accepted, noted beside it.
//!
//! The store falls back to its last but one commit where the newest is damaged, as it must after a crash in
//! the middle of one. Only this number tells a commit that never was from one that was acknowledged and lost.
//! It is written after the store's sync and without one of its own, so it never runs ahead of the store.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The note.
#[derive(Debug)]
pub(crate) struct Tally(PathBuf);

impl Tally {
    /// The file's name in the data directory.
    pub(crate) const FILE: &'static str = "portreeve.commits";

    pub(crate) fn of(folder: &Path) -> Self {
        Self(folder.join(Self::FILE))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The number noted last; `None` where there is none that can be read: then it tells nothing.
    pub(crate) fn noted(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        text.trim().parse().ok()
    }

    /// Notes that the store accepted so many. Failing, it only tells less after the next start.
    pub(crate) fn note(&self, commits: u64) {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.0);
        // Always as long, and so in place: also a full disk takes it.
        let noted = file.and_then(|mut file| file.write_all(format!("{commits:020}\n").as_bytes()));
        if let Err(cause) = noted {
            tracing::debug!(%cause, "the number of commits was not noted");
        }
    }
}
