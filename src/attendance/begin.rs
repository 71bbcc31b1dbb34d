//! How an attendance begins: a first run, or what an earlier worker left.

use std::time::Duration;

use crate::residency::Want;
use crate::supervision::{Effect, Event, ExitStatus, State};
use crate::time::Now;

use super::happened::{Found, ProcessEvent};
use super::output::{Output, Surroundings};
use super::turn::Attendance;

/// More statuses than a worker tells of one run that it could not write down: it flaps at most ten times a second.
const UNRECORDED_SEQ: u64 = 1_000_000;

/// What is found and wanted at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// How many runs there were after [`Attendance::run`]: an earlier worker that could write nothing down, on a full
    /// disk say, went further than the record. Nothing of them, and of the recorded one, lives any more when the
    /// attendance begins. Their numbers are not given again: what was told of them is older than what follows.
    pub unrecorded: u32,
    /// Whether an earlier worker told statuses that it could not write down: ours get higher numbers.
    pub is_behind: bool,
    /// What an earlier worker left of the newest recorded run; asked for if [`Attendance::takes_over`].
    pub found: Found,
    /// What is wanted now.
    pub want: Want,
    /// The user's restart, likewise.
    pub restart_no: u64,
}

impl Attendance {
    /// Whether an earlier worker left something to be taken over. It is looked for before [`Attendance::begin`].
    #[must_use]
    pub fn takes_over(&self) -> bool {
        self.record.machine.state() != State::Idle && !self.record.is_final()
    }

    /// The first turn: starts the first run, or goes on with the newest one.
    pub fn begin<A>(
        &mut self,
        now: Now,
        beginning: Beginning,
        around: &mut impl Surroundings,
        out: &mut Vec<Output<A>>,
    ) {
        let mut effects = Vec::new();
        let fresh = self.record.machine.state() == State::Idle;
        if let Some(told) = &mut self.record.status {
            // What was told and not written down is older; by the same numbers ours would count as repeated.
            let missing = u64::from(beginning.unrecorded) + u64::from(beginning.is_behind);
            told.seq += UNRECORDED_SEQ * missing;
        }
        self.record.machine.skip_runs(beginning.unrecorded);
        if self.takes_over() {
            let was_begun = beginning.unrecorded > 0;
            self.take_over(now, beginning.found, was_begun, &mut effects);
        }
        self.want(now, beginning.want, beginning.restart_no, &mut effects);
        // What is over is not told as if it lived, not even for a moment.
        for event in std::mem::take(&mut self.own) {
            self.on_process(now, event, around, &mut None, &mut effects);
        }
        // One that is not wanted any more is final by now and does not begin.
        if fresh {
            self.event(now, Event::Start, &mut effects);
        }
        self.changed = true;
        self.settle(now, effects, around, out);
        if !out.iter().any(|one| matches!(one, Output::Tell { .. })) && self.record.status.is_some()
        {
            // What an earlier worker wrote down may not have been told.
            out.push(Output::Tell {
                reports: Vec::new(),
            });
        }
        self.watch_contact(now.mono, around);
    }

    /// `was_begun`: also if nothing of it is found.
    fn take_over(&mut self, now: Now, found: Found, was_begun: bool, effects: &mut Vec<Effect>) {
        let run = self.record.machine.run();
        let found = if was_begun { Found::Nothing } else { found };
        let alone = match found {
            Found::Begun {
                alone_since: Some(since),
            } => now.mono.since(since),
            Found::Begun { alone_since: None } | Found::Nothing => Duration::ZERO,
        };
        let starting = self.record.machine.state() == State::Starting;
        self.hand_over(now, Event::taken_over(alone), None, effects);
        if found == Found::Nothing {
            if starting && !was_begun {
                // It was decided and written down, and then not begun.
                effects.push(Effect::Spawn { run });
            } else {
                // Nobody wrote its end down, or somebody removed the files of a run that had begun.
                let status = ExitStatus::Unknown;
                self.own.push(ProcessEvent::Exited { run, status });
            }
        }
    }
}
