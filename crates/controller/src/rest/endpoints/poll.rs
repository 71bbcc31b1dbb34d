//! Long polls: a question that is held until its answer is another one.

use portreeve::identity::ServiceName;
use portreeve::rights::Caller;

use crate::app::App;
use crate::rest::query::Hold;
use crate::rest::refused::Refused;
use crate::share::Share;
use crate::watch::{Fingerprint, heard};

use super::found::Found;
use super::view::EndpointsView;

/// Waits as long as the asker wishes for a snapshot it does not have.
///
/// A service that is not there is waited for too, where the asker names a revision or allows for it.
pub(crate) async fn await_change(
    app: &App,
    caller: &Caller,
    name: &ServiceName,
    hold: Hold,
    asked: &EndpointsView,
    allow_missing: bool,
) -> Result<Found, Refused> {
    if hold.since.is_none() {
        // The most frequent question waits for nothing: it needs neither numbers to listen to nor a time by chance.
        let found = Found::of(app, caller, name);
        if found.is_ok() || !allow_missing {
            return found;
        }
    }
    let awaits_name = allow_missing || hold.since.is_some();
    let mut views = app.shown.view.subscribe();
    let mut rights = app.shown.rights.subscribe();
    let mut late = std::pin::pin!(tokio::time::sleep(hold.shortened()));
    let mut stopping = app.stopping.clone();
    let mut share = None;
    // What the asker has, once it is known to be there; until then its number alone tells.
    let mut has = None;
    loop {
        views.mark_unchanged();
        rights.mark_unchanged();
        let handle = app.shown.table.service(name);
        // Before the snapshot is read, so that no change falls between.
        let mut number = handle.map(|handle| asked.listing.subscribe(&handle));
        let found = Found::of(app, caller, name);
        // The view, which tells that a service is there, moves with whatever happens to any.
        let awaits_view = found.is_err();
        match (found, has) {
            (Ok(found), _) if hold.since.is_none() => return Ok(found),
            (Ok(found), None) if hold.is_news(asked.listing.revision(&found.snapshot)) => {
                return Ok(found);
            }
            (Ok(found), None) => has = Some(Fingerprint::of(asked, &found.snapshot)),
            (Ok(found), Some(before)) if before != Fingerprint::of(asked, &found.snapshot) => {
                return Ok(found);
            }
            (Ok(_), Some(_)) => {}
            // It was there: that it is gone is news too.
            (Err(gone), has) if has.is_some() || !awaits_name => return Err(gone),
            (Err(_), _) => {}
        }
        if share.is_none() && !hold.wait.is_zero() {
            share = Some(take_share(app, caller)?);
        }
        tokio::select! {
            () = heard(number.as_mut()) => {}
            // Those who ring are part of what this holds.
            _ = rights.changed() => {}
            _ = views.changed(), if awaits_view => {}
            () = &mut late => return Found::of(app, caller, name),
            () = stopping.said() => return Found::of(app, caller, name),
        }
    }
}

/// The right to be held for a while.
fn take_share(app: &App, caller: &Caller) -> Result<Share<String>, Refused> {
    let bounds = app.limits.held(caller.is_admin());
    let share = app.polls.take(caller.user.clone(), bounds);
    share.ok_or_else(|| {
        let user = &caller.user;
        let reason = format!(
            "as many questions of {user}, or of all, are held as may be; one stream follows many services: GET /api/v1/watch"
        );
        Refused::too_many("too_many_held", reason)
    })
}
