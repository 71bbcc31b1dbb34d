//! REST under `/api/v1`: requests in, the registry's answers and the readers' views out.
//!
//! Every handler asks the same three questions in the same order: who asks, may they know that this
//! exists, and may they do that. Refusals are problems (RFC 9457), also for routes that do not exist.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post, put};
use http::{HeaderMap, Method, StatusCode, Uri};
use portreeve::registry::Command;
use portreeve_api::paths;

use crate::app::App;

pub(crate) mod accept;
mod agents;
pub(crate) mod answer;
mod attach;
mod backup;
mod body;
pub(crate) mod counters;
pub(crate) mod endpoints;
mod envelope;
mod explain;
mod host_orders;
mod hosts;
pub(crate) mod identity;
pub(crate) mod metrics;
mod names;
pub(crate) mod openapi;
pub(crate) mod pages;
mod past;
mod profile;
pub(crate) mod query;
pub(crate) mod refused;
mod replicas;
mod seen;
mod services;
pub(crate) mod synced;
mod tag;
mod tokens;
mod watch;

pub(crate) use envelope::Api;
use identity::Asker;
use names::Names;
use refused::Refused;

/// Every route: its whole path, and what serves each of its methods.
fn routes() -> Vec<(String, MethodRouter<Arc<App>>)> {
    let api = [
        ("/services", get(services::list)),
        (
            "/services/{service}",
            get(services::show).put(services::submit).delete(delete),
        ),
        ("/services/{service}/scale", post(services::scale)),
        ("/services/{service}/start", post(start)),
        ("/services/{service}/stop", post(stop)),
        ("/services/{service}/restart", post(restart)),
        ("/services/{service}/events", get(past::events)),
        ("/services/{service}/explain", get(explain::service)),
        ("/services/{service}/endpoints", get(endpoints::endpoints)),
        ("/services/{service}/replicas/{index}", get(replicas::show)),
        (
            "/services/{service}/replicas/{index}/kill",
            post(replicas::kill),
        ),
        (
            "/services/{service}/replicas/{index}/restart",
            post(replicas::restart),
        ),
        (
            "/services/{service}/replicas/{index}/logs",
            get(replicas::logs),
        ),
        ("/watch", get(watch::watch)),
        ("/resolve/{service}", get(endpoints::resolve)),
        ("/resolve/{service}/{port}", get(endpoints::resolve)),
        ("/hosts", get(hosts::list)),
        ("/hosts/{host}", get(hosts::show)),
        ("/hosts/{host}/ports", get(hosts::ports)),
        ("/hosts/{host}/drain", post(host_orders::drain)),
        ("/hosts/{host}/undrain", post(host_orders::undrain)),
        ("/hosts/{host}/down", post(host_orders::down)),
        ("/hosts/{host}/remove", post(host_orders::remove)),
        ("/hosts/{host}/adopt", post(host_orders::adopt)),
        ("/hosts/{host}/fence", post(host_orders::fence)),
        ("/hosts/{host}/ports/history", get(past::ports)),
        ("/hosts/{host}/events", get(past::host_events)),
        ("/hosts/{host}/report", put(agents::report)),
        ("/hosts/{host}/lease", post(agents::lease)),
        ("/hosts/{host}/shutdown", post(agents::shutdown)),
        ("/hosts/{host}/attach", post(attach::attach)),
        ("/hosts/{host}/desired", get(agents::desired)),
        ("/hosts/{host}/reads/{read}", put(agents::log_piece)),
        (
            "/replicas/{service}/{index}/{incarnation}/status",
            put(agents::status),
        ),
        ("/check", post(services::check)),
        ("/explain", post(explain::profile)),
        ("/counters", get(counters::show)),
        ("/backup", get(backup::make)),
        ("/tokens", get(tokens::list).post(tokens::create)),
        ("/tokens/{id}", axum::routing::delete(tokens::revoke)),
        ("/tokens/{id}/rotate", post(tokens::rotate)),
        ("/join", post(tokens::join)),
        ("/whoami", get(identity::whoami)),
    ];
    let api = api.map(|(path, methods)| (format!("{}{path}", paths::ROOT), methods));
    let at_root = [
        ("/healthz", get(healthz)),
        ("/readyz", get(readyz)),
        ("/metrics", get(metrics::show)),
        ("/openapi.json", get(openapi::show)),
    ];
    let at_root = at_root.map(|(path, methods)| (path.to_owned(), methods));
    api.into_iter().chain(at_root).collect()
}

/// All of it, as the envelope calls it.
fn router(app: Arc<App>) -> Router {
    let routes = routes().into_iter();
    routes
        .fold(Router::new(), |router, (path, methods)| {
            router.route(&path, methods)
        })
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(no_such_route)
        .with_state(app)
}

/// The paths of every route.
pub(crate) fn routed() -> Vec<String> {
    routes().into_iter().map(|(path, _)| path).collect()
}

async fn start(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    services::act(app, asker, names, &headers, |service| Command::Start {
        service,
    })
    .await
}

async fn stop(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    services::act(app, asker, names, &headers, |service| Command::Stop {
        service,
    })
    .await
}

async fn restart(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let all = |service| Command::Restart {
        service,
        index: None,
    };
    services::act(app, asker, names, &headers, all).await
}

async fn delete(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    services::act(app, asker, names, &headers, |service| Command::Delete {
        service,
    })
    .await
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
    let cause = app.shown.refused.lock().clone().unwrap_or_default();
    let reason = format!(
        "the store refuses writes: {cause}; reads go on, changes are refused, and it is tried again by itself"
    );
    let refused = Refused::unavailable("not_writable", reason);
    refused.with("cause", cause).into_response()
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
