//! The workers of a virtual host: what [`portreeve::attendance`] wants done is done to scripted processes.

use std::sync::Arc;
use std::time::Duration;

use portreeve::attendance::{
    Attendance, Beginning, Contact, Found, Happened, Heard as HeardBack, MainProcess, Manner, Next,
    Order, Output, ProbeEnd, ProcessEvent, Record, Standing, Stranger, Surroundings, Telling,
    Token,
};
use portreeve::identity::Run;
use portreeve::port::{Port, Protocol};
use portreeve::profile::{ListenerOwner, OnCutOff};
use portreeve::registry::Desired;
use portreeve::residency::Pace;
use portreeve::supervision::{Machine, Report, StartFailure, State};
use portreeve::time::{Monotonic, Now};

use super::agenda::Actor;
use super::agent::PATIENCE_WITH_WORKERS;
use super::passage::{self, Passage};
use super::ports::{Holder, Listeners};
use super::probes::{self, Target};
use super::process::{self, Heard};
use super::replica::Replica;
use super::{Due, Host, HostOut, Place, boot_id_of, subject};
use crate::cluster::sight::{Sight, What};
use crate::cluster::wire::{Asker, Question, Reply, Who};

/// A worker process of one replica.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Counts the workers of the replica.
    pub(crate) life: u64,
    /// `None`: it has not begun yet, and takes no order.
    pub(crate) attendance: Option<Box<Attendance>>,
    telling: Telling,
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

/// What a worker asks of its host in the middle of a turn.
struct Around<'a> {
    place: Place,
    desired: &'a Desired,
    contact: Option<Contact>,
    pace: &'a mut Pace,
    listeners: &'a Listeners,
    /// Somebody is in the way of a replica without ports.
    stands_before: bool,
}

impl Surroundings for Around<'_> {
    fn contact(&mut self) -> Option<Contact> {
        self.contact
    }

    fn restart_token(&mut self, now: Monotonic, _: Run) -> Token {
        Token::After(self.pace.restart(now))
    }

    fn stranger_after(&mut self, _: Run) -> Option<Stranger> {
        let ports = &self.desired.profile.ports;
        let place = self.place;
        let own = |name: &portreeve::port::PortName, holder: Holder| {
            let declared = ports.iter().find(|port| port.name == *name);
            let owner = declared.map_or(ListenerOwner::Run, |port| port.owner);
            probes::counts(holder, owner, place)
        };
        stranger_on(self.desired, self.listeners, own, self.stands_before)
    }
}

/// Somebody in the way: on a granted number, or by name where there is none.
fn stranger_on<'a>(
    desired: &'a Desired,
    listeners: &'a Listeners,
    own: impl Fn(&portreeve::port::PortName, Holder) -> bool + 'a,
    stands_before: bool,
) -> Option<Stranger> {
    let nowhere = stands_before && desired.grant.ports.is_empty();
    let found = probes::others(&desired.grant, listeners, own);
    let found = found.or_else(|| nowhere.then_some((Port::MAX, Protocol::Tcp)));
    found.map(|(port, protocol)| Stranger {
        port,
        protocol,
        pid: None,
        comm: None,
    })
}

impl Host {
    /// A worker process of the replica starts; what it does first it does at `now`, or a while later where it is slow.
    /// Which of its workers it is.
    pub(crate) fn start_worker(&mut self, now: Monotonic, place: Place) -> u64 {
        let Some(replica) = self.replicas.get_mut(&place) else {
            return 0;
        };
        replica.life += 1;
        let life = replica.life;
        replica.worker = Some(Box::new(Worker::new(life)));
        let begins = std::mem::take(&mut replica.begins).max(now);
        let actor = Actor::Worker(place);
        self.agenda.put(begins, actor, 0, Due::Begins(life));
        life
    }

