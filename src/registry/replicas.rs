//! What happens to one replica by decision: it is added, stopped, restarted, renewed, ended, forgotten.

use std::time::Duration;

use crate::identity::Incarnation;

use super::host_shutdown::HOST_SHUTDOWN;
use super::machine::Registry;
use super::records::{
    EndKind, Ended, Former, Phase, Replica, StopOrder, StopWhy, WaitCause, Waiting, Wish,
};
use super::truth::ReplicaKey;
use crate::time::Now;

impl Registry {
    /// A replica that waits for its first place.
    pub(super) const fn new_replica(&self, incarnation: Incarnation, generation: u64) -> Replica {
        Replica {
            incarnation,
            generation,
            phase: Phase::Waiting(Waiting {
                cause: WaitCause::Asked,
                rest: None,
            }),
            restart_no: 0,
            since: self.now.wall,
            ready_since: None,
            status: None,
            restarts_earlier: 0,
            failure_earlier: None,
            requeues: 0,
            former: None,
        }
    }

    /// Ends a replica: at once if it has no place, else by ordering its stop.
    pub(super) fn halt(&mut self, key: ReplicaKey, why: StopWhy, by: &str) {
        // A roll may wait for this very replica, which has no process whose end would be told.
        self.attention.insert(key.0);
        let Some(replica) = self.truth.replicas.find(&key) else {
            return;
        };
        match (&replica.phase, why) {
            (Phase::Placed(_), _) => self.order_stop(key, why, by),
            (_, StopWhy::ScaledDown) => self.remove_replica(key),
            (Phase::Waiting(_), StopWhy::Killed) => {
                self.end(key, EndKind::Killed, format!("killed by {by}"));
            }
            (Phase::Waiting(_), _) => self.end(key, EndKind::Stopped, format!("stopped by {by}")),
            // It ended before; why it did stays known.
            (Phase::Ended(_), _) => {}
        }
    }

    /// Orders the stop of a placed replica; ordered already, what follows it is what changes.
    pub(super) fn order_stop(&mut self, key: ReplicaKey, why: StopWhy, by: &str) {
        let id = self.allocated(key);
        let Some(replica) = self.truth.replicas.change(&key) else {
            return;
        };
        let Phase::Placed(placement) = &mut replica.phase else {
            return;
        };
        let host = placement.host;
        let before = placement.stop.replace(StopOrder {
            why,
            by: by.to_owned(),
        });
        if before.is_none() {
            replica.since = self.now.wall;
            if let Some(id) = id {
                self.pools.begin_release(id);
            }
            let text = match why {
                StopWhy::Stopped => format!("stop ordered by {by}"),
                StopWhy::Killed => format!("kill ordered by {by}"),
                StopWhy::ScaledDown => format!("scale-down ordered by {by}"),
                StopWhy::Renewed => format!("stop ordered by {by}; a new incarnation follows"),
                StopWhy::Drained => {
                    format!("host {} is drained by {by}", self.host_name(host))
                }
                StopWhy::HostShutdown => HOST_SHUTDOWN.to_owned(),
            };
            self.tell_replica(key, "stopping", text);
            // Who waits for its ports is told that they are on their way.
            self.waits.wake();
            self.outbox.order(host);
            self.shown.hosts_truth.insert(host);
        }
        self.shown.truth.insert(key.0);
    }

    /// A replica on its way out by a scale-down is wanted after all, as far as its service is.
    pub(super) fn keep(&mut self, key: ReplicaKey) {
        let leaves = |replica: &Replica| match &replica.phase {
            Phase::Placed(placement) => placement
                .stop
                .as_ref()
                .filter(|order| order.why == StopWhy::ScaledDown)
                .map(|order| order.by.clone()),
            _ => None,
        };
        let service = self.truth.services.find(&key.0);
        let why = match service.map(|service| service.wish) {
            Some(Wish::Stopped) => StopWhy::Stopped,
            _ => StopWhy::Renewed,
        };
        if let Some(by) = self.truth.replicas.find(&key).and_then(leaves) {
            self.order_stop(key, why, &by);
        }
    }

    /// Orders a restart in place.
    pub(super) fn restart_in_place(&mut self, key: ReplicaKey, by: &str) {
        let Some(replica) = self.truth.replicas.change(&key) else {
            return;
        };
        // A person at the host may have restarted it beyond what was ordered here: the worker does only what is above that.
        let done = replica.status.as_ref().map_or(0, |told| told.restart_no);
        replica.restart_no = replica.restart_no.max(done).saturating_add(1);
        if let Phase::Placed(placement) = &replica.phase {
            self.outbox.order(placement.host);
        }
        self.tell_replica(key, "restarting", format!("restart ordered by {by}"));
    }

