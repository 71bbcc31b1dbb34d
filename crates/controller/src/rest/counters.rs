//! What came in and what was written since the start: in the steady state, leases alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::response::Response;
use portreeve_api::body::Counters;

use crate::app::App;

use super::answer::json;
use super::identity::Asker;
use super::query::Query;
use super::refused::Refused;

/// Requests of agents and workers.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) statuses: AtomicU64,
    pub(crate) reports: AtomicU64,
    pub(crate) leases: AtomicU64,
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// `GET /counters`.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    _asker: Asker,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Ok(json(&Counters {
        instance: app.instance.clone(),
        statuses: read(&app.heard.statuses),
        reports: read(&app.heard.reports),
        leases: read(&app.heard.leases),
        commits: read(&app.shown.commits),
    }))
}
