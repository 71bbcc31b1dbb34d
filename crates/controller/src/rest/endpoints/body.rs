//! Endpoints as JSON.

use bytes::Bytes;
use portreeve::endpoints::{Endpoint, EndpointPort, EndpointState, Snapshot};
use portreeve::rights::Caller;
use portreeve_api::body::{self, Conditions};

use crate::app::App;
use crate::rest::answer::around;
use crate::rest::refused::Refused;
use crate::rest::seen;

use super::found::Found;
use super::view::{EndpointsView, Listing, is_listed};

/// The answer of a view to a caller, as JSON.
pub(crate) fn bytes(
    app: &App,
    found: &Found,
    caller: &Caller,
    asked: &EndpointsView,
) -> Result<Bytes, Refused> {
    let head = head(app, found, caller, asked);
    let reasons = shows_reasons(found, caller, asked);
    // An empty text is no list: a rendering that failed is told as such.
    let render = |snapshot: &Snapshot| {
        serde_json::to_vec(&entries(snapshot, asked, reasons)).unwrap_or_default()
    };
    if asked.is_plain() {
        // The same for every reader: written once a revision.
        let entries = found.snapshot.rendered(|snapshot| render(snapshot).into());
        return around(&head, &entries);
    }
    around(&head, &render(&found.snapshot))
}

/// The answer without its endpoints.
fn head(app: &App, found: &Found, caller: &Caller, asked: &EndpointsView) -> body::Endpoints {
    let snapshot = &found.snapshot;
    body::Endpoints {
        service: snapshot.service().to_string(),
        epoch: app.shown.table.epoch().to_owned(),
        revision: asked.listing.revision(snapshot),
        port_filter: asked.port.as_ref().map(ToString::to_string),
        desired: snapshot.desired(),
        ready: u32::try_from(snapshot.ready()).unwrap_or(u32::MAX),
        view_scope: caller.view_scope().into_owned(),
        stale: found.stale,
        endpoints: Vec::new(),
    }
}

/// Whether this caller reads why a replica is not ready.
pub(crate) fn shows_reasons(found: &Found, caller: &Caller, asked: &EndpointsView) -> bool {
    asked.listing == Listing::All && seen::reads_logs(&found.service, caller)
}

/// What of a snapshot a view lists, by replica.
pub(crate) fn entries(
    snapshot: &Snapshot,
    asked: &EndpointsView,
    reasons: bool,
) -> Vec<body::Endpoint> {
    let listed = snapshot.entries().filter(|(entry, _)| asked.lists(entry));
    listed
        .map(|(endpoint, revision)| entry(endpoint, revision, asked, reasons))
        .collect()
}

/// One replica of an answer; `revision` is that of its last change.
pub(crate) fn entry(
    endpoint: &Endpoint,
    revision: u64,
    asked: &EndpointsView,
    reasons: bool,
) -> body::Endpoint {
    let port = asked.port.as_ref();
    let ports = endpoint.ports.iter();
    let wanted = ports.filter(|candidate| port.is_none_or(|name| candidate.name == *name));
    let ready = is_listed(endpoint);
    let all = asked.listing == Listing::All;
    body::Endpoint {
        replica: endpoint.replica,
        job: endpoint.job.clone(),
        host: endpoint.host.to_string(),
        address: endpoint.address,
        ports: wanted.map(one_port).collect(),
        conditions: Conditions {
            ready,
            serving: ready || endpoint.state == EndpointState::Serving,
            terminating: matches!(
                endpoint.state,
                EndpointState::Serving | EndpointState::Terminating
            ),
            // It moves no revision, so only the answer that has no tag shows it.
            unconfirmed: all && endpoint.state == EndpointState::Unconfirmed,
        },
        reason: endpoint.reason.clone().filter(|_| reasons),
        ready_since: endpoint.ready_since.and_then(|at| {
            let ms = i64::try_from(at.as_unix_millis()).ok()?;
            Some(jiff::Timestamp::from_millisecond(ms).ok()?.to_string())
        }),
        restarts: endpoint.restarts,
        weight: body::Endpoint::WEIGHT,
        labels: endpoint.labels.as_ref().clone(),
        revision,
    }
}

fn one_port(port: &EndpointPort) -> body::EndpointPort {
    body::EndpointPort {
        name: port.name.to_string(),
        port: port.numbers.first().number(),
        count: u16::try_from(port.numbers.count()).unwrap_or(u16::MAX),
        protocol: port.protocol.to_string().to_ascii_uppercase(),
        app_protocol: port.app_protocol.clone(),
        path: port.path.clone(),
        network: port.network.as_ref().map(ToString::to_string),
        address: port.address,
    }
}
