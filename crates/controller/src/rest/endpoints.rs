//! Where a service's replicas answer: snapshots, long polls and plain lines.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use portreeve::endpoints::{Endpoint, EndpointPort, EndpointState, Handle, Snapshot, Watcher};
use portreeve::identity::ServiceName;
use portreeve::port::PortName;
use portreeve::registry::ServiceView;
use portreeve::rights::Caller;
use portreeve_api::body::{self, Conditions};

use crate::app::App;

use super::answer::{json, text, wants_text};
use super::identity::Asker;
use super::names::Names;
use super::query::{Hold, Query};
use super::refused::Refused;
use super::seen;

/// Which endpoints an answer lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// Clients may be sent there.
    Ready,
    /// Also those that stop but still answer.
    Serving,
    /// Everything, with reasons.
    All,
}

/// One service as a caller finds it: the view for rights, the snapshot for the answer.
struct Found {
    service: Arc<ServiceView>,
    snapshot: Arc<Snapshot>,
    /// The table's number, read before the snapshot.
    table_revision: u64,
}

/// `GET /services/{service}/endpoints`.
pub(crate) async fn endpoints(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let port = query.text("port")?;
    let states = [
        ("ready", Listing::Ready),
        ("serving", Listing::Serving),
        ("all", Listing::All),
    ];
    let listing = query.one_of("state", &states)?.unwrap_or(Listing::Ready);
    let hold = query.hold()?;
    let allow_missing = query.flag("allow_missing")?;
    query.end()?;
    let name = asker.service(&names)?;
    let caller = asker.caller();
    let found = await_change(&app, caller, &name, hold, listing, allow_missing).await?;
    let port = port
        .map(|port| declared(&found.service, &port))
        .transpose()?;
    let revision = listing.revision(&found.snapshot);
    let stale = is_stale(&app, &found.service);
    let as_text = wants_text(&headers);
    let tag = format!(
        "\"{}-{revision}-{}{}\"",
        app.shown.table.epoch(),
        if as_text { "text" } else { "json" },
        if stale { "-stale" } else { "" },
    );
    let mut response = if listing != Listing::All && matches(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if as_text {
        text(lines(&found, port.as_ref(), listing, Pick::All))
    } else {
        json(&as_body(
            &app,
            &found,
            caller,
            port.as_ref(),
            listing,
            stale,
        ))
    };
    let headers = response.headers_mut();
    if listing != Listing::All {
        insert(headers, "etag", &tag);
    }
    insert(
        headers,
        "portreeve-revision",
        &found.table_revision.to_string(),
    );
    insert(headers, "portreeve-epoch", app.shown.table.epoch());
    if stale {
        insert(headers, "portreeve-stale", "true");
    }
    Ok(response)
}

/// Which of several lines an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// One, at random.
    One,
    /// Every one.
    All,
}

/// `GET /resolve/{service}[/{port}]`: one `host:port` a line; none for a known service without a ready
/// replica.
pub(crate) async fn resolve(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    mut query: Query,
) -> Result<Response, Refused> {
    let picks = [("one", Pick::One), ("all", Pick::All)];
    let pick = query.one_of("pick", &picks)?.unwrap_or(Pick::All);
    query.end()?;
    let name = asker.service(&names)?;
    let found = find(&app, asker.caller(), &name)?;
    let port = match names.text("port") {
        "" => None,
        port => Some(declared(&found.service, port)?),
    };
    let mut response = text(lines(&found, port.as_ref(), Listing::Ready, pick));
    let headers = response.headers_mut();
    insert(
        headers,
        "portreeve-revision",
        &found.table_revision.to_string(),
    );
    insert(headers, "portreeve-epoch", app.shown.table.epoch());
    Ok(response)
}

/// Waits as long as the asker wishes for a snapshot it does not have.
async fn await_change(
    app: &App,
    caller: &Caller,
    name: &ServiceName,
    hold: Hold,
    listing: Listing,
    allow_missing: bool,
) -> Result<Found, Refused> {
    let mut views = app.shown.view.subscribe();
    let appears = || match find(app, caller, name) {
        Err(missing) => (!allow_missing).then_some(Err(missing)),
        found => Some(found),
    };
    let appeared = app.held(hold, &mut views, appears).await;
    let found = match appeared {
        Some(found) => found?,
        None => return find(app, caller, name),
    };
    if hold.since.is_none() {
        return Ok(found);
    }
    let Some(handle) = app.shown.table.service(name) else {
        return find(app, caller, name);
    };
    let mut numbers = listing.subscribe(&handle);
    let changes = || match find(app, caller, name) {
        Ok(found) => {
            let news = hold.is_news(listing.revision(&found.snapshot));
            news.then_some(Ok(found))
        }
        gone => Some(gone),
    };
    match app.held(hold, &mut numbers, changes).await {
        Some(found) => found,
        None => find(app, caller, name),
    }
}

