//! Listeners and their connections: bounded in number, in time, and by what a peer may leave undone.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use portreeve_api::Problem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::impatient::Impatient;
use crate::limits::Limits;
use crate::peer::{Peer, Whose};
use crate::rest::Api;
use crate::share::Shares;
use crate::stop::Stop;
use crate::tls::Seal;
use crate::vital;
use crate::watch::{Departed, Pace, Paced};

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum Listener {
    /// The peer's credentials come with the connection.
    Unix(UnixListener),
    /// On loopback.
    Tcp(TcpListener),
    /// Beyond loopback; without a seal in the clear, as the site wishes.
    Remote(TcpListener, Option<Arc<Seal>>),
}

/// One connection's bytes.
pub(crate) trait Wire: AsyncRead + AsyncWrite + AsFd + Unpin + Send {}
impl<W: AsyncRead + AsyncWrite + AsFd + Unpin + Send> Wire for W {}

/// A connection as it was accepted.
enum Arrived {
    Open(Box<dyn Wire>),
    /// It has to greet first.
    Sealed(TcpStream, Arc<Seal>),
}

/// The most bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// How long to rest after the system refused a connection, most likely for want of files.
const REST: Duration = Duration::from_millis(100);
/// How many connections beyond the bound are told why they end; further ones just end.
const TURNED_AWAY: usize = 64;

/// Serves until `stopping`, then lets the connections finish.
pub(crate) async fn serve(listener: Listener, api: Api, limits: Limits, mut stopping: Stop) {
    // Dropped with this task, so that no connection outlives its listener.
    let mut connections = JoinSet::new();
    let most = limits.connections;
    let finish_within = limits.finish_within;
    let terms = Arc::new(Terms {
        api,
        limits,
        connections: Shares::default(),
        streams: Shares::default(),
    });
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((_, _)) if connections.len() >= most + TURNED_AWAY => {}
                // Who has to greet first would cost more than the others to be told.
                Ok((Arrived::Sealed(..), _)) if connections.len() >= most => {}
                Ok((Arrived::Open(wire), _)) if connections.len() >= most => {
                    let refused = async { turn_away(wire, &too_many_connections()).await };
                    connections.spawn(vital::guarded("refusal", refused));
                }
                Ok((wire, peer)) => {
                    let (terms, stop) = (Arc::clone(&terms), stopping.clone());
                    connections.spawn(vital::guarded("connection", connection(wire, peer, terms, stop)));
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
    if tokio::time::timeout(finish_within, finished).await.is_err() {
        tracing::warn!("connections were cut that did not finish in time");
    }
}

/// What all connections of one listener share.
struct Terms {
    api: Api,
    limits: Limits,
    connections: Shares<Whose>,
    streams: Shares<Whose>,
}

/// One connection from its first byte to its last: requests and answers, and then perhaps one stream.
async fn connection(arrived: Arrived, peer: Peer, terms: Arc<Terms>, stop: Stop) {
    let whose = peer.whose().await;
    let (bounds, streams) = terms.limits.of(whose);
    let share = terms.connections.take(whose, bounds);
    let Some(wire) = open(arrived, &terms.limits, share.is_some()).await else {
        return;
    };
    let Some(share) = share else {
        return turn_away(wire, &too_many_connections()).await;
    };
    let present = terms.api.meters().connections.enter();
    // In a box that is gone before a stream begins: HTTP's state is large, a stream's is not.
    let conversation = Box::pin(converse(wire, peer, Arc::clone(&terms), stop.clone()));
    let Some((wire, departed)) = conversation.await else {
        return;
    };
    let Some(_share) = terms.streams.take(whose, streams) else {
        return turn_away(wire, &too_many_streams()).await;
    };
    // A watcher counts among the streams alone: its user's workers still find room to speak.
    drop((share, present));
    let _present = terms.api.meters().streams.enter();
    departed.run(wire, &terms.limits, stop).await;
}

/// What requests come over, after the greeting where there is one; `None`: there was none in time, or it was no good.
async fn open(arrived: Arrived, limits: &Limits, has_share: bool) -> Option<Box<dyn Wire>> {
    let (stream, seal) = match arrived {
        Arrived::Open(wire) => return Some(wire),
        Arrived::Sealed(stream, seal) => (stream, seal),
    };
    if !has_share {
        return None;
    }
    let greeted = async {
        let mut first = [0];
        // Whoever speaks HTTP in the clear hears of it in the same language.
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
            turn_away(Box::new(stream), &not_sealed()).await;
            return Ok(None);
        }
        seal.greet(stream).await.map(Some)
    };
    match tokio::time::timeout(limits.head_within, greeted).await {
        Ok(Ok(sealed)) => sealed.map(|sealed| Box::new(sealed) as Box<dyn Wire>),
        Ok(Err(cause)) => {
            tracing::debug!(%cause, "a connection did not greet");
            None
        }
        Err(_) => {
            tracing::debug!("a connection did not greet in time");
            None
        }
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<(Arrived, Peer)> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok((Arrived::Open(Box::new(stream)), Peer::Unix { uid }))
            }
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Small answers: waiting to fill a packet costs 40 ms each.
                stream.set_nodelay(true)?;
                let local: SocketAddr = stream.local_addr()?;
                let uid = OnceCell::new();
                let arrived = Arrived::Open(Box::new(stream));
                Ok((arrived, Peer::Loopback { peer, local, uid }))
            }
            Self::Remote(listener, seal) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let tls = seal.is_some();
                let arrived = match seal {
                    Some(seal) => Arrived::Sealed(stream, Arc::clone(seal)),
                    None => Arrived::Open(Box::new(stream)),
                };
                Ok((arrived, Peer::Remote { address, tls }))
            }
        }
    }
}

