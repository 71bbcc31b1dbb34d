//! The newest status goes to the controller, and something comes back or nothing.

use portreeve::attendance::{Heard, Next, Telling};
use portreeve::supervision::State;
use portreeve::time::Now;

use super::super::{Due, Host, HostOut, Place};
use crate::cluster::wire::{Asker, Question, Reply, Who};

impl Host {
    /// Sends the newest status, if it is time for it.
    pub(super) fn tell_controller(&mut self, now: Now, place: Place, out: &mut Vec<HostOut>) {
        let host = self.no;
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(worker) = replica.worker.as_mut() else {
            return;
        };
        let Some(status) = worker.attendance.as_ref().and_then(|one| one.status()) else {
            return;
        };
        let Some(service_id) = replica.assigned.as_ref().map(|one| one.desired.service_id) else {
            return;
        };
        if worker.halted.is_some() || worker.telling.next(now.mono) != Next::Send {
            return;
        }
        worker
            .telling
            .sending(matches!(status.state, State::Final(_)));
        worker.question += 1;
        let asker = Asker {
            host,
            who: Who::Worker(replica.name.clone()),
            life: worker.life,
            question: worker.question,
        };
        let question = Question::Status {
            name: replica.name.clone(),
            service_id,
            status: Box::new(status.clone()),
        };
        worker.given_up = Some(now.mono + Telling::PATIENCE);
        out.push(HostOut::Ask(asker, question));
    }

    /// What came back of a status, or nothing.
    pub(crate) fn worker_heard(
        &mut self,
        now: Now,
        place: Place,
        (life, question): (u64, u64),
        reply: Option<&Reply>,
        out: &mut Vec<HostOut>,
    ) {
        let heard = match reply {
            Some(Reply::Lease(_)) => Heard::Taken,
            Some(Reply::Refused {
                status: 404 | 410, ..
            }) => Heard::Unknown,
            _ => Heard::Nothing,
        };
        let halted = self
            .worker_mut(place)
            .filter(|worker| (worker.life, worker.question) == (life, question))
            .is_some_and(|worker| worker.halted.is_some());
        if halted {
            // It reads what came when it goes on.
            let due = Due::Replied(life, question, heard);
            if let Some(replica) = self.replicas.get_mut(&place) {
                replica.waiting.push(due);
            }
            return;
        }
        self.worker_hears(now, place, (life, question), heard, out);
    }

    /// The same once it goes on.
    pub(crate) fn worker_hears(
        &mut self,
        now: Now,
        place: Place,
        (life, question): (u64, u64),
        heard: Heard,
        out: &mut Vec<HostOut>,
    ) {
        let chance = self.draw(place, life, question);
        if let Some(worker) = self.worker_mut(place)
            && (worker.life, worker.question) == (life, question)
        {
            worker.given_up = None;
            worker.telling.heard(now.mono, heard, chance);
            self.tell_controller(now, place, out);
            self.wake_worker(now.mono, place);
        }
    }
}
