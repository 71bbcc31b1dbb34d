//! REST under `/api/v1`: requests in, the registry's answers and the readers' views out.
//!
//! Every handler asks the same three questions in the same order: who asks, may they know that this
//! exists, and may they do that. Refusals are problems (RFC 9457), also for routes that do not exist.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use http::{Method, StatusCode, Uri};
use portreeve::registry::Command;
use portreeve_api::paths;

use crate::app::App;

pub(crate) mod accept;
mod agents;
pub(crate) mod answer;
mod attach;
mod body;
pub(crate) mod counters;
pub(crate) mod endpoints;
mod envelope;
mod explain;
mod hosts;
pub(crate) mod identity;
mod names;
pub(crate) mod pages;
mod profile;
pub(crate) mod query;
pub(crate) mod refused;
mod replicas;
mod seen;
mod services;
mod synced;
mod tag;
mod watch;

use envelope::Envelope;
use identity::Asker;
use names::Names;
use refused::Refused;

/// Every route.
pub(crate) fn router(app: Arc<App>) -> Router {
    let envelope = Envelope::new(Arc::clone(&app));
    let api = Router::new()
        .route("/services", get(services::list))
        .route(
            "/services/{service}",
            get(services::show).put(services::submit).delete(delete),
        )
        .route("/services/{service}/scale", post(services::scale))
        .route("/services/{service}/start", post(start))
        .route("/services/{service}/stop", post(stop))
        .route("/services/{service}/restart", post(restart))
        .route("/services/{service}/events", get(services::events))
        .route("/services/{service}/explain", get(explain::service))
        .route("/services/{service}/endpoints", get(endpoints::endpoints))
        .route(
            "/services/{service}/replicas/{index}/kill",
            post(replicas::kill),
        )
        .route(
            "/services/{service}/replicas/{index}/restart",
            post(replicas::restart),
        )
        .route(
            "/services/{service}/replicas/{index}/logs",
            get(replicas::logs),
        )
        .route("/watch", get(watch::watch))
        .route("/resolve/{service}", get(endpoints::resolve))
        .route("/resolve/{service}/{port}", get(endpoints::resolve))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{host}", get(hosts::show))
        .route("/hosts/{host}/ports", get(hosts::ports))
        .route("/hosts/{host}/report", put(agents::report))
        .route("/hosts/{host}/lease", post(agents::lease))
        .route("/hosts/{host}/attach", post(attach::attach))
        .route("/hosts/{host}/desired", get(agents::desired))
        .route("/hosts/{host}/reads/{read}", put(agents::log_piece))
        .route(
            "/replicas/{service}/{index}/{incarnation}/status",
            put(agents::status),
        )
        .route("/check", post(services::check))
        .route("/explain", post(explain::profile))
        .route("/counters", get(counters::show))
        .route("/whoami", get(identity::whoami));
    Router::new()
        .nest(paths::ROOT, api)
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(no_such_route)
        .layer(axum::middleware::from_fn_with_state(
            envelope,
            envelope::seal,
        ))
        .with_state(app)
}

async fn start(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    services::act(app, asker, names, |service| Command::Start { service }).await
}

async fn stop(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    services::act(app, asker, names, |service| Command::Stop { service }).await
}

async fn restart(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    let all = |service| Command::Restart {
        service,
        index: None,
    };
    services::act(app, asker, names, all).await
}

async fn delete(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    services::act(app, asker, names, |service| Command::Delete { service }).await
}

/// Whether the process answers.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the state is loaded and the store takes writes. Before the state is loaded nobody listens.
async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.shown.writable.load(Ordering::Relaxed) {
        return "ready\n".into_response();
    }
    let reason = "the store refuses writes: reads go on, changes are refused; see the log";
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "not_writable", reason).into_response()
}

async fn no_such_route(uri: Uri) -> Refused {
    let path: String = uri.path().chars().take(200).collect();
    let reason = format!("nothing is at {path}; the API begins at {}", paths::ROOT);
    Refused::new(StatusCode::NOT_FOUND, "route_not_found", reason)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Refused {
    let path: String = uri.path().chars().take(200).collect();
    let reason = format!("{method} is not for {path}; the Allow header says what is");
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason)
}
