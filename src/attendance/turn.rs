//! One replica under supervision: a turn from what happened to what is to be done.

use std::time::Duration;

use crate::identity::Run;
use crate::supervision::record::{Entry, Recorder};
use crate::supervision::{
    Effect, Event, ExitStatus, Machine, ProbeKind, ProbeNumber, State, Status,
};
use crate::time::{Monotonic, Now};

use super::happened::{Happened, ProbeEnd, ProcessEvent};
use super::news::News;
use super::output::{Ended, Output, Surroundings};
use super::probing::Probing;
use super::record::Record;
use super::start::Waiting;

/// How long until what could not be written down is written again.
const WRITE_AGAIN: Duration = Duration::from_secs(2);

/// One replica under supervision, from the beginning of its worker to the end.
///
/// A driver calls [`Attendance::begin`] once, then [`Attendance::turn`] whenever something happened or
/// [`Attendance::next_deadline`] has come, with everything that is ready, until [`Attendance::ended`]. It does what comes
/// out in its order before the next turn. A turn without a change allocates nothing but what a probe's effect takes.
#[derive(Clone, Debug)]
pub struct Attendance {
    pub(super) record: Record,
    pub(super) manner: Manner,
    recording: Option<Box<Recording>>,
    pub(super) news: News,
    /// Events of our own, to be handled at the next turn.
    pub(super) own: Vec<ProcessEvent>,
    /// How the newest run that ended did, before anybody may remove what tells of it.
    exit: Option<(Run, ExitStatus)>,
    /// The newest run whose group is known to be empty.
    pub(super) emptied: Option<Run>,
    /// The run that begins once nothing of earlier ones lives.
    pub(super) clearing: Option<Run>,
    /// Something is to be written down.
    pub(super) changed: bool,
    /// When to try again what could not be written down.
    pub(super) write_again: Option<Monotonic>,
    /// A restart that waits for the limits of the host.
    pub(super) waiting: Option<Waiting>,
    /// When to look whether the host is cut off; `None`: that ends nothing.
    pub(super) look_for_contact: Option<Monotonic>,
    pub(super) probing: Probing,
    pub(super) forget: bool,
    lifeline_ended: bool,
    pub(super) work: Work,
}

/// How an attendance stands to those around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// It ends the replica once the host is cut off for longer than the grace: the profile says so, and an agent notes
    /// when the controller heard of the host.
    pub ends_cut_off: bool,
    /// There is nobody who would say that it may end, so it ends with its replica.
    pub ends_with_replica: bool,
    /// Whoever takes over later reads what it wrote down, so it does not go before that is on disk.
    pub hands_over: bool,
}

/// What was done since the beginning; in the steady state only the probes go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Probes that ended.
    pub probes: u64,
    /// Writes of the record and the status.
    pub writes: u64,
}

/// The lines of [`crate::supervision::record`] that nobody has written down yet.
#[derive(Clone, Debug, Default)]
struct Recording {
    recorder: Recorder,
    entries: Vec<Entry>,
}

impl Attendance {
    /// Takes charge of the replica that `record` tells of. Nothing begins before [`Attendance::begin`].
    #[must_use]
    pub fn new(now: Monotonic, mut record: Record, manner: Manner) -> Self {
        record.began.get_or_insert(now);
        Self {
            record,
            manner,
            recording: None,
            news: News::default(),
            own: Vec::new(),
            exit: None,
            emptied: None,
            clearing: None,
            changed: false,
            write_again: None,
            waiting: None,
            look_for_contact: None,
            probing: Probing::default(),
            forget: false,
            lifeline_ended: false,
            work: Work::default(),
        }
    }