    /// Its first turn: begins the replica, or takes over what an earlier worker left.
    pub(crate) fn worker_begins(
        &mut self,
        now: Now,
        place: Place,
        life: u64,
        out: &mut Vec<HostOut>,
    ) {
        let boot_id = self.boot_id();
        let seed = self.machine_seed(place);
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(worker) = replica.worker.as_ref().filter(|one| one.life == life) else {
            return;
        };
        if worker.halted.is_some() {
            let again = Due::Begins(life);
            // It is looked at when it goes on.
            return replica.waiting.push(again);
        }
        let Some(assigned) = replica.assigned.as_ref() else {
            return;
        };
        let desired = &assigned.desired;
        let assigned_in = boot_id_of(self.no, assigned.boot);
        let found = replica.folder.record();
        let is_new = found.is_none();
        let record = match found {
            Some(record) => record.clone().in_boot(&boot_id),
            None => Record::new(
                Machine::new(desired.profile.supervision.clone(), seed),
                Standing {
                    user: (desired.uid, &desired.user),
                    worker_uid: desired.uid,
                    assigned_in: &assigned_in,
                    boot_id: &boot_id,
                    restart_no: desired.restart_no,
                    host_address: assigned.address,
                    port_addresses: desired.addresses.clone(),
                },
            ),
        };
        let record = replica.folder.truth(record);
        // An earlier worker that could write nothing down went further than the record: that is ended first.
        let recorded = record.machine().run();
        let unrecorded = replica.processes.run().0.saturating_sub(recorded.0);
        let rest = match unrecorded {
            0 => None,
            _ => self.with_processes(place, |processes, ground| {
                processes.clear(now.mono, processes.next_run(), ground)
            }),
        };
        if let Some(gone) = rest.flatten().filter(|gone| *gone != Some(now.mono)) {
            if let Some(gone) = gone {
                let actor = Actor::Worker(place);
                self.agenda.put(gone, actor, 0, Due::Begins(life));
            }
            return;
        }
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        if unrecorded > 0 {
            replica.processes.forget_runs_after(recorded);
        }
        let Some(desired) = replica
            .assigned
            .as_ref()
            .map(|one| Arc::clone(&one.desired))
        else {
            return;
        };
        let manner = Manner {
            ends_cut_off: desired.profile.on_cut_off == OnCutOff::Stop,
            ends_with_replica: false,
            hands_over: true,
        };
        let mut attendance = Attendance::new(now.mono, record, manner);
        let (found, known) = if attendance.takes_over() {
            replica.processes.adopt(now.mono, recorded)
        } else {
            (process::Found::Nothing, Vec::new())
        };
        let beginning = Beginning {
            unrecorded,
            found: match found {
                process::Found::Nothing => Found::Nothing,
                process::Found::Begun { alone_since } => Found::Begun {
                    alone_since: Some(alone_since),
                },
            },
            want: desired.want,
            restart_no: desired.restart_no,
        };
        let stands_before = replica
            .whom
            .is_some_and(|whom| self.strangers.stands_before(whom));
        let mut around = Around {
            place,
            desired: &desired,
            contact: self.contact,
            pace: &mut self.pace,
            listeners: &self.listeners,
            stands_before,
        };
        let mut outputs = std::mem::take(&mut self.outputs);
        attendance.begin(now, beginning, &mut around, &mut outputs);
        let run = attendance.run();
        if let Some(worker) = replica.worker.as_mut() {
            worker.attendance = Some(Box::new(attendance));
        }
        if !is_new {
            self.saw(now.mono, place, run, What::Worker("took over"), out);
        }
        for heard in known {
            let event = self.process_event(heard);
            self.tell_worker(now.mono, place, event);
        }
        self.outputs = outputs;
        self.carry_out(now, place, out);
        let by_hand = self
            .replicas
            .get_mut(&place)
            .map(|replica| std::mem::take(&mut replica.by_hand));
        for order in by_hand.into_iter().flatten() {
            self.order(now.mono, place, order, By::Hand);
        }
    }

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
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Replica {
            name,
            assigned,
            folder,
            processes,
            worker,
            whom,
            ..
        } = replica;
        let Some(worker) = worker.as_mut() else {
            return;
        };
        if let Some(held) = &mut worker.halted {
            held.orders.append(&mut happened.orders);
            held.processes.append(&mut happened.processes);
            held.probes.append(&mut happened.probes);
            return;
        }
        let (Some(attendance), Some(assigned)) = (worker.attendance.as_mut(), assigned) else {
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
        if self.is_disk_full || worker.dies_after.is_some() {
            folder.freeze(attendance.record());
        }
        let mut around = Around {
            place,
            desired: &assigned.desired,
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

    /// Does what the worker wants done, in its order, until it dies if that is what befalls it.
    fn carry_out(&mut self, now: Now, place: Place, out: &mut Vec<HostOut>) {
        let mut outputs = std::mem::take(&mut self.outputs);
        let dies_after = self
            .worker_mut(place)
            .and_then(|worker| worker.dies_after.take());
        let mut done = 0;
        for output in outputs.drain(..) {
            if dies_after == Some(done) {
                break;
            }
            done += 1;
            self.carry_out_one(now, place, output, out);
        }
        self.outputs = outputs;
        if let Some(after) = dies_after {
            if done == 0 && after > 0 {
                // It did nothing in this turn.
                if let Some(worker) = self.worker_mut(place) {
                    worker.dies_after = Some(after);
                }
                return self.wake_worker(now.mono, place);
            }
            return self.worker_dies(now, place, "killed in a turn", out);
        }
        let Some(worker) = self.worker_mut(place) else {
            return;
        };
        if worker
            .attendance
            .as_ref()
            .is_some_and(|one| one.ended().is_some())
        {
            return self.worker_ends(now, place);
        }
        self.tell_controller(now, place, out);
        self.wake_worker(now.mono, place);
    }

    fn carry_out_one(
        &mut self,
        now: Now,
        place: Place,
        output: Output<By>,
        out: &mut Vec<HostOut>,
    ) {
        let is_disk_full = self.is_disk_full;
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Replica {
            assigned,
            folder,
            processes,
            worker,
            ..
        } = replica;
        let Some(worker) = worker.as_mut() else {
            return;
        };
        let (Some(attendance), Some(assigned)) = (worker.attendance.as_mut(), assigned) else {
            return;
        };
        let life = worker.life;
        match output {
            Output::Write { .. } if is_disk_full => {
                if attendance.record().is_final() {
                    folder.mark_over();
                }
                attendance.not_written(now.mono);
            }
            Output::Write { .. } => folder.write(),
            Output::Tell { reports } => {
                worker.telling.news();
                let run = attendance.run();
                self.saw_reports(now.mono, place, run, reports, out);
            }
            Output::Clear { run } => {
                let rest = self.with_processes(place, |processes, ground| {
                    processes.clear(now.mono, run, ground)
                });
                match rest.flatten() {
                    None => self.tell_worker(now.mono, place, ProcessEvent::Cleared { run }),
                    Some(gone) => self.cleared(now.mono, place, run, gone),
                }
            }
            Output::Spawn { run } => self.spawn(now, place, run),
            Output::Term { run } => {
                self.with_processes(place, |processes, ground| {
                    processes.term(now.mono, run, ground);
                });
                self.saw(now.mono, place, run, What::Term, out);
            }
            Output::KillGroup { run } => {
                let killed = self.with_processes(place, |processes, ground| {
                    processes.kill_group(now.mono, run, ground)
                });
                if killed == Some(true) {
                    self.saw(now.mono, place, run, What::Kill, out);
                }
            }
            Output::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                let target = Target {
                    place,
                    profile: &assigned.desired.profile,
                    grant: &assigned.desired.grant,
                    listeners: &self.listeners,
                    processes,
                };
                let (takes, outcome, text) = target.probe(now.mono, kind, timeout);
                let end = ProbeEnd {
                    run,
                    kind,
                    probe,
                    outcome,
                    text,
                };
                let due = Due::Probed(life, Box::new(end));
                self.agenda
                    .put(now.mono + takes, Actor::Worker(place), PROBES, due);
            }
            // What comes of it nevertheless counts for nothing.
            Output::CancelProbe { .. } => {}
            Output::Answer { to, refused } => {
                if let By::Agent { life, talk } = to {
                    let status = attendance.status().cloned();
                    self.worker_answers(now.mono, life, talk, status, refused);
                }
            }
        }
    }

    /// Starts a run, if nobody listens on its numbers.
    fn spawn(&mut self, now: Now, place: Place, run: Run) {
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(desired) = replica.assigned.as_ref().map(|one| &one.desired) else {
            return;
        };
        let stands_before = replica
            .whom
            .is_some_and(|whom| self.strangers.stands_before(whom));
        let nobody = |_: &portreeve::port::PortName, _: Holder| false;
        if let Some(stranger) = stranger_on(desired, &self.listeners, nobody, stands_before) {
            let conflict = ProcessEvent::PortConflict { run, stranger };
            return self.tell_worker(now.mono, place, conflict);
        }
        self.pids += 1;
        let pid = self.pids;
        self.with_processes(place, |processes, ground| {
            processes.spawn(now.mono, run, pid, ground);
        });
    }

    /// What is left of earlier runs is gone then, if ever: one that stays is a start that failed.
    fn cleared(&mut self, now: Monotonic, place: Place, run: Run, gone: Option<Monotonic>) {
        let patience = now + PATIENCE_WITH_LEFTOVERS;
        match gone.filter(|gone| *gone <= patience) {
            Some(gone) => self.tell_worker(gone, place, ProcessEvent::Cleared { run }),
            None => {
                let words = "processes of an earlier run cannot be ended".to_owned();
                let why = StartFailure::Prepare(words);
                let failed = ProcessEvent::SpawnFailed { run, why };
                self.tell_worker(patience, place, failed);
            }
        }
    }

    fn saw_reports(
        &self,
        at: Monotonic,
        place: Place,
        run: Run,
        reports: Vec<Report>,
        out: &mut Vec<HostOut>,
    ) {
        for report in reports {
            self.saw(at, place, run, What::Report(report), out);
        }
    }

    /// Sends the newest status, if it is time for it.
    fn tell_controller(&mut self, now: Now, place: Place, out: &mut Vec<HostOut>) {
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
            Some(Reply::Lease(_)) => HeardBack::Taken,
            Some(Reply::Refused {
                status: 404 | 410, ..
            }) => HeardBack::Unknown,
            _ => HeardBack::Nothing,
        };
        let chance = self.draw(place, life, question);
        let Some(worker) = self.worker_mut(place) else {
            return;
        };
        if (worker.life, worker.question) != (life, question) {
            return;
        }
        if worker.halted.is_some() {
            // It reads what came when it goes on.
            let due = Due::Replied(life, question, heard);
            if let Some(replica) = self.replicas.get_mut(&place) {
                replica.waiting.push(due);
            }
            return;
        }
        worker.given_up = None;
        worker.telling.heard(now.mono, heard, chance);
        self.tell_controller(now, place, out);
        self.wake_worker(now.mono, place);
    }

