//! How a driver begins: a first run, or what an earlier worker left.

use std::time::Duration;

use portreeve::supervision::{Effect, Event, ExitStatus, State};
use portreeve_api::local::WorkerCommand;

use super::{Driver, UNRECORDED_SEQ};
use crate::backend::{BackendEvent, Found};
use crate::job;
use crate::sources::Sources;

impl Driver {
    /// Starts the first run, or finds out what became of the newest one.
    pub(super) async fn begin(&mut self, sources: &mut Sources) {
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
}
