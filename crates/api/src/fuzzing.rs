//! What `make fuzz` calls of this crate that nobody else may: readers of bytes that others wrote.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::client::ON_BEHALF_HEADER;
use crate::pass::passed_on;
use crate::{sockets, stream};

/// A request as a controller reads it that was passed on by an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Every credential in it.
    pub bearers: Vec<String>,
    /// Every account that it says it is asked for.
    pub on_behalf: Vec<String>,
}

/// What a controller reads where an agent reads these bytes of somebody's connection, and passes them on under `token`
/// for `uid`.
pub async fn relayed(bytes: &[u8], token: &str, uid: u32) -> Vec<Relayed> {
    let read = Arc::new(Mutex::new(Vec::new()));
    let wire = tokio::io::join(bytes, tokio::io::sink());
    let service = service_fn(|request: Request<Incoming>| {
        let passed = passed_on(token, uid, request);
        let read = Arc::clone(&read);
        async move {
            if let Some(request) = passed {
                pass_over(request, read).await;
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let _ = http1::Builder::new()
        .max_buf_size(64 << 10)
        .keep_alive(false)
        .serve_connection(TokioIo::new(wire), service)
        .await;
    let mut read = read.lock().unwrap_or_else(|cause| cause.into_inner());
    std::mem::take(&mut *read)
}

/// Writes the request as the client does and reads it as the controller does, and whatever may come behind it.
async fn pass_over(request: Request<Incoming>, read: Arc<Mutex<Vec<Relayed>>>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let controller = service_fn(move |request: Request<Incoming>| {
        let read = Arc::clone(&read);
        async move {
            let (parts, body) = request.into_parts();
            let all = |name: header::HeaderName| texts(&parts.headers, &name);
            let relayed = Relayed {
                bearers: all(header::AUTHORIZATION),
                on_behalf: all(header::HeaderName::from_static(ON_BEHALF_HEADER)),
            };
            read.lock()
                .unwrap_or_else(|cause| cause.into_inner())
                .push(relayed);
            let _ = body.collect().await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let serving = http1::Builder::new().serve_connection(TokioIo::new(far), controller);
    let serving = tokio::spawn(serving);
    if let Ok((mut sender, connection)) = handshake(TokioIo::new(near)).await {
        let connection = tokio::spawn(connection);
        let _ = sender.send_request(request).await;
        drop(sender);
        let _ = connection.await;
    }
    let _ = serving.await;
}

fn texts(headers: &HeaderMap, name: &header::HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect()
}

/// Reads an answer of the kernel about sockets, as a list and as one connection.
pub fn socket_answer(bytes: &[u8]) {
    sockets::read_answer(bytes);
}

/// Reads a stream of events that comes in pieces of at most `piece` bytes, and tells what was read, for comparing.
#[must_use]
pub fn events(bytes: &[u8], piece: usize) -> Vec<String> {
    stream::read_pieces(bytes, piece)
}
