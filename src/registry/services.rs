//! A service as a whole: how many replicas it has, whether it runs, which profiles it keeps.

use crate::identity::{Incarnation, ServiceId};

use super::machine::Registry;
use super::records::{EndKind, Phase, Roll, StopWhy, WaitCause, Wish};

impl Registry {
    /// Makes the service have this many replicas: ends the highest, adds above.
    pub(super) fn resize(&mut self, id: ServiceId, replicas: u32, by: &str) {
        let Some(service) = self.truth.services.change(&id) else {
            return;
        };
        service.desired = replicas;
        let (wish, generation) = (service.wish, service.generation);
        if let Some(roll) = &mut service.roll {
            roll.remaining.retain(|index| *index < replicas);
        }
        let above: Vec<u32> = self
            .truth
            .replicas
            .range((id, replicas)..=(id, u32::MAX))
            .map(|((_, index), _)| *index)
            .collect();
        for index in above {
            self.halt((id, index), StopWhy::ScaledDown, by);
        }
        for index in 0..replicas {
            let key = (id, index);
            match self.truth.replicas.find(&key) {
                Some(_) => self.keep(key),
                None if wish == Wish::Running => {
                    let first = self.first_incarnation(key);
                    let replica = self.new_replica(first, generation);
                    self.truth.replicas.insert(key, replica);
                }
                None => {}
            }
        }
        self.waits.wake();
        self.attention.insert(id);
        self.shown.truth.insert(id);
    }

    /// Makes the service run: every ended replica that `again` names starts with a fresh budget, missing ones
    /// are added, and what stops by the owner's wish follows as a new incarnation. False: nothing to do.
    pub(super) fn run_again(
        &mut self,
        id: ServiceId,
        by: &str,
        again: impl Fn(EndKind) -> bool,
    ) -> bool {
        // What ended and is not settled yet looks like what runs, and would stay ended.
        self.settle(id);
        let Some(service) = self.truth.services.find(&id) else {
            return false;
        };
        let mut changed = service.wish == Wish::Stopped;
        let (desired, generation) = (service.desired, service.generation);
        for index in 0..desired {
            let key = (id, index);
            match self.truth.replicas.find(&key).map(|replica| &replica.phase) {
                None => {
                    let first = self.first_incarnation(key);
                    let replica = self.new_replica(first, generation);
                    self.truth.replicas.insert(key, replica);
                    changed = true;
                }
                Some(Phase::Ended(ended)) if again(ended.how) => {
                    if let Some(replica) = self.truth.replicas.change(&key) {
                        replica.requeues = 0;
                    }
                    self.renew(key, WaitCause::Asked, None);
                    changed = true;
                }
                Some(Phase::Placed(placement)) => {
                    let stops = placement.stop.as_ref().map(|order| order.why);
                    let follows = |why| {
                        let renews = [StopWhy::Renewed, StopWhy::Drained, StopWhy::HostShutdown];
                        renews.contains(&why)
                    };
                    if stops.is_some_and(|why| !follows(why)) {
                        self.order_stop(key, StopWhy::Renewed, by);
                        changed = true;
                    }
                }
                Some(_) => {}
            }
        }
        if changed && let Some(service) = self.truth.services.change(&id) {
            service.wish = Wish::Running;
            self.waits.wake();
            self.attention.insert(id);
            self.shown.truth.insert(id);
        }
        changed
    }

    /// Begins to take one replica after the other.
    pub(super) fn begin_roll(&mut self, id: ServiceId, roll: Roll) {
        if let Some(service) = self.truth.services.change(&id) {
            service.roll = Some(roll);
        }
        self.attention.insert(id);
        self.shown.truth.insert(id);
    }

    /// Forgets a service of which nothing lives, but for its name and its incarnations.
    pub(super) fn forget_service(&mut self, id: ServiceId) {
        let Some(service) = self.truth.services.find(&id) else {
            return;
        };
        let (name, mut floor) = (service.name.clone(), service.incarnation_floor);
        let all = self.truth.replicas_of(id);
        let replicas: Vec<(u32, Incarnation)> =
            all.map(|(index, it)| (index, it.incarnation)).collect();
        for (index, incarnation) in replicas {
            floor = floor.max(incarnation.0.saturating_add(1));
            self.truth.replicas.remove(&(id, index));
            self.waits.forget((id, index));
        }
        let all = (id, 0)..=(id, u64::MAX);
        let events: Vec<_> = self.truth.events.range(all).map(|(key, _)| *key).collect();
        for key in events {
            self.truth.events.remove(&key);
        }
        self.event_logs.forget(id);
        self.orphan_stranded(id);
        self.truth.services.remove(&id);
        self.names.remove(&name);
        self.shown.truth.insert(id);
        self.bury(&name, floor);
    }

    /// Forgets profiles that no replica runs any more.
    pub(super) fn prune_profiles(&mut self, service: ServiceId) {
        let Some(found) = self.truth.services.find(&service) else {
            return;
        };
        let used = |generation: &u64| {
            *generation == found.generation
                || self
                    .truth
                    .replicas_of(service)
                    .any(|(_, replica)| replica.generation == *generation)
        };
        let unused: Vec<u64> = found
            .profiles
            .keys()
            .copied()
            .filter(|generation| !used(generation))
            .collect();
        if !unused.is_empty()
            && let Some(found) = self.truth.services.change(&service)
        {
            found
                .profiles
                .retain(|generation, _| !unused.contains(generation));
        }
    }
}
