//! How the newest status reaches the controller: on change only, the newest only, until it is acknowledged.

use std::time::Duration;

use crate::time::Monotonic;

/// When the newest status is told. It holds none itself: what is newest when it is to be sent, is sent.
///
/// One message is under way at a time. News that come meanwhile follow it; news that come while a failed message waits
/// to be sent again go with that. Nothing is sent while nothing changes, and nothing after an end was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Telling {
    at: At,
    /// The wait after the next try that fails.
    wait: Duration,
    /// Something came that no message has yet.
    news: bool,
    /// So did another token.
    renewed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Rest,
    /// A message is under way; `last`: with an end.
    Sending {
        last: bool,
    },
    Waiting {
        until: Monotonic,
    },
    Done,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send what is newest now, after [`Telling::sending`].
    Send,
    /// Look again then.
    At(Monotonic),
    /// Nothing, until something happens.
    Rest,
    /// Nothing ever: the controller has an end.
    Done,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The controller has it.
    Taken,
    /// The controller does not know this incarnation, any more or yet. The service goes on: only the wanted set of the
    /// host ends it. There is nothing to repeat until something changes.
    Unknown,
    /// It was refused for another reason, or nobody answered.
    Nothing,
}

impl Default for Telling {
    fn default() -> Self {
        Self {
            at: At::Rest,
            wait: Self::AGAIN.0,
            news: false,
            renewed: false,
        }
    }
}

impl Telling {
    /// The wait after a try that failed, at first and at most. The agent tells every newest status itself when
    /// the controller is back, so the longest wait may be long.
    pub const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
    /// How long one try may take.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// There is a newer status.
    pub const fn news(&mut self) {
        self.news = true;
    }

    /// The controller is shown another token from now on: it is told again, and at once. An earlier controller may be the
    /// only one that has it.
    pub const fn renewed(&mut self) {
        self.news = true;
        self.renewed = true;
        if let At::Waiting { .. } = self.at {
            self.at = At::Rest;
        }
    }

    /// What to do at `now`. Asking changes nothing.
    #[must_use]
    pub fn next(&self, now: Monotonic) -> Next {
        match self.at {
            At::Done => Next::Done,
            At::Waiting { until } if until > now => Next::At(until),
            At::Waiting { .. } => Next::Send,
            At::Rest if self.news => Next::Send,
            At::Rest | At::Sending { .. } => Next::Rest,
        }
    }

    /// The newest status is being sent; `last`: it is an end.
    pub fn sending(&mut self, last: bool) {
        if let At::Waiting { .. } = self.at {
            self.wait = (self.wait * 2).min(Self::AGAIN.1);
        }
        self.news = false;
        self.renewed = false;
        self.at = At::Sending { last };
    }

    /// What became of the message that was being sent. `chance` is drawn anew each time: up to a quarter of a wait is
    /// taken off, so that the workers of a cluster do not all come at once.
    pub fn heard(&mut self, now: Monotonic, heard: Heard, chance: u32) {
        let At::Sending { last } = self.at else {
            return;
        };
        self.at = match heard {
            // Nothing follows an end.
            Heard::Taken | Heard::Unknown if last => At::Done,
            Heard::Taken | Heard::Unknown => {
                self.wait = Self::AGAIN.0;
                At::Rest
            }
            Heard::Nothing if self.renewed => At::Rest,
            Heard::Nothing => At::Waiting {
                until: now + shortened(self.wait, chance),
            },
        };
    }
}

/// Up to a quarter less.
fn shortened(wait: Duration, chance: u32) -> Duration {
    let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let most = ms / 4;
    let off = (u128::from(most) * u128::from(chance)) >> 32;
    wait.saturating_sub(Duration::from_millis(u64::try_from(off).unwrap_or(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    /// One try that fails at `now`; when the next one is.
    fn fails(telling: &mut Telling, now: u64, chance: u32) -> u64 {
        assert_eq!(telling.next(at(now)), Next::Send);
        telling.sending(false);
        assert_eq!(telling.next(at(now)), Next::Rest, "one message at a time");
        telling.heard(at(now), Heard::Nothing, chance);
        match telling.next(at(now)) {
            Next::At(next) => next.as_millis() - now,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_sent_while_nothing_changes() {
        let mut telling = Telling::default();
        assert_eq!(telling.next(at(0)), Next::Rest);
        telling.news();
        assert_eq!(telling.next(at(0)), Next::Send);
        telling.sending(false);
        telling.heard(at(5), Heard::Taken, 0);
        assert_eq!(telling.next(at(1_000_000)), Next::Rest);
    }

    #[test]
    fn waits_double_up_to_a_bound_lose_at_most_a_quarter_and_begin_anew_after_a_success() {
        let mut telling = Telling::default();
        telling.news();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(fails(&mut telling, now, 0));
            now += waits[waits.len() - 1];
        }
        let doubled = [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000];
        assert_eq!(waits, doubled);
        let shortest = fails(&mut telling, now, u32::MAX);
        assert!((11_250..11_260).contains(&shortest), "{shortest}");
        now += shortest;
        telling.sending(false);
        telling.heard(at(now), Heard::Taken, 0);
        telling.news();
        assert_eq!(fails(&mut telling, now, 0), 250);
    }

    #[test]
    fn news_during_a_message_follow_it_and_news_during_a_wait_go_with_the_next_try() {
        let mut telling = Telling::default();
        telling.news();
        telling.sending(false);
        telling.news();
        telling.heard(at(0), Heard::Taken, 0);
        assert_eq!(telling.next(at(0)), Next::Send);
        let wait = fails(&mut telling, 0, 0);
        telling.news();
        assert_eq!(telling.next(at(0)), Next::At(at(wait)));
        telling.sending(false);
        telling.heard(at(wait), Heard::Taken, 0);
        assert_eq!(telling.next(at(wait)), Next::Rest);
    }

    #[test]
    fn another_token_is_told_again_and_at_once() {
        let mut telling = Telling::default();
        telling.renewed();
        fails(&mut telling, 0, 0);
        telling.renewed();
        assert_eq!(telling.next(at(0)), Next::Send);
        telling.sending(false);
        telling.renewed();
        telling.heard(at(0), Heard::Nothing, 0);
        assert_eq!(telling.next(at(0)), Next::Send);
    }

    #[test]
    fn a_replica_that_is_not_known_is_not_repeated_and_nothing_follows_an_end() {
        let mut telling = Telling::default();
        telling.news();
        telling.sending(false);
        telling.heard(at(0), Heard::Unknown, 0);
        assert_eq!(telling.next(at(0)), Next::Rest);
        telling.news();
        telling.sending(true);
        telling.heard(at(0), Heard::Nothing, 0);
        telling.news();
        telling.sending(true);
        telling.heard(at(0), Heard::Taken, 0);
        telling.news();
        telling.renewed();
        assert_eq!(telling.next(at(0)), Next::Done);
    }

    #[test]
    fn an_answer_that_nobody_waits_for_changes_nothing() {
        let mut telling = Telling::default();
        telling.heard(at(0), Heard::Nothing, 0);
        assert_eq!(telling, Telling::default());
    }
}
