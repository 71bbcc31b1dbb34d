//! Hosts as people see them.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use portreeve::identity::HostName;
use portreeve::registry::{HostView, Refusal, View};
use portreeve_api::body::HostList;
use portreeve_api::paths;

use crate::app::App;

use super::answer::{json, stamp};
use super::identity::Asker;
use super::names::Names;
use super::pages::{Cursor, WantedHosts};
use super::query::Query;
use super::refused::Refused;
use super::seen;
use super::services::newest;

/// The most hosts of one page.
const MAX_PAGE: usize = 1000;

/// `GET /hosts`: in pages that all show the moment of the first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    asker: Asker,
    mut query: Query,
) -> Result<Response, Refused> {
    let filters = query.has("label");
    let wanted = WantedHosts::take(&mut query)?;
    let limit = query.limit(MAX_PAGE)?;
    let cursor = query.parsed::<Cursor<HostName>>("cursor")?;
    query.end()?;
    let caller = asker.caller();
    let (wanted, view) = match &cursor {
        None => (wanted, newest(&app)),
        Some(_) if filters => {
            let reason = "it goes on with the list it came from: give at most limit beside it";
            return Err(Refused::parameter("cursor", reason));
        }
        Some(cursor) => app.host_pages.find(&caller.user, cursor, Instant::now())?,
    };
    let begin = cursor.as_ref().map_or(Bound::Unbounded, |cursor| {
        Bound::Excluded(cursor.after.clone())
    });
    let after = view.hosts.range((begin, Bound::Unbounded));
    let mut after = after
        .map(|(_, host)| host)
        .filter(|host| wanted.includes(host))
        .peekable();
    let hosts: Vec<HostView> = after
        .by_ref()
        .take(limit)
        .map(|host| seen::host(host, caller, &view))
        .collect();
    let last = hosts.last().filter(|_| after.peek().is_some());
    let next_cursor = last.map(|last| {
        let number = match &cursor {
            Some(cursor) => cursor.number,
            None => {
                let view = Arc::clone(&view);
                let pages = &app.host_pages;
                pages.keep(&caller.user, wanted.clone(), view, Instant::now())
            }
        };
        let after = last.host.clone();
        Cursor { number, after }.to_string()
    });
    let link = next_cursor.as_ref().map(|next| {
        let limit = limit.to_string();
        let parameters = [("limit", limit.as_str()), ("cursor", next)];
        let path = paths::with_parameters(&paths::hosts(), &parameters);
        format!("<{path}>; rel=\"next\"")
    });
    let mut response = json(&HostList { next_cursor, hosts });
    if let Some(link) = link {
        stamp(response.headers_mut(), "link", &link);
    }
    Ok(response)
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
    Ok(json(&seen::host(&host, asker.caller(), &view)))
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
    let host = name.clone();
    Refusal::NoSuchHost { host }.into()
}
