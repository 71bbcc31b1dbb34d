//! What is kept of a resident beside what [`crate::residency::difference`] compares.

use std::time::Duration;

use super::errand::Addresses;
use crate::time::Monotonic;

/// What only the household needs to know of a resident.
#[derive(Clone, Debug)]
pub(super) struct Keeping<A> {
    pub(super) assignment: Option<Box<A>>,
    /// The process of its worker.
    pub(super) worker: Option<u32>,
    /// What its worker is known to know of addresses: one that was adopted, or took over from another, may have been
    /// told of several since its assignment was written.
    pub(super) addresses: Option<Addresses>,
    /// Workers started for it in a row that soon ended.
    pub(super) attempts: u32,
    pub(super) started: Option<Monotonic>,
    pub(super) start_after: Option<Monotonic>,
    pub(super) talk_after: Option<Monotonic>,
    /// When its worker, which refused them, is told its tokens again: until then it is told everything else.
    pub(super) renew_after: Option<Monotonic>,
    /// Its worker knows that the host is being shut down, and asks nobody whether it may end.
    pub(super) is_leaving: bool,
    /// When its logs have been kept long enough, once it ended.
    pub(super) expires: Option<Monotonic>,
}

impl<A> Keeping<A> {
    /// A worker that lived this long was started well.
    const SETTLED: Duration = Duration::from_secs(60);
    /// The longest wait before a worker is started again.
    const LONGEST: Duration = Duration::from_secs(60);

    pub(super) const fn new(assignment: Option<Box<A>>) -> Self {
        Self {
            assignment,
            worker: None,
            addresses: None,
            attempts: 0,
            started: None,
            start_after: None,
            talk_after: None,
            renew_after: None,
            is_leaving: false,
            expires: None,
        }
    }

    /// It has a living worker.
    pub(super) const fn watch(&mut self, now: Monotonic, worker: u32) {
        self.worker = Some(worker);
        self.started = Some(now);
        self.talk_after = None;
        self.is_leaving = false;
    }

    /// When the next worker may start: at once the first time, then after twice the wait each time.
    pub(super) fn next_start(&mut self, now: Monotonic) -> Monotonic {
        let settled = self
            .started
            .is_some_and(|started| now.since(started) >= Self::SETTLED);
        self.attempts = if settled {
            0
        } else {
            self.attempts.saturating_add(1)
        };
        let wait = match self.attempts {
            0 => Duration::ZERO,
            some => Duration::from_millis(100).saturating_mul(1 << some.min(16)),
        };
        now + wait.min(Self::LONGEST)
    }
}
