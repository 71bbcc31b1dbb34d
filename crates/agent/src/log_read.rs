//! Pieces of a replica's log files for readers who asked the controller.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use portreeve_api::body::{LOG_OFFSET_HEADER, LogRead};
use portreeve_api::local::{LogStream, ReplicaFolder};
use portreeve_api::{Client, paths};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::Config;
use crate::attached;
use crate::household::parse_name;

/// The most bytes of one piece, whatever was asked.
const MOST: u32 = 1 << 20;
/// How long a reader at the end of the file waits for more.
const FOLLOW: Duration = Duration::from_secs(5);
/// How often the file is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// How long the controller may take to accept a piece.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the piece and hands it to the controller. A reader always gets an answer, if only an empty one.
pub(crate) async fn answer(read: LogRead, config: Arc<Config>, client: Client) {
    let piece = piece(&read, &config.state).await.unwrap_or_else(|cause| {
        warn!(
            "the {} of {}/{} cannot be read: {cause}",
            read.stream, read.service, read.index
        );
        Piece::empty(read.offset)
    });
    let headers = HeaderMap::from_iter([(
        http::header::HeaderName::from_static(LOG_OFFSET_HEADER),
        HeaderValue::from(piece.offset),
    )]);
    let path = paths::log_piece(&config.host, read.read);
    let body = Some(piece.bytes.into());
    let put = client.send_with(
        Method::PUT,
        &path,
        headers,
        body,
        "application/octet-stream",
        PATIENCE,
    );
    if let Err(cause) = put.await {
        // The reader may have gone, and the controller then knows of no such read.
        debug!("a piece of a log found no reader: {cause}");
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn empty(offset: Option<u64>) -> Self {
        Self {
            offset: offset.unwrap_or(0),
            bytes: Vec::new(),
        }
    }
}

async fn piece(read: &LogRead, state: &Path) -> io::Result<Piece> {
    let stream = match read.stream.as_str() {
        "stdout" => LogStream::Stdout,
        "stderr" => LogStream::Stderr,
        "events" => LogStream::Events,
        "events-before" => LogStream::EventsBefore,
        other => {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("no stream {other:?}"),
            ));
        }
    };
    let max = read.max.min(MOST);
    let until = Instant::now() + FOLLOW;
    loop {
        let found = match newest_folder(read, state)? {
            Some(folder) => read_piece(&folder.log(stream), read.offset, max)?,
            None => of_job(read, state, stream, max)?,
        };
        // Only a reader that knows where it stands waits; the others want what there is.
        if !found.bytes.is_empty() || read.offset.is_none() || max == 0 || Instant::now() >= until {
            return Ok(found);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The folder of the newest incarnation of the replica, ended or not.
fn newest_folder(read: &LogRead, state: &Path) -> io::Result<Option<ReplicaFolder>> {
    let mut newest: Option<(u32, PathBuf)> = None;
    for entry in fs::read_dir(state.join("replicas"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| parse_name(name.to_str()?));
        if let Some(name) = name
            && name.copy() == (&read.service, read.index)
            && newest
                .as_ref()
                .is_none_or(|(newest, _)| name.incarnation.0 > *newest)
        {
            newest = Some((name.incarnation.0, path));
        }
    }
    Ok(newest.map(|(_, path)| ReplicaFolder::at(path)))
}

/// A piece of what the job of an attached replica records. Its output is not ours to read.
fn of_job(read: &LogRead, state: &Path, stream: LogStream, max: u32) -> io::Result<Piece> {
    if !matches!(stream, LogStream::Events | LogStream::EventsBefore) {
        return Ok(Piece::empty(read.offset));
    }
    match attached::open_of_job(state, (&read.service, read.index), stream)? {
        Some(file) => piece_of(file, read.offset, max),
        None => Ok(Piece::empty(read.offset)),
    }
}

/// The bytes from `offset`, or the last ones; a file that became shorter is read from its beginning.
fn read_piece(path: &Path, offset: Option<u64>, max: u32) -> io::Result<Piece> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Piece::empty(None)),
        Err(cause) => return Err(cause),
    };
    piece_of(file, offset, max)
}

fn piece_of(mut file: File, offset: Option<u64>, max: u32) -> io::Result<Piece> {
    let length = file.metadata()?.len();
    let offset = match offset {
        Some(offset) if offset <= length => offset,
        Some(_) => 0,
        None => length.saturating_sub(u64::from(max)),
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(u64::from(max)).read_to_end(&mut bytes)?;
    Ok(Piece { offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(offset: Option<u64>, max: u32) -> LogRead {
        LogRead {
            read: 1,
            service: "web.alice".parse().unwrap(),
            index: 0,
            stream: "stdout".to_owned(),
            offset,
            max,
        }
    }

    fn state_with(logs: &[(&str, &str)]) -> tempfile::TempDir {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join("replicas")).unwrap();
        for (folder, text) in logs {
            let folder = state.path().join("replicas").join(folder);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("stdout.log"), text).unwrap();
        }
        state
    }

    async fn text(state: &Path, offset: Option<u64>, max: u32) -> (u64, String) {
        let piece = piece(&read(offset, max), state).await.unwrap();
        (piece.offset, String::from_utf8(piece.bytes).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_incarnation_is_read_from_its_tail_or_from_an_offset() {
        let state = state_with(&[
            ("web.alice~0~9", "old"),
            ("web.alice~0~10", "0123456789"),
            ("web.alice~1~11", "another copy"),
        ]);
        let state = state.path();
        assert_eq!(text(state, None, 4).await, (6, "6789".to_owned()));
        assert_eq!(text(state, None, 100).await, (0, "0123456789".to_owned()));
        assert_eq!(text(state, Some(2), 3).await, (2, "234".to_owned()));
        // It became shorter under the reader.
        assert_eq!(text(state, Some(99), 3).await, (0, "012".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_at_the_end_waits_for_more_and_gets_an_empty_piece_in_the_end() {
        let state = state_with(&[("web.alice~0~0", "0123")]);
        let log = state.path().join("replicas/web.alice~0~0/stdout.log");
        let before = Instant::now();
        assert_eq!(text(state.path(), Some(4), 10).await, (4, String::new()));
        assert!(before.elapsed() >= FOLLOW);
        let waiting = text(state.path(), Some(4), 10);
        let writing = async {
            tokio::time::sleep(LOOK * 3).await;
            fs::write(&log, "012345").unwrap();
        };
        let (read, ()) = tokio::join!(waiting, writing);
        assert_eq!(read, (4, "45".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_without_a_log_gives_an_empty_piece() {
        let state = state_with(&[]);
        assert_eq!(text(state.path(), None, 10).await, (0, String::new()));
        let strange = LogRead {
            stream: "../../etc/shadow".to_owned(),
            ..read(None, 10)
        };
        assert!(piece(&strange, state.path()).await.is_err());
    }
}
