//! How fast processes are started on one host: a bucket of tokens over all its replicas, kept as one time.

use std::time::Duration;

use crate::time::Monotonic;

/// The bucket: when the next token is due. In the past, tokens have gathered; in the future, they are spent ahead.
///
/// Services come before probes: a probe takes a token only where none is owed beyond a second, a restart takes its
/// token in any case and is told how long to wait for it. So probes that are too many never hold up a restart, and
/// a storm of restarts holds up probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace(Monotonic);

impl Pace {
    /// Starts a second, in the long run.
    pub const PER_SECOND: u32 = 20;
    /// How far ahead tokens may be spent by probes: so many start at once after a rest.
    const PROBES_AHEAD: Duration = Duration::from_secs(1);
    /// How far ahead they may be spent by services before one waits.
    const SERVICES_AHEAD: Duration = Duration::from_secs(2);
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
        debt.saturating_sub(Self::SERVICES_AHEAD)
    }

    /// Takes the token of a probe by a command.
    ///
    /// # Errors
    ///
    /// How long there will be none; nothing was taken.
    pub fn probe(&mut self, now: Monotonic) -> Result<(), Duration> {
        let debt = self.debt(now);
        if debt >= Self::PROBES_AHEAD {
            return Err(debt - Self::PROBES_AHEAD + Self::TOKEN);
        }
        self.0 = now + debt + Self::TOKEN;
        Ok(())
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
    fn after_a_burst_probes_begin_twenty_times_a_second() {
        let mut pace = Pace::default();
        let mut begun = 0;
        for ms in 0..10_000 {
            if pace.probe(at(1_000_000 + ms)).is_ok() {
                begun += 1;
            }
        }
        // A second's worth at once, then ten seconds' worth.
        assert_eq!(begun, 220);
    }

    #[test]
    fn a_refused_probe_takes_nothing_and_knows_when_to_come_again() {
        let mut pace = Pace::default();
        while pace.probe(at(5_000)).is_ok() {}
        let before = pace;
        let wait = pace.probe(at(5_000)).unwrap_err();
        assert_eq!(pace, before);
        assert_eq!(pace.probe(at(5_000) + wait), Ok(()));
    }

    #[test]
    fn five_hundred_restarts_at_once_are_spread_and_none_is_refused() {
        let mut pace = Pace::default();
        let waits: Vec<_> = (0..500).map(|_| pace.restart(at(7_000))).collect();
        assert!(waits.is_sorted());
        assert_eq!(waits[40], Duration::ZERO);
        assert_eq!(waits[499], Duration::from_millis(499 * 50 - 2000));
        // Probes wait until the storm is over.
        assert!(pace.probe(at(8_000)).is_err());
        assert_eq!(pace.probe(at(7_000 + 25_000)), Ok(()));
    }

    #[test]
    fn probes_that_are_too_many_never_hold_up_a_restart() {
        let mut pace = Pace::default();
        for ms in 0..60_000 {
            _ = pace.probe(at(ms));
            if ms % 1_000 == 999 {
                assert_eq!(pace.restart(at(ms)), Duration::ZERO, "at {ms} ms");
            }
        }
    }

    #[test]
    fn a_damaged_time_holds_up_nothing() {
        for due in [u64::MAX, u64::MAX / 2, 400_000] {
            let mut pace = Pace::next_at(at(due));
            assert_eq!(pace.restart(at(10)), Duration::ZERO);
            let mut pace = Pace::next_at(at(due));
            assert_eq!(pace.probe(at(10)), Ok(()));
        }
    }
}
