//! Drives the machine of one replica: what happened goes in, what is to be done is done.
//!
//! One wake-up is one instant: the clock is read once, every source that is ready is drained, commands before
//! the backend's events before the probes' results, then the deadlines. What came of it is written down
//! before it is told, and before anything is done about it, so that a worker that is killed at any moment is
//! replaced by one that knows at least as much.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::port::PortRanges;
use portreeve::registry::Want;
use portreeve::supervision::{Effect, Event, ExitStatus, Final, ProbeKind, StartFailure, State};
use portreeve::time::{Monotonic, Now};
use portreeve_api::host_limits::Note;
use portreeve_api::local::{
    Assignment, ReplicaFolder, WorkerAnswer, WorkerCommand, WorkerCounters,
};

use crate::backend::{Backend, BackendEvent, Found};
use crate::checks::Checks;
use crate::clock::Clock;
use crate::conflict;
use crate::file::{self, Durability};
use crate::job::{self, Job};
use crate::journal::Journal;
use crate::limits::Limits;
use crate::news::News;
use crate::probe::{self, Leftovers, ProbeReport, SourcePorts};
use crate::probing::{ProbeEnd, Probing};
use crate::record::Record;
use crate::restart::Waiting;
use crate::sources::{Happened, Sources};
use crate::worker::Teller;

/// More statuses than a worker tells of one run that it could not write down: at most four in a wait of its backoff.
const UNRECORDED_SEQ: u64 = 1_000_000;
/// How long until what could not be written down is written again.
const WRITE_AGAIN: Duration = Duration::from_secs(2);

/// Why a driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The replica ended and the controller knows.
    Forgotten,
    /// The process ended that the replica's life hung on, and the replica with it.
    LifelineGone,
    /// The replica ended like this, and nobody else has to know.
    Over(Final),
}

/// One replica under supervision.
pub(crate) struct Driver {
    pub(crate) clock: Clock,
    pub(crate) folder: ReplicaFolder,
    pub(crate) assignment: Assignment,
    pub(crate) record: Record,
    pub(crate) journal: Journal,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) probing: Probing,
    pub(crate) limits: Limits,
    pub(crate) teller: Teller,
    pub(crate) progress: Progress,
}

/// What a driver knows beside its record; a new worker begins without it.
#[derive(Default)]
pub(crate) struct Progress {
    /// The living run from the inside.
    job: Option<Job>,
    news: News,
    /// What probes by a command left, by kind.
    leftovers: BTreeMap<ProbeKind, Leftovers>,
    /// Events of our own, to be handled at the next turn.
    own: Vec<Event>,
    /// The newest run whose group is known to be empty.
    emptied: Option<Run>,
    /// Something is to be written down.
    changed: bool,
    /// When to try again what could not be written down.
    write_again: Option<Monotonic>,
    /// A restart that waits for the limits of the host.
    waiting: Option<Waiting>,
    /// Where connections of probes begin.
    sources: SourcePorts,
    forget: bool,
    lifeline_ended: bool,
    /// All but the messages.
    counters: WorkerCounters,
}

impl Driver {
    /// Begins, or takes over from an earlier worker, and drives until nothing is left to do.
    pub(crate) async fn run(mut self, mut sources: Sources) -> Ended {
        self.begin(&mut sources).await;
        loop {
            if let Some(ended) = self.ended() {
                self.journal.end();
                return ended;
            }
            let planned = self.next_deadline();
            let until = if self.progress.own.is_empty() {
                planned
            } else {
                Some(Monotonic::default())
            };
            let happened = sources.next(until).await;
            let now = self.clock.now();
            if let Some(planned) = planned {
                self.probing.woke(planned, now.mono);
            }
            self.turn(now, happened);
        }
    }

    fn ended(&self) -> Option<Ended> {
        if !self.record.is_final() {
            return None;
        }
        if self.progress.lifeline_ended {
            return Some(Ended::LifelineGone);
        }
        if self.progress.forget {
            return Some(Ended::Forgotten);
        }
        match self.record.status.as_ref().map(|status| &status.state) {
            Some(State::Final(end)) if self.teller.ends_with_replica() => {
                Some(Ended::Over(end.clone()))
            }
            _ => None,
        }
    }

