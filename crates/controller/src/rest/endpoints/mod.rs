//! Where a service's replicas answer: snapshots, long polls and plain lines.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::app::App;
use crate::watch;

use super::answer::{json, text, wants_text};
use super::identity::Asker;
use super::names::Names;
use super::query::Query;
use super::refused::Refused;

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
    method: Method,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let asked = EndpointsView::take(&mut query)?;
    let name = asker.service(&names)?;
    if let Some(format) = watch::Format::named(&headers) {
        let asked = watch::Asked::one(name, asked, format, &mut query, &headers)?;
        query.end()?;
        return Ok(watch::answer(&app, &method, asked, asker.caller().clone()));
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
    let revision = asked.listing.revision(&found.snapshot);
    let stale = found.is_stale(&app);
    let as_text = wants_text(&headers);
    let tag = format!(
        "\"{}-{revision}-{}{}\"",
        app.shown.table.epoch(),
        if as_text { "text" } else { "json" },
        if stale { "-stale" } else { "" },
    );
    let mut response = if asked.listing != Listing::All && matches(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if as_text {
        text(lines(&found.snapshot, &asked, Pick::All))
    } else {
        json(&body::body(&app, &found, caller, &asked, stale))
    };
    let headers = response.headers_mut();
    if asked.listing != Listing::All {
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
    hold.mark(&mut response);
    Ok(response)
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
    let found = Found::of(&app, asker.caller(), &name)?;
    let port = match names.text("port") {
        "" => None,
        port => Some(port.parse().map_err(Refused::name)?),
    };
    let asked = EndpointsView::ready(port);
    asked.of(&found.service)?;
    let mut response = text(lines(&found.snapshot, &asked, pick));
    let headers = response.headers_mut();
    insert(
        headers,
        "portreeve-revision",
        &found.table_revision.to_string(),
    );
    insert(headers, "portreeve-epoch", app.shown.table.epoch());
    Ok(response)
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
