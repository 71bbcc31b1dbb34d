//! What there is to tell, and when: each change that people see once, and nothing while nothing changes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::supervision::{ProbeKind, ProbeOutcome, State, Status};
use crate::time::{Monotonic, Now};

use super::record::Record;

/// While not ready, a text that changes all the time is told at most this often.
const TEXT_REST: Duration = Duration::from_secs(10);

/// What was not told yet.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    texts: ProbeTexts,
    /// A failed probe said something new.
    text_changed: bool,
    /// When only a new text was told.
    text_told: Option<Monotonic>,
}

impl News {
    /// What the newest failed probes of the running run said.
    pub(super) const fn texts(&self) -> &ProbeTexts {
        &self.texts
    }

    /// A new run begins, of which no probe said anything.
    pub(super) fn new_run(&mut self) {
        self.texts = ProbeTexts::default();
    }

    /// Notes what a probe of the running run said.
    pub(super) fn probed(&mut self, kind: ProbeKind, outcome: ProbeOutcome, text: String) {
        match outcome {
            ProbeOutcome::Fail | ProbeOutcome::Timeout => {
                self.text_changed |= self.texts.failed(kind, text);
            }
            ProbeOutcome::Ok => self.texts.succeeded(kind),
            ProbeOutcome::Inconclusive => {}
        }
    }

    /// The status to tell next, if the machine reported something or people would see a change.
    pub(super) fn status(&mut self, record: &Record, now: Now, reported: bool) -> Option<Status> {
        let mut status = record.status_now(now, &self.texts);
        let told = record.status.as_ref();
        let changed = told.is_none_or(|told| visible(told) != visible(&status));
        // That a process is being made is over in a moment and told with its outcome.
        let passing = status.state == State::Starting && told.is_some();
        let text = self.text_changed
            && !status.ready
            && told.is_some_and(|told| told.not_ready_reason != status.not_ready_reason)
            && self
                .text_told
                .is_none_or(|told| now.mono.since(told) >= TEXT_REST);
        if !(reported || text || changed && !passing) {
            return None;
        }
        self.text_changed = false;
        self.text_told = text.then_some(now.mono);
        status.seq += 1;
        Some(status)
    }
}

/// What a change of is worth telling. Times and texts are not: they come along.
fn visible(status: &Status) -> (u32, &State, [bool; 2], u32, u32, u64, Option<u32>) {
    let Status {
        run,
        state,
        ready,
        serving,
        restarts,
        user_restarts,
        restart_no,
        pid,
        ..
    } = status;
    (
        run.0,
        state,
        [*ready, *serving],
        *restarts,
        *user_restarts,
        *restart_no,
        *pid,
    )
}

/// What the newest failed probe of each kind said, in the running run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeTexts(BTreeMap<ProbeKind, String>);

impl ProbeTexts {
    /// The longest text kept, in bytes.
    const MAX: usize = 4096;

    pub(super) fn get(&self, kind: ProbeKind) -> Option<&str> {
        self.0.get(&kind).map(String::as_str)
    }

    /// Keeps the text of a failed probe; whether it differs from the last one.
    pub(super) fn failed(&mut self, kind: ProbeKind, mut text: String) -> bool {
        text.truncate(text.floor_char_boundary(Self::MAX));
        let differs = self.get(kind) != Some(&text);
        self.0.insert(kind, text);
        differs
    }

    /// Forgets what an earlier probe of the kind said.
    pub(super) fn succeeded(&mut self, kind: ProbeKind) {
        self.0.remove(&kind);
    }
}
