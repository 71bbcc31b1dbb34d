//! Tells the controller the newest status: on change only, the newest only, until it is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};
use portreeve::attendance::{Heard, Next, Telling};
use portreeve::supervision::{State, Status};
use portreeve_api::{Client, ClientError};
use tokio::sync::watch;

use crate::clock;

/// Sends what `newest` holds to `path` whenever it changes, and again until the controller has it.
/// Returns when the controller has an end, or the sender of `newest` is gone.
///
/// A status that came while an older one was being sent replaces it. No connection is kept, and nothing
/// is sent while nothing changes. With another `token` it is told again, and at once: an earlier controller may be the
/// only one that has it. `messages` counts the tries.
pub(crate) async fn tell(
    client: Client,
    path: String,
    mut newest: watch::Receiver<Option<Status>>,
    mut token: watch::Receiver<String>,
    messages: Arc<AtomicU64>,
) {
    let mut telling = Telling::default();
    loop {
        let now = clock::monotonic();
        let wait = match telling.next(now) {
            Next::Done => return,
            Next::Rest => None,
            Next::At(until) => Some(until.since(now)),
            Next::Send => {
                let status = newest.borrow_and_update().clone();
                let is_end = |status: &Status| matches!(status.state, State::Final(_));
                telling.sending(status.as_ref().is_some_and(is_end));
                let heard = match status {
                    Some(status) => {
                        messages.fetch_add(1, Ordering::Relaxed);
                        let token = token.borrow_and_update().clone();
                        let client = client.clone().with_token(Some(token));
                        send(&client, &path, &status).await
                    }
                    // Nothing happened yet that there would be to tell.
                    None => Heard::Unknown,
                };
                telling.heard(clock::monotonic(), heard, chance());
                continue;
            }
        };
        let sleep = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = newest.changed() => match changed {
                Ok(()) => telling.news(),
                Err(_) => return,
            },
            Ok(()) = token.changed() => telling.renewed(),
            () = sleep => {}
        }
    }
}

async fn send(client: &Client, path: &str, status: &Status) -> Heard {
    let body = serde_json::to_vec(status).unwrap_or_default();
    let sent = client
        .send(
            Method::PUT,
            path,
            Some(body.into()),
            "application/json",
            Telling::PATIENCE,
        )
        .await;
    match sent {
        Ok(_) => Heard::Taken,
        Err(ClientError::Refused(problem)) if is_unknown(problem.status) => {
            tracing::warn!(
                "the controller does not know this replica: {}",
                problem.detail
            );
            Heard::Unknown
        }
        Err(cause) => {
            tracing::debug!(
                "status {} of run {} not told: {cause}",
                status.seq,
                status.run
            );
            Heard::Nothing
        }
    }
}

fn is_unknown(status: u16) -> bool {
    [StatusCode::NOT_FOUND, StatusCode::GONE]
        .iter()
        .any(|known| known.as_u16() == status)
}

/// Without randomness workers come at once, and nothing worse.
fn chance() -> u32 {
    getrandom::u32().unwrap_or_default()
}