    fn next_deadline(&self) -> Option<Monotonic> {
        let write_again = self.progress.write_again;
        if self.record.is_final() {
            return write_again;
        }
        let machine = self.record.machine.next_deadline();
        machine
            .into_iter()
            .chain(self.probing.next_deadline())
            .chain(write_again)
            .chain(self.progress.waiting.as_ref().map(Waiting::at))
            .min()
    }

    /// Starts the first run, or finds out what became of the newest one.
    async fn begin(&mut self, sources: &mut Sources) {
        let mut effects = Vec::new();
        self.look_at_sources();
        // An earlier worker that could write nothing down, on a full disk say, went further than the record.
        let recorded = self.record.machine.run();
        for run in job::runs_after(&self.folder, recorded) {
            tracing::warn!("run {run} was begun and is not recorded; what is left of it is ended");
            self.backend.end_unrecorded(run).await;
            job::remove_run(&self.folder, run);
            if let Some(told) = &mut self.record.status {
                // Its statuses of runs that come again were told; by the same numbers ours would count as repeated.
                told.seq += UNRECORDED_SEQ;
            }
        }
        let fresh = self.record.machine.state() == State::Idle;
        self.journal.turn(self.clock.now(), &self.record.machine);
        if !fresh && !self.record.is_final() {
            self.take_over(sources, &mut effects).await;
        }
        let now = self.clock.now();
        let wanted = WorkerCommand::Want {
            want: self.assignment.desired.want,
            restart_no: self.assignment.desired.restart_no,
        };
        self.on_command(now, &wanted, &mut effects);
        // One that is not wanted any more is final by now and does not begin.
        if fresh {
            self.event(now, Event::Start, &mut effects);
        }
        self.progress.changed = true;
        self.settle(now, effects);
        // What an earlier worker wrote down may not have been told.
        self.teller
            .tell(self.record.status.clone(), std::iter::empty());
    }

    async fn take_over(&mut self, sources: &mut Sources, effects: &mut Vec<Effect>) {
        let run = self.record.machine.run();
        self.backend.adopt(run);
        let found = loop {
            match sources.backend.recv().await {
                Some(BackendEvent::Adopted { run: of, found }) if of == run => break found,
                Some(_) => {}
                None => break Found::Nothing,
            }
        };
        let now = self.clock.now();
        tracing::info!("took over run {run}: {found:?}");
        let alone = match found {
            Found::Begun { alone_since } => {
                alone_since.map_or(Duration::ZERO, |since| now.mono.since(since))
            }
            Found::Nothing => Duration::ZERO,
        };
        let adopt = Event::taken_over(alone);
        match self.read_job(run) {
            Ok(job) => self.progress.job = Some(job),
            // It runs already; only probes need it, and they say so.
            Err(cause) => tracing::warn!("run {run}: {cause}"),
        }
        let starting = self.record.machine.state() == State::Starting;
        self.journal
            .handle(&mut self.record.machine, now, adopt, None, effects);
        if found == Found::Nothing {
            if starting {
                // It was decided and written down, and then not begun.
                effects.push(Effect::Spawn { run });
            } else {
                // Somebody removed the files of a run that had begun.
                let status = ExitStatus::Unknown;
                self.progress.own.push(Event::Exited { run, status });
            }
        }
    }

    /// One instant.
    fn turn(&mut self, now: Now, happened: Happened) {
        let mut effects = Vec::new();
        self.journal.turn(now, &self.record.machine);
        if happened.lifeline_ended {
            tracing::info!("the process this replica's life hangs on has ended");
            self.progress.lifeline_ended = true;
            self.stop(now, &mut effects);
        }
        let mut answers = Vec::new();
        for (command, answer) in happened.orders {
            let refused = self.on_command(now, &command, &mut effects);
            answers.push((answer, refused));
        }
        for event in std::mem::take(&mut self.progress.own) {
            self.event(now, event, &mut effects);
        }
        for event in happened.backend {
            self.on_backend(now, event, &mut effects);
        }
        for end in happened.probes {
            self.on_probe(now, end, &mut effects);
        }
        if self.record.refused.is_none() {
            let before = self.record.machine.state();
            self.journal
                .on_deadline(&mut self.record.machine, now, &mut effects);
            self.progress.changed |= before != self.record.machine.state();
        }
        self.settle(now, effects);
        self.start_waiting(now);
        for (answer, refused) in answers {
            // An agent that went away meanwhile asks again.
            _ = answer.send(WorkerAnswer {
                status: self.record.status.clone(),
                refused,
                counters: WorkerCounters {
                    messages: self.teller.messages(),
                    ..self.progress.counters
                },
            });
        }
    }

