//! Hosts as people see them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use portreeve::identity::HostName;
use portreeve::registry::{HostView, PortView, View};
use portreeve::rights::Caller;
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
    asker: Asker,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let view = newest(&app);
    let hosts = view.hosts.values();
    Ok(json(&HostList {
        hosts: hosts
            .map(|host| seen(host, &view, asker.caller()))
            .collect(),
    }))
}

/// `GET /hosts/{host}`.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let view = newest(&app);
    let host = find(&view, &names.host()?)?;
    Ok(json(&seen(&host, &view, asker.caller())))
}

/// `GET /hosts/{host}/ports`: every number that is held, releasing, cooling or foreign.
pub(crate) async fn ports(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let view = newest(&app);
    let host = find(&view, &names.host()?)?;
    Ok(json(&seen(&host, &view, asker.caller()).ports))
}

fn find(view: &View, name: &HostName) -> Result<Arc<HostView>, Refused> {
    view.hosts.get(name).map(Arc::clone).ok_or_else(|| {
        let reason =
            format!("no host {name} has reported; `portreeve hosts` lists those that have");
        Refused::new(StatusCode::NOT_FOUND, "host_not_found", reason).with("host", name.to_string())
    })
}

/// Every user sees a host's numbers and their states; who holds one, only who may see the holder.
fn seen(host: &HostView, view: &View, caller: &Caller) -> HostView {
    let visible = |port: &PortView| {
        caller.admin
            || port.service.as_ref().is_none_or(|name| {
                let service = view.services.get(name);
                service.is_some_and(|s| caller.may_see(&s.owner, &s.profile.visibility))
            })
    };
    let mut seen = host.clone();
    for port in &mut seen.ports {
        if !visible(port) {
            port.service = None;
            port.replica = None;
            port.detail = None;
        }
    }
    seen
}
