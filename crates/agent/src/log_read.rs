//! Pieces of a replica's log files for readers who asked the controller.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use portreeve_api::body::{LOG_INCARNATION_HEADER, LOG_OFFSET_HEADER, LogRead};
use portreeve_api::local::{LogStream, ReplicaFolder};
use portreeve_api::{Client, paths};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::Config;
use crate::attached;
use crate::household::parse_name;
use crate::log_file;

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
        Piece::empty(&read)
    });
    let mut headers = HeaderMap::new();
    headers.insert(LOG_OFFSET_HEADER, HeaderValue::from(piece.offset));
    if let Some(incarnation) = piece.incarnation {
        headers.insert(LOG_INCARNATION_HEADER, HeaderValue::from(incarnation));
    }
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
    incarnation: Option<u32>,
    offset: u64,
    bytes: Vec<u8>,
}

impl Piece {
    /// Nothing, where the reader stands.
    fn empty(read: &LogRead) -> Self {
        Self {
            incarnation: read.incarnation,
            offset: read.offset.unwrap_or(0),
            bytes: Vec::new(),
        }
    }

    /// Whether it tells the reader something.
    fn is_news(&self, read: &LogRead) -> bool {
        let has_moved = read.incarnation.is_some() && self.incarnation != read.incarnation;
        !self.bytes.is_empty() || has_moved || read.offset != Some(self.offset)
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
    let until = Instant::now() + FOLLOW;
    loop {
        let found = piece_now(read, state, stream).await?;
        // Only a reader that knows where it stands waits; the others want what there is.
        if found.is_news(read) || read.max == 0 || Instant::now() >= until {
            return Ok(found);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn piece_now(read: &LogRead, state: &Path, stream: LogStream) -> io::Result<Piece> {
    let folders = folders(read, state)?;
    let Some((newest, _)) = folders.last_key_value() else {
        return of_job(read, state, stream);
    };
    let of = async |incarnation: u32, offset| {
        let max = read.max.min(MOST);
        let (offset, bytes) = log_file::read(&folders[&incarnation], stream, offset, max).await?;
        io::Result::Ok(Piece {
            incarnation: Some(incarnation),
            offset,
            bytes,
        })
    };
    match (read.incarnation, read.offset) {
        // What was left to read of an earlier incarnation comes first.
        (Some(earlier), Some(offset)) if earlier != *newest => {
            if folders.contains_key(&earlier) {
                let rest = of(earlier, Some(offset)).await?;
                if !rest.bytes.is_empty() {
                    return Ok(rest);
                }
            }
            of(*newest, Some(0)).await
        }
        _ => of(*newest, read.offset).await,
    }
}

/// The folders of the replica, ended or not, by incarnation.
fn folders(read: &LogRead, state: &Path) -> io::Result<BTreeMap<u32, ReplicaFolder>> {
    let mut folders = BTreeMap::new();
    for entry in fs::read_dir(state.join("replicas"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| parse_name(name.to_str()?));
        if let Some(name) = name
            && name.copy() == (&read.service, read.index)
        {
            folders.insert(name.incarnation.0, ReplicaFolder::at(path));
        }
    }
    Ok(folders)
}

/// A piece of what the job of an attached replica records. Its output is not ours to read.
fn of_job(read: &LogRead, state: &Path, stream: LogStream) -> io::Result<Piece> {
    let is_record = matches!(stream, LogStream::Events | LogStream::EventsBefore);
    let copy = (&read.service, read.index);
    let opened = is_record.then(|| attached::open_of_job(state, copy, stream));
    let Some(mut file) = opened.transpose()?.flatten() else {
        return Ok(Piece::empty(read));
    };
    let max = u64::from(read.max.min(MOST));
    let length = file.metadata()?.len();
    let offset = match read.offset {
        Some(offset) if offset <= length => offset,
        Some(_) => 0,
        None => length.saturating_sub(max),
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(Piece {
        incarnation: None,
        offset,
        bytes,
    })
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
            incarnation: None,
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
    async fn a_reader_of_an_earlier_incarnation_gets_its_rest_and_then_the_next() {
        let state = state_with(&[("web.alice~0~1", "0123"), ("web.alice~0~2", "")]);
        let ask = async |incarnation, offset| {
            let read = LogRead {
                incarnation: Some(incarnation),
                ..read(Some(offset), 10)
            };
            let piece = piece(&read, state.path()).await.unwrap();
            let text = String::from_utf8(piece.bytes).unwrap();
            (piece.incarnation.unwrap(), piece.offset, text)
        };
        assert_eq!(ask(1, 2).await, (1, 2, "23".to_owned()));
        // At once, although nothing is written there yet.
        let before = Instant::now();
        assert_eq!(ask(1, 4).await, (2, 0, String::new()));
        // Its folder is gone.
        assert_eq!(ask(0, 4).await, (2, 0, String::new()));
        assert_eq!(before.elapsed(), Duration::ZERO);
        fs::write(
            state.path().join("replicas/web.alice~0~2/stdout.log"),
            "new",
        )
        .unwrap();
        assert_eq!(ask(2, 0).await, (2, 0, "new".to_owned()));
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
