//! What agents and workers say and ask.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use portreeve::identity::{HostName, Incarnation};
use portreeve::registry::{Desired, HostFacts, Input, ReplicaReport};
use portreeve::supervision::{State as ReplicaState, Status};
use portreeve_api::SENT_HEADER;
use portreeve_api::body::{
    AgentIdentity, DesiredReplica, DesiredSet, LOG_INCARNATION_HEADER, LOG_OFFSET_HEADER, Lease,
    LeaseAsk,
};
use portreeve_api::local::Tokens;

use crate::app::App;
use crate::clock;
use crate::desk::Handout;
use crate::reads::Piece;
use crate::token::{Bearer, ReplicaToken};

use super::answer::json;
use super::body;
use super::counters;
use super::identity::{Asker, Speaker};
use super::names::Names;
use super::query::{Hold, Query};
use super::refused::Refused;

/// An agent's question is held at most so long.
const HOLD: Duration = Duration::from_secs(30);

/// `PUT /hosts/{host}/report`.
pub(crate) async fn report(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    asker.agent()?;
    counters::count(&app.heard.reports);
    let host = names.host()?;
    let ahead_ms = ahead(&request);
    let mut facts: HostFacts = body::json(request, body::MAX_REPORT).await?;
    same_host(&host, &facts.host)?;
    for replica in &facts.replicas {
        same_host(&host, &replica.host)?;
    }
    if let Some(ahead_ms) = ahead_ms {
        for replica in &mut facts.replicas {
            replica.status = replica.status.clone().by_a_clock_behind(ahead_ms);
        }
    }
    if facts.published.is_some_and(|ip| ip.is_loopback()) && !app.single_host {
        facts.published = None;
        facts.address_rule += "; loopback is published only where single_host is set";
    }
    // No client could reach it, whatever rule an agent went by.
    if facts
        .published
        .is_some_and(|ip| ip.is_unspecified() || ip.is_multicast())
    {
        facts.published = None;
        facts.address_rule += "; a wildcard or multicast address is never published";
    }
    if let Some(agent) = &facts.agent {
        app.seat(&host, agent)?;
    }
    let mut ends = facts.replicas.iter().map(|replica| &replica.status);
    let truth = ends.any(is_end);
    tell(&app, Input::HostReport(facts), truth).await
}

/// `POST /hosts/{host}/lease`.
pub(crate) async fn lease(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    asker.agent()?;
    counters::count(&app.heard.leases);
    let host = names.host()?;
    let LeaseAsk { agent, skew_ms } = body::json(request, body::MAX).await?;
    if let Some(agent) = &agent {
        app.seat(&host, agent)?;
    }
    app.queue.tell(Input::Lease { host, skew_ms }).await?;
    Ok(acknowledged(&app))
}

/// `POST /hosts/{host}/shutdown`: answered once it is decided, so that what the agent ends then is told as what it is.
pub(crate) async fn shutdown(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    asker.agent()?;
    let host = names.host()?;
    let LeaseAsk { agent, .. } = body::json(request, body::MAX).await?;
    if let Some(agent) = &agent {
        app.seat(&host, agent)?;
    }
    app.queue.tell(Input::HostShutdown { host }).await?;
    Ok(acknowledged(&app))
}

/// `GET /hosts/{host}/desired`.
pub(crate) async fn desired(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    mut query: Query,
) -> Result<Response, Refused> {
    let since = query.read("since", "a revision: write the number of the last set")?;
    let agent: Option<AgentIdentity> = query.read("agent", "as MACHINE/BOOT/FOLDER")?;
    query.end()?;
    asker.agent()?;
    let host = names.host()?;
    if let Some(agent) = &agent {
        app.seat(&host, agent)?;
    }
    let desk = app.shown.desks.of(&host);
    let mut bell = desk.subscribe();
    let hold = Hold { since, wait: HOLD };
    let handout = app.held(hold, &mut bell, || desk.take(since)).await;
    let handout = handout.unwrap_or_else(|| desk.take_all());
    Ok(json(&as_set(&app, &handout)))
}

/// `PUT /hosts/{host}/reads/{read}`.
pub(crate) async fn log_piece(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    asker.agent()?;
    let host = names.host()?;
    let number = names.number("read")?;
    let headers = request.headers();
    let incarnation = number_in(headers, LOG_INCARNATION_HEADER);
    let offset = number_in(headers, LOG_OFFSET_HEADER);
    let offset = offset.ok_or_else(|| {
        Refused::body(format!(
            "header {LOG_OFFSET_HEADER} says where the piece begins"
        ))
    })?;
    let bytes = body::whole(request, body::MAX).await?;
    let piece = Piece {
        offset,
        incarnation,
        bytes,
    };
    if app.reads.answer(&host, number, piece) {
        return Ok(acknowledged(&app));
    }
    let reason = format!("nobody waits for read {number} of {host} any more");
    Err(Refused::new(
        StatusCode::NOT_FOUND,
        "read_not_found",
        reason,
    ))
}

