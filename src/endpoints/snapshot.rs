//! One version of one service, as readers see it.

use crate::endpoints::{Endpoint, Entry, ServiceEndpoints};

/// One version of a service: immutable, so that a reader's view is never torn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot<E = Endpoint> {
    set: ServiceEndpoints<E>,
    mod_revision: u64,
    ready_revision: u64,
    /// When each endpoint of `set` last changed; same order.
    entry_revisions: Vec<u64>,
    /// Which endpoints of `set` a default answer lists, ascending.
    listed: Vec<usize>,
    removed: bool,
}

impl<E: Entry> Snapshot<E> {
    /// The first version of a service.
    pub(super) fn first(set: ServiceEndpoints<E>, revision: u64) -> Self {
        let entry_revisions = vec![revision; set.endpoints.len()];
        Self::build(set, revision, revision, entry_revisions)
    }

    /// The version after this one, or `None` if `set` shows nothing new.
    ///
    /// Between ready and unconfirmed only the age of our knowledge differs: the version is replaced,
    /// but keeps its numbers, so that a silent host wakes nobody.
    pub(super) fn next(&self, set: ServiceEndpoints<E>, revision: u64) -> Option<Self> {
        if self.set == set {
            return None;
        }
        let entry_revisions: Vec<u64> = set
            .endpoints
            .iter()
            .map(|new| {
                self.entry(&new.key())
                    .filter(|(old, _)| old.same_but_for_age(new))
                    .map_or(revision, |(_, since)| since)
            })
            .collect();
        let any_entry =
            entry_revisions.contains(&revision) || set.endpoints.len() != self.set.endpoints.len();
        let desired = set.desired != self.set.desired;
        let next = Self::build(set, revision, revision, entry_revisions);
        let listed = self.listed.len() != next.listed.len()
            || self
                .listed()
                .zip(next.listed())
                .any(|(old, new)| !old.same_but_for_age(new));
        Some(Self {
            mod_revision: if any_entry || desired {
                revision
            } else {
                self.mod_revision
            },
            // How many replicas there shall be stands in the default answer too.
            ready_revision: if listed || desired {
                revision
            } else {
                self.ready_revision
            },
            ..next
        })
    }

    /// What a kept handle finds once the service is gone.
    pub(super) fn tombstone(&self, revision: u64) -> Self {
        let gone = ServiceEndpoints {
            service: self.set.service.clone(),
            desired: 0,
            endpoints: Vec::new(),
        };
        Self {
            removed: true,
            ..Self::first(gone, revision)
        }
    }

    fn build(
        set: ServiceEndpoints<E>,
        mod_revision: u64,
        ready_revision: u64,
        entry_revisions: Vec<u64>,
    ) -> Self {
        let places = set.endpoints.iter().enumerate();
        let listed = places.filter(|(_, endpoint)| endpoint.is_listed());
        Self {
            listed: listed.map(|(place, _)| place).collect(),
            set,
            mod_revision,
            ready_revision,
            entry_revisions,
            removed: false,
        }
    }

    /// Everything the table holds of the service: what `state=all` shows.
    #[must_use]
    pub const fn set(&self) -> &ServiceEndpoints<E> {
        &self.set
    }

    /// When anything shown last changed.
    #[must_use]
    pub const fn mod_revision(&self) -> u64 {
        self.mod_revision
    }

    /// When the default answer last changed: the listed endpoints, or how many there shall be.
    #[must_use]
    pub const fn ready_revision(&self) -> u64 {
        self.ready_revision
    }

    /// Whether the service was removed. A handle that finds this has ended; a later service of the
    /// same name is found by looking the name up again.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.removed
    }

    /// The endpoints of a default answer, by replica.
    pub fn listed(&self) -> impl ExactSizeIterator<Item = &E> + Clone {
        self.listed.iter().map(|place| &self.set.endpoints[*place])
    }

    /// Every endpoint, by replica, with the revision of its last change.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&E, u64)> + Clone {
        let revisions = self.entry_revisions.iter().copied();
        self.set.endpoints.iter().zip(revisions)
    }

    /// The endpoint of one replica with the revision of its last change. Cost: one binary search.
    #[must_use]
    pub fn entry(&self, replica: &E::Key) -> Option<(&E, u64)> {
        let endpoints = &self.set.endpoints;
        let place = endpoints
            .binary_search_by(|entry| entry.key().cmp(replica))
            .ok()?;
        Some((&endpoints[place], self.entry_revisions[place]))
    }
}
