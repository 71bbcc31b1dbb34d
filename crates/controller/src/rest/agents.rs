//! What agents and workers say and ask.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use portreeve::commit::{self, Handout};
use portreeve::identity::Incarnation;
use portreeve::registry::Desired;
use portreeve::residency::ReplicaName;
use portreeve::time::WallClock;
use portreeve_api::SENT_HEADER;
use portreeve_api::body::{
    AgentIdentity, DesiredReplica, DesiredSet, HostFacts, LOG_INCARNATION_HEADER,
    LOG_OFFSET_HEADER, LeaseAsk, LogRead,
};
use portreeve_api::local::Tokens;

use crate::app::App;
use crate::reads::Piece;
use crate::token::{Bearer, ReplicaToken};

use super::answer::json;
use super::body;
use super::counters;
use super::identity::{Agent, Speaker};
use super::names::Names;
use super::query::Query;
use super::refused::Refused;

/// `PUT /hosts/{host}/report`.
pub(crate) async fn report(
    State(app): State<Arc<App>>,
    agent: Agent,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let host = names.host()?;
    agent.of(&host)?;
    counters::count(&app.heard.reports);
    let sent = sent(&request);
    let facts: HostFacts = body::json(request, body::MAX_REPORT).await?;
    agent.on(facts.agent.as_ref())?;
    Ok(json(&app.report(&host, facts, sent).await?))
}

/// `POST /hosts/{host}/lease`.
pub(crate) async fn lease(
    State(app): State<Arc<App>>,
    agent: Agent,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let host = names.host()?;
    agent.of(&host)?;
    counters::count(&app.heard.leases);
    let ask: LeaseAsk = body::json(request, body::MAX).await?;
    agent.on(ask.agent.as_ref())?;
    let lease = app.lease(host, ask.agent.as_ref(), ask.skew_ms).await?;
    Ok(json(&lease))
}

/// `POST /hosts/{host}/shutdown`: answered once it is decided, so that what the agent ends then is told as what it is.
pub(crate) async fn shutdown(
    State(app): State<Arc<App>>,
    agent: Agent,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let host = names.host()?;
    agent.of(&host)?;
    let ask: LeaseAsk = body::json(request, body::MAX).await?;
    agent.on(ask.agent.as_ref())?;
    Ok(json(&app.shutdown(host, ask.agent.as_ref()).await?))
}

/// `GET /hosts/{host}/desired`.
pub(crate) async fn desired(
    State(app): State<Arc<App>>,
    agent: Agent,
    names: Names,
    mut query: Query,
) -> Result<Response, Refused> {
    let since = query.read("since", "a revision: write the number of the last set")?;
    let identity: Option<AgentIdentity> = query.read("agent", "as MACHINE/BOOT/FOLDER")?;
    query.end()?;
    let host = names.host()?;
    agent.of(&host)?;
    agent.on(identity.as_ref())?;
    let handout = app.desired(&host, identity.as_ref(), since).await?;
    Ok(json(&as_set(&app, handout)))
}

/// `PUT /hosts/{host}/reads/{read}`.
pub(crate) async fn log_piece(
    State(app): State<Arc<App>>,
    agent: Agent,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let host = names.host()?;
    agent.of(&host)?;
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
        return Ok(json(&app.acknowledged()));
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
    let sent = sent(&request);
    let speaker = commit::Speaker {
        name: ReplicaName {
            service: token.service,
            index: token.index,
            incarnation: token.incarnation,
        },
        service_id: token.service_id,
    };
    // Before its status is read: one that nobody knows is not worth it.
    let host = app.place_of(&speaker)?;
    let status = body::json(request, body::MAX).await?;
    Ok(json(&app.status(host, speaker, status, sent).await?))
}

/// What the sender's clock showed.
fn sent(request: &Request<Body>) -> Option<WallClock> {
    let sent = request.headers().get(SENT_HEADER)?.to_str().ok()?;
    sent.parse().ok().map(WallClock::from_unix_millis)
}

fn as_set(app: &App, handout: Handout<LogRead>) -> DesiredSet {
    let replicas = handout.replicas().iter().map(|desired| DesiredReplica {
        tokens: tokens(app, desired),
        desired: desired.clone(),
    });
    DesiredSet {
        instance: app.instance.clone(),
        revision: handout.revision(),
        report_first: handout.report_first(),
        replicas: replicas.collect(),
        reads: handout.errands,
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
