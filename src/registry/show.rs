//! What readers see, made anew only where something changed: one revision for everything of one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::identity::{HostId, HostName, ServiceId};

use super::look::{Look, ShownService};
use super::machine::Registry;
use super::records::Meta;
use super::stale::Stale;
use super::touched::Touched;
use super::truth::MetaKey;
use super::windows::{WITHDRAWN_WITHIN, Windows};
use super::{Effect, HostView, ServiceView, TokenId, View};

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
    /// Each service as it is shown.
    pub(super) services: BTreeMap<ServiceId, ShownService>,
    /// To be looked at with the next flush.
    pub(super) news: Touched,
    /// News that was looked at and waits for the end of its window.
    pub(super) windows: Windows,
    /// To be looked at with the next durable batch.
    pub(super) truth: Touched,
    pub(super) hosts_news: BTreeSet<HostId>,
    pub(super) hosts_truth: BTreeSet<HostId>,
    /// Names of hosts that were removed.
    pub(super) hosts_gone: BTreeSet<HostName>,
    /// Hosts that gave a sign of life, which alone is no change.
    pub(super) hosts_seen: BTreeSet<HostId>,
    /// Hosts whose wanted set changed by what they told.
    pub(super) orders: BTreeSet<HostId>,
    /// Tokens to be looked at with the next durable batch.
    pub(super) tokens: BTreeSet<TokenId>,
    /// Which services are shown as they were stored.
    pub(super) stale: Stale,
}

impl Shown {
    /// Whether the service was shown since this start.
    pub(super) fn is_shown(&self, service: ServiceId) -> bool {
        self.services.contains_key(&service)
    }

    /// Whether a revision is left below the durable ceiling.
    pub(super) const fn has_revisions(&self) -> bool {
        self.revision + 1 < self.ceiling
    }
}

impl Registry {
    /// Shows what hosts told, on top of what is durable: at once where the service was quiet, else when its window
    /// ends.
    pub(super) fn show_news(&mut self, out: &mut Vec<Effect>) {
        if !self.shown.has_revisions() {
            // No number is left before a higher ceiling is durable; everything waits for that.
            return;
        }
        let mut shown = Touched::default();
        for (service, touch) in std::mem::take(&mut self.shown.news) {
            let before = self.shown.services.get(&service);
            let opens = before.map(|it| it.at + self.config.coalesce);
            match opens {
                Some(end) if end > self.now.mono => {
                    let is_late = end.since(self.now.mono) > WITHDRAWN_WITHIN;
                    let due = if is_late && self.is_withdrawn(service, &touch) {
                        self.now.mono + WITHDRAWN_WITHIN
                    } else {
                        end
                    };
                    self.shown.windows.hold(service, touch, due);
                }
                _ => shown.add(service, touch),
            }
        }
        for service in shown.services() {
            if let Some(held) = self.shown.windows.take(service) {
                shown.add(service, held);
            }
        }
        self.shown.windows.end(self.now.mono, &mut shown);
        let hosts = std::mem::take(&mut self.shown.hosts_news);
        self.show(&shown, &hosts, out);
        let orders = std::mem::take(&mut self.shown.orders);
        self.send_orders(orders, out);
    }

    /// Shows what just became durable, with the newest news of the same services.
    pub(super) fn show_truth(&mut self, out: &mut Vec<Effect>) {
        let mut services = std::mem::take(&mut self.shown.truth);
        for service in services.services() {
            let held = self.shown.windows.take(service);
            let told = self.shown.news.remove(service);
            for touch in held.into_iter().chain(told) {
                services.add(service, touch);
            }
        }
        let mut hosts = std::mem::take(&mut self.shown.hosts_truth);
        hosts.append(&mut self.shown.hosts_news);
        self.show(&services, &hosts, out);
    }

    fn show(&mut self, services: &Touched, hosts: &BTreeSet<HostId>, out: &mut Vec<Effect>) {
        let looks = services.iter().map(|(id, touch)| self.look(id, touch));
        let mut looks: Vec<Look> = looks.collect();
        let mut seen = std::mem::take(&mut self.shown.hosts_seen);
        seen.extend(hosts);
        let gone = std::mem::take(&mut self.shown.hosts_gone);
        let hosts: Vec<HostView> = seen.iter().filter_map(|id| self.host_view(*id)).collect();
        let stale = self.now_stale();
        let before = |host: &HostView| self.shown.view.hosts.get(&host.host);
        // To have been heard of, or not, is no change that anybody waits for.
        let is_news = |host: &HostView| before(host).is_none_or(|old| !host.same_but_for_age(old));
        let changes = looks.iter().any(Look::is_change)
            || hosts.iter().any(is_news)
            || gone
                .iter()
                .any(|host| self.shown.view.hosts.contains_key(host));
        let is_as_before = |host: &HostView| before(host).is_some_and(|old| **old == *host);
        let is_aged = looks.iter().any(Look::is_news);
        if !changes && !is_aged && stale.is_none() && hosts.iter().all(is_as_before) {
            return;
        }
        if changes {
            self.shown.revision += 1;
        }
        let revision = self.shown.revision;
        let at = self.now.mono;
        let view = Arc::make_mut(&mut self.shown.view);
        view.revision = revision;
        for host in gone {
            view.hosts.remove(&host);
        }
        for host in hosts {
            view.hosts.insert(Arc::new(host));
        }
        if let Some(stale) = stale {
            // Nothing is stale before the first view; from then on it only gets less.
            view.synced += u64::from(stale.len() < view.stale.len());
            view.stale = Arc::new(stale);
        }
        let mut published = Vec::new();
        let mut removed = BTreeSet::new();
        // What is gone goes first: its name may be another service's by now.
        looks.sort_by_key(|it| !it.is_gone());
        for look in looks {
            let standing = match look {
                Look::Gone(id, name) => {
                    self.shown.services.remove(&id);
                    if let Some(name) = name {
                        view.services.remove(&name);
                        view.removed = revision;
                        removed.insert(name);
                    }
                    continue;
                }
                Look::Stands(standing) => standing,
            };
            let is_change = standing.is_change;
            let (now, update) = standing.show(&mut self.shown.services, at);
            let Some(mut now) = now else {
                continue;
            };
            removed.remove(&now.service);
            if is_change {
                now.revision = revision;
            }
            let before = view.services.get(&now.service);
            if before.is_some_and(|before| decides_otherwise(before, &now)) {
                view.rights = revision;
                // News: what the batch said before it is true too, only less exact.
                let tell = |meta: &mut Meta| meta.rights = revision;
                self.truth.meta.note(&MetaKey, tell);
            }
            view.services.insert(Arc::new(now));
            published.extend(update);
        }
        if !published.is_empty() || !removed.is_empty() {
            for name in &removed {
                self.engrave(name, revision);
            }
            out.push(Effect::Publish {
                revision,
                services: published,
                removed: removed.into_iter().collect(),
            });
        }
    }
}

/// Whether others may see the service now.
fn decides_otherwise(before: &ServiceView, now: &ServiceView) -> bool {
    before.owner != now.owner
        || before.owner_groups != now.owner_groups
        || before.profile.visibility != now.profile.visibility
}
