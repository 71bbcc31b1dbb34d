//! A run that waits for its turn among the starts of the host.

use std::time::Duration;

use crate::identity::Run;
use crate::time::Monotonic;

use super::output::{Surroundings, Token};

/// A run that was decided and has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    run: Run,
    at: Monotonic,
    /// How often its token was asked for in vain; `None` once it has it, or needs none.
    asked: Option<u32>,
}

impl Waiting {
    /// From `now` on. The first run of a replica needs no token: it is no part of a storm of restarts.
    pub(super) fn new(run: Run, now: Monotonic) -> Self {
        Self {
            run,
            at: now,
            asked: (run > Run(1)).then_some(0),
        }
    }

    pub(super) const fn run(self) -> Run {
        self.run
    }

    /// When to look at it again.
    pub(super) const fn at(self) -> Monotonic {
        self.at
    }

    /// Whether it may begin; takes its token of the host if it has none yet.
    pub(super) fn may_begin(&mut self, now: Monotonic, around: &mut impl Surroundings) -> bool {
        if now < self.at {
            return false;
        }
        let Some(asked) = self.asked else {
            return true;
        };
        match around.restart_token(now, self.run) {
            Token::After(Duration::ZERO) => return true,
            Token::After(wait) => {
                self.asked = None;
                self.at = now + wait;
            }
            // Held by one that does not go on: the service is worth more than the limit.
            Token::Busy if asked >= MOST_ASKED => return true,
            Token::Busy => {
                self.asked = Some(asked + 1);
                self.at = now + BUSY_AGAIN;
            }
        }
        false
    }
}

/// How often a bucket is asked that another worker has in its hands: for about a second.
const MOST_ASKED: u32 = 200;
/// How long until it is asked again.
const BUSY_AGAIN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attendance::{Contact, Stranger};
    use crate::residency::Pace;

    /// A bucket, which may be in other hands.
    struct Bucket(Option<Pace>);

    impl Surroundings for Bucket {
        fn contact(&mut self) -> Option<Contact> {
            None
        }

        fn restart_token(&mut self, now: Monotonic, _: Run) -> Token {
            match &mut self.0 {
                Some(pace) => Token::After(pace.restart(now)),
                None => Token::Busy,
            }
        }

        fn stranger_after(&mut self, _: Run) -> Option<Stranger> {
            None
        }
    }

    #[test]
    fn a_first_run_begins_at_once_and_a_restart_in_a_storm_at_its_turn() {
        let now = Monotonic::from_millis(1_000_000);
        let mut pace = Pace::default();
        for _ in 0..60 {
            pace.restart(now);
        }
        let mut bucket = Bucket(Some(pace));
        assert!(Waiting::new(Run(1), now).may_begin(now, &mut bucket));
        let mut second = Waiting::new(Run(2), now);
        assert!(!second.may_begin(now, &mut bucket));
        assert_eq!(second.at(), now + Duration::from_secs(1));
        // Looked at before, it takes no second token.
        assert!(!second.may_begin(now + Duration::from_millis(999), &mut bucket));
        assert!(second.may_begin(second.at(), &mut bucket));
    }

    #[test]
    fn a_bucket_that_stays_in_other_hands_holds_a_start_up_for_a_second() {
        let mut now = Monotonic::from_millis(1_000_000);
        let begin = now;
        let mut second = Waiting::new(Run(2), now);
        while !second.may_begin(now, &mut Bucket(None)) {
            now = second.at();
        }
        assert_eq!(now.since(begin), Duration::from_secs(1));
    }
}
