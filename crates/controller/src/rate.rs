//! How fast one user may ask: a budget that fills as time passes, so that short bursts pass and a loop without a pause
//! does not take the controller from others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The budgets of all users.
#[derive(Debug)]
pub(crate) struct Rates {
    /// Requests a second on the long run.
    per_second: u32,
    /// What one takes of a budget, and a full budget.
    each: Duration,
    whole: Duration,
    /// How far each user's budget is used up: when it is full again.
    full_at: Mutex<BTreeMap<String, Instant>>,
}

impl Rates {
    /// Requests a second, where nobody says otherwise.
    pub(crate) const PER_SECOND: u32 = 1_000;
    /// A full budget is what this many seconds allow.
    const BURST_S: u32 = 5;
    /// Users whose budget is remembered; beyond it those are forgotten that are full.
    const MOST_REMEMBERED: usize = 4096;

    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = per_second.max(1);
        let each = Duration::from_secs(1) / per_second;
        Self {
            per_second,
            each,
            whole: each * per_second.saturating_mul(Self::BURST_S),
            full_at: Mutex::default(),
        }
    }

    /// One a second on the long run, and so many at once.
    pub(crate) fn slow(burst: u32) -> Self {
        let each = Duration::from_secs(1);
        Self {
            per_second: 1,
            each,
            whole: each * burst,
            full_at: Mutex::default(),
        }
    }

    /// Takes one request out of the user's budget; the time until there is one again, if it is used up.
    pub(crate) fn take(&self, user: &str, now: Instant) -> Result<(), Duration> {
        let (each, whole) = (self.each, self.whole);
        let mut all = self.full_at.lock();
        if let Some(full_at) = all.get_mut(user) {
            let used = full_at.saturating_duration_since(now);
            if used + each > whole {
                return Err(used + each - whole);
            }
            *full_at = now + used + each;
            return Ok(());
        }
        if all.len() >= Self::MOST_REMEMBERED {
            all.retain(|_, full_at| *full_at > now);
        }
        all.insert(user.to_owned(), now + each);
        Ok(())
    }

    /// Requests a second on the long run.
    pub(crate) const fn per_second(&self) -> u32 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_a_loop_does_not_and_others_are_not_touched() {
        let rates = Rates::new(10);
        let now = Instant::now();
        for _ in 0..50 {
            assert_eq!(rates.take("alice", now), Ok(()));
        }
        assert_eq!(rates.take("alice", now), Err(Duration::from_millis(100)));
        assert_eq!(rates.take("bob", now), Ok(()));
        let later = now + Duration::from_millis(100);
        assert_eq!(rates.take("alice", later), Ok(()));
        assert!(rates.take("alice", later).is_err());
        // What was refused costs nothing: after the rest of the burst's time it is full again.
        let much_later = now + Duration::from_secs(60);
        for _ in 0..50 {
            assert_eq!(rates.take("alice", much_later), Ok(()));
        }
        assert!(rates.take("alice", much_later).is_err());
    }

    #[test]
    fn users_who_rest_are_forgotten_when_there_are_many() {
        let rates = Rates::new(10);
        let now = Instant::now();
        for nth in 0..Rates::MOST_REMEMBERED {
            let _ = rates.take(&nth.to_string(), now);
        }
        let later = now + Duration::from_secs(1);
        let _ = rates.take("late", later);
        assert_eq!(rates.full_at.lock().len(), 1);
    }
}