    /// What the next worker takes over, as it is now.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// Where the replica stands.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.record.machine
    }

    /// The newest run.
    #[must_use]
    pub const fn run(&self) -> Run {
        self.record.machine.run()
    }

    /// The newest status that there is to tell; `None` before the first.
    #[must_use]
    pub const fn status(&self) -> Option<&Status> {
        self.record.status()
    }

    /// What was done since the beginning.
    #[must_use]
    pub const fn work(&self) -> Work {
        self.work
    }

    /// Why nothing is left to do, if so: no turn follows.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        if !self.record.is_final() {
            return None;
        }
        if self.lifeline_ended {
            return Some(Ended::LifelineGone);
        }
        // What it leaves unwritten reads as a service that may run, to whoever comes after it.
        let is_written = self.write_again.is_none();
        if self.forget && (is_written || !self.manner.hands_over) {
            let newest = self.run();
            let exit = self.exit.filter(|(run, _)| *run == newest);
            return Some(Ended::Forgotten(exit.map(|(_, status)| status)));
        }
        match self.status().map(|status| &status.state) {
            Some(State::Final(end)) if self.manner.ends_with_replica => {
                Some(Ended::Over(end.clone()))
            }
            _ => None,
        }
    }

    /// When the next turn is due though nothing happens; a moment that has passed: at once. Cost: a few comparisons.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        if self.own.is_empty() {
            self.planned()
        } else {
            Some(Monotonic::default())
        }
    }

    fn planned(&self) -> Option<Monotonic> {
        if self.record.is_final() {
            return self.write_again;
        }
        let machine = self.record.machine.next_deadline();
        machine
            .into_iter()
            .chain(self.probing.next_deadline())
            .chain(self.write_again)
            .chain(self.waiting.map(Waiting::at))
            .chain(self.look_for_contact)
            .min()
    }

    /// One instant: takes everything out of `happened` and appends what is to be done.
    ///
    /// The order inside an instant is: the lifeline, a host that is cut off, orders, what became of processes, probes,
    /// then what is due. A turn that comes much later than planned excuses the timeouts of probes in flight.
    pub fn turn<A>(
        &mut self,
        now: Now,
        happened: &mut Happened<A>,
        around: &mut impl Surroundings,
        out: &mut Vec<Output<A>>,
    ) {
        if let Some(planned) = self.planned() {
            self.probing.woke(planned, now.mono);
        }
        let mut effects = Vec::new();
        if std::mem::take(&mut happened.lifeline_ended) {
            self.lifeline_ended = true;
            self.stop(now, &mut effects);
        }
        self.look_for_contact(now, around, &mut effects);
        let mut answers = Vec::new();
        for (order, to) in happened.orders.drain(..) {
            let refused = self.obey(now, order, &mut effects);
            answers.push(Output::Answer { to, refused });
        }
        let mut cleared = None;
        for event in std::mem::take(&mut self.own) {
            self.on_process(now, event, around, &mut cleared, &mut effects);
        }
        happened.processes.sort_by_key(ProcessEvent::rank);
        for event in happened.processes.drain(..) {
            self.on_process(now, event, around, &mut cleared, &mut effects);
        }
        for end in happened.probes.drain(..) {
            self.on_probe(now, end, &mut effects);
        }
        if self.record.refused.is_none() {
            let before = self.record.machine.state();
            let machine = &mut self.record.machine;
            match self.recording.as_deref_mut() {
                Some(Recording { recorder, entries }) => {
                    recorder.on_deadline(machine, now.mono, &mut effects, entries);
                }
                None => machine.on_deadline(now.mono, &mut effects),
            }
            self.changed |= before != self.record.machine.state();
        }
        self.settle(now, effects, around, out);
        if let Some(run) = cleared {
            self.spawn(run, out);
        }
        self.start_waiting(now.mono, around, out);
        out.append(&mut answers);
    }

    /// What was to be written down at `now` is not. It is tried again with the next change, and after a while.
    pub fn not_written(&mut self, now: Monotonic) {
        self.changed = true;
        self.write_again = Some(now + WRITE_AGAIN);
    }

    /// A probe that waits for its turn, or begins after a wait, is expected to end at `until`.
    pub fn expect_probe(&mut self, kind: ProbeKind, probe: ProbeNumber, until: Monotonic) {
        self.probing.expect(kind, probe, until);
    }

    /// This host has the published address. Written with the next change; a worker that does not know looks again.
    pub const fn saw_address(&mut self) {
        self.record.address_seen = true;
    }

    /// The lines that the record of events is worth and that nobody has taken out yet; `None` before
    /// [`Attendance::begin_entries`].
    pub fn entries(&mut self) -> Option<&mut Vec<Entry>> {
        self.recording.as_deref_mut().map(|one| &mut one.entries)
    }

    /// The record of events begins, or goes on after lines were lost: with the machine as it is now.
    pub fn begin_entries(&mut self, now: Now) {
        let began = self.record.began();
        let Recording { recorder, entries } = &mut **self.recording.get_or_insert_default();
        entries.clear();
        entries.push(recorder.state(now, began, &self.record.machine));
    }

    /// The record of events ends with what was only counted.
    pub fn end_entries(&mut self) {
        if let Some(Recording { recorder, entries }) = self.recording.as_deref_mut() {
            recorder.count_down(entries);
        }
    }

    pub(super) fn event(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        if self.record.refused.is_none() {
            self.changed = true;
            self.hand_over(now, event, None, effects);
        }
    }

    pub(super) fn hand_over(
        &mut self,
        now: Now,
        event: Event,
        text: Option<&str>,
        effects: &mut Vec<Effect>,
    ) {
        let machine = &mut self.record.machine;
        match self.recording.as_deref_mut() {
            Some(Recording { recorder, entries }) => {
                recorder.handle(machine, now.mono, event, text, effects, entries);
            }
            None => machine.handle(now.mono, event, effects),
        }
    }

    pub(super) fn on_process(
        &mut self,
        now: Now,
        event: ProcessEvent,
        around: &mut impl Surroundings,
        cleared: &mut Option<Run>,
        effects: &mut Vec<Effect>,
    ) {
        let newest = self.run();
        let event = match event {
            ProcessEvent::PreExecStarted { run } => Event::PreExecStarted { run },
            ProcessEvent::Spawned { run, process } => {
                if run == newest {
                    self.record.process = Some(process);
                }
                Event::Spawned { run }
            }
            ProcessEvent::SpawnFailed { run, why } => Event::SpawnFailed { run, why },
            ProcessEvent::PortConflict { run, stranger } => stranger.conflict(run),
            ProcessEvent::Cleared { run } => {
                // Nothing else ends a run that is starting.
                if run == newest && self.clearing == Some(run) {
                    self.clearing = None;
                    *cleared = Some(run);
                }
                return;
            }
            ProcessEvent::Exited { run, status } => {
                self.exit = Some((run, status));
                if run == newest {
                    self.record.process = None;
                }
                match self.stranger_after(run, status, around) {
                    Some(stranger) => stranger.conflict(run),
                    None => Event::Exited { run, status },
                }
            }
            ProcessEvent::GroupEmpty { run } => {
                self.emptied = self.emptied.max(Some(run));
                Event::GroupEmpty { run }
            }
        };
        self.event(now, event, effects);
    }

    /// An exit before READY that nobody asked for may be due to a port somebody took after the start.
    fn stranger_after(
        &self,
        run: Run,
        status: ExitStatus,
        around: &mut impl Surroundings,
    ) -> Option<super::Stranger> {
        // Its shim is lost, and what the shim held may still live and listen for a moment.
        if status == ExitStatus::Unknown {
            return None;
        }
        let was_ready = self.record.ready_run == Some(run);
        let suspects = self.record.machine.suspects_stranger(run, was_ready);
        suspects.then(|| around.stranger_after(run)).flatten()
    }

    fn on_probe(&mut self, now: Now, end: ProbeEnd, effects: &mut Vec<Effect>) {
        self.work.probes += 1;
        let outcome = self.probing.ended(end.kind, end.probe, end.outcome);
        let of_this_run = end.run == self.run();
        let before = self.record.machine.state();
        let event = Event::ProbeResult {
            run: end.run,
            kind: end.kind,
            probe: end.probe,
            outcome,
        };
        // Counters are not worth a write: a new worker begins with new ones.
        self.hand_over(now, event, Some(&end.text), effects);
        if of_this_run {
            self.news.probed(end.kind, outcome, end.text);
        }
        self.changed |= before != self.record.machine.state();
    }
}

#[cfg(test)]
#[path = "attendance_test.rs"]
mod tests;
