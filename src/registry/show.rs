//! What readers see, made anew only where something changed: one revision for everything of one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::endpoints::ServiceEndpoints;
use crate::identity::{HostId, ServiceId, ServiceName};

use super::machine::Registry;
use super::{Effect, HostView, ServiceView, View};

/// What was shown last, and what may differ from it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) view: Arc<View>,
    /// The newest revision given.
    pub(super) revision: u64,
    /// Durable: revisions stay below it. 0 before the first batch: nothing is shown until then.
    pub(super) ceiling: u64,
    /// The number of the newest order.
    pub(super) last_order: u64,
    /// The newest endpoints, as published.
    endpoints: BTreeMap<ServiceId, ServiceEndpoints>,
    /// To be looked at with the next flush.
    pub(super) news: BTreeSet<ServiceId>,
    /// To be looked at with the next durable batch.
    pub(super) truth: BTreeSet<ServiceId>,
    pub(super) hosts_news: BTreeSet<HostId>,
    pub(super) hosts_truth: BTreeSet<HostId>,
    /// Hosts that gave a sign of life, which alone is no change.
    pub(super) hosts_seen: BTreeSet<HostId>,
    /// Hosts whose wanted set changed by what they told.
    pub(super) orders: BTreeSet<HostId>,
}

impl Shown {
    /// Whether the service was shown since this start.
    pub(super) fn is_shown(&self, service: ServiceId) -> bool {
        self.endpoints.contains_key(&service)
    }
}

impl Registry {
    /// Shows what hosts told, on top of what is durable.
    pub(super) fn show_news(&mut self, out: &mut Vec<Effect>) {
        if self.shown.revision + 1 >= self.shown.ceiling {
            // No number is left before a higher ceiling is durable; everything waits for that.
            return;
        }
        let services = std::mem::take(&mut self.shown.news);
        let hosts = std::mem::take(&mut self.shown.hosts_news);
        self.show(&services, &hosts, out);
        let orders = std::mem::take(&mut self.shown.orders);
        self.send_orders(orders, out);
    }

    /// Shows what just became durable.
    pub(super) fn show_truth(&mut self, out: &mut Vec<Effect>) {
        let mut services = std::mem::take(&mut self.shown.truth);
        services.append(&mut self.shown.news);
        let mut hosts = std::mem::take(&mut self.shown.hosts_truth);
        hosts.append(&mut self.shown.hosts_news);
        self.show(&services, &hosts, out);
    }

    fn show(
        &mut self,
        services: &BTreeSet<ServiceId>,
        hosts: &BTreeSet<HostId>,
        out: &mut Vec<Effect>,
    ) {
        let mut shown = services.iter().map(|id| self.look(*id)).collect::<Vec<_>>();
        shown.retain(|it| it.is_change());
        let mut seen = std::mem::take(&mut self.shown.hosts_seen);
        seen.extend(hosts);
        let hosts: Vec<HostView> = seen.iter().filter_map(|id| self.host_view(*id)).collect();
        let before = |host: &HostView| self.shown.view.hosts.get(&host.host);
        let is_news = |host: &HostView| {
            before(host).is_none_or(|old| {
                // To have been heard of is no change that anybody waits for.
                HostView {
                    last_seen: old.last_seen,
                    ..host.clone()
                } != **old
            })
        };
        let changes = !shown.is_empty() || hosts.iter().any(is_news);
        if !changes
            && hosts
                .iter()
                .all(|host| before(host).is_some_and(|old| **old == *host))
        {
            return;
        }
        if changes {
            self.shown.revision += 1;
        }
        let revision = self.shown.revision;
        let view = Arc::make_mut(&mut self.shown.view);
        view.revision = revision;
        for host in hosts {
            view.hosts.insert(host.host.clone(), Arc::new(host));
        }
        let mut published = Vec::new();
        let mut removed = BTreeSet::new();
        // What is gone goes first: its name may be another service's by now.
        shown.sort_by_key(|it| it.now.is_some());
        for Look { id, before, now } in shown {
            let Some((mut service, endpoints)) = now else {
                self.shown.endpoints.remove(&id);
                if let Some(name) = before {
                    view.services.remove(&name);
                    removed.insert(name);
                }
                continue;
            };
            removed.remove(&service.service);
            service.revision = revision;
            view.services
                .insert(service.service.clone(), Arc::new(service));
            if let Some(endpoints) = endpoints {
                self.shown.endpoints.insert(id, endpoints.clone());
                published.push(endpoints);
            }
        }
        if !published.is_empty() || !removed.is_empty() {
            out.push(Effect::Publish {
                revision,
                services: published,
                removed: removed.into_iter().collect(),
            });
        }
    }

    /// One service as it is shown and as it is.
    fn look(&self, id: ServiceId) -> Look {
        let published = self.shown.endpoints.get(&id);
        let before = published.map(|endpoints| endpoints.service.clone());
        let Some(service) = self.truth.services.durable(&id) else {
            return Look {
                id,
                before,
                now: None,
            };
        };
        let endpoints = self.endpoints(service);
        let mut view = self.service_view(service, &endpoints);
        let old = before
            .as_ref()
            .and_then(|name| self.shown.view.services.get(name))
            .filter(|old| old.id == id);
        let endpoints = (published != Some(&endpoints)).then_some(endpoints);
        // When it changed follows from whether it did.
        let changed = view.changed;
        let same = old.is_some_and(|old| {
            (view.changed, view.revision) = (old.changed, old.revision);
            view == **old
        });
        view.changed = changed;
        if same && endpoints.is_none() {
            return Look {
                id,
                before: None,
                now: None,
            };
        }
        Look {
            id,
            before,
            now: Some((view, endpoints)),
        }
    }
}

/// A service beside what is shown of it.
struct Look {
    id: ServiceId,
    /// The name under which it is shown.
    before: Option<ServiceName>,
    /// Its new view, and its endpoints where those differ; `None`: it is gone, or nothing differs.
    now: Option<(ServiceView, Option<ServiceEndpoints>)>,
}

impl Look {
    const fn is_change(&self) -> bool {
        self.before.is_some() || self.now.is_some()
    }
}