    fn event(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        if self.record.refused.is_none() {
            self.progress.changed = true;
            self.journal
                .handle(&mut self.record.machine, now, event, None, effects);
        }
    }

    /// Does what is said; gives why not, where it cannot be done.
    fn on_command(
        &mut self,
        now: Now,
        command: &WorkerCommand,
        effects: &mut Vec<Effect>,
    ) -> Option<String> {
        match *command {
            WorkerCommand::Stop { grace } => {
                if self.record.is_final() {
                    return Some("it has ended".into());
                }
                if grace.is_some() {
                    self.event(now, Event::Stop { grace }, effects);
                } else {
                    self.stop(now, effects);
                }
            }
            WorkerCommand::Restart => {
                if self.record.is_final() {
                    return Some("it has ended; a new incarnation begins again".into());
                }
                if self.record.machine.is_stop_wanted() {
                    return Some("it was told to stop".into());
                }
                self.record.restart_no += 1;
                self.event(now, Event::UserRestart, effects);
            }
            WorkerCommand::Tell => {}
            WorkerCommand::Hurry => {
                let grace = Some(Duration::ZERO);
                self.event(now, Event::Stop { grace }, effects);
                // The drain, which that leaves alone, is skipped too.
                if !self.record.is_final() {
                    self.backend.kill_group(self.record.machine.run());
                }
            }
            WorkerCommand::Address { address, ref ports } => {
                self.progress.changed = true;
                self.record.host_address = address;
                let ports = ports.iter().map(|(port, address)| (port.clone(), *address));
                self.record.port_addresses.extend(ports);
            }
            WorkerCommand::Want { want, restart_no } => match want {
                Want::Run => {
                    if restart_no > self.record.restart_no {
                        self.record.restart_no = restart_no;
                        self.event(now, Event::UserRestart, effects);
                    }
                }
                Want::Stop => self.stop(now, effects),
                Want::Forget => {
                    // The controller has given its ports away, so nothing of it may go on.
                    self.stop(now, effects);
                    self.progress.forget = true;
                }
            },
        }
        None
    }

    /// Repeating a stop would only make its grace shorter in words; it is one stop.
    fn stop(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.record.machine.is_stop_wanted() && !self.record.is_final() {
            self.event(now, Event::Stop { grace: None }, effects);
        }
    }

    fn on_backend(&mut self, now: Now, event: BackendEvent, effects: &mut Vec<Effect>) {
        let newest = self.record.machine.run();
        match event {
            BackendEvent::Adopted { .. } => {}
            BackendEvent::PreExecStarted { run } => {
                self.event(now, Event::PreExecStarted { run }, effects);
            }
            BackendEvent::Spawned { run, process } => {
                if run == newest {
                    self.record.process = Some(process);
                }
                self.event(now, Event::Spawned { run }, effects);
            }
            BackendEvent::SpawnFailed { run, why } => {
                self.event(now, Event::SpawnFailed { run, why }, effects);
            }
            BackendEvent::Exited { run, status } => {
                if run == newest {
                    self.record.process = None;
                }
                let conflict = match status {
                    // Its shim is lost, and what the shim held may still live and listen for a moment.
                    ExitStatus::Unknown => None,
                    _ => self.conflict_at_exit(run),
                };
                let event =
                    conflict.map_or(Event::Exited { run, status }, |found| found.event(run));
                self.event(now, event, effects);
            }
            BackendEvent::Cleared { run } => {
                // Nothing else ends a run that is starting.
                if run == newest
                    && let Err(event) = self.spawn_alone(run)
                {
                    self.progress.own.push(event);
                }
            }
            BackendEvent::GroupEmpty { run } => {
                self.progress.emptied = self.progress.emptied.max(Some(run));
                self.event(now, Event::GroupEmpty { run }, effects);
            }
        }
    }