fn find(app: &App, caller: &Caller, name: &ServiceName) -> Result<Found, Refused> {
    let service = app.visible(caller, name)?;
    let table_revision = app.shown.table.revision();
    let handle = app.shown.table.service(name);
    // The table is written before the view, so a service that is gone from it is going from the view.
    let handle = handle.ok_or_else(|| Refused::no_such_service(name))?;
    Ok(Found {
        service,
        snapshot: handle.snapshot(),
        table_revision,
    })
}

impl Listing {
    fn revision(self, snapshot: &Snapshot) -> u64 {
        match self {
            Self::Ready => snapshot.ready_revision(),
            Self::Serving | Self::All => snapshot.mod_revision(),
        }
    }

    fn subscribe(self, handle: &Handle) -> Watcher {
        match self {
            Self::Ready => handle.subscribe_ready(),
            Self::Serving | Self::All => handle.subscribe(),
        }
    }

    fn lists(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Ready => is_listed(endpoint),
            Self::Serving => {
                is_listed(endpoint)
                    || (endpoint.state == EndpointState::Serving && endpoint.address.is_some())
            }
            Self::All => true,
        }
    }
}

fn is_listed(endpoint: &Endpoint) -> bool {
    endpoint.state.is_listed() && endpoint.address.is_some()
}

/// The published port of this name, which the profile must declare.
fn declared(service: &ServiceView, port: &str) -> Result<PortName, Refused> {
    let published = service.profile.ports.iter().filter(|port| port.publish);
    let names: Vec<_> = published.map(|port| &port.name).collect();
    if let Some(name) = names.iter().find(|name| name.as_str() == port) {
        return Ok((*name).clone());
    }
    let port: String = port.chars().take(64).collect();
    let all: Vec<_> = names.iter().map(ToString::to_string).collect();
    let known = match all.as_slice() {
        [] => "it publishes none".to_owned(),
        all => format!("it publishes {}", all.join(", ")),
    };
    let reason = format!("{} publishes no port {port:?}; {known}", service.service);
    Err(
        Refused::new(StatusCode::NOT_FOUND, "port_not_found", reason)
            .with("service", service.service.to_string())
            .with("ports", all),
    )
}

/// Whether a host of it has not reported since the controller started.
fn is_stale(app: &App, service: &ServiceView) -> bool {
    let view = app.shown.view.borrow();
    let mut hosts = service.replicas.iter().filter_map(|r| r.host.as_ref());
    hosts.any(|host| {
        let host = view.hosts.get(host);
        host.is_some_and(|host| host.state == "not reported")
    })
}

/// `host:port` lines: of the named port, else of the first published one.
fn lines(found: &Found, port: Option<&PortName>, listing: Listing, pick: Pick) -> String {
    let endpoints = found.snapshot.entries().map(|(endpoint, _)| endpoint);
    let listed = endpoints.filter(|endpoint| listing.lists(endpoint));
    let line = |endpoint: &Endpoint| {
        let mut ports = endpoint.ports.iter();
        let port = ports.find(|candidate| port.is_none_or(|name| candidate.name == *name))?;
        let first = port.numbers.first().number();
        let address = endpoint.address_of(port)?;
        Some(format!("{}\n", SocketAddr::new(address, first)))
    };
    let mut lines: Vec<_> = listed.filter_map(line).collect();
    if pick == Pick::One && !lines.is_empty() {
        let mut random = [0; 8];
        // Without randomness everybody gets the first, which is still a right answer.
        let _ = getrandom::fill(&mut random);
        let place = u64::from_ne_bytes(random) % lines.len() as u64;
        lines = vec![lines.swap_remove(usize::try_from(place).unwrap_or(0))];
    }
    lines.concat()
}

fn as_body(
    app: &App,
    found: &Found,
    caller: &Caller,
    port: Option<&PortName>,
    listing: Listing,
    stale: bool,
) -> body::Endpoints {
    let snapshot = &found.snapshot;
    let reasons = listing == Listing::All && seen::reads_logs(&found.service, caller);
    let endpoints = snapshot.entries().map(|(endpoint, _)| endpoint);
    let listed = endpoints.filter(|endpoint| listing.lists(endpoint));
    body::Endpoints {
        service: snapshot.service().to_string(),
        epoch: app.shown.table.epoch().to_owned(),
        revision: listing.revision(&found.snapshot),
        port_filter: port.map(ToString::to_string),
        desired: snapshot.desired(),
        ready: u32::try_from(snapshot.ready()).unwrap_or(u32::MAX),
        view_scope: caller.view_scope().to_owned(),
        stale,
        endpoints: listed
            .map(|endpoint| {
                let mut shown = one(endpoint, port);
                shown.reason = shown.reason.filter(|_| reasons);
                shown
            })
            .collect(),
    }
}

fn one(endpoint: &Endpoint, port: Option<&PortName>) -> body::Endpoint {
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
        reason: endpoint.reason.clone(),
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

/// Whether the asker has this very answer.
fn matches(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get_all(header::IF_NONE_MATCH).iter();
    let given = given.filter_map(|value| value.to_str().ok());
    let mut tags = given.flat_map(|value| value.split(','));
    tags.any(|given| {
        let given = given.trim();
        given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag
    })
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // Our own words and numbers; an epoch that is no header text would only be left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
