//! The workers of a virtual host: what [`portreeve::attendance`] wants done is done to scripted processes.
//!
//! `begin` is a worker's first turn, `deeds` what it wants done in each, `around` what it asks meanwhile; `status` is what
//! it tells the controller, `life` how it ends and stands still.

mod around;
mod begin;
mod deeds;
mod life;
mod status;

use portreeve::attendance::{
    Attendance, Happened, MainProcess, Next, Order, ProcessEvent, Record, Telling,
};
use portreeve::time::{Monotonic, Now};

use super::agenda::Actor;
use super::happening::Heard;
use super::passage::{self, Passage};
use super::replica::{Attended, Replica};
use super::{Due, Host, HostOut, Place, subject};
use crate::cluster::sight::{Sight, What};
use around::Around;

/// A worker process of one replica.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Counts the workers of the replica.
    pub(crate) life: u64,
    /// `None`: it has not begun yet, and takes no order.
    pub(crate) attendance: Option<Box<Attendance>>,
    pub(super) telling: Telling,
    /// Counts its questions.
    question: u64,
    /// When the newest of them is given up, unless it is answered.
    given_up: Option<Monotonic>,
    /// What happened while it stood still; `None`: it does not.
    pub(crate) halted: Option<Box<Happened<By>>>,
    /// It dies in its next turn, after it did so many things.
    pub(crate) dies_after: Option<u32>,
}

/// Who ordered something of a worker, and hears what it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The agent of this life, in the conversation of this number.
    Agent { life: u64, talk: u64 },
    /// A person at its socket.
    Hand,
}

impl Worker {
    pub(crate) fn new(life: u64) -> Self {
        Self {
            life,
            attendance: None,
            telling: Telling::default(),
            question: 0,
            given_up: None,
            halted: None,
            dies_after: None,
        }
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.attendance
            .as_ref()
            .map(|attendance| attendance.record())
    }

    fn next_deadline(&self, now: Monotonic) -> Option<Monotonic> {
        let attendance = self.attendance.as_ref()?;
        if self.halted.is_some() {
            return None;
        }
        let told = match self.telling.next(now) {
            Next::At(at) => Some(at),
            Next::Send => Some(now),
            Next::Rest | Next::Done => None,
        };
        let attendance = attendance.next_deadline().into_iter();
        attendance.chain(told).chain(self.given_up).min()
    }
}

impl Host {
    /// What a worker hears of it.
    pub(crate) fn process_event(&self, heard: Heard) -> ProcessEvent {
        match heard {
            Heard::PreExecStarted(run) => ProcessEvent::PreExecStarted { run },
            Heard::Spawned(run, pid) => ProcessEvent::Spawned {
                run,
                process: MainProcess {
                    pid,
                    start_ticks: u64::from(pid),
                    boot_id: self.boot_id(),
                },
            },
            Heard::SpawnFailed(run, why) => ProcessEvent::SpawnFailed { run, why },
            Heard::Exited(run, status) => ProcessEvent::Exited { run, status },
            Heard::GroupEmpty(run) => ProcessEvent::GroupEmpty { run },
        }
    }

    /// The worker of now, if there is one, hears this at `at`.
    fn tell_worker(&mut self, at: Monotonic, place: Place, event: ProcessEvent) {
        let worker = self.replicas.get(&place);
        if let Some(worker) = worker.and_then(|replica| replica.worker.as_ref()) {
            let (rank, life) = (event.rank(), worker.life);
            let actor = Actor::Worker(place);
            self.agenda.put(at, actor, rank, Due::Heard(life, event));
        }
    }

    /// Somebody orders something of the worker, which takes it at once if it has begun.
    pub(crate) fn order(&mut self, now: Monotonic, place: Place, order: Order, by: By) {
        let worker = self.replicas.get(&place);
        if let Some(worker) = worker.and_then(|replica| replica.worker.as_ref()) {
            let due = Due::Ordered(worker.life, Box::new(order), by);
            self.agenda.put(now, Actor::Worker(place), 0, due);
        }
    }

    /// One turn of the worker with what happened; it is kept for later where the worker stands still.
    pub(crate) fn worker_turn(
        &mut self,
        now: Now,
        place: Place,
        happened: &mut Happened<By>,
        out: &mut Vec<HostOut>,
    ) {
        let halted = self.worker_mut(place).and_then(|it| it.halted.as_mut());
        if let Some(held) = halted {
            held.orders.append(&mut happened.orders);
            held.processes.append(&mut happened.processes);
            held.probes.append(&mut happened.probes);
            return;
        }
        let replica = self.replicas.get_mut(&place);
        let Some(Attended {
            name,
            whom,
            desired,
            folder,
            processes,
            attendance,
            dies_soon,
            ..
        }) = replica.and_then(Replica::attended)
        else {
            return;
        };
        for event in &happened.processes {
            let (run, what) = match event {
                ProcessEvent::Spawned { run, .. } if processes.see_begin(*run) => {
                    (*run, What::Spawned)
                }
                ProcessEvent::Exited { run, status } if processes.see_end(*run) => {
                    (*run, What::Exited(*status))
                }
                _ => continue,
            };
            let of = subject(self.no, name, run);
            let at = now.mono;
            out.push(HostOut::Saw(Sight { at, of, what }));
        }
        if self.is_disk_full || dies_soon {
            folder.freeze(attendance.record());
        }
        let mut around = Around {
            place,
            desired,
            contact: self.contact,
            pace: &mut self.pace,
            listeners: &self.listeners,
            stands_before: whom.is_some_and(|whom| self.strangers.stands_before(whom)),
        };
        let (from, on) = (attendance.machine().state(), passage::on(happened));
        attendance.turn(now, happened, &mut around, &mut self.outputs);
        let to = attendance.machine().state();
        out.extend(Passage::of(from, on, to).map(HostOut::Passed));
        self.carry_out(now, place, out);
    }

    pub(crate) fn wake_worker(&mut self, now: Monotonic, place: Place) {
        let at = self
            .replicas
            .get(&place)
            .and_then(|replica| replica.worker.as_ref()?.next_deadline(now));
        self.agenda.wake(Actor::Worker(place), at);
    }

    /// The worker's deadline has come.
    pub(crate) fn worker_is_due(&mut self, now: Now, place: Place, out: &mut Vec<HostOut>) {
        let due = |worker: &Worker| {
            let attendance = worker.attendance.as_ref()?;
            attendance.next_deadline().filter(|at| *at <= now.mono)
        };
        let Some(worker) = self.worker_mut(place) else {
            return;
        };
        if worker.given_up.is_some_and(|at| at <= now.mono) {
            let asked = (worker.life, worker.question);
            return self.worker_heard(now, place, asked, None, out);
        }
        if due(worker).is_some() {
            self.worker_turn(now, place, &mut Happened::default(), out);
        } else {
            self.tell_controller(now, place, out);
            self.wake_worker(now.mono, place);
        }
    }

    fn worker_mut(&mut self, place: Place) -> Option<&mut Worker> {
        self.replicas.get_mut(&place)?.worker.as_deref_mut()
    }
}