/// Serves requests until the connection ends, the answer is given that is due when the controller stops, or
/// an answer is a stream: then the connection is its own.
async fn converse(
    wire: Box<dyn Wire>,
    peer: Peer,
    terms: Arc<Terms>,
    mut stopping: Stop,
) -> Option<(Box<dyn Wire>, Departed)> {
    let (head_within, taken_within) = (terms.limits.head_within, terms.limits.taken_within);
    let wire = Impatient::new(wire, taken_within);
    let peer = Arc::new(peer);
    let departed = Arc::new(Mutex::new(None));
    let pace = Arc::new(Mutex::new(Pace::default()));
    let leaving = Arc::clone(&departed);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(&peer));
        let terms = Arc::clone(&terms);
        let (leaving, pace) = (Arc::clone(&leaving), Arc::clone(&pace));
        async move {
            let mut response = terms.api.answer(request).await;
            if let Some(departed) = Departed::of(&mut response) {
                *leaving.lock() = Some(departed);
                // The connection is taken out of HTTP's hands before anybody asks for this answer again.
                std::future::pending::<()>().await;
            }
            if response.extensions().get::<Paced>().is_some() {
                let at = pace.lock().take(Instant::now());
                tokio::time::sleep_until(at).await;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(wire), service);
    let ended = {
        let mut said = pin!(stopping.said());
        let mut stops = false;
        poll_fn(|context| {
            if !stops && said.as_mut().poll(context).is_ready() {
                stops = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            let ended = Pin::new(&mut connection).poll(context);
            if departed.lock().is_some() {
                return Poll::Ready(Ok(()));
            }
            ended
        })
        .await
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "a connection ended early");
    }
    let departed = departed.lock().take()?;
    let wire = connection.into_parts().io.into_inner();
    Some((wire.into_inner(), departed))
}

fn too_many_connections() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too_many_connections",
        "the controller has as many connections as it may have, of all or of you; ask again",
    )
}

fn too_many_streams() -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_streams",
        "the controller has as many streams as it may have, of all or of you; one stream follows many services: GET /api/v1/watch",
    )
}

fn not_sealed() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "tls_wanted",
        "this port speaks TLS: ask again at https:// with the same host and port",
    )
}

/// Says why before closing: a silent close looks like a crash.
async fn turn_away(mut wire: Box<dyn Wire>, problem: &Problem) {
    let Ok(body) = serde_json::to_string(problem) else {
        return;
    };
    let status = StatusCode::from_u16(problem.status).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        Problem::MEDIA_TYPE,
        body.len(),
    );
    let told = async {
        wire.write_all(answer.as_bytes()).await?;
        wire.shutdown().await?;
        // Closed with a request unread, the connection would be reset, and the answer with it.
        let mut unread = wire.take(MAX_HEAD as u64);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    // A fresh socket's buffer takes the answer at once; whoever is not there any more need not be told.
    let _ = tokio::time::timeout(REST, told).await;
}
