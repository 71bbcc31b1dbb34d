//! A service beside what is shown of it: what differs, found without a look at replicas of which nothing was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::endpoints::{Change, Endpoint, EndpointState, Entry, ServiceUpdate};
use crate::identity::{ServiceId, ServiceName};
use crate::time::Monotonic;

use super::ServiceView;
use super::machine::Registry;
use super::records::{Phase, Service};
use super::touched::Touch;
use super::truth::ReplicaKey;
use super::views::{is_told_to_restart, under_way};

/// What is shown of one service, to compare with.
#[derive(Debug)]
pub(super) struct ShownService {
    pub(super) name: ServiceName,
    desired: u32,
    /// As published, by index.
    endpoints: BTreeMap<u32, Endpoint>,
    /// Replicas that have not acted on an ordered restart yet.
    restarting: BTreeSet<u32>,
    /// When it was shown last.
    pub(super) at: Monotonic,
}

impl ShownService {
    pub(super) fn is_listed(&self, index: u32) -> bool {
        let endpoint = self.endpoints.get(&index);
        endpoint.is_some_and(|it| it.state.is_listed())
    }

    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> {
        self.endpoints.keys().copied()
    }
}

/// What a look at a service found.
pub(super) enum Look {
    /// It is not there any more, or not yet; where it is shown, under this name.
    Gone(ServiceId, Option<ServiceName>),
    /// It stands.
    Stands(Box<Standing>),
}

/// How a service stands.
pub(super) struct Standing {
    id: ServiceId,
    /// Its new view; `None`: the same.
    view: Option<ServiceView>,
    /// It shows more than how old what is known of it is.
    pub(super) is_change: bool,
    /// What became of its endpoints; `None`: nothing.
    update: Option<ServiceUpdate>,
    restarting: BTreeSet<u32>,
}

impl Look {
    pub(super) const fn is_change(&self) -> bool {
        match self {
            Self::Gone(_, shown) => shown.is_some(),
            Self::Stands(standing) => standing.is_change,
        }
    }

    /// Whether anything is to be shown otherwise, be it only the age of what is known.
    pub(super) const fn is_news(&self) -> bool {
        match self {
            Self::Gone(_, shown) => shown.is_some(),
            Self::Stands(standing) => standing.view.is_some(),
        }
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(..))
    }
}

impl Standing {
    /// Keeps what is to be compared with next time; gives what is to be shown and published now.
    pub(super) fn show(
        self,
        shown: &mut BTreeMap<ServiceId, ShownService>,
        at: Monotonic,
    ) -> (Option<ServiceView>, Option<ServiceUpdate>) {
        if let Some(update) = &self.update {
            let kept = shown.entry(self.id).or_insert_with(|| ShownService {
                name: update.service.clone(),
                desired: update.desired,
                endpoints: BTreeMap::new(),
                restarting: BTreeSet::new(),
                at,
            });
            kept.desired = update.desired;
            match &update.change {
                Change::Whole(all) => kept.endpoints = by_index(all.clone()),
                Change::Parts { upsert, remove } => {
                    kept.endpoints.extend(by_index(upsert.clone()));
                    for index in remove {
                        kept.endpoints.remove(index);
                    }
                }
            }
        }
        if let Some(kept) = shown.get_mut(&self.id) {
            kept.restarting = self.restarting;
            if self.is_change {
                kept.at = at;
            }
        }
        (self.view, self.update)
    }
}

impl Registry {
    /// Compares a service with what is shown of it. Cost: of the replicas that were touched.
    pub(super) fn look(&self, id: ServiceId, touch: &Touch) -> Look {
        let shown = self.shown.services.get(&id);
        let Some(service) = self.truth.services.durable(&id) else {
            return Look::Gone(id, shown.map(|it| it.name.clone()));
        };
        let told = match touch {
            Touch::Replicas(indexes) => self.look_at_replicas(service, indexes),
            Touch::Whole => None,
        };
        Look::Stands(Box::new(told.unwrap_or_else(|| self.look_at_all(service))))
    }

    fn look_at_all(&self, service: &Service) -> Standing {
        let shown = self.shown.services.get(&service.id);
        let replicas = self.durable_replicas(service.id);
        let endpoints = self.endpoints(service, &replicas);
        let told = replicas.iter().filter(|(_, it)| is_told_to_restart(it));
        let restarting: BTreeSet<u32> = told.map(|(index, _)| *index).collect();
        let mut view = self.service_view(service, &replicas);
        view.under_way = under_way(service, restarting.len());
        let change = match shown {
            None => Some(Change::Whole(endpoints)),
            Some(shown) => {
                let before = &shown.endpoints;
                let now: BTreeSet<u32> = endpoints.iter().map(|it| it.replica).collect();
                let gone = before.keys().filter(|index| !now.contains(index));
                let remove: Vec<u32> = gone.copied().collect();
                let mut upsert = endpoints;
                upsert.retain(|it| before.get(&it.replica) != Some(it));
                let same =
                    upsert.is_empty() && remove.is_empty() && shown.desired == service.desired;
                (!same).then_some(Change::Parts { upsert, remove })
            }
        };
        let old = self.shown_view(service);
        // When it changed follows from whether it did.
        let changed = view.changed;
        let (mut same, mut is_aged) = (false, false);
        if let Some(old) = old {
            (view.changed, view.revision) = (old.changed, old.revision);
            same = view == **old;
            is_aged = same || view.same_but_for_age(old);
        }
        let is_change = !is_aged
            || change
                .as_ref()
                .is_some_and(|change| self.tells_more_than_age(service.id, change));
        if is_change {
            view.changed = changed;
        }
        Standing {
            id: service.id,
            view: (!same || change.is_some()).then_some(view),
            is_change,
            update: change.map(|change| update(service, change)),
            restarting,
        }
    }

