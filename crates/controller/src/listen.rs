//! Listeners and their connections: bounded in number, in time, and by what a peer may leave undone.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use portreeve_api::Problem;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::impatient::Impatient;
use crate::peer::Peer;
use crate::share::Shares;
use crate::stop::Stop;
use crate::vital;

/// What one listener allows its peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once; one more is told so and closed.
    pub(crate) connections: usize,
    /// Connections at once of one user, so that none takes all. Agents' accounts have no such bound.
    pub(crate) per_user: usize,
    /// The controller's own account.
    pub(crate) own_uid: u32,
    /// A request's head has to arrive within this time; so an idle connection ends too.
    pub(crate) head_within: Duration,
    /// A peer has to take some of an answer within this time.
    pub(crate) taken_within: Duration,
    /// How long connections may finish what they began when the controller stops.
    pub(crate) finish_within: Duration,
}

impl Limits {
    /// The limits of a controller that runs under this account.
    pub(crate) const fn of_account(own_uid: u32) -> Self {
        Self {
            connections: 1024,
            per_user: 256,
            own_uid,
            head_within: Duration::from_secs(10),
            taken_within: Duration::from_secs(30),
            finish_within: Duration::from_secs(5),
        }
    }
}

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum Listener {
    /// The peer's credentials come with the connection.
    Unix(UnixListener),
    /// On loopback.
    Tcp(TcpListener),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The most bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// How long to rest after the system refused a connection, most likely for want of files.
const REST: Duration = Duration::from_millis(100);

/// Serves until `stopping`, then lets the connections finish.
pub(crate) async fn serve(listener: Listener, router: Router, limits: Limits, mut stopping: Stop) {
    // Dropped with this task, so that no connection outlives its listener.
    let mut connections = JoinSet::new();
    let shares = Shares::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() >= limits.connections => turn_away(stream).await,
                Ok((stream, peer)) => {
                    let (router, shares, stop) = (router.clone(), shares.clone(), stopping.clone());
                    connections.spawn(vital::guarded("connection", async move {
                        let uid = peer.uid().await;
                        let bound = match uid {
                            Some(uid) if uid == 0 || uid == limits.own_uid => limits.connections,
                            _ => limits.per_user,
                        };
                        match shares.take(uid, bound) {
                            Some(_share) => converse(stream, peer, router, limits, stop).await,
                            None => turn_away(stream).await,
                        }
                    }));
                }
                Err(cause) => {
                    tracing::warn!(%cause, "a connection was not accepted");
                    tokio::time::sleep(REST).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stopping.said() => break,
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.finish_within, finished)
        .await
        .is_err()
    {
        tracing::warn!("connections were cut that did not finish in time");
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok((Box::new(stream), Peer::Unix { uid }))
            }
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Small answers: waiting to fill a packet costs 40 ms each.
                stream.set_nodelay(true)?;
                let local: SocketAddr = stream.local_addr()?;
                let uid = OnceCell::new();
                Ok((Box::new(stream), Peer::Loopback { peer, local, uid }))
            }
        }
    }
}

/// Serves one connection until it ends, or until the answer that is due when the controller stops.
async fn converse(
    stream: Box<dyn Stream>,
    peer: Peer,
    router: Router,
    limits: Limits,
    mut stopping: Stop,
) {
    let stream = Impatient::new(stream, limits.taken_within);
    let peer = Arc::new(peer);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(&peer));
        router.clone().oneshot(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopping.said() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "a connection ended early");
    }
}

/// Says why before closing: a silent close looks like a crash.
async fn turn_away(mut stream: Box<dyn Stream>) {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let problem = Problem::new(
        status,
        "too_many_connections",
        "the controller has as many connections as it may have, of all or of you; ask again",
    );
    let Ok(body) = serde_json::to_string(&problem) else {
        return;
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        Problem::MEDIA_TYPE,
        body.len(),
    );
    // A fresh socket's buffer takes it at once; whoever is not there any more need not be told.
    let told = stream.write_all(answer.as_bytes());
    let _ = tokio::time::timeout(REST, told).await;
}
