//! Whether the controller answers, and how long to wait until it is tried again.

use std::time::Duration;

use crate::time::Monotonic;

/// Its silence and its return are told once each.
#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    lost: Option<Monotonic>,
    failures: u32,
    /// Whether it ever answered.
    is_known: bool,
}

/// What an answer means after what was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is the first of all.
    First,
    /// It answers again after so long a silence.
    Again(Duration),
    /// It answered before.
    Still,
}

/// How long to wait after so many failures in a row: twice as long each time, at most `most`.
pub(super) fn wait_after(failures: u32, most: Duration) -> Duration {
    const FIRST: Duration = Duration::from_millis(200);
    FIRST.saturating_mul(1 << failures.min(8)).min(most)
}

impl Contact {
    pub(super) const fn is_fine(&self) -> bool {
        self.failures == 0
    }

    /// Notes a failure; whether it is the first of this silence.
    pub(super) fn failed(&mut self, now: Monotonic) -> bool {
        self.failures = self.failures.saturating_add(1);
        let is_first = self.lost.is_none();
        self.lost.get_or_insert(now);
        is_first
    }

    /// How long to wait after the newest failure: at most as long as between two leases.
    pub(super) fn wait(&self, period: Duration) -> Duration {
        wait_after(self.failures, period)
    }

    /// Notes an answer.
    pub(super) fn heard(&mut self, now: Monotonic) -> Heard {
        self.failures = 0;
        let lost = self.lost.take();
        match (std::mem::replace(&mut self.is_known, true), lost) {
            (false, _) => Heard::First,
            (true, Some(lost)) => Heard::Again(now.since(lost)),
            (true, None) => Heard::Still,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    #[test]
    fn waits_double_up_to_the_time_between_two_leases_and_begin_anew_after_an_answer() {
        let period = Duration::from_secs(5);
        let mut contact = Contact::default();
        let mut waits = Vec::new();
        for n in 0..6 {
            assert_eq!(contact.failed(at(n)), n == 0);
            waits.push(contact.wait(period).as_millis());
        }
        assert_eq!(waits, [400, 800, 1600, 3200, 5000, 5000]);
        assert!(!contact.is_fine());
        assert_eq!(contact.heard(at(7)), Heard::First);
        assert!(contact.is_fine());
        assert!(contact.failed(at(1_000)));
        assert_eq!(contact.wait(period), Duration::from_millis(400));
        assert_eq!(
            contact.heard(at(3_000)),
            Heard::Again(Duration::from_secs(2))
        );
        assert_eq!(contact.heard(at(3_001)), Heard::Still);
    }
}
