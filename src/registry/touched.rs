//! What may look different than it is shown: whole services, or some replicas of them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::identity::ServiceId;

use super::truth::ReplicaKey;

/// Services to be looked at again.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched(BTreeMap<ServiceId, Touch>);

/// How much of a service is to be looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// Everything.
    Whole,
    /// What was told of these replicas; nothing was decided.
    Replicas(BTreeSet<u32>),
}

impl Touched {
    /// The whole service.
    pub(super) fn insert(&mut self, service: ServiceId) {
        self.0.insert(service, Touch::Whole);
    }

    /// One replica, of which something was told.
    pub(super) fn insert_replica(&mut self, (service, index): ReplicaKey) {
        self.add(service, Touch::Replicas(BTreeSet::from([index])));
    }

    pub(super) fn extend(&mut self, services: impl IntoIterator<Item = ServiceId>) {
        for service in services {
            self.insert(service);
        }
    }

    pub(super) fn add(&mut self, service: ServiceId, touch: Touch) {
        match self.0.entry(service) {
            Entry::Vacant(place) => {
                place.insert(touch);
            }
            Entry::Occupied(mut place) => place.get_mut().join(touch),
        }
    }

    pub(super) fn remove(&mut self, service: ServiceId) -> Option<Touch> {
        self.0.remove(&service)
    }

    #[cfg(test)]
    pub(super) fn contains(&self, service: ServiceId) -> bool {
        self.0.contains_key(&service)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which services are among it.
    pub(super) fn services(&self) -> Vec<ServiceId> {
        self.0.keys().copied().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ServiceId, &Touch)> {
        self.0.iter().map(|(service, touch)| (*service, touch))
    }
}

impl IntoIterator for Touched {
    type Item = (ServiceId, Touch);
    type IntoIter = std::collections::btree_map::IntoIter<ServiceId, Touch>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Touch {
    /// Adds what another look found out about.
    pub(super) fn join(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Replicas(all), Self::Replicas(more)) => all.extend(more),
            (_, Self::Whole) => *self = Self::Whole,
            (Self::Whole, Self::Replicas(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_of_a_service_is_looked_at_whatever_was_told_of_its_replicas_before_or_after() {
        let service = ServiceId(1);
        for whole_at in 0..3 {
            let mut touched = Touched::default();
            for turn in 0..3 {
                if turn == whole_at {
                    touched.add(service, Touch::Whole);
                } else {
                    touched.insert_replica((service, turn));
                }
            }
            assert_eq!(touched.remove(service), Some(Touch::Whole));
        }
    }

    #[test]
    fn replicas_that_were_told_of_one_by_one_are_all_looked_at() {
        let mut touched = Touched::default();
        for index in [3, 1, 3] {
            touched.insert_replica((ServiceId(1), index));
        }
        let both = Touch::Replicas(BTreeSet::from([1, 3]));
        assert_eq!(touched.remove(ServiceId(1)), Some(both));
    }
}
