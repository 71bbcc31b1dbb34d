//! The worker's socket: an agent of this host says what is wanted and hears the newest status.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use portreeve::attendance;
use portreeve_api::local::{
    ReplicaFolder, SocketPath, Tokens, WorkerAnswer, WorkerCommand, WorkerCounters,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// A command and where its answer goes.
pub(crate) type Order = (WorkerCommand, oneshot::Sender<WorkerAnswer>);

/// What a command means to the attendance; the tokens, where it is about those.
pub(crate) fn order(command: WorkerCommand) -> Result<attendance::Order, Tokens> {
    use attendance::Order;
    Ok(match command {
        WorkerCommand::Want { want, restart_no } => Order::Want { want, restart_no },
        WorkerCommand::Address { address, ports } => Order::Address { address, ports },
        WorkerCommand::Renew { tokens } => return Err(tokens),
        WorkerCommand::Hurry => Order::Hurry,
        WorkerCommand::Stop { grace } => Order::Stop { grace },
        WorkerCommand::Leave { why } => Order::Leave { why },
        WorkerCommand::Restart => Order::Restart,
        WorkerCommand::Tell => Order::Tell,
    })
}

/// The longest command line, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// How many connections are served at once; more wait.
const MAX_CONNECTIONS: usize = 8;
/// The rest after a connection could not be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long the last answers may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Makes the socket, replacing that of an earlier worker of this folder.
///
/// # Errors
///
/// The system's.
pub(crate) fn listen(folder: &ReplicaFolder) -> io::Result<UnixListener> {
    let path = folder.worker_socket();
    match fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let listener = UnixListener::bind(SocketPath::of(&path)?.as_path())?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves connections until the receiver of `orders` is gone, and every answer of its is written.
pub(crate) async fn serve(listener: UnixListener, orders: mpsc::Sender<Order>) {
    let mut conversations = JoinSet::new();
    loop {
        while conversations.try_join_next().is_some() {}
        let full = conversations.len() >= MAX_CONNECTIONS;
        tokio::select! {
            accepted = listener.accept(), if !full => match accepted {
                Ok((stream, _)) => {
                    conversations.spawn(converse(stream, orders.clone()));
                }
                // Out of descriptors or memory: it passes, and trying at once would only burn the time it takes.
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            },
            _ = conversations.join_next(), if full => {}
            () = orders.closed() => break,
        }
    }
    // A peer that does not read keeps nobody from ending.
    _ = tokio::time::timeout(LAST_WORDS, conversations.join_all()).await;
}

/// Answers one peer. One that breaks off or breaks the rules only ends its own connection.
async fn converse(stream: UnixStream, orders: mpsc::Sender<Order>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        tokio::select! {
            read = async { (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await } => read?,
            () = orders.closed() => return Ok(()),
        };
        if line.is_empty() {
            return Ok(());
        }
        let gone = io::ErrorKind::BrokenPipe;
        let answer = match serde_json::from_slice(&line) {
            Ok(command) => {
                let (reply, answer) = oneshot::channel();
                orders.send((command, reply)).await.map_err(|_| gone)?;
                answer.await.map_err(|_| gone)?
            }
            Err(cause) => WorkerAnswer {
                status: None,
                refused: Some(format!(
                    "this is no worker command, nothing changed: {cause}"
                )),
                counters: WorkerCounters::default(),
            },
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        writer.write_all(&text).await?;
        if !line.ends_with(b"\n") {
            return Ok(());
        }
    }
}
