//! The connection to the host's agent: it brings the grant, then what is wanted, and takes every newest status.
//!
//! Cut off, it is made anew for as long as the replica lives: an agent that is restarted disturbs nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve::supervision::{State, Status};
use portreeve_api::Problem;
use portreeve_api::attach::{Again, Ask, Closing, FromAgent, MAX_LINE, Opening, Renewing};
use portreeve_api::local::{Assignment, SocketPath, WorkerCommand};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};

/// How long an agent may take to answer an ask; it asks the controller.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// The wait before the next try to come back, at first and at most.
const BACK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A living connection.
#[derive(Debug)]
pub(crate) struct Connected {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

/// What an ask came to.
#[derive(Debug)]
pub(crate) enum Answered {
    Granted(Box<Assignment>, Vec<String>, Connected),
    Refused(Box<Problem>),
}

impl Connected {
    async fn open(socket: &Path, opening: &Opening) -> io::Result<Self> {
        // A socket's path may be longer than the kernel takes.
        let path = SocketPath::of(socket)?;
        let stream = UnixStream::connect(path.as_path()).await?;
        let (reader, writer) = stream.into_split();
        let mut connected = Self {
            reader: BufReader::new(reader),
            writer,
        };
        connected.say(opening).await?;
        Ok(connected)
    }

    async fn say(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.writer.write_all(&text).await
    }

    async fn hear(&mut self) -> io::Result<FromAgent> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(MAX_LINE);
        limited.read_until(b'\n', &mut line).await?;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

/// Asks the agent at `socket` once.
///
/// # Errors
///
/// The system's: nobody answers there, or not in time.
pub(crate) async fn ask(socket: &Path, ask: &Ask) -> io::Result<Answered> {
    let exchange = async {
        let opening = Opening::Attach(Box::new(ask.clone()));
        let mut connected = Connected::open(socket, &opening).await?;
        match connected.hear().await? {
            FromAgent::Granted { assignment, notes } => {
                Ok(Answered::Granted(assignment, notes, connected))
            }
            FromAgent::Refused(problem) => Ok(Answered::Refused(problem)),
            other => Err(io::Error::other(format!(
                "the agent answers what was not asked: {other:?}"
            ))),
        }
    };
    tokio::time::timeout(ANSWERED_WITHIN, exchange)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// The shutdown of a host, as its agent tells of it.
#[derive(Debug)]
pub(crate) struct Shutdown(Connected);

/// What the agent says about it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// How far it is.
    Closing(Closing),
    Refused(Box<Problem>),
}

impl Shutdown {
    /// Says to the agent at `socket` that its host is being shut down.
    ///
    /// # Errors
    ///
    /// The system's: nobody answers there.
    pub(crate) async fn begin(socket: &Path) -> io::Result<Self> {
        Connected::open(socket, &Opening::Shutdown).await.map(Self)
    }

    /// The next word.
    ///
    /// # Errors
    ///
    /// The system's; the agent hangs up when nothing is left to end.
    pub(crate) async fn next(&mut self) -> io::Result<Answer> {
        match self.0.hear().await? {
            FromAgent::Closing(now) => Ok(Answer::Closing(now)),
            FromAgent::Refused(problem) => Ok(Answer::Refused(problem)),
            other => Err(io::Error::other(format!(
                "the agent answers what was not asked: {other:?}"
            ))),
        }
    }
}

/// The replacing of a host's workers, as its agent tells of it.
#[derive(Debug)]
pub(crate) struct WorkerRenewal(Connected);

impl WorkerRenewal {
    /// Says to the agent at `socket` that workers of an older program are to be replaced.
    ///
    /// # Errors
    ///
    /// The system's: nobody answers there.
    pub(crate) async fn begin(socket: &Path) -> io::Result<Self> {
        let connected = Connected::open(socket, &Opening::RenewWorkers).await?;
        Ok(Self(connected))
    }

    /// How far it is, or why it does not go on.
    ///
    /// # Errors
    ///
    /// The system's; an agent that knows no such word hangs up.
    pub(crate) async fn next(&mut self) -> io::Result<Result<Renewing, Box<Problem>>> {
        match self.0.hear().await? {
            FromAgent::Renewing(now) => Ok(Ok(now)),
            FromAgent::Refused(problem) => Ok(Err(problem)),
            other => Err(io::Error::other(format!(
                "the agent answers what was not asked: {other:?}"
            ))),
        }
    }
}

/// What a cut-off run meets at its agent.
enum Back {
    Known(Connected),
    Unknown,
}

/// The link of one incarnation.
pub(crate) struct Link {
    pub(crate) socket: PathBuf,
    /// How it names itself when it comes back; the status is filled in.
    pub(crate) again: Again,
    pub(crate) orders: mpsc::Sender<WorkerCommand>,
    pub(crate) newest: watch::Receiver<Option<Status>>,
}

impl Link {
    /// Keeps the connection until the agent has the end.
    pub(crate) async fn keep(mut self, connected: Connected) {
        let mut connected = Some(connected);
        let mut wait = BACK.0;
        loop {
            if let Some(connected) = connected.take() {
                match self.converse(connected).await {
                    Ok(()) => return,
                    Err(cause) => tracing::debug!("cut off from the agent: {cause}"),
                }
                wait = BACK.0;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(BACK.1);
            match self.come_back().await {
                Ok(Back::Known(back)) => connected = Some(back),
                // Nothing follows an end, and it has heard of this one or has lost all about us.
                Ok(Back::Unknown) if self.is_over() => return,
                Ok(Back::Unknown) => tracing::debug!("the agent does not know this replica yet"),
                Err(cause) => tracing::debug!("the agent does not answer: {cause}"),
            }
        }
    }

    fn is_over(&self) -> bool {
        let told = self.again.status.as_ref();
        told.is_some_and(|status| matches!(status.state, State::Final(_)))
    }

    async fn come_back(&mut self) -> io::Result<Back> {
        self.again.status = self.newest.borrow_and_update().clone();
        let opening = Opening::Again(Box::new(self.again.clone()));
        let exchange = async {
            let mut connected = Connected::open(&self.socket, &opening).await?;
            match connected.hear().await? {
                FromAgent::Known => Ok(Back::Known(connected)),
                FromAgent::Refused(problem) if problem.code == Problem::REPLICA_UNKNOWN => {
                    Ok(Back::Unknown)
                }
                FromAgent::Refused(problem) => Err(io::Error::other(problem.detail)),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        };
        tokio::time::timeout(ANSWERED_WITHIN, exchange)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn converse(&mut self, connected: Connected) -> io::Result<()> {
        let Connected {
            mut reader,
            mut writer,
        } = connected;
        let orders = self.orders.clone();
        let hear = async move {
            let mut line = Vec::new();
            loop {
                line.clear();
                (&mut reader)
                    .take(MAX_LINE)
                    .read_until(b'\n', &mut line)
                    .await?;
                if !line.ends_with(b"\n") {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                if let FromAgent::Order(order) = serde_json::from_slice(&line)?
                    && orders.send(order).await.is_err()
                {
                    // The replica is over; its last status is told by the other half.
                    return std::future::pending().await;
                }
            }
        };
        let newest = &mut self.newest;
        let tell = async move {
            loop {
                let status = newest.borrow_and_update().clone();
                if let Some(status) = status {
                    let mut text = serde_json::to_vec(&status)?;
                    text.push(b'\n');
                    writer.write_all(&text).await?;
                    if matches!(status.state, State::Final(_)) {
                        return Ok(());
                    }
                }
                if newest.changed().await.is_err() {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            heard = hear => heard,
            told = tell => told,
        }
    }
}
