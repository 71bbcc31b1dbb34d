//! Where a service's replicas answer: snapshots, long polls and plain lines.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use portreeve::rights::Caller;

use crate::app::App;
use crate::watch;

use super::accept::{self, Form};
use super::answer::{stamp, terms, text, written};
use super::envelope::{REVISION_HEADER, SYNCED_HEADER};
use super::identity::Asker;
use super::names::Names;
use super::query::Query;
use super::refused::Refused;
use super::tag;

pub(crate) mod body;
pub(crate) mod found;
mod lines;
mod poll;
pub(crate) mod view;

use found::Found;
use lines::{Pick, lines};
use view::{EndpointsView, Listing};

/// `GET /services/{service}/endpoints`.
pub(crate) async fn endpoints(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let forms = [Form::Json, Form::Text, Form::Events, Form::Lines];
    let form = accept::choose(&headers, &forms)?;
    let asked = EndpointsView::take(&mut query)?;
    let name = asker.service(&names)?;
    if let Some(format) = watch::Format::of(form) {
        let asked = watch::Asked::one(name.clone(), asked, format, &mut query, &headers)?;
        query.end()?;
        if asked.since.is_none()
            && let Ok(service) = app.visible(asker.caller(), &name)
        {
            // One that comes back is not refused: that would end an `EventSource` for ever.
            asked.view.of(&service)?;
        }
        return Ok(watch::answer(&app, asked, asker));
    }
    for name in ["since", "delta"] {
        if query.has(name) {
            let reason = "for a stream: ask with Accept: text/event-stream or application/x-ndjson";
            return Err(Refused::parameter(name, reason));
        }
    }
    let mut hold = query.hold()?;
    if query
        .text("epoch")?
        .is_some_and(|epoch| epoch != app.shown.table.epoch())
    {
        // Its number is another line's, so this answer is another one than it has.
        hold.wait = Duration::ZERO;
    }
    let allow_missing = query.flag("allow_missing")?;
    query.end()?;
    let caller = asker.caller();
    let found = poll::await_change(&app, caller, &name, hold, &asked, allow_missing).await?;
    asked.of(&found.service)?;
    let tag = entity_tag(&app, &found, caller, &asked, form);
    let held = tag.as_deref().and_then(|tag| tag::held(&headers, tag));
    let mut response = if held.is_some() {
        unchanged()
    } else if form == Form::Text {
        text(lines(&found.snapshot, &asked, &Pick::All { seed: None }))
    } else {
        let body = body::bytes(&app, &found, caller, &asked);
        written(Form::Json, body?)
    };
    tell(&found, held.or(tag), &mut response);
    hold.mark(&mut response);
    Ok(response)
}

/// `GET /resolve/{service}[/{port}]`: one `host:port` a line; none for a known service without a ready
/// replica.
pub(crate) async fn resolve(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    accept::choose(&headers, &[Form::Text])?;
    let pick = Pick::take(&mut query)?;
    query.end()?;
    let name = asker.service(&names)?;
    let port = match names.text("port") {
        "" => None,
        port => Some(port.parse().map_err(Refused::name)?),
    };
    let asked = EndpointsView::ready(port);
    let caller = asker.caller();
    let found = Found::of(&app, caller, &name)?;
    asked.of(&found.service)?;
    // A choice is not a version of anything, unless it is of all in their order.
    let whole = pick == Pick::All { seed: None };
    let tag = whole.then(|| entity_tag(&app, &found, caller, &asked, Form::Text));
    let tag = tag.flatten();
    let held = tag.as_deref().and_then(|tag| tag::held(&headers, tag));
    let mut response = if held.is_some() {
        unchanged()
    } else {
        text(lines(&found.snapshot, &asked, &pick))
    };
    tell(&found, held.or(tag), &mut response);
    Ok(response)
}

/// Names the bytes of an answer: `"epoch-revision-form-view"`, with `-stale` at its end while it is. `None` under
/// `state=all`, which also shows what moves no revision.
fn entity_tag(
    app: &App,
    found: &Found,
    caller: &Caller,
    asked: &EndpointsView,
    form: Form,
) -> Option<String> {
    if asked.listing == Listing::All {
        return None;
    }
    let epoch = app.shown.table.epoch();
    let revision = asked.listing.revision(&found.snapshot);
    let form = if form == Form::Text { "text" } else { "json" };
    let view = asked.mark(caller);
    let stale = if found.stale { "-stale" } else { "" };
    Some(format!("\"{epoch}-{revision}-{form}-{view}{stale}\""))
}

fn unchanged() -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    terms(response.headers_mut());
    response
}

/// What the headers tell of an answer.
fn tell(found: &Found, tag: Option<String>, response: &mut Response) {
    let headers = response.headers_mut();
    if let Some(Ok(tag)) = tag.map(HeaderValue::try_from) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(&REVISION_HEADER, found.table_revision.into());
    headers.insert(&SYNCED_HEADER, found.synced_ms().into());
    if found.stale {
        stamp(headers, "portreeve-stale", "true");
    }
}