    /// An exit before READY that nobody asked for may be due to a port somebody took after the start.
    fn conflict_at_exit(&self, run: Run) -> Option<conflict::Conflict> {
        let was_ready = self.record.ready_run == Some(run);
        if !self.record.machine.suspects_stranger(run, was_ready) {
            return None;
        }
        let desired = &self.assignment.desired;
        conflict::at_exit(
            &desired.grant,
            &desired.profile.ports,
            self.backend.root().as_ref(),
        )
    }

    fn on_probe(&mut self, now: Now, end: ProbeEnd, effects: &mut Vec<Effect>) {
        self.progress.counters.probes += 1;
        let outcome = self.probing.ended(&end);
        let of_this_run = end.run == self.record.machine.run();
        let before = self.record.machine.state();
        let event = Event::ProbeResult {
            run: end.run,
            kind: end.kind,
            probe: end.probe,
            outcome,
        };
        // Counters are not worth a write: a new worker begins with new ones.
        let machine = &mut self.record.machine;
        self.journal
            .handle(machine, now, event, Some(&end.text), effects);
        if of_this_run {
            self.progress.news.probed(end.kind, outcome, end.text);
        }
        self.progress.changed |= before != self.record.machine.state();
    }

    /// Writes down, then tells, then does.
    fn settle(&mut self, now: Now, effects: Vec<Effect>) {
        let about_probe =
            |effect: &Effect| matches!(effect, Effect::Probe { .. } | Effect::CancelProbe { .. });
        let reported = effects.iter().any(|e| matches!(e, Effect::Report(_)));
        self.progress.changed |= !effects.iter().all(about_probe);
        if self.record.machine.is_ready() {
            self.record.ready_run = Some(self.record.machine.run());
        }
        self.progress.changed |= self.record.note_failure(now, self.progress.news.texts());
        let news = self.progress.news.status(&self.record, now, reported);
        if let Some(status) = &news {
            self.record.status = Some(status.clone());
        }
        if self.progress.changed || news.is_some() {
            self.write_down(now, news.is_some());
        }
        self.journal.write();
        if let Some(status) = news {
            let reports = effects.iter().filter_map(|effect| match effect {
                Effect::Report(report) => Some(report.clone()),
                _ => None,
            });
            self.teller.tell(Some(status), reports);
        }
        for effect in effects {
            self.act(now, effect);
        }
    }

    /// The service is worth more than the record of it: what cannot be written is tried again.
    fn write_down(&mut self, now: Now, news: bool) {
        self.progress.counters.writes += 1;
        let status = self.record.status.as_ref();
        let status = status.filter(|_| news || self.progress.write_again.is_some());
        let written = self.record.write(&self.folder).and_then(|()| match status {
            Some(status) => file::write_json(&self.folder.status(), status, Durability::Written),
            None => Ok(()),
        });
        self.progress.changed = written.is_err();
        self.progress.write_again = written.err().map(|cause| {
            tracing::error!("where the replica stands cannot be written down: {cause}");
            now.mono + WRITE_AGAIN
        });
    }

