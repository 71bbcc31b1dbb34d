//! Hosts as people see them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use portreeve::identity::HostName;
use portreeve::registry::{HostView, View};
use portreeve_api::body::HostList;

use crate::app::App;

use super::answer::json;
use super::identity::Asker;
use super::names::Names;
use super::query::Query;
use super::refused::Refused;
use super::services::newest;

/// `GET /hosts`.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    _asker: Asker,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let view = newest(&app);
    let hosts = view.hosts.values();
    Ok(json(&HostList {
        hosts: hosts.map(|host| HostView::clone(host)).collect(),
    }))
}

/// `GET /hosts/{host}`.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    _asker: Asker,
    names: Names,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let view = newest(&app);
    let host = find(&view, &names.host()?)?;
    Ok(json(&*host))
}

/// `GET /hosts/{host}/ports`: ranges, counts, and every number that is not free. Every user sees a host's numbers and
/// their states; who holds one, only who may see the holder.
pub(crate) async fn ports(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let host = names.host()?;
    let ports = app.queue.ports(asker.caller().clone(), host.clone()).await;
    let ports = ports.ok_or_else(Refused::stopping)?;
    Ok(json(&ports.ok_or_else(|| unknown(&host))?))
}

fn find(view: &View, name: &HostName) -> Result<Arc<HostView>, Refused> {
    let host = view.hosts.get(name);
    host.map(Arc::clone).ok_or_else(|| unknown(name))
}

pub(crate) fn unknown(name: &HostName) -> Refused {
    let reason = format!("no host {name} has reported; `portreeve hosts` lists those that have");
    Refused::new(StatusCode::NOT_FOUND, "host_not_found", reason).with("host", name.to_string())
}
