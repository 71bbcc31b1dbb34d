//! The thread that writes: the file as it is now, its parts, and what it does when the disk is full.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::line::of_losses;
use super::{AuditPlace, Counts};

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    Line(String),
    Reopen,
}

/// How large a part grows.
const PART: u64 = 50 << 20;
/// Parts beside the growing one.
const FORMER: u32 = 2;
/// How often it is looked whether the file was moved away.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    /// The bytes of a part; `None`: it is never cut.
    part: Option<u64>,
    file: Option<File>,
    size: u64,
    looked: Instant,
    /// The last line was cut in the middle.
    torn: bool,
    /// The loss that was told last.
    told: u64,
    /// It is known that nothing can be written.
    failing: bool,
    counts: Arc<Counts>,
}

impl Writer {
    pub(super) fn open(place: &AuditPlace, counts: Arc<Counts>) -> io::Result<Self> {
        let (path, part) = match place {
            AuditPlace::InParts(path) => (path, Some(PART)),
            AuditPlace::File(path) => (path, None),
        };
        let mut writer = Self {
            path: path.clone(),
            part,
            file: None,
            size: 0,
            looked: Instant::now(),
            torn: false,
            told: 0,
            failing: false,
            counts,
        };
        writer.reopen()?;
        Ok(writer)
    }

    /// Writes until nobody can send any more.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Line(line) => self.take(&line),
                Message::Reopen => {
                    if let Err(cause) = self.reopen() {
                        self.fail(&cause);
                    }
                }
            }
        }
    }

    fn take(&mut self, line: &str) {
        match self.write(line) {
            Ok(()) => {
                self.counts.written.fetch_add(1, Ordering::Relaxed);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(path = %self.path.display(), "the audit log is written again");
                }
                self.tell_losses();
            }
            Err(cause) => {
                self.counts.lost.fetch_add(1, Ordering::Relaxed);
                self.fail(&cause);
            }
        }
    }

    /// Said once, until it works again.
    fn fail(&mut self, cause: &io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(path = %self.path.display(), %cause, "the audit log cannot be written; lines are lost, and counted");
        }
    }

    /// A reader of the file learns that it has a gap.
    fn tell_losses(&mut self) {
        let lost = self.counts.lost.load(Ordering::Relaxed);
        let since = lost - self.told;
        if since == 0 {
            return;
        }
        tracing::warn!(path = %self.path.display(), lines = since, "lines of the audit log were lost");
        if self.write(&of_losses(since)).is_ok() {
            self.told = lost;
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.looked.elapsed() >= LOOKED_AT_EVERY {
            self.looked = Instant::now();
            if self.was_moved() {
                self.reopen()?;
            }
        }
        let mut bytes = Vec::with_capacity(line.len() + 2);
        if self.torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        if let Some(part) = self.part
            && self.size > 0
            && self.size + bytes.len() as u64 > part
        {
            self.turn()?;
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let written = file.write_all(&bytes);
        let size = file.metadata()?.len();
        self.torn = written.is_err() && (size > self.size || self.torn);
        self.size = size;
        written
    }

    /// Whether another file, or none, has the name now.
    fn was_moved(&self) -> bool {
        let Some(file) = &self.file else {
            return true;
        };
        match (file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(open), Ok(named)) => (open.dev(), open.ino()) != (named.dev(), named.ino()),
            _ => true,
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        // A named pipe without a reader would hold the thread for ever.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(nonblocking)
            .open(&self.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        self.torn = false;
        Ok(())
    }

    /// The growing part becomes a former one, and the oldest goes.
    fn turn(&mut self) -> io::Result<()> {
        for nth in (1..=FORMER).rev() {
            let before = if nth == 1 {
                self.path.clone()
            } else {
                former(&self.path, nth - 1)
            };
            match std::fs::rename(&before, former(&self.path, nth)) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
                _ => {}
            }
        }
        self.file = None;
        self.reopen()
    }
}

fn former(path: &Path, nth: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{nth}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn writer(place: &AuditPlace) -> Writer {
        Writer::open(place, Arc::default()).unwrap()
    }

    fn read(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn three_parts_are_kept_and_only_the_owner_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut writer = writer(&AuditPlace::InParts(path.clone()));
        writer.part = Some(30);
        for nth in 0..20 {
            writer.take(&format!("line-{nth:05}"));
        }
        let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 3, "{names:?}");
        while let Some(entry) = names.pop() {
            let about = entry.unwrap().metadata().unwrap();
            assert!(about.len() <= 30);
            assert_eq!(about.permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(read(&path), ["line-00018", "line-00019"]);
        assert_eq!(read(&former(&path, 1)), ["line-00016", "line-00017"]);
        // A new start goes on where the last one was.
        let mut again = Writer::open(&AuditPlace::InParts(path.clone()), Arc::default()).unwrap();
        again.take("next");
        assert_eq!(read(&path).len(), 3);
    }

    #[test]
    fn a_file_that_is_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut writer = writer(&AuditPlace::File(path.clone()));
        writer.take("before");
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        writer.looked = Instant::now()
            .checked_sub(LOOKED_AT_EVERY)
            .expect("the machine runs for longer");
        writer.take("after");
        assert_eq!(read(&folder.path().join("moved")), ["before"]);
        assert_eq!(read(&path), ["after"]);
        std::fs::remove_file(&path).unwrap();
        writer.reopen().unwrap();
        writer.take("anew");
        assert_eq!(read(&path), ["anew"]);
    }

    #[test]
    fn lines_for_which_there_is_no_room_are_counted_and_the_gap_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut writer = writer(&AuditPlace::File(path.clone()));
        // Nothing fits on this device.
        writer.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        writer.looked = Instant::now() + Duration::from_secs(3600);
        writer.take("lost");
        writer.take("lost too");
        assert_eq!(writer.counts.lost.load(Ordering::Relaxed), 2);
        writer.reopen().unwrap();
        writer.take("kept");
        writer.take("kept too");
        let told = read(&path);
        assert_eq!((told[0].as_str(), told[2].as_str()), ("kept", "kept too"));
        assert!(
            told[1].contains("\"event\":\"lost\",\"lines\":2"),
            "{told:?}"
        );
    }
}
