//! Drives the machine of one replica: what happened goes in, what is to be done is done.
//!
//! One wake-up is one instant: the clock is read once, every source that is ready is drained, commands before
//! the backend's events before the probes' results, then the deadlines. What came of it is written down
//! before it is told, and before anything is done about it, so that a worker that is killed at any moment is
//! replaced by one that knows at least as much.

mod act;
mod begin;
mod cut_off;
mod heard;

use std::collections::BTreeMap;
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::supervision::{Effect, Event, ExitStatus, Final, ProbeKind, State};
use portreeve::time::{Monotonic, Now};
use portreeve_api::local::{Assignment, ReplicaFolder, WorkerAnswer, WorkerCounters};

use crate::backend::Backend;
use crate::clock::Clock;
use crate::file::{self, Durability};
use crate::job::Job;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::news::News;
use crate::probe::{Leftovers, SourcePorts};
use crate::probing::Probing;
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
    /// The replica ended and the controller knows; with how its newest run ended, where it began and that is known.
    Forgotten(Option<ExitStatus>),
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
    /// How the newest run that ended did, before anybody may remove what tells of it.
    exit: Option<(Run, ExitStatus)>,
    /// The newest run whose group is known to be empty.
    emptied: Option<Run>,
    /// Something is to be written down.
    changed: bool,
    /// When to try again what could not be written down.
    write_again: Option<Monotonic>,
    /// A restart that waits for the limits of the host.
    waiting: Option<Waiting>,
    /// When to look whether the host is cut off; `None`: that ends nothing.
    look_for_contact: Option<Monotonic>,
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
        self.watch_contact();
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
            let newest = self.record.machine.run();
            let exit = self.progress.exit.filter(|(run, _)| *run == newest);
            return Some(Ended::Forgotten(exit.map(|(_, status)| status)));
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
            .chain(self.progress.look_for_contact)
            .min()
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
        self.look_for_contact(now, &mut effects);
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
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod tests;
