//! How long what is over is kept: services that ended 7 days, events 30, who had which port 90, tokens 30
//! after they are over.
//!
//! Looked at once an hour as long as there is something that grows old, and from what is stored alone, so that a start
//! or a refused batch delays it and nothing more. What is old is told by the wall clock, which may be wrong for a
//! moment after a boot: nothing is forgotten within [`FIRST_LOOK`] of a start.

use std::time::Duration;

use crate::identity::ServiceId;
use crate::time::{Monotonic, WallClock};

use super::machine::Registry;
use super::records::{Phase, Service, Wish};

/// How long a service that ended is kept, unless it is deleted or started before: 7 days.
pub(super) const ENDED_KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);

/// What was kept long enough is looked for so often.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Not before so long after a start.
const FIRST_LOOK: Duration = Duration::from_secs(600);

/// The most services that are forgotten in one batch.
const FORGOTTEN_AT_ONCE: usize = 1_000;

/// When it is next looked for what was kept long enough.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retention(Option<Monotonic>);

impl Retention {
    /// Something is over, and will have been kept long enough one day.
    pub(super) fn arm(&mut self, now: Monotonic) {
        self.0.get_or_insert(now + LOOK_EVERY);
    }

    pub(super) const fn next_deadline(&self) -> Option<Monotonic> {
        self.0
    }
}

impl Registry {
    /// Looks first some time after a start, if there is anything to look for.
    pub(super) fn take_up_retention(&mut self) {
        if self.has_aging() {
            self.retention = Retention(Some(self.now.mono + FIRST_LOOK));
        }
    }

    /// Forgets what was kept long enough, if it is time to look for that.
    pub(super) fn end_retention(&mut self) {
        let now = self.now;
        if self.retention.0.is_none_or(|due| due > now.mono) {
            return;
        }
        if self.outbox.is_resting(now.mono) {
            // The store refuses; what is forgotten has to be written.
            self.retention = Retention(Some(now.mono + self.config.news_delay));
            return;
        }
        self.expire_history(now.wall);
        self.expire_events(now.wall);
        self.expire_tokens(now.wall);
        let mut ended = self.ended_before(now.wall.before(ENDED_KEPT_FOR));
        let is_more = ended.len() > FORGOTTEN_AT_ONCE;
        ended.truncate(FORGOTTEN_AT_ONCE);
        for service in ended {
            self.forget_service(service);
        }
        let again = if is_more {
            self.config.news_delay
        } else {
            LOOK_EVERY
        };
        self.retention = Retention(self.has_aging().then(|| now.mono + again));
    }

    /// When the service ended: nothing of it lives or waits, and its owner did not stop it. A stopped one is kept until
    /// it is deleted: who stops a service wants to start it again.
    pub(super) fn ended_at(&self, service: &Service) -> Option<WallClock> {
        if service.wish == Wish::Stopped && !service.attached {
            return None;
        }
        let mut newest = None;
        for (_, replica) in self.truth.replicas_of(service.id) {
            if !matches!(replica.phase, Phase::Ended(_)) {
                return None;
            }
            newest = newest.max(Some(replica.since));
        }
        newest
    }

    fn ended_before(&self, moment: WallClock) -> Vec<ServiceId> {
        let services = self.truth.services.iter();
        let old = services.filter(|(_, it)| self.ended_at(it).is_some_and(|at| at < moment));
        old.map(|(id, _)| *id).collect()
    }

    fn has_aging(&self) -> bool {
        let mut services = self.truth.services.iter();
        self.has_past_tenures()
            || self.has_aging_tokens()
            || services.any(|(_, it)| self.ended_at(it).is_some())
    }
}
