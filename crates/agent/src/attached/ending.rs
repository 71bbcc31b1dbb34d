//! Statuses as the agent keeps them: the last of a replica whose job can say no more, and no longer than they need be.

use std::time::{SystemTime, UNIX_EPOCH};

use portreeve::supervision::{ExitStatus, Failure, Final, Reason, Status};
use portreeve::time::WallClock;

/// How a replica ended whose job was killed: nobody knows.
pub(super) fn unknown_end(last: Option<&Status>) -> Status {
    let before = last.cloned().unwrap_or_else(Status::silent);
    let reason = Reason::Exit(ExitStatus::Unknown);
    let failure = Failure {
        reason: reason.clone(),
        exit: Some(ExitStatus::Unknown),
        run: before.run,
        at: now(),
        probe_output: None,
    };
    before.concluded(Final::Failed(reason), Some(failure))
}

/// The most bytes of a status that the agent keeps: all of them together are in the host's full report.
const MOST: usize = 4096;
/// What is left of a text where it is longer.
const TEXT: usize = 256;

/// The same with its texts cut where it is too long; `None` where that does not help, which no worker's does. The
/// controller has the whole texts from the worker itself.
pub(super) fn slim(mut status: Status) -> Option<Status> {
    let fits = |status: &Status| serde_json::to_vec(status).is_ok_and(|it| it.len() <= MOST);
    if fits(&status) {
        return Some(status);
    }
    let failures = [&mut status.first_failure, &mut status.last_failure];
    let outputs = failures.into_iter().flatten();
    let outputs = outputs.filter_map(|failure| failure.probe_output.as_mut());
    for text in outputs.chain(&mut status.not_ready_reason) {
        let end = (0..=TEXT).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    fits(&status).then_some(status)
}

fn now() -> WallClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    WallClock::from_unix_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use portreeve::supervision::State;

    use super::*;

    #[test]
    fn long_texts_are_cut_and_what_is_long_without_them_is_no_status() {
        let mut status = unknown_end(None);
        assert_eq!(slim(status.clone()), Some(status.clone()));
        status.not_ready_reason = Some("\u{1f4a5}".repeat(100_000));
        if let Some(failure) = &mut status.last_failure {
            failure.probe_output = Some("\u{1}".repeat(4096));
        }
        let slim_one = slim(status.clone()).unwrap();
        assert_eq!(slim_one.state, status.state);
        assert!(slim_one.not_ready_reason.unwrap().len() <= TEXT);
        status.state = State::Final(Final::PortConflict {
            port: portreeve::port::Port::MAX,
            protocol: portreeve::port::Protocol::Tcp,
            pid: None,
            comm: Some("x".repeat(5000)),
        });
        assert_eq!(slim(status), None);
    }
}
