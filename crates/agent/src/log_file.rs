//! One stream of a replica as a reader sees it: the growing file and the parts cut off its beginning, as one.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use portreeve_api::local::{LogStream, ReplicaFolder};

use crate::owner::Owner;

/// How often a stream is looked at again that a part is just being cut off from, and how long between.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The most names of a folder that are looked at; a job may make any number there.
const MOST_FILES: usize = 10_000;

/// Where a piece begins in the stream, and its bytes.
pub(crate) type Piece = (u64, Vec<u8>);

/// The bytes from `offset` on, or the last ones, at most `max`. What is not kept any more is left out, so that
/// the piece may begin later than asked; where the stream became shorter it begins with the growing file.
///
/// # Errors
///
/// The system's, and [`io::ErrorKind::InvalidData`] where the job put something else in the file's place.
pub(crate) async fn read(
    folder: &ReplicaFolder,
    stream: LogStream,
    offset: Option<u64>,
    max: u32,
) -> io::Result<Piece> {
    let owner = Owner::of(folder.path())?;
    let log = Log {
        folder,
        stream,
        owner,
    };
    for _ in 1..LOOKS {
        let before = log.layout()?;
        let piece = log.read(&before, offset, max)?;
        if !log.is_moving() && log.layout()?.ends == before.ends {
            return Ok(piece);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    // A worker that was killed at it: its successor finishes it, and a reader sees at worst a piece twice.
    log.read(&log.layout()?, offset, max)
}

struct Log<'a> {
    folder: &'a ReplicaFolder,
    stream: LogStream,
    owner: Owner,
}

/// The parts by their ends, oldest first.
struct Layout {
    ends: Vec<u64>,
}

impl Layout {
    /// The position of the growing file's first byte.
    fn begin(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// One file of a stream, by positions.
struct Segment {
    file: fs::File,
    begin: u64,
    end: u64,
}

impl Log<'_> {
    fn layout(&self) -> io::Result<Layout> {
        let mut ends = Vec::new();
        for entry in fs::read_dir(self.folder.path())?.take(MOST_FILES) {
            let name = entry?.file_name();
            ends.extend(name.to_str().and_then(|name| self.stream.part_end(name)));
        }
        ends.sort_unstable();
        Ok(Layout { ends })
    }

    fn is_moving(&self) -> bool {
        let moving = self.folder.log_moving(self.stream);
        moving.is_some_and(|path| fs::symlink_metadata(path).is_ok())
    }

    fn read(&self, layout: &Layout, offset: Option<u64>, max: u32) -> io::Result<Piece> {
        let segments = self.segments(layout)?;
        let total = segments.last().map_or(layout.begin(), |last| last.end);
        let wanted = match offset {
            Some(offset) if offset <= total => offset,
            Some(_) => layout.begin(),
            None => total.saturating_sub(u64::from(max)),
        };
        // What is cut off and gone is passed over.
        let after = segments.iter().filter(|one| one.end > wanted);
        let start = after.clone().map(|one| one.begin).min().unwrap_or(total);
        let start = start.max(wanted);
        let mut bytes = Vec::new();
        let mut position = start;
        for segment in after {
            let left = u64::from(max).saturating_sub(position - start);
            if segment.begin > position || left == 0 {
                break;
            }
            let mut file = &segment.file;
            file.seek(SeekFrom::Start(position - segment.begin))?;
            let most = left.min(segment.end - position);
            position += file.take(most).read_to_end(&mut bytes)? as u64;
        }
        Ok((start, bytes))
    }

    /// Every file that there is, oldest first.
    fn segments(&self, layout: &Layout) -> io::Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for end in &layout.ends {
            let path = self.folder.log_part(self.stream, *end);
            // A part that was let go meanwhile is passed over like those before it.
            let part = path.and_then(|path| self.open(path).transpose());
            if let Some((file, length)) = part.transpose()? {
                segments.push(Segment {
                    file,
                    begin: end.saturating_sub(length),
                    end: *end,
                });
            }
        }
        if let Some((file, length)) = self.open(self.folder.log(self.stream))? {
            segments.push(Segment {
                file,
                begin: layout.begin(),
                end: layout.begin().saturating_add(length),
            });
        }
        Ok(segments)
    }

    fn open(&self, path: PathBuf) -> io::Result<Option<(fs::File, u64)>> {
        match self.owner.open(&path) {
            Ok(file) => {
                let length = file.metadata()?.len();
                Ok(Some((file, length)))
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(folder: &ReplicaFolder, offset: Option<u64>, max: u32) -> (u64, String) {
        let (begin, bytes) = read(folder, LogStream::Stdout, offset, max).await.unwrap();
        (begin, String::from_utf8(bytes).unwrap())
    }

    fn folder_with(files: &[(&str, &str)]) -> (tempfile::TempDir, ReplicaFolder) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(root.path().join(name), text).unwrap();
        }
        let folder = ReplicaFolder::at(root.path());
        (root, folder)
    }

    #[tokio::test(start_paused = true)]
    async fn parts_and_the_growing_file_are_read_as_one() {
        let (_root, folder) = folder_with(&[
            ("stdout.104.log", "0123"),
            ("stdout.109.log", "45678"),
            ("stdout.log", "9abc"),
            ("stderr.7.log", "x"),
        ]);
        let folder = &folder;
        assert_eq!(
            text(folder, Some(100), 99).await,
            (100, "0123456789abc".into())
        );
        assert_eq!(text(folder, Some(103), 3).await, (103, "345".into()));
        assert_eq!(text(folder, Some(108), 3).await, (108, "89a".into()));
        assert_eq!(text(folder, None, 6).await, (107, "789abc".into()));
        assert_eq!(
            text(folder, None, 4000).await,
            (100, "0123456789abc".into())
        );
        assert_eq!(text(folder, Some(113), 9).await, (113, String::new()));
        // What is gone is passed over; a file that was emptied is read from its beginning.
        assert_eq!(text(folder, Some(5), 2).await, (100, "01".into()));
        assert_eq!(text(folder, Some(999), 9).await, (109, "9abc".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_is_passed_over_and_never_joined() {
        let (_root, folder) = folder_with(&[
            ("stdout.4.log", "0123"),
            ("stdout.90.log", ""),
            ("stdout.log", "new"),
        ]);
        assert_eq!(text(&folder, Some(0), 99).await, (0, "0123".into()));
        assert_eq!(text(&folder, Some(4), 99).await, (90, "new".into()));
        assert_eq!(text(&folder, Some(50), 99).await, (90, "new".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_while_a_part_is_cut_off_but_not_for_ever() {
        let (root, folder) = folder_with(&[("stdout.log", "01234567"), ("stdout.moving", "")]);
        let cutting = async {
            tokio::time::sleep(LOOK_AGAIN * 2).await;
            fs::write(root.path().join("stdout.4.log"), "0123").unwrap();
            fs::write(root.path().join("stdout.log"), "4567").unwrap();
            fs::remove_file(root.path().join("stdout.moving")).unwrap();
        };
        let (read, ()) = tokio::join!(text(&folder, Some(2), 99), cutting);
        assert_eq!(read, (2, "234567".into()));
        fs::write(root.path().join("stdout.moving"), "").unwrap();
        assert_eq!(text(&folder, Some(4), 99).await, (4, "4567".into()));
    }
}
