//! A worker ends, is killed, stands still and goes on.

use portreeve::identity::Run;
use portreeve::time::Now;

use super::super::agenda::Actor;
use super::super::agent::PATIENCE_WITH_WORKERS;
use super::super::{Host, HostOut, Place};
use crate::cluster::sight::What;

impl Host {
    /// It is killed: what it knew and did not write down is gone, and nobody watches its replica.
    pub(crate) fn worker_dies(
        &mut self,
        now: Now,
        place: Place,
        how: &'static str,
        out: &mut Vec<HostOut>,
    ) {
        let Some(life) = self.take_worker(place) else {
            return;
        };
        if let Some(replica) = self.replicas.get_mut(&place) {
            replica.processes.leave_alone(now.mono);
            let run = replica.processes.run();
            self.saw(now.mono, place, run, What::Worker(how), out);
        }
        self.worker_is_gone(now.mono, place, life);
    }

    /// Nothing is left for it to do.
    pub(super) fn worker_ends(&mut self, now: Now, place: Place) {
        if let Some(life) = self.take_worker(place) {
            self.worker_is_gone(now.mono, place, life);
        }
    }

    /// Its process is gone; what it wrote down stays. Which of the workers it was.
    fn take_worker(&mut self, place: Place) -> Option<u64> {
        let replica = self.replicas.get_mut(&place)?;
        let worker = replica.worker.take()?;
        if let Some(record) = worker.record() {
            replica.folder.freeze(record);
        }
        replica.waiting.clear();
        self.agenda.wake(Actor::Worker(place), None);
        Some(worker.life)
    }

    /// It stands still.
    pub(crate) fn worker_halts(&mut self, now: Now, place: Place, out: &mut Vec<HostOut>) {
        let Some(worker) = self.worker_mut(place) else {
            return;
        };
        if worker.halted.is_some() {
            return;
        }
        worker.halted = Some(Box::default());
        let run = worker.attendance.as_ref().map_or(Run(0), |one| one.run());
        self.agenda.wake(Actor::Worker(place), None);
        self.talks_fail(now.mono + PATIENCE_WITH_WORKERS, place);
        self.saw(now.mono, place, run, What::Worker("stopped"), out);
    }

    /// It goes on, with everything that happened meanwhile.
    pub(crate) fn worker_continues(&mut self, now: Now, place: Place, out: &mut Vec<HostOut>) {
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(worker) = replica.worker.as_mut() else {
            return;
        };
        let Some(mut happened) = worker.halted.take() else {
            return;
        };
        let run = worker.attendance.as_ref().map_or(Run(0), |one| one.run());
        for due in std::mem::take(&mut replica.waiting) {
            self.agenda.put(now.mono, Actor::Worker(place), 0, due);
        }
        self.saw(now.mono, place, run, What::Worker("continued"), out);
        self.worker_turn(now, place, &mut happened, out);
    }
}
