//! The worker's socket: an agent of this host says what is wanted and hears the newest status.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use portreeve_api::local::{ReplicaFolder, SocketPath, WorkerAnswer, WorkerCommand};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// A command and where its answer goes.
pub(crate) type Order = (WorkerCommand, oneshot::Sender<WorkerAnswer>);

/// The longest command line, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// How many connections are served at once; more wait.
const MAX_CONNECTIONS: usize = 8;

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

/// Serves connections until the receiver of `orders` is gone.
pub(crate) async fn serve(listener: UnixListener, orders: mpsc::Sender<Order>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = places.clone().acquire_owned().await {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = orders.closed() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let orders = orders.clone();
                tokio::spawn(async move {
                    // A peer that breaks off or breaks the rules only ends its own connection.
                    _ = converse(stream, orders).await;
                    drop(place);
                });
            }
            // Out of descriptors or memory: it passes, and trying at once would only burn the time it takes.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

async fn converse(stream: UnixStream, orders: mpsc::Sender<Order>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .await?;
        if line.is_empty() {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(command) => {
                let (reply, answer) = oneshot::channel();
                let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
                orders
                    .send((command, reply))
                    .await
                    .map_err(|_| io::ErrorKind::BrokenPipe)?;
                answer.await.map_err(gone)?
            }
            Err(cause) => WorkerAnswer {
                status: None,
                refused: Some(format!(
                    "this is no worker command, nothing changed: {cause}"
                )),
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