    /// Ends the replica for good, until somebody starts it.
    pub(super) fn end(&mut self, key: ReplicaKey, how: EndKind, reason: String) {
        self.tell_replica(key, how.word(), reason.clone());
        let now = self.now.wall;
        if let Some(replica) = self.truth.replicas.change(&key) {
            let host = match &replica.phase {
                Phase::Placed(placement) => Some(placement.host),
                _ => None,
            };
            replica.phase = Phase::Ended(Ended { how, reason, host });
            replica.since = now;
            replica.ready_since = None;
        }
        self.leave_line(key);
        self.retention.arm(self.now.mono);
    }

    /// Makes the replica wait for a place as its next incarnation, with the newest profile.
    pub(super) fn renew(&mut self, key: ReplicaKey, cause: WaitCause, rest: Option<Duration>) {
        let Some(service) = self.truth.services.find(&key.0) else {
            return;
        };
        let generation = service.generation;
        let now = self.now;
        let Some(incarnation) = self.take_incarnation(key) else {
            return;
        };
        let Some(replica) = self.truth.replicas.change(&key) else {
            return;
        };
        replica.begin_anew(now, incarnation);
        if matches!(cause, WaitCause::GaveUp(_)) {
            replica.requeues = replica.requeues.saturating_add(1);
        }
        replica.generation = generation;
        replica.phase = Phase::Waiting(Waiting { cause, rest });
        self.waits.rest(key, rest.map(|rest| now.mono + rest));
        self.waits.wake();
        self.shown.truth.insert(key.0);
    }

    /// The incarnation of a replica that is not there yet; what is left out for the sake of unknown ones is noted.
    pub(super) fn first_incarnation(&mut self, key: ReplicaKey) -> Incarnation {
        let Some(service) = self.truth.services.find(&key.0) else {
            return Incarnation::default();
        };
        let floor = service.incarnation_floor;
        let first = floor.max(self.above_unknown(&service.name, Some(key.1)));
        if first > floor
            && let Some(service) = self.truth.services.change(&key.0)
        {
            service.skip(floor, first);
        }
        Incarnation(first)
    }

    /// The incarnation that a replica is to become; what is left out for the sake of unknown ones is noted.
    pub(super) fn take_incarnation(&mut self, key: ReplicaKey) -> Option<Incarnation> {
        let before = self.truth.replicas.find(&key)?.incarnation;
        let floor = self.truth.services.find(&key.0)?.incarnation_floor;
        let next = self.next_incarnation(key.0, key.1, before);
        let least = before.0.saturating_add(1).max(floor);
        if next.0 > least
            && let Some(service) = self.truth.services.change(&key.0)
        {
            service.skip(least, next.0);
        }
        Some(next)
    }

    /// Forgets a replica that is not wanted any more; its incarnations never come again.
    pub(super) fn remove_replica(&mut self, key: ReplicaKey) {
        let Some(replica) = self.truth.replicas.find(&key) else {
            return;
        };
        let floor = replica.incarnation.0.saturating_add(1);
        self.truth.replicas.remove(&key);
        if let Some(service) = self.truth.services.change(&key.0) {
            service.incarnation_floor = service.incarnation_floor.max(floor);
        }
        self.leave_line(key);
        self.shown.truth.insert(key.0);
    }

    /// It waits for nothing any more: what was left to it, or counted for it, others may have.
    fn leave_line(&mut self, key: ReplicaKey) {
        self.waits.forget(key);
        self.waits.wake();
    }
}

impl Replica {
    /// Becomes its next incarnation, which has no status yet; what the last one left is kept.
    pub(super) fn begin_anew(&mut self, now: Now, incarnation: Incarnation) {
        self.forget_status(now);
        if let Phase::Placed(placement) = &self.phase {
            self.former = Some(Former {
                host: placement.host,
                grant: placement.grant.clone(),
            });
        }
        self.incarnation = incarnation;
        self.restart_no = 0;
    }

    /// What it told counts no more; what is counted of it is kept.
    pub(super) fn forget_status(&mut self, now: Now) {
        if let Some(status) = self.status.take() {
            self.restarts_earlier = self.restarts_earlier.saturating_add(status.restarts);
            self.failure_earlier = status.last_failure.or(self.failure_earlier.take());
        }
        self.since = now.wall;
        self.ready_since = None;
    }
}
