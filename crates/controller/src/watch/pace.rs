//! How fast one connection gets the answers of questions that could have waited.
//!
//! An asker that does not hold the revision it was given would ask in a circle. Its answers come later, and
//! are never refused: clients take a refusal for an outage, and stop or forget what they had.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket of answers: so many at once, then so many a second.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the bucket is full again.
    full_at: Option<Instant>,
}

impl Pace {
    /// Answers at once.
    const BURST: u32 = 4;
    /// One more after each.
    const EVERY: Duration = Duration::from_millis(100);

    /// Takes one answer out at `now`, and tells when it may leave.
    pub(crate) fn take(&mut self, now: Instant) -> Instant {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + Self::EVERY;
        self.full_at = Some(full_at);
        let ahead = Self::EVERY * Self::BURST;
        full_at.checked_sub(ahead).map_or(now, |at| at.max(now))
    }
}

/// Marks an answer whose question could have been held: the connection paces it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paced;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_answers_leave_at_once_and_then_ten_a_second() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let delays: Vec<_> = (0..8)
            .map(|_| pace.take(start).duration_since(start).as_millis())
            .collect();
        assert_eq!(delays, [0, 0, 0, 0, 100, 200, 300, 400]);
        let rested = start + Duration::from_secs(5);
        assert_eq!(pace.take(rested), rested, "rest fills it again");
    }
}
