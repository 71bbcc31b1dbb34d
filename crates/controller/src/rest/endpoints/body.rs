//! Endpoints as JSON.

use portreeve::endpoints::{Endpoint, EndpointPort, EndpointState};
use portreeve::rights::Caller;
use portreeve_api::body::{self, Conditions};

use crate::app::App;
use crate::rest::seen;

use super::found::Found;
use super::view::{EndpointsView, Listing, is_listed};

/// The answer of a view to a caller.
pub(crate) fn body(
    app: &App,
    found: &Found,
    caller: &Caller,
    asked: &EndpointsView,
    stale: bool,
) -> body::Endpoints {
    let set = found.snapshot.set();
    let reasons = shows_reasons(found, caller, asked);
    let listed = set.endpoints.iter().filter(|e| asked.lists(e));
    let ready = set.endpoints.iter().filter(|e| is_listed(e)).count();
    body::Endpoints {
        service: set.service.to_string(),
        epoch: app.shown.table.epoch().to_owned(),
        revision: asked.listing.revision(&found.snapshot),
        port_filter: asked.port.as_ref().map(ToString::to_string),
        desired: set.desired,
        ready: u32::try_from(ready).unwrap_or(u32::MAX),
        view_scope: caller.view_scope().to_owned(),
        stale,
        endpoints: listed
            .map(|endpoint| entry(endpoint, asked, reasons))
            .collect(),
    }
}

/// Whether this caller reads why a replica is not ready.
pub(crate) fn shows_reasons(found: &Found, caller: &Caller, asked: &EndpointsView) -> bool {
    asked.listing == Listing::All && seen::reads_logs(&found.service, caller)
}

/// One replica of an answer.
pub(crate) fn entry(endpoint: &Endpoint, asked: &EndpointsView, reasons: bool) -> body::Endpoint {
    let port = asked.port.as_ref();
    let ports = endpoint.ports.iter();
    let wanted = ports.filter(|candidate| port.is_none_or(|name| candidate.name == *name));
    let ready = is_listed(endpoint);
    body::Endpoint {
        replica: endpoint.replica,
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
        },
        reason: endpoint.reason.clone().filter(|_| reasons),
        ready_since: endpoint.ready_since.and_then(|at| {
            let ms = i64::try_from(at.as_unix_millis()).ok()?;
            Some(jiff::Timestamp::from_millisecond(ms).ok()?.to_string())
        }),
        restarts: endpoint.restarts,
        labels: endpoint.labels.as_ref().clone(),
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
