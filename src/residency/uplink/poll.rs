//! The question for what is wanted of this host: one at a time, for ever, at the controller that was joined.

use std::time::Duration;

use crate::time::Monotonic;

/// The wait after an answer that again cannot be acted on, so that no misunderstanding becomes a busy loop.
const PAUSE: Duration = Duration::from_secs(1);
/// The wait before a set is asked for again that holds nothing new.
const BREATH: Duration = Duration::from_millis(200);

/// Where the question stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Poll {
    stage: Stage,
    /// The controller that was joined.
    instance: Box<str>,
    /// The revision of the set that is acted on.
    since: Option<u64>,
    /// Answers in a row that could not be acted on.
    unfit: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// Until the next join there is nobody to ask.
    #[default]
    Idle,
    /// Asked with this number.
    Asked(u64),
    AskAt(Monotonic),
    RejoinAt(Monotonic),
}

/// What is to be done about it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ask { since: Option<u64> },
    Rejoin,
}

impl Poll {
    /// A controller has the full report: it is asked at once, with nothing known of its numbers.
    pub(super) fn joined(&mut self, now: Monotonic, instance: &str) {
        self.instance = instance.into();
        self.since = None;
        self.stage = Stage::AskAt(now);
    }

    /// Whether this is the controller that is asked.
    pub(super) fn is_at(&self, instance: &str) -> bool {
        *self.instance == *instance
    }

    pub(super) const fn asked(&mut self, no: u64) {
        self.stage = Stage::Asked(no);
    }

    pub(super) fn is_asked(&self, no: u64) -> bool {
        matches!(self.stage, Stage::Asked(asked) if asked == no)
    }

    /// The set can be acted on; whether there is something new in it.
    pub(super) fn fit(&mut self, now: Monotonic, revision: u64, brings_more: bool) -> bool {
        self.unfit = 0;
        let is_news = self.since.replace(revision) != Some(revision);
        self.stage = Stage::AskAt(if is_news || brings_more {
            now
        } else {
            now + BREATH
        });
        is_news
    }

    /// Nothing changed for as long as the controller holds the question.
    pub(super) const fn nothing_new(&mut self, now: Monotonic) {
        self.stage = Stage::AskAt(now);
    }

    /// At once the first time; after that a full report seems not to be what it takes.
    pub(super) fn unfit(&mut self, now: Monotonic) {
        let wait = if self.unfit > 0 {
            PAUSE
        } else {
            Duration::ZERO
        };
        self.stage = Stage::RejoinAt(now + wait);
    }

    pub(super) fn unanswered(&mut self, now: Monotonic) {
        self.stage = Stage::AskAt(now + PAUSE);
    }

    pub(super) const fn next_deadline(&self) -> Option<Monotonic> {
        match self.stage {
            Stage::AskAt(at) | Stage::RejoinAt(at) => Some(at),
            Stage::Idle | Stage::Asked(_) => None,
        }
    }

    /// What is due. A question is to be noted by [`Self::asked`].
    pub(super) fn due(&mut self, now: Monotonic) -> Option<Due> {
        match self.stage {
            Stage::AskAt(at) if at <= now => Some(Due::Ask { since: self.since }),
            Stage::RejoinAt(at) if at <= now => {
                self.unfit = self.unfit.saturating_add(1);
                self.stage = Stage::Idle;
                Some(Due::Rejoin)
            }
            _ => None,
        }
    }
}
