//! The controller, asked for the people of this host: over a Unix socket, as whoever the kernel says they are.
//!
//! Each request goes on under the host's token with the asker's uid; nothing that it says itself of who asks is left in
//! it. What the host may do for itself cannot be asked for in this way: the controller sees that a person asks.
//! Everybody may connect; how many may, how long a request's head may take and how large it may be are bounded.

mod ask;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use portreeve::identity::HostName;
use portreeve_api::Client;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::membership::Refusals;
use crate::socket::Socket;
use ask::Door;

/// How many people's connections there may be at once; more are turned away at once.
const MAX_CONNECTIONS: usize = 1024;
/// How many of them one account may have: watches are held.
const MAX_PER_USER: usize = 128;
/// How long the head of a request may take to come.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's head, and of what is held of a body.
const MAX_HEAD: usize = 64 << 10;
/// The rest after a connection could not be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves people for ever.
pub(crate) async fn serve(mut socket: Socket, host: HostName, client: Client, refusals: Refusals) {
    let Some(listener) = socket.listener.take() else {
        return;
    };
    let door = Arc::new(Door {
        host,
        client,
        refusals,
    });
    // Dropped with this task, and every connection with it.
    let mut connections: JoinSet<u32> = JoinSet::new();
    let mut of_user = BTreeMap::<u32, usize>::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                let uid = ended.expect("asking for a person does not panic");
                if let Some(count) = of_user.get_mut(&uid) {
                    *count -= 1;
                    if *count == 0 {
                        of_user.remove(&uid);
                    }
                }
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(cause) => {
                warn!("a person's connection was not taken: {cause}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        // It ended already.
        let Ok(peer) = stream.peer_cred() else {
            continue;
        };
        let uid = peer.uid();
        let count = of_user.entry(uid).or_default();
        if connections.len() >= MAX_CONNECTIONS || *count >= MAX_PER_USER {
            if *count == 0 {
                of_user.remove(&uid);
            }
            // A fresh socket's buffer takes it at once.
            _ = stream.try_write(&ask::too_many_connections());
            continue;
        }
        *count += 1;
        let door = door.clone();
        connections.spawn(async move {
            converse(stream, uid, &door).await;
            uid
        });
    }
}

/// One request and its answer, however long that goes on.
async fn converse(stream: UnixStream, uid: u32, door: &Door) {
    let service = service_fn(|request: http::Request<Incoming>| door.ask(uid, request));
    let conversed = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(MAX_HEAD)
        // The kernel's word is of who connected, and holds for what is asked now.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(cause) = conversed {
        debug!("a person's connection ended: {cause}");
    }
}
