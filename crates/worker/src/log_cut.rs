//! Cuts parts off the beginning of a growing log. How they are laid out: [`LogBounds`] and its neighbours.
//!
//! Killed at any point, the next cut finishes or undoes what was begun.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::libc;
use portreeve_api::local::{LogBounds, LogStream, ReplicaFolder};
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};

/// What is taken out of a file is a multiple of this, and so of every usual block size.
const BLOCK: u64 = LogBounds::MIN_SIZE;
/// Where a file can only be emptied: how often what was written meanwhile is copied too, before it is.
const CATCH_UP: u32 = 16;
/// The most files of a folder that are looked at; a job may make any number there.
const MOST_FILES: usize = 10_000;

/// One output stream of one replica.
pub(crate) struct Log<'a> {
    folder: &'a ReplicaFolder,
    stream: LogStream,
    bounds: LogBounds,
}

/// What is being done, on disk while it is: tells the next worker, and readers that they must wait.
#[derive(Debug, Serialize, Deserialize)]
struct Moving {
    /// The position of the file's first byte.
    begin: u64,
    /// The file's length before.
    length: u64,
    /// How many bytes go.
    cut: u64,
}

impl<'a> Log<'a> {
    pub(crate) const fn new(
        folder: &'a ReplicaFolder,
        stream: LogStream,
        bounds: LogBounds,
    ) -> Self {
        Self {
            folder,
            stream,
            bounds,
        }
    }

