//! The rhythm and the counters of one probe kind in one run.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::config::ProbeTiming;
use super::vocabulary::{ProbeNumber, ProbeOutcome};
use crate::time::Monotonic;

/// At most one probe of the kind is in flight; a late wake-up is never caught up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Track {
    next: Monotonic,
    newest: ProbeNumber,
    in_flight: bool,
    failures: u32,
    successes: u32,
}

impl Track {
    /// The first probe is due at `first`.
    pub(super) const fn new(first: Monotonic) -> Self {
        Self {
            next: first,
            newest: ProbeNumber(0),
            in_flight: false,
            failures: 0,
            successes: 0,
        }
    }

    /// When the next probe begins; `None` while one is in flight, however late it is.
    pub(super) const fn due(&self) -> Option<Monotonic> {
        if self.in_flight {
            None
        } else {
            Some(self.next)
        }
    }

    /// The number of the newest probe; 0 before the first.
    pub(super) const fn newest(&self) -> ProbeNumber {
        self.newest
    }

    pub(super) fn in_flight(&self) -> Option<ProbeNumber> {
        self.in_flight.then_some(self.newest)
    }

    pub(super) fn begin(&mut self, now: Monotonic, interval: Duration) -> ProbeNumber {
        self.newest = ProbeNumber(self.newest.0.saturating_add(1));
        self.in_flight = true;
        self.next = now + interval;
        self.newest
    }

    /// Takes the result of the probe in flight and says what the counters decide.
    pub(super) fn ended(
        &mut self,
        now: Monotonic,
        outcome: ProbeOutcome,
        timing: &ProbeTiming,
    ) -> Verdict {
        self.in_flight = false;
        self.next = self.next.max(now);
        match outcome {
            ProbeOutcome::Ok => {
                self.failures = 0;
                self.successes = self.successes.saturating_add(1);
                if self.successes >= timing.success_threshold {
                    return Verdict::Good;
                }
            }
            ProbeOutcome::Fail | ProbeOutcome::Timeout => {
                self.successes = 0;
                self.failures = self.failures.saturating_add(1);
                if self.failures >= timing.failure_threshold {
                    return Verdict::Bad {
                        failures: self.failures,
                    };
                }
            }
            ProbeOutcome::Inconclusive => {}
        }
        Verdict::Open
    }

    /// Forgets the probe in flight and the counters; the next probe is due at `next`.
    pub(super) const fn adopt(&mut self, next: Monotonic) {
        self.next = next;
        self.in_flight = false;
        self.failures = 0;
        self.successes = 0;
    }

    /// Makes the very next success decide.
    pub(super) const fn trust_next_success(&mut self, timing: &ProbeTiming) {
        self.successes = timing.success_threshold.saturating_sub(1);
    }
}

/// What the counters of one probe kind say after a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No threshold is reached.
    Open,
    /// Enough successes in a row.
    Good,
    /// Enough failures in a row.
    Bad { failures: u32 },
}
