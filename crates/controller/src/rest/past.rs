//! What was: events of services and hosts, and who had which port.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use portreeve::port::Port;
use portreeve::registry::{EventView, HistoryQuestion};
use portreeve::time::WallClock;
use portreeve_api::body::EventList;
use portreeve_api::moment::Moment;

use crate::app::App;
use crate::clock;

use super::answer::json;
use super::hosts::unknown;
use super::identity::Asker;
use super::names::Names;
use super::query::Query;
use super::refused::Refused;
use super::seen;

/// A log has at most a thousand events, and the failures that are kept beyond.
const MAX_EVENTS: usize = 1_010;

/// Which events are asked for.
struct Asked {
    since: Option<WallClock>,
    limit: usize,
    replica: Option<u32>,
}

impl Asked {
    fn of(query: &mut Query) -> Result<Self, Refused> {
        Ok(Self {
            since: moment(query, "since")?,
            limit: query.limit(MAX_EVENTS)?,
            replica: None,
        })
    }

    /// The newest of those asked for, oldest first.
    fn among(&self, mut events: Vec<EventView>) -> EventList {
        events.retain(|event| {
            self.since.is_none_or(|since| event.at >= since)
                && self
                    .replica
                    .is_none_or(|index| event.replica == Some(index))
        });
        let left_out = events.len().saturating_sub(self.limit);
        events.drain(..left_out);
        EventList {
            events,
            left_out: u64::try_from(left_out).unwrap_or(u64::MAX),
        }
    }
}

/// `GET /services/{service}/events`: for who may read its logs.
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    mut query: Query,
) -> Result<Response, Refused> {
    let mut asked = Asked::of(&mut query)?;
    asked.replica = query.read("replica", "the index of a replica")?;
    query.end()?;
    let name = asker.service(&names)?;
    let service = app.visible(asker.caller(), &name)?;
    seen::readable(&service, asker.caller(), "events")?;
    let events = app.queue.events(name).await;
    let events = events.ok_or_else(Refused::stopping)?;
    Ok(json(&asked.among(events)))
}

/// `GET /hosts/{host}/events`: for everybody, as they name no service.
pub(crate) async fn host_events(
    State(app): State<Arc<App>>,
    _asker: Asker,
    names: Names,
    mut query: Query,
) -> Result<Response, Refused> {
    let asked = Asked::of(&mut query)?;
    query.end()?;
    let host = names.host()?;
    let events = app.queue.host_events(host.clone()).await;
    let events = events.ok_or_else(Refused::stopping)?;
    Ok(json(&asked.among(events.ok_or_else(|| unknown(&host))?)))
}

/// `GET /hosts/{host}/ports/history`: numbers and times for everybody; who it was, only for who may see that.
pub(crate) async fn ports(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    mut query: Query,
) -> Result<Response, Refused> {
    let asked = HistoryQuestion {
        port: query.read::<Port>("port", "a port, 1 to 65535")?,
        at: moment(&mut query, "at")?,
        since: moment(&mut query, "since")?,
    };
    query.end()?;
    if asked.at.is_some() && asked.since.is_some() {
        let reason = "it asks for one moment: give at or since, not both";
        return Err(Refused::parameter("at", reason));
    }
    let host = names.host()?;
    let reader = asker.caller().clone();
    let history = app.queue.port_history(reader, host.clone(), asked).await;
    let history = history.ok_or_else(Refused::stopping)?;
    Ok(json(&history.ok_or_else(|| unknown(&host))?))
}

/// A parameter that names a moment, by this machine's clock where it is before now.
fn moment(query: &mut Query, name: &str) -> Result<Option<WallClock>, Refused> {
    let Some(text) = query.text(name)? else {
        return Ok(None);
    };
    // The + of +01:00 stands for a blank in an address, where it is not written as %2B.
    let moment: Result<Moment, _> = text.replace(' ', "+").parse();
    let moment = moment.map_err(|cause| Refused::parameter(name, cause))?;
    Ok(Some(moment.at(clock::now().wall)))
}
