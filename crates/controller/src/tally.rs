//! How many commits the store has accepted, noted beside it.
//!
//! The store falls back to its last but one commit where the newest is damaged, as it must after a crash in
//! the middle of one. Only this number tells a commit that never was from one that was acknowledged and lost.
//! It is written after the store's sync and without one of its own, so it never runs ahead of the store.
//!
//! It also says whether a refused commit may be half there. A power loss may lose that word, and with it everything that
//! it warns of; a process that dies loses neither.

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

    /// What was noted last; `None` where there is nothing that can be read: then it tells nothing.
    pub(crate) fn noted(&self) -> Option<Noted> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let number = text.trim_end().trim_end_matches('?');
        Some(Noted {
            commits: number.parse().ok()?,
            doubt: text.contains('?'),
        })
    }

    /// Notes it. Failing, it only tells less after the next start.
    pub(crate) fn note(&self, noted: Noted) {
        let Noted { commits, doubt } = noted;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.0);
        let end = if doubt { '?' } else { '\n' };
        // Always as long, and so in place: also a full disk takes it.
        let noted =
            file.and_then(|mut file| file.write_all(format!("{commits:020}{end}").as_bytes()));
        if let Err(cause) = noted {
            tracing::debug!(%cause, "the number of commits was not noted");
        }
    }
}

/// What stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    /// How many commits the store accepted.
    pub(crate) commits: u64,
    /// One more was refused, and it is not known yet what of it is on the disk.
    pub(crate) doubt: bool,
}