    /// The same where only these replicas were told of; `None` where more may differ.
    fn look_at_replicas(&self, service: &Service, indexes: &BTreeSet<u32>) -> Option<Standing> {
        let shown = self.shown.services.get(&service.id)?;
        let old = self.shown_view(service)?;
        let (mut view, mut is_change) = (None, false);
        let mut restarting = shown.restarting.clone();
        let (mut upsert, mut ready) = (Vec::new(), old.ready);
        for index in indexes {
            let replica = self.truth.replicas.durable(&(service.id, *index))?;
            let before = old.replicas.of(*index)?;
            let Phase::Placed(placement) = &replica.phase else {
                return None;
            };
            if before.job_state != RUNNING || before.incarnation != replica.incarnation {
                return None;
            }
            if is_told_to_restart(replica) {
                restarting.insert(*index);
            } else {
                restarting.remove(index);
            }
            let labels = shown.endpoints.get(index).map(|it| &it.labels);
            let endpoint = self.endpoint(service, *index, replica, placement, labels)?;
            if shown.endpoints.get(index) != Some(&endpoint) {
                upsert.push(endpoint);
            }
            let now = self.replica_view(service, *index, replica);
            if now != *before {
                is_change |= now.as_last_known() != before.as_last_known();
                ready = ready - u32::from(before.ready) + u32::from(now.ready);
                let view = view.get_or_insert_with(|| ServiceView::clone(old));
                view.replicas.put(now);
            }
        }
        let under_way = under_way(service, restarting.len());
        let remove = Vec::new();
        let change = (!upsert.is_empty()).then_some(Change::Parts { upsert, remove });
        let tells = |change: &Change| self.tells_more_than_age(service.id, change);
        is_change |= under_way != old.under_way || change.as_ref().is_some_and(tells);
        if view.is_some() || change.is_some() || is_change {
            let view = view.get_or_insert_with(|| ServiceView::clone(old));
            view.ready = ready;
            view.under_way = under_way;
            if is_change {
                view.changed = self.now.wall;
            }
        }
        Some(Standing {
            id: service.id,
            view,
            is_change,
            update: change.map(|change| update(service, change)),
            restarting,
        })
    }

    /// Whether readers of endpoints learn more by it than how old what is known is.
    fn tells_more_than_age(&self, id: ServiceId, change: &Change) -> bool {
        let Some(shown) = self.shown.services.get(&id) else {
            return true;
        };
        match change {
            Change::Whole(_) => true,
            Change::Parts { upsert, remove } => {
                let is_aged = |now: &Endpoint| {
                    let before = shown.endpoints.get(&now.replica);
                    before.is_some_and(|before| before.same_but_for_age(now))
                };
                !remove.is_empty() || !upsert.iter().all(is_aged)
            }
        }
    }

    /// Whether something that is listed is not to be any more.
    pub(super) fn is_withdrawn(&self, id: ServiceId, touch: &Touch) -> bool {
        let Some(shown) = self.shown.services.get(&id) else {
            return false;
        };
        let Some(service) = self.truth.services.durable(&id) else {
            return true;
        };
        let leaves = |index: u32| shown.is_listed(index) && !self.is_listed(service, (id, index));
        match touch {
            Touch::Whole => shown.indexes().any(leaves),
            Touch::Replicas(indexes) => indexes.iter().copied().any(leaves),
        }
    }

    fn is_listed(&self, service: &Service, key: ReplicaKey) -> bool {
        let Some(replica) = self.truth.replicas.durable(&key) else {
            return false;
        };
        let Phase::Placed(placement) = &replica.phase else {
            return false;
        };
        let profile = service.profile_of(replica.generation);
        let (state, _): (EndpointState, _) = self.condition(profile, replica, placement);
        state.is_listed()
    }

    /// The view of it that readers have.
    fn shown_view(&self, service: &Service) -> Option<&Arc<ServiceView>> {
        let shown = self.shown.services.get(&service.id)?;
        let view = self.shown.view.services.get(&shown.name)?;
        (view.id == service.id).then_some(view)
    }
}

/// The job state of a replica that has a place.
pub(super) const RUNNING: &str = "RUN";

fn update(service: &Service, change: Change) -> ServiceUpdate {
    ServiceUpdate {
        service: service.name.clone(),
        desired: service.desired,
        change,
    }
}

fn by_index(endpoints: Vec<Endpoint>) -> BTreeMap<u32, Endpoint> {
    let keyed = endpoints.into_iter().map(|it| (it.replica, it));
    keyed.collect()
}