    /// Cuts parts off until the growing file is within bounds, and removes the parts that are too many.
    ///
    /// # Errors
    ///
    /// The system's; the next call goes on.
    pub(crate) fn cut(&self) -> io::Result<()> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.folder.log(self.stream));
        let file = match opened {
            Ok(file) => file,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
            Err(cause) => return Err(cause),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "it is no plain file",
            ));
        }
        self.finish(&file)?;
        // What comes faster than it can be copied is left to the next look.
        let rounds = self.bounds.files.saturating_add(1);
        for _ in 0..rounds {
            if length_of(&file)? <= self.bounds.size {
                break;
            }
            self.cut_once(&file)?;
        }
        Ok(())
    }

    fn cut_once(&self, file: &File) -> io::Result<()> {
        let length = length_of(file)?;
        let collapses = can_collapse(file);
        // One byte at least must stay.
        let old = if collapses {
            (length - 1) / BLOCK * BLOCK
        } else {
            length
        };
        let kept = self.kept();
        let (from, cut) = match (collapses, kept) {
            (_, 0) => return self.take_out(file, old, None),
            // More than is kept at all: gone without a copy.
            (true, kept) if old > kept => return self.take_out(file, old - kept, None),
            (true, _) => (0, old.min(self.bounds.size / BLOCK * BLOCK)),
            (false, kept) => (length.saturating_sub(kept), length),
        };
        match self.copy(file, from, cut) {
            Ok(part) => self.take_out(file, cut, Some(part)),
            // The bound is worth more than old lines, above all on a full disk.
            Err(cause) if is_full(&cause) => {
                self.remove_parts(|_| true)?;
                self.take_out(file, old, None)
            }
            Err(cause) => Err(cause),
        }
    }

    /// Copies the bytes in between to a part that has no name yet.
    fn copy(&self, file: &File, from: u64, until: u64) -> io::Result<File> {
        let mut part = create(&self.unfinished())?;
        let mut source = file;
        let copied = source
            .seek(SeekFrom::Start(from))
            .and_then(|_| io::copy(&mut source.take(until - from), &mut part));
        match copied {
            Ok(_) => Ok(part),
            Err(cause) => {
                _ = fs::remove_file(self.unfinished());
                Err(cause)
            }
        }
    }

    /// Takes the first `cut` bytes out of the file and makes the copy of them, if there is one, a part; else
    /// an empty part remembers where the file now begins.
    fn take_out(&self, file: &File, cut: u64, part: Option<File>) -> io::Result<()> {
        let begin = self.begin()?;
        let length = length_of(file)?;
        self.mark(&Moving { begin, length, cut })?;
        let gone = match collapse(file, cut) {
            Ok(()) => cut,
            Err(cause) if is_unable(&cause) => match &part {
                Some(part) => empty_after_copying(file, cut, part)?,
                None => {
                    file.set_len(0)?;
                    length
                }
            },
            Err(cause) => {
                _ = fs::remove_file(self.unfinished());
                fs::remove_file(self.moving())?;
                return Err(cause);
            }
        };
        self.conclude(begin.saturating_add(gone), part.is_some())
    }

    /// Names the part, lets the oldest go, and tells readers to go on.
    fn conclude(&self, end: u64, has_copy: bool) -> io::Result<()> {
        if has_copy {
            fs::rename(self.unfinished(), self.part(end))?;
        } else {
            tracing::warn!(
                "{}: what is before byte {end} is forgotten, to stay within bounds",
                self.folder.log(self.stream).display()
            );
            // A name alone needs no block, even on a full disk.
            create(&self.part(end))?;
            // They do not join it: a reader would stop between them.
            self.remove_parts(|older| older < end)?;
        }
        self.remove_old_parts()?;
        fs::remove_file(self.moving())
    }

    /// Lets the oldest parts go: those beyond the number, and those beyond the bytes, of which a file that could
    /// only be emptied gave more at once.
    fn remove_old_parts(&self) -> io::Result<()> {
        let mut ends = self.parts()?;
        ends.sort_unstable();
        let (mut files, mut bytes) = (0, 0);
        while let Some(end) = ends.last() {
            // The newest tells where the growing file begins.
            if files > 0 && (files >= self.bounds.files - 1 || bytes >= self.kept()) {
                break;
            }
            files += 1;
            bytes += fs::symlink_metadata(self.part(*end)).map_or(0, |about| about.len());
            ends.pop();
        }
        self.remove_parts(|end| ends.contains(&end))
    }

    /// How many bytes of parts there may be.
    fn kept(&self) -> u64 {
        u64::from(self.bounds.files - 1).saturating_mul(self.bounds.size) / BLOCK * BLOCK
    }

    /// Finishes what an earlier worker was killed at, or undoes it.
    fn finish(&self, file: &File) -> io::Result<()> {
        let marked = match fs::read(self.moving()) {
            Ok(marked) => marked,
            Err(cause) if cause.kind() == ErrorKind::NotFound => {
                // Killed while it copied.
                _ = fs::remove_file(self.unfinished());
                return Ok(());
            }
            Err(cause) => return Err(cause),
        };
        let copied = fs::symlink_metadata(self.unfinished()).map(|about| about.len());
        match serde_json::from_slice::<Moving>(&marked) {
            // The file only grows by itself: shorter than it was, its beginning is gone.
            Ok(was) if length_of(file)? < was.length => {
                let named = self.begin()? > was.begin;
                if named {
                    return fs::remove_file(self.moving());
                }
                // Where it was emptied, all of it went, more than was to be cut perhaps.
                let gone = if can_collapse(file) {
                    was.cut
                } else {
                    was.length
                };
                self.conclude(was.begin.saturating_add(gone), copied.is_ok())
            }
            _ => {
                _ = fs::remove_file(self.unfinished());
                fs::remove_file(self.moving())
            }
        }
    }

    fn mark(&self, moving: &Moving) -> io::Result<()> {
        let text = serde_json::to_vec(moving)?;
        let written = create(&self.moving())?.write_all(&text);
        match written {
            // Only a kill in the next instant could need it.
            Err(cause) if is_full(&cause) => Ok(()),
            written => written,
        }
    }

    /// The position of the growing file's first byte.
    fn begin(&self) -> io::Result<u64> {
        Ok(self.parts()?.into_iter().max().unwrap_or(0))
    }

    /// The ends of the parts.
    fn parts(&self) -> io::Result<Vec<u64>> {
        let mut ends = Vec::new();
        for entry in fs::read_dir(self.folder.path())?.take(MOST_FILES) {
            let name = entry?.file_name();
            ends.extend(name.to_str().and_then(|name| self.stream.part_end(name)));
        }
        Ok(ends)
    }

    fn remove_parts(&self, which: impl Fn(u64) -> bool) -> io::Result<()> {
        let mut ends = self.parts()?;
        ends.retain(|end| which(*end));
        ends.into_iter()
            .try_for_each(|end| fs::remove_file(self.part(end)))
    }

    fn part(&self, end: u64) -> PathBuf {
        let part = self.folder.log_part(self.stream, end);
        part.expect("an output stream has parts")
    }

    fn moving(&self) -> PathBuf {
        let moving = self.folder.log_moving(self.stream);
        moving.expect("an output stream has parts")
    }

    fn unfinished(&self) -> PathBuf {
        self.moving().with_extension("part")
    }
}

/// Copies what came behind the first `copied` bytes, again and again, and empties the file; gives how many
/// bytes went. What is written between the last copy and the emptying is lost.
fn empty_after_copying(file: &File, copied: u64, mut part: &File) -> io::Result<u64> {
    let mut gone = copied;
    for _ in 0..CATCH_UP {
        let mut source = file;
        source.seek(SeekFrom::Start(gone))?;
        let more = io::copy(&mut source, &mut part)?;
        gone = gone.saturating_add(more);
        if more == 0 {
            break;
        }
    }
    file.set_len(0)?;
    Ok(gone)
}

fn collapse(file: &File, cut: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::COLLAPSE_RANGE, 0, cut)?)
}

/// Whether the file system takes bytes out of a file: asked for a single one, it refuses the number and not the
/// operation.
fn can_collapse(file: &File) -> bool {
    collapse(file, 1).is_err_and(|cause| cause.raw_os_error() == Some(Errno::EINVAL as i32))
}

fn is_unable(cause: &io::Error) -> bool {
    let unable = [Errno::EOPNOTSUPP, Errno::EINVAL, Errno::ENOSYS];
    unable
        .iter()
        .any(|one| cause.raw_os_error() == Some(*one as i32))
}

fn is_full(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

fn length_of(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

fn create(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

#[cfg(test)]
#[path = "log_cut_test.rs"]
mod tests;
