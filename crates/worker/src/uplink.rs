//! Tells the controller the newest status: on change only, the newest only, until it is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use portreeve::supervision::{State, Status};
use portreeve_api::{Client, ClientError};
use tokio::sync::watch;

/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The wait after a try that failed, at first and at most. The agent tells every newest status itself when
/// the controller is back, so the longest wait may be long.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

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
    loop {
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            Ok(()) = token.changed() => {}
        }
        let mut wait = AGAIN.0;
        loop {
            let status = newest.borrow_and_update().clone();
            let Some(status) = status else { break };
            messages.fetch_add(1, Ordering::Relaxed);
            let client = client.clone();
            let client = client.with_token(Some(token.borrow_and_update().clone()));
            match send(&client, &path, &status).await {
                // Nothing follows an end.
                Ok(()) if matches!(status.state, State::Final(_)) => return,
                Ok(()) => break,
                Err(cause) => {
                    tracing::debug!(
                        "status {} of run {} not told: {cause}",
                        status.seq,
                        status.run
                    );
                }
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(wait)) => wait = (wait * 2).min(AGAIN.1),
                Ok(()) = token.changed() => {}
            }
            if newest.has_changed().is_err() {
                return;
            }
        }
    }
}

async fn send(client: &Client, path: &str, status: &Status) -> Result<(), ClientError> {
    let body = serde_json::to_vec(status).unwrap_or_default();
    let sent = client
        .send(
            Method::PUT,
            path,
            Some(body.into()),
            "application/json",
            PATIENCE,
        )
        .await;
    match sent {
        Ok(_) => Ok(()),
        // The controller does not know this incarnation, any more or yet. The service goes on: only the
        // wanted set of the host ends it. There is nothing to repeat until something changes.
        Err(ClientError::Refused(problem)) if is_unknown(problem.status) => {
            tracing::warn!(
                "the controller does not know this replica: {}",
                problem.detail
            );
            Ok(())
        }
        Err(cause) => Err(cause),
    }
}

fn is_unknown(status: u16) -> bool {
    [StatusCode::NOT_FOUND, StatusCode::GONE]
        .iter()
        .any(|known| known.as_u16() == status)
}

/// Up to a quarter less, so that the workers of a cluster do not all come at once.
fn jittered(wait: Duration) -> Duration {
    let part = getrandom::u32().map_or(0.0, |draw| f64::from(draw) / f64::from(u32::MAX));
    wait.mul_f64(1.0 - part / 4.0)
}