    fn act(&mut self, now: Now, effect: Effect) {
        match effect {
            Effect::Spawn { run } => {
                self.progress.waiting = Some(Waiting::new(run, now.mono));
                self.start_waiting(now);
            }
            Effect::Term { run } => {
                let signal = self.assignment.desired.profile.stop_signal;
                self.backend.term(run, signal);
            }
            Effect::KillGroup { run } => {
                if self.progress.emptied < Some(run) {
                    self.backend.kill_group(run);
                }
            }
            Effect::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                let until = Rc::new(Cell::new(now.mono + timeout));
                let task = self.probe(kind, timeout, until.clone());
                self.probing.start((run, kind, probe), timeout, until, task);
            }
            Effect::CancelProbe { kind, probe, .. } => self.probing.cancel(kind, probe),
            Effect::Report(report) => {
                let run = self.record.machine.run();
                tracing::info!("run {run}: {report}");
            }
        }
    }

    /// Starts the run that waits, once the limits of the host let it.
    fn start_waiting(&mut self, now: Now) {
        let Some(waiting) = &mut self.progress.waiting else {
            return;
        };
        let run = waiting.run();
        if self.record.machine.is_stop_wanted() {
            // It would only be started to be stopped.
            let why = StartFailure::Prepare("it was stopped before it began".into());
            self.progress.own.push(Event::SpawnFailed { run, why });
            self.progress.waiting = None;
        } else if waiting.may_begin(now.mono, &self.limits) {
            self.progress.waiting = None;
            if let Err(event) = self.spawn(run) {
                self.progress.own.push(event);
            }
        }
    }

    /// Connections of ours begin neither in the pool of the host nor on a number of the replica.
    fn look_at_sources(&mut self) {
        let own = self.assignment.desired.grant.ports.iter();
        let own = own.map(|granted| granted.numbers);
        let pool = self.assignment.pool.as_slice().iter().copied();
        self.progress.sources = SourcePorts::beside(&PortRanges::new(pool.chain(own)));
    }

    /// Starts a run, or says why not; first ends what is left of earlier ones, if there is something.
    fn spawn(&mut self, run: Run) -> Result<(), Event> {
        self.progress.news.new_run();
        self.look_at_sources();
        if !self.backend.clear(run) {
            return Ok(());
        }
        self.spawn_alone(run)
    }

    /// Starts a run beside which nothing of the replica lives.
    fn spawn_alone(&mut self, run: Run) -> Result<(), Event> {
        job::remove_runs_before(&self.folder, run);
        if let Some(found) = conflict::before_start(&self.assignment.desired.grant) {
            return Err(found.event(run));
        }
        let prepared = self.read_job(run).and_then(|job| {
            let launch = job.launch(&self.assignment, &self.folder)?;
            Ok((job, launch))
        });
        let (job, launch) = prepared.map_err(|cause| Event::SpawnFailed {
            run,
            why: StartFailure::Prepare(cause.to_string()),
        })?;
        self.progress.job = Some(job);
        self.backend.spawn(launch);
        Ok(())
    }

    /// The probe of this kind, as a future that needs nothing of the driver.
    fn probe(
        &mut self,
        kind: ProbeKind,
        timeout: Duration,
        until: Rc<Cell<Monotonic>>,
    ) -> impl Future<Output = ProbeReport> + use<> {
        let root = self.backend.root();
        let leftovers = self.progress.leftovers.entry(kind).or_default();
        let checks = Checks {
            assignment: &self.assignment,
            job: self.progress.job.as_ref(),
            address: self.record.host_address,
            port_addresses: &self.record.port_addresses,
            root: root.as_ref(),
            sources: &self.progress.sources,
            limits: &self.limits,
        };
        let target = checks.target(kind);
        let check = checks.check(kind, leftovers);
        let rules = &self.assignment.desired.profile.supervision;
        let timing = match kind {
            ProbeKind::Startup => rules.startup.as_ref(),
            ProbeKind::Liveness => rules.liveness.as_ref(),
            ProbeKind::Readiness => rules.readiness.as_ref(),
        };
        let patience = timing.map_or(timeout, |timing| timing.interval);
        let (limits, clock) = (self.limits.clone(), self.clock);
        async move {
            let check = match check {
                Ok(check) => check,
                // It is ours to make it ready, so it says nothing about the service.
                Err(text) => return ProbeReport::inconclusive(text),
            };
            // Until it begins.
            until.set(clock.now().mono + patience + timeout);
            let begins = || until.set(clock.now().mono + timeout);
            let report = probe::probe(check, target, timeout, patience, begins).await;
            if let Some(errno) = report.shortage {
                limits.note(Note::Shortage(errno));
            }
            report
        }
    }

    fn read_job(&self, run: Run) -> Result<Job, job::PrepareError> {
        let addresses = (self.record.host_address, &self.record.port_addresses);
        Job::read(&self.assignment, &self.folder, run, addresses)
    }
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod tests;
