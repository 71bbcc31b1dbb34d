//! Changes that take one replica after the other, highest index first, each waiting for READY.

use crate::identity::ServiceId;
use crate::supervision::{State, Status};

use super::machine::Registry;
use super::records::{EndKind, Phase, Replica, Roll, RollKind, StopWhy, WaitCause};

/// How the replica stands that a roll took last.
enum Step {
    /// It is not ready yet.
    UnderWay,
    /// It is ready, or was ended or completed: the next may come.
    Passed,
    /// It failed: the roll ends here.
    Failed(String),
}

impl Registry {
    /// Takes the next step of the service's roll, if its last one is done.
    pub(super) fn roll(&mut self, service: ServiceId) {
        let Some(roll) = self
            .truth
            .services
            .find(&service)
            .and_then(|it| it.roll.clone())
        else {
            return;
        };
        let mut roll = roll;
        let moves = self
            .truth
            .services
            .find(&service)
            .is_some_and(|it| it.moving.is_some());
        if let Some(index) = roll.current {
            match self
                .truth
                .replicas
                .find(&(service, index))
                .map_or(Step::Passed, |it| step(&roll, it))
            {
                Step::UnderWay => return,
                Step::Passed => roll.current = None,
                Step::Failed(why) => {
                    let left = roll.remaining.len();
                    let text = format!(
                        "the {} by {} stops at replica {index} with {left} to go: {why}",
                        roll.kind.word(),
                        roll.by
                    );
                    return self.end_roll(service, "roll-stopped", text);
                }
            }
        }
        if moves {
            // A drain has taken one: two at once would be one too many.
            return;
        }
        while roll.current.is_none() {
            let Some(index) = roll.remaining.pop_last() else {
                let text = format!("the {} by {} is complete", roll.kind.word(), roll.by);
                return self.end_roll(service, "rolled", text);
            };
            if self.take(service, index, &roll) {
                roll.current = Some(index);
            }
        }
        if let Some(service) = self.truth.services.change(&service) {
            service.roll = Some(roll);
        }
    }

    /// Takes a replica out of the service's roll that was killed since: its index stays empty.
    pub(super) fn spare(&mut self, service: ServiceId, index: u32) {
        let roll = self.truth.services.find(&service);
        let roll = roll.and_then(|it| it.roll.as_ref());
        if roll.is_some_and(|roll| roll.remaining.contains(&index))
            && let Some(service) = self.truth.services.change(&service)
            && let Some(roll) = &mut service.roll
        {
            roll.remaining.remove(&index);
        }
    }

    fn end_roll(&mut self, service: ServiceId, kind: &str, text: String) {
        if let Some(service) = self.truth.services.change(&service) {
            service.roll = None;
        }
        self.tell_service(service, kind, text);
        self.prune_profiles(service);
    }

    /// Begins with one replica. False: it has nothing to wait for.
    fn take(&mut self, service: ServiceId, index: u32, roll: &Roll) -> bool {
        let key = (service, index);
        let Some(replica) = self.truth.replicas.find(&key) else {
            return false;
        };
        let newest = self.truth.services.find(&service).map(|it| it.generation);
        match (&replica.phase, roll.kind) {
            (Phase::Placed(placement), RollKind::Restart) if placement.stop.is_none() => {
                self.restart_in_place(key, &roll.by);
                true
            }
            (Phase::Placed(_), RollKind::Replace) if Some(replica.generation) != newest => {
                self.order_stop(key, StopWhy::Renewed, &roll.by);
                true
            }
            (Phase::Ended(_), RollKind::Replace) => {
                self.renew(key, WaitCause::Asked, None);
                true
            }
            // What waits has no process: the newest profile is what it will run.
            _ => false,
        }
    }
}

fn step(roll: &Roll, replica: &Replica) -> Step {
    match &replica.phase {
        Phase::Waiting(_) => Step::UnderWay,
        // Its owner ends it: how long that takes, if it ends at all, is nothing to wait for.
        Phase::Placed(placement) if placement.stop.as_ref().is_some_and(|it| it.why.is_final()) => {
            Step::Passed
        }
        Phase::Placed(placement) => {
            let is_ready = |status: &Status| status.ready && status.state == State::Up;
            let acted = |status: &Status| match roll.kind {
                RollKind::Restart => status.restart_no >= replica.restart_no,
                RollKind::Replace => true,
            };
            let status = replica.status.as_ref();
            let done = status.is_some_and(|it| is_ready(it) && acted(it));
            if done && placement.stop.is_none() {
                Step::Passed
            } else {
                Step::UnderWay
            }
        }
        Phase::Ended(ended) => match ended.how {
            EndKind::Done | EndKind::Killed | EndKind::Stopped => Step::Passed,
            EndKind::Completed
            | EndKind::Failed
            | EndKind::GaveUp
            | EndKind::HostRebooted
            | EndKind::HostLost
            | EndKind::LeftHost
            | EndKind::PortConflict
            | EndKind::HostDrained
            | EndKind::HostShutdown => Step::Failed(ended.reason.clone()),
        },
    }
}

impl Roll {
    /// How many replicas are not through yet.
    pub(super) fn left(&self) -> u32 {
        let all = self.remaining.len() + usize::from(self.current.is_some());
        u32::try_from(all).unwrap_or(u32::MAX)
    }
}

impl RollKind {
    /// The word people read.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Replace => "replacement",
            Self::Restart => "restart",
        }
    }
}
