//! A run that waits for its turn among the starts of the host.

use std::time::Duration;

use portreeve::identity::Run;
use portreeve::time::{Monotonic, Spelled};

use crate::limits::{BUSY_AGAIN, Limits, Start};

/// A run that was decided and has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    run: Run,
    at: Monotonic,
    /// How often its token was asked for in vain; `None` once it has it, or needs none.
    asked: Option<u32>,
}

impl Waiting {
    /// From `now` on. The first run of a replica needs no token: it is no part of a storm of restarts.
    pub(crate) fn new(run: Run, now: Monotonic) -> Self {
        Self {
            run,
            at: now,
            asked: (run > Run(1)).then_some(0),
        }
    }

    pub(crate) const fn run(&self) -> Run {
        self.run
    }

    /// When to look at it again.
    pub(crate) const fn at(&self) -> Monotonic {
        self.at
    }

    /// Whether it may begin; takes its token of the host if it has none yet.
    pub(crate) fn may_begin(&mut self, now: Monotonic, limits: &Limits) -> bool {
        if now < self.at {
            return false;
        }
        let Some(asked) = self.asked else {
            return true;
        };
        match limits.restart(now) {
            Start::After(Duration::ZERO) => return true,
            Start::After(wait) => {
                tracing::info!(
                    "run {} begins in {}: many processes are started on this host",
                    self.run,
                    Spelled(wait)
                );
                self.asked = None;
                self.at = now + wait;
            }
            // Held by one that does not go on: the service is worth more than the limit.
            Start::Busy if asked >= MOST_ASKED => return true,
            Start::Busy => {
                self.asked = Some(asked + 1);
                self.at = now + BUSY_AGAIN;
            }
        }
        false
    }
}

/// How often a bucket is asked that another worker has in its hands: for about a second.
const MOST_ASKED: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_run_begins_at_once_and_a_restart_in_a_storm_at_its_turn() {
        let limits = Limits::of_process();
        let now = Monotonic::from_millis(1_000_000);
        // As of a storm of sixty.
        for _ in 0..60 {
            limits.restart(now);
        }
        assert!(Waiting::new(Run(1), now).may_begin(now, &limits));
        let mut second = Waiting::new(Run(2), now);
        assert!(!second.may_begin(now, &limits));
        assert_eq!(second.at(), now + Duration::from_secs(1));
        // Looked at before, it takes no second token.
        assert!(!second.may_begin(now + Duration::from_millis(999), &limits));
        assert!(second.may_begin(second.at(), &limits));
    }
}