fn number_in<T: std::str::FromStr>(headers: &http::HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// `PUT /replicas/{service}/{index}/{incarnation}/status`.
pub(crate) async fn status(
    State(app): State<Arc<App>>,
    Speaker(token): Speaker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    counters::count(&app.heard.statuses);
    let path = (
        names.text("service").parse().map_err(Refused::name)?,
        names.number("index")?,
        Incarnation(names.number("incarnation")?),
    );
    if path != (token.service.clone(), token.index, token.incarnation) {
        return Err(Refused::forbidden(format!(
            "the token speaks for replica {}/{} in incarnation {} only",
            token.service, token.index, token.incarnation
        )));
    }
    let host = host_of(&app, &token).ok_or_else(|| {
        let reason = format!(
            "incarnation {} of {}/{} is not known here, any more or yet",
            token.incarnation, token.service, token.index
        );
        Refused::new(StatusCode::NOT_FOUND, "replica_not_found", reason)
    })?;
    let ahead_ms = ahead(&request);
    let mut status: Status = body::json(request, body::MAX).await?;
    if let Some(ahead_ms) = ahead_ms {
        status = status.by_a_clock_behind(ahead_ms);
    }
    let truth = is_end(&status);
    let input = Input::Status(ReplicaReport {
        host,
        service: token.service,
        index: token.index,
        incarnation: token.incarnation,
        service_id: None,
        grant: None,
        status,
    });
    tell(&app, input, truth).await
}

/// How far the sender's clock is ahead of ours, if it is far off: what it tells of moments is then shifted by it.
fn ahead(request: &Request<Body>) -> Option<i64> {
    /// Nearer ones are left as told: the way here takes some of it, and a moment told twice stays the same.
    const NEAR_MS: u64 = 2000;
    let sent: u64 = request
        .headers()
        .get(SENT_HEADER)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    let sent = i64::try_from(sent).ok()?;
    let now = i64::try_from(clock::wall().as_unix_millis()).ok()?;
    let ahead = sent.saturating_sub(now);
    (ahead.unsigned_abs() > NEAR_MS).then_some(ahead)
}

/// An end frees ports: who tells it may forget it only once that is on disk.
const fn is_end(status: &Status) -> bool {
    matches!(status.state, ReplicaState::Final(_))
}

async fn tell(app: &App, input: Input, truth: bool) -> Result<Response, Refused> {
    if truth {
        app.queue.tell_durably(input).await?;
    } else {
        app.queue.tell(input).await?;
    }
    Ok(acknowledged(app))
}

/// Where the token's incarnation is placed: a worker does not say where it runs, we do.
fn host_of(app: &App, token: &ReplicaToken) -> Option<HostName> {
    let view = app.shown.view.borrow();
    let service = view.services.get(&token.service)?;
    let mut replicas = service.replicas.iter();
    let replica = replicas.find(|replica| {
        (replica.replica, replica.incarnation) == (token.index, token.incarnation)
    })?;
    (service.id == token.service_id).then(|| replica.host.clone())?
}

fn same_host(path: &HostName, told: &HostName) -> Result<(), Refused> {
    if path == told {
        return Ok(());
    }
    Err(Refused::body(format!(
        "the path speaks of host {path}, the body of {told}"
    )))
}

/// Every acknowledgement names the controller's instance, so that a change of it is seen soon.
fn acknowledged(app: &App) -> Response {
    json(&Lease {
        instance: app.instance.clone(),
        now: Some(clock::wall()),
        host_grace_ms: u64::try_from(app.host_grace.as_millis()).ok(),
        period_ms: u64::try_from(app.lease_period.as_millis()).ok(),
    })
}

fn as_set(app: &App, handout: &Handout) -> DesiredSet {
    let orders = handout.orders.as_deref();
    let replicas = orders.map_or(&[][..], |orders| &orders.replicas);
    DesiredSet {
        instance: app.instance.clone(),
        revision: orders.map_or(0, |orders| orders.revision),
        report_first: orders.is_none_or(|orders| orders.report_first),
        replicas: replicas
            .iter()
            .map(|desired| DesiredReplica {
                tokens: tokens(app, desired),
                desired: desired.clone(),
            })
            .collect(),
        reads: handout.reads.clone(),
    }
}

pub(super) fn tokens(app: &App, desired: &Desired) -> Tokens {
    let token = ReplicaToken {
        service: desired.service.clone(),
        service_id: desired.service_id,
        index: desired.index,
        incarnation: desired.incarnation,
    };
    Tokens {
        worker: app.key.sign(&token, Bearer::Worker),
        job: app.key.sign(&token, Bearer::Job),
    }
}
