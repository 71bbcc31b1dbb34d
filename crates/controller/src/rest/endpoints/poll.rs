//! Long polls: a question that is held until its answer is another one.

use portreeve::identity::ServiceName;
use portreeve::rights::Caller;

use crate::app::App;
use crate::rest::query::Hold;
use crate::rest::refused::Refused;

use super::found::Found;
use super::view::EndpointsView;

/// Waits as long as the asker wishes for a snapshot it does not have.
pub(crate) async fn await_change(
    app: &App,
    caller: &Caller,
    name: &ServiceName,
    hold: Hold,
    asked: &EndpointsView,
    allow_missing: bool,
) -> Result<Found, Refused> {
    let listing = asked.listing;
    let mut views = app.shown.view.subscribe();
    let appears = || match Found::of(app, caller, name) {
        Err(missing) => (!allow_missing).then_some(Err(missing)),
        found => Some(found),
    };
    let appeared = app.held(hold, &mut views, appears).await;
    let found = match appeared {
        Some(found) => found?,
        None => return Found::of(app, caller, name),
    };
    if hold.since.is_none() {
        return Ok(found);
    }
    let Some(handle) = app.shown.table.service(name) else {
        return Found::of(app, caller, name);
    };
    let mut numbers = listing.subscribe(&handle);
    let changes = || match Found::of(app, caller, name) {
        Ok(found) => {
            let news = hold.is_news(listing.revision(&found.snapshot));
            news.then_some(Ok(found))
        }
        gone => Some(gone),
    };
    match app.held(hold, &mut numbers, changes).await {
        Some(found) => found,
        None => Found::of(app, caller, name),
    }
}