    /// The same once it goes on.
    pub(crate) fn worker_hears(
        &mut self,
        now: Now,
        place: Place,
        (life, question): (u64, u64),
        heard: HeardBack,
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

    /// It is killed: what it knew and did not write down is gone, and nobody watches its replica.
    pub(crate) fn worker_dies(
        &mut self,
        now: Now,
        place: Place,
        how: &'static str,
        out: &mut Vec<HostOut>,
    ) {
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(worker) = replica.worker.take() else {
            return;
        };
        if let Some(record) = worker.record() {
            replica.folder.freeze(record);
        }
        replica.waiting.clear();
        replica.processes.leave_alone(now.mono);
        let run = replica.processes.run();
        self.agenda.wake(Actor::Worker(place), None);
        self.saw(now.mono, place, run, What::Worker(how), out);
        self.worker_is_gone(now.mono, place, worker.life);
    }

    /// Nothing is left for it to do.
    fn worker_ends(&mut self, now: Now, place: Place) {
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(worker) = replica.worker.take() else {
            return;
        };
        if let Some(record) = worker.record() {
            replica.folder.freeze(record);
        }
        replica.waiting.clear();
        self.agenda.wake(Actor::Worker(place), None);
        self.worker_is_gone(now.mono, place, worker.life);
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

    fn worker_mut(&mut self, place: Place) -> Option<&mut Worker> {
        self.replicas.get_mut(&place)?.worker.as_deref_mut()
    }
}

/// The place of probes' ends among the events of one instant, and of what is no event of the machine.
const PROBES: u8 = 4;
/// How long what is left of earlier runs may take to end.
const PATIENCE_WITH_LEFTOVERS: Duration = Duration::from_secs(10);
