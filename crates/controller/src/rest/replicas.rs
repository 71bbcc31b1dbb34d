//! One replica: kill, restart, and what it writes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use portreeve::identity::HostName;
use portreeve::registry::{Command, Refusal, ServiceView};
use portreeve::rights::Caller;
use portreeve_api::body::{LOG_INCARNATION_HEADER, LOG_OFFSET_HEADER};
use tokio::time::Instant;

use crate::app::App;
use crate::reads::{Piece, Wanted};

use super::answer::json;
use super::identity::Asker;
use super::names::Names;
use super::query::Query;
use super::refused::Refused;
use super::{seen, services, tag};

/// `GET /services/{service}/replicas/{index}`.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let name = asker.service(&names)?;
    let index = names.number("index")?;
    let service = app.visible(asker.caller(), &name)?;
    let service = seen::service(&service, asker.caller());
    match service.replicas.of(index) {
        Some(replica) => Ok(json(replica)),
        None => {
            let service = service.service.clone();
            Err(Refusal::NoSuchReplica { service, index }.into())
        }
    }
}

/// `POST /services/{service}/replicas/{index}/kill`.
pub(crate) async fn kill(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let service = asker.service(&names)?;
    let index = names.number("index")?;
    let kill = tag::conditional(&headers, Command::Kill { service, index })?;
    Ok(json(&services::command(&app, asker.acting()?, kill).await?))
}

/// `POST /services/{service}/replicas/{index}/restart`.
pub(crate) async fn restart(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let service = asker.service(&names)?;
    let index = Some(names.number("index")?);
    let restart = tag::conditional(&headers, Command::Restart { service, index })?;
    Ok(json(
        &services::command(&app, asker.acting()?, restart).await?,
    ))
}

/// An agent has so long to answer.
const AGENT_ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// A reader who follows waits at most so long for something to be written.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// How often a waiting reader's host is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The most bytes of one piece.
const MAX_PIECE: u32 = 1 << 20;
const DEFAULT_PIECE: u32 = 64 << 10;

/// `GET /services/{service}/replicas/{index}/logs`.
pub(crate) async fn logs(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    mut query: Query,
) -> Result<Response, Refused> {
    let streams = [
        ("stdout", "stdout"),
        ("stderr", "stderr"),
        ("events", "events"),
        ("events-before", "events-before"),
    ];
    let stream = query.one_of("stream", &streams)?.unwrap_or("stdout");
    let offset = query.read("offset", "an offset in bytes")?;
    let incarnation = query.read("incarnation", "the number of an incarnation")?;
    let max = query
        .read("max", "a number of bytes")?
        .unwrap_or(DEFAULT_PIECE);
    let wait = query.span("wait")?.unwrap_or_default().min(MAX_WAIT);
    query.end()?;
    let name = asker.service(&names)?;
    let index = names.number("index")?;
    let caller = asker.caller();
    let deadline = Instant::now() + wait;
    let mut stopping = app.stopping.clone();
    let piece = loop {
        // Looked up anew each time: the replica may be placed elsewhere meanwhile, or the right be lost.
        let service = app.visible(caller, &name)?;
        seen::readable(&service, caller, "logs")?;
        if service.attached && stream.starts_with("std") {
            return Err(not_here(&service, index));
        }
        let wanted = Wanted {
            service: name.clone(),
            index,
            stream,
            offset,
            incarnation,
            max: max.min(MAX_PIECE),
        };
        let piece = ask(&app, &host_of(&service, caller, index)?, wanted).await?;
        let moved = offset.is_some_and(|offset| piece.offset != offset)
            || incarnation.is_some() && piece.incarnation != incarnation;
        if !piece.bytes.is_empty() || moved || Instant::now() >= deadline {
            break piece;
        }
        let next = deadline.min(Instant::now() + ASK_AGAIN);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = stopping.said() => break piece,
        }
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    let offset = [(LOG_OFFSET_HEADER, piece.offset.to_string())];
    let mut response = (headers, offset, piece.bytes).into_response();
    if let Some(incarnation) = piece.incarnation {
        let value = http::HeaderValue::from(incarnation);
        response.headers_mut().insert(LOG_INCARNATION_HEADER, value);
    }
    Ok(response)
}

/// The output of an attached replica is its job's.
fn not_here(service: &ServiceView, index: u32) -> Refused {
    let mut replicas = service.replicas.iter();
    let replica = replicas.find(|replica| replica.replica == index);
    let job = replica.and_then(|replica| replica.job.clone());
    let job = job.unwrap_or_else(|| "another scheduler".to_owned());
    let reason = format!(
        "{}/{index} is attached: its output is in the files that its job of {job} writes to",
        service.service
    );
    Refused::new(StatusCode::CONFLICT, "no_logs", reason)
}

/// Where it ran last. `caller` may read what it writes, and so why it does not.
fn host_of(service: &Arc<ServiceView>, caller: &Caller, index: u32) -> Result<HostName, Refused> {
    let service = seen::service(service, caller);
    let mut replicas = service.replicas.iter();
    let Some(replica) = replicas.find(|replica| replica.replica == index) else {
        let service = service.service.clone();
        return Err(Refusal::NoSuchReplica { service, index }.into());
    };
    replica.host.clone().ok_or_else(|| {
        let why = replica.reason.as_ref();
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let reason = format!(
            "{}/{index} is on no host, so nobody keeps its output: it is {}{why}",
            service.service, replica.state
        );
        Refused::new(StatusCode::CONFLICT, "no_logs", reason)
    })
}

async fn ask(app: &App, host: &HostName, wanted: Wanted) -> Result<Piece, Refused> {
    let is_lost = {
        let view = app.shown.view.borrow();
        view.hosts.get(host).is_some_and(|it| it.state == "lost")
    };
    if is_lost {
        let reason = format!(
            "host {host} is lost, so nobody there can be asked; `portreeve hosts` shows when it was last heard of"
        );
        return Err(Refused::new(
            StatusCode::GATEWAY_TIMEOUT,
            "host_silent",
            reason,
        ));
    }
    let asked = app.reads.ask(&app.shown.desks, host, wanted);
    let mut read = asked.map_err(|_| {
        Refused::unavailable(
            "too_many_reads",
            "too many readers wait for logs; ask again",
        )
    })?;
    match tokio::time::timeout(AGENT_ANSWERS_WITHIN, read.piece()).await {
        Ok(Some(piece)) => Ok(piece),
        _ => Err(Refused::new(
            StatusCode::GATEWAY_TIMEOUT,
            "host_silent",
            format!(
                "the agent of {host} did not answer within {} s; `portreeve hosts` shows when it was last heard of",
                AGENT_ANSWERS_WITHIN.as_secs()
            ),
        )),
    }
}
