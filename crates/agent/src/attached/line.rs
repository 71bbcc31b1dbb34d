//! Lines on a job's connection: each bounded, and the long ones bounded together, since anybody may begin one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use portreeve_api::Problem;
use portreeve_api::attach::{FromAgent, MAX_LINE};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What each connection may have in memory, in bytes: most profiles, and any status.
const USUAL: u64 = 128 << 10;
/// How many longer lines of all jobs may be in memory at once, and how many of one account. More wait.
const LONG_LINES: usize = 16;
const LONG_LINES_OF_USER: usize = 2;
/// How long the first line may take to come, and an answer to be taken.
pub(super) const IN_TIME: Duration = Duration::from_secs(10);

/// Room for long lines of one account.
#[derive(Clone, Debug)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// A place for a long line; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Room {
    /// For everybody.
    pub(super) fn for_all() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(LONG_LINES))
    }

    /// For one account, within that for everybody.
    pub(super) fn of_user(all: &Arc<Semaphore>) -> Self {
        Self {
            all: all.clone(),
            own: Arc::new(Semaphore::new(LONG_LINES_OF_USER)),
        }
    }

    async fn place(&self) -> Place {
        // One's own first: who waits for that takes nothing from others.
        let own = self.own.clone().acquire_owned().await;
        let all = self.all.clone().acquire_owned().await;
        Place {
            _own: own.expect("the semaphore is never closed"),
            _all: all.expect("the semaphore is never closed"),
        }
    }
}

/// One line; `None` at the end of the connection.
///
/// # Errors
///
/// The system's; what is longer than any status, or is none.
pub(super) async fn read<T: DeserializeOwned>(
    reader: &mut BufReader<OwnedReadHalf>,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    reader.take(USUAL).read_until(b'\n', &mut line).await?;
    parsed(&line)
}

/// The same for a line that may have [`MAX_LINE`] bytes; as long as it is of use, the place is to be held.
///
/// # Errors
///
/// The system's; a line that is longer or none of ours.
pub(super) async fn read_long<T: DeserializeOwned>(
    reader: &mut BufReader<OwnedReadHalf>,
    room: &Room,
) -> io::Result<Option<(T, Option<Place>)>> {
    let mut line = Vec::new();
    reader.take(USUAL).read_until(b'\n', &mut line).await?;
    let mut place = None;
    if line.len() as u64 == USUAL && !line.ends_with(b"\n") {
        place = Some(room.place().await);
        let rest = MAX_LINE - USUAL;
        reader.take(rest).read_until(b'\n', &mut line).await?;
    }
    Ok(parsed(&line)?.map(|it| (it, place)))
}

fn parsed<T: DeserializeOwned>(line: &[u8]) -> io::Result<Option<T>> {
    if line.is_empty() {
        return Ok(None);
    }
    if !line.ends_with(b"\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(line)?))
}

/// Says one line; a job that does not take it in time is cut off.
///
/// # Errors
///
/// The system's, and that it was not taken.
pub(super) async fn say(writer: &mut OwnedWriteHalf, line: &FromAgent) -> io::Result<()> {
    let line = line_of(line);
    tokio::time::timeout(IN_TIME, writer.write_all(&line))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

pub(super) fn line_of(line: &FromAgent) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("plain data is written as JSON");
    text.push(b'\n');
    text
}

/// A refusal of something that may be had later.
pub(super) fn unavailable(code: &str, detail: impl Into<String>) -> Box<Problem> {
    Box::new(Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail))
}

/// Reads the bytes as what a job says: an opening, then statuses; how many lines there were.
#[cfg(fuzzing)]
pub(crate) fn read_lines(bytes: &[u8]) -> usize {
    use portreeve::supervision::Status;
    use portreeve_api::attach::Opening;
    use tokio::net::UnixStream;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (mut theirs, ours) = UnixStream::pair().expect("two sockets");
        let says = async {
            // Who says nonsense is not listened to any more.
            let _ = theirs.write_all(bytes).await;
            drop(theirs);
        };
        let hears = async {
            let (reader, _writer) = ours.into_split();
            let mut reader = BufReader::new(reader);
            let room = Room::of_user(&Room::for_all());
            let opening = read_long::<Opening>(&mut reader, &room).await;
            let Ok(Some((opening, _place))) = opening else {
                return 0;
            };
            let text = serde_json::to_vec(&opening).expect("plain data is written as JSON");
            let again = serde_json::from_slice::<Opening>(&text).expect("what was written is read");
            assert_eq!(again, opening);
            let mut lines = 1;
            while let Ok(Some(_)) = read::<Status>(&mut reader).await {
                lines += 1;
            }
            lines
        };
        let (lines, ()) = tokio::join!(hears, says);
        lines
    })
}
