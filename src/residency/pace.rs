//! How fast services are started again on one host: a bucket of tokens over all its replicas, kept as one time.

use std::time::Duration;

use crate::time::Monotonic;

/// The bucket: when the next token is due. In the past, tokens have gathered; in the future, they are spent ahead.
///
/// A restart takes its token in any case and is told how long to wait for it. Probes by a command take none: a
/// thousand replicas with two of them each 10 s start 200 a second, which is a load and no storm; how many of them run
/// at once is bounded instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace(Monotonic);

impl Pace {
    /// Restarts a second, in the long run.
    pub const PER_SECOND: u32 = 20;
    /// How many restart at once after a rest.
    pub const BURST: u32 = 41;
    /// How far ahead tokens may be spent before a restart waits.
    const AHEAD: Duration = Duration::from_secs(2);
    /// A token due later than this is no debt but damage.
    const LONGEST_DEBT: Duration = Duration::from_secs(300);
    const TOKEN: Duration = Duration::from_millis(1000 / Self::PER_SECOND as u64);

    /// The bucket whose next token is due at this time.
    #[must_use]
    pub const fn next_at(due: Monotonic) -> Self {
        Self(due)
    }

    /// When the next token is due.
    #[must_use]
    pub const fn next(self) -> Monotonic {
        self.0
    }

    /// Takes the token of a service that is started again; how long it is to wait for it.
    pub fn restart(&mut self, now: Monotonic) -> Duration {
        let debt = self.debt(now);
        self.0 = now + debt + Self::TOKEN;
        debt.saturating_sub(Self::AHEAD)
    }

    fn debt(self, now: Monotonic) -> Duration {
        let debt = self.0.since(now);
        if debt > Self::LONGEST_DEBT {
            Duration::ZERO
        } else {
            debt
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
    fn five_hundred_restarts_at_once_are_spread_and_none_is_refused() {
        let mut pace = Pace::default();
        let waits: Vec<_> = (0..500).map(|_| pace.restart(at(7_000))).collect();
        assert!(waits.is_sorted());
        let burst = Pace::BURST as usize;
        assert_eq!(waits[burst - 1], Duration::ZERO);
        assert_eq!(waits[burst], Duration::from_millis(50));
        assert_eq!(waits[499], Duration::from_millis(499 * 50 - 2000));
        // After the storm, and a rest as long as the burst is worth, so many may begin at once again.
        let rested = at(7_000 + 25_000);
        let waits: Vec<_> = (0..=burst).map(|_| pace.restart(rested)).collect();
        assert_eq!(waits[burst - 1], Duration::ZERO);
        assert!(waits[burst] > Duration::ZERO);
    }

    #[test]
    fn one_restart_every_token_never_waits() {
        let mut pace = Pace::default();
        for n in 0..1_000 {
            let now = at(1_000 + n * 50);
            assert_eq!(pace.restart(now), Duration::ZERO, "{n}");
        }
    }

    #[test]
    fn a_damaged_time_holds_up_nothing() {
        for due in [u64::MAX, u64::MAX / 2, 400_000] {
            let mut pace = Pace::next_at(at(due));
            assert_eq!(pace.restart(at(10)), Duration::ZERO);
        }
    }
}
