//! Which services are shown as they were stored: until each of their hosts has told everything since this start.
//!
//! A host takes no new grant before it has reported, so what is stale is known at the start and only gets less.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::{HostId, ServiceId, ServiceName};
use crate::time::Monotonic;

use super::machine::Registry;
use super::records::Phase;

/// The hosts that have not reported, each with the services it runs.
#[derive(Debug, Default)]
pub(super) struct Stale {
    hosts: BTreeMap<HostId, BTreeSet<ServiceId>>,
    /// How many of its hosts each service waits for; none: its last one reported, and the view does not say so yet.
    services: BTreeMap<ServiceId, usize>,
    /// When what is left is stale no more, reported or not.
    until: Option<Monotonic>,
    /// The view tells less than is known here.
    is_news: bool,
}

impl Stale {
    /// The host has reported, or its grace ended.
    pub(super) fn end_of(&mut self, host: HostId) {
        for service in self.hosts.remove(&host).unwrap_or_default() {
            if let Some(left) = self.services.get_mut(&service) {
                *left -= 1;
                self.is_news = true;
            }
        }
    }

    /// Ends what waits for longer than hosts are waited for.
    pub(super) fn on_deadline(&mut self, now: Monotonic) {
        if self.next_deadline().is_some_and(|until| until <= now) {
            let hosts: Vec<HostId> = self.hosts.keys().copied().collect();
            for host in hosts {
                self.end_of(host);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.until.filter(|_| !self.hosts.is_empty())
    }
}

impl Registry {
    /// Takes every stored placement for stale: nobody has reported yet.
    pub(super) fn take_up_stale(&mut self) {
        let stale = &mut self.shown.stale;
        for (key, replica) in self.truth.replicas.iter() {
            if let Phase::Placed(placement) = &replica.phase {
                let services = stale.hosts.entry(placement.host).or_default();
                if services.insert(key.0) {
                    *stale.services.entry(key.0).or_default() += 1;
                    stale.is_news = true;
                }
            }
        }
        stale.until = self.config.stale_for.map(|span| self.now.mono + span);
    }

    /// The stale services by name, if they are others than the view tells. A service whose news waits for the end of
    /// its window stays stale until that is shown.
    pub(super) fn now_stale(&mut self) -> Option<BTreeSet<ServiceName>> {
        if !self.shown.stale.is_news {
            return None;
        }
        let windows = &self.shown.windows;
        let stale = &mut self.shown.stale;
        let mut waits = false;
        stale.services.retain(|service, left| {
            let held = *left == 0 && windows.holds(*service);
            waits |= held;
            *left > 0 || held
        });
        stale.is_news = waits;
        let services = self.shown.stale.services.keys();
        let named = services.filter_map(|id| self.truth.services.durable(id));
        let names: BTreeSet<ServiceName> = named.map(|it| it.name.clone()).collect();
        (names != *self.shown.view.stale).then_some(names)
    }
}
