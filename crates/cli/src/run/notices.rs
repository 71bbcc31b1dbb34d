//! What the job's log is told while its service lives: what went wrong and what was ordered, never what went well.

use portreeve::identity::Run;
use portreeve::supervision::{State, Status};

/// What was told so far. A failing service is told of once per run, so the rule's waits bound the lines.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The newest run whose end was told.
    ended: Option<Run>,
    user_restarts: u32,
    is_stuck: bool,
}

impl Notices {
    /// The line for a newer status, where it has something to say.
    pub(super) fn of(&mut self, status: &Status) -> Option<String> {
        let was_stuck = std::mem::replace(&mut self.is_stuck, status.state == State::Stuck);
        if self.is_stuck && !was_stuck {
            let words = "its processes cannot be removed; its ports stay held until they are gone";
            return Some(words.to_owned());
        }
        if status.user_restarts > self.user_restarts {
            self.user_restarts = status.user_restarts;
            return Some("restarts as ordered, on the same ports".to_owned());
        }
        if status.state == State::Backoff && self.ended != Some(status.run) {
            self.ended = Some(status.run);
            let last = status.last_failure.as_ref();
            // An end in success is none, and may be restarted too.
            let how = last.filter(|last| last.run == status.run);
            let how = how.map_or("ended".to_owned(), |last| last.reason.to_string());
            return Some(format!("{how}; is started again on the same ports"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::supervision::{ExitStatus, Failure, Reason};
    use portreeve::time::WallClock;

    fn status(run: u32, state: State) -> Status {
        Status {
            run: Run(run),
            seq: 1,
            state,
            ..Status::silent()
        }
    }

    #[test]
    fn each_end_that_is_followed_by_a_start_is_told_once() {
        let mut notices = Notices::default();
        assert_eq!(notices.of(&status(1, State::Up)), None);
        let mut failed = status(1, State::Backoff);
        failed.last_failure = Some(Failure {
            reason: Reason::Exit(ExitStatus::Code(3)),
            exit: None,
            run: Run(1),
            at: WallClock::from_unix_millis(0),
            probe_output: None,
        });
        let words = "exit 3; is started again on the same ports";
        assert_eq!(notices.of(&failed).as_deref(), Some(words));
        assert_eq!(notices.of(&failed), None);
        // The failure of the run before is not how this one ended.
        failed.run = Run(2);
        let words = "ended; is started again on the same ports";
        assert_eq!(notices.of(&failed).as_deref(), Some(words));
    }

    #[test]
    fn orders_and_what_cannot_end_are_told_once() {
        let mut notices = Notices::default();
        let mut ordered = status(1, State::Stopping);
        ordered.user_restarts = 1;
        assert!(notices.of(&ordered).is_some());
        assert_eq!(notices.of(&ordered), None);
        ordered.state = State::Stuck;
        assert!(notices.of(&ordered).unwrap().contains("cannot be removed"));
        assert_eq!(notices.of(&ordered), None);
    }
}
