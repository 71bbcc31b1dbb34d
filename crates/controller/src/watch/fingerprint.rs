//! What a view shows of a snapshot, as one number.

use std::hash::{DefaultHasher, Hash, Hasher};

use portreeve::endpoints::Snapshot;

use crate::rest::endpoints::view::{EndpointsView, Listing};

/// Equal for two snapshots of one service that a view shows alike.
///
/// A view of everything that is ready, or of everything, changes with the snapshot's own numbers. One that
/// shows a part changes less often; whoever waits with it must sleep through what happens to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// Cost: for a view of a part, linear in the service's endpoints.
    pub(crate) fn of(view: &EndpointsView, snapshot: &Snapshot) -> Self {
        let whole = view.host.is_none() && view.labels.is_empty();
        if whole && view.listing != Listing::Serving {
            return Self(view.listing.revision(snapshot));
        }
        let mut print = DefaultHasher::new();
        snapshot.desired().hash(&mut print);
        for (endpoint, revision) in snapshot.entries() {
            if view.lists(endpoint) {
                (endpoint.replica, revision).hash(&mut print);
            }
        }
        Self(print.finish())
    }
}
