//! What changed of one service for one view, told instead of the whole.

use portreeve::endpoints::Listing as Logged;
use portreeve_api::body::Endpoint;
use serde::Serialize;

use crate::rest::endpoints::body::entry;
use crate::rest::endpoints::found::Found;
use crate::rest::endpoints::view::{EndpointsView, Listing};

/// The body of a `changes` event: what is in every event of a service, and the difference.
#[derive(Debug, Serialize)]
pub(crate) struct Changes {
    service: String,
    revision: u64,
    desired: u32,
    ready: usize,
    #[serde(skip_serializing_if = "is_false")]
    stale: bool,
    /// These replace what the watcher has of the same index, or are new.
    upsert: Vec<Endpoint>,
    /// Indices that the watcher shall not list any more; it may not have listed them.
    remove: Vec<u32>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is that of skip_serializing_if"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The difference to what the view showed at `since`; `None` if that is too long ago.
pub(crate) fn changes(
    found: &Found,
    view: &EndpointsView,
    since: u64,
    stale: bool,
    reasons: bool,
) -> Option<Changes> {
    let snapshot = &found.snapshot;
    let logged = match view.listing {
        Listing::Ready => Logged::Ready,
        Listing::Serving | Listing::All => Logged::All,
    };
    let logged = snapshot.changes_since(since, logged)?;
    let mut changes = Changes {
        service: snapshot.service().to_string(),
        revision: view.listing.revision(snapshot),
        desired: snapshot.desired(),
        ready: snapshot.ready(),
        stale,
        upsert: Vec::new(),
        remove: logged.remove,
    };
    for (endpoint, revision) in logged.upsert {
        if view.lists(endpoint) {
            let shown = entry(endpoint, revision, view, reasons);
            changes.upsert.push(shown);
        } else {
            // It may have been in the view before.
            changes.remove.push(endpoint.replica);
        }
    }
    Some(changes)
}

impl Changes {
    /// As JSON.
    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has only text for keys")
    }
}
