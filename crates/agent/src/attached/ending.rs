//! The last status of a replica whose job can say no more.

use std::time::{SystemTime, UNIX_EPOCH};

use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, Failure, Final, Reason, State, Status};
use portreeve::time::WallClock;

/// How a replica ended whose job was killed: nobody knows.
pub(super) fn unknown_end(last: Option<&Status>) -> Status {
    let reason = Reason::Exit(ExitStatus::Unknown);
    let run = last.map_or(Run(0), |status| status.run);
    let failure = Failure {
        reason: reason.clone(),
        exit: Some(ExitStatus::Unknown),
        run,
        at: now(),
        probe_output: None,
    };
    let first = last.and_then(|status| status.first_failure.clone());
    Status {
        run,
        seq: last.map_or(1, |status| status.seq.saturating_add(1)),
        state: State::Final(Final::Failed(reason)),
        ready: false,
        not_ready_reason: None,
        restarts: last.map_or(0, |status| status.restarts),
        user_restarts: last.map_or(0, |status| status.user_restarts),
        restart_no: last.map_or(0, |status| status.restart_no),
        pid: None,
        first_failure: first.or_else(|| Some(failure.clone())),
        last_failure: Some(failure),
        next_start: None,
    }
}

fn now() -> WallClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    WallClock::from_unix_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
