//! What the other scheduler is told of the end: one number.

use portreeve::supervision::{ExitStatus, Final, State};
use portreeve_worker::Outcome;

/// We failed, not the service.
pub(super) const OUR_FAILURE: u8 = 125;
/// There was no port in time: EX_TEMPFAIL of sysexits, so that a scheduler may try the job again.
pub(super) const NO_PORT: u8 = 75;

/// The exit code of the job: the service's own, 128+n for a signal.
pub(super) fn exit_code(outcome: &Outcome, signal: Option<u8>) -> u8 {
    if let State::Final(Final::PortConflict { .. }) = outcome.status.state {
        return NO_PORT;
    }
    match (outcome.exit, &outcome.status.state) {
        (Some(ExitStatus::Code(code)), _) => u8::try_from(code & 0xff).unwrap_or(OUR_FAILURE),
        (Some(ExitStatus::Signal { signal, .. }), _) => {
            u8::try_from(128 + signal).unwrap_or(OUR_FAILURE)
        }
        // Stopped before anything ran.
        (None, State::Final(Final::Stopped | Final::Left(_))) => {
            signal.map_or(0, |signal| 128 + signal)
        }
        _ => OUR_FAILURE,
    }
}

/// How it ended, in words.
pub(super) fn words(outcome: &Outcome) -> String {
    match &outcome.status.state {
        State::Final(end) => end.to_string(),
        _ => "it has not ended".to_owned(),
    }
}

/// The same, where it is not what was to be expected; `signal` is what the job was told to end with.
pub(super) fn worth_saying(outcome: &Outcome, signal: Option<u8>) -> Option<String> {
    match (&outcome.status.state, signal) {
        (State::Final(Final::Succeeded), _) | (State::Final(Final::Stopped), Some(_)) => None,
        (State::Final(Final::Stopped), None) => {
            Some("stopped as ordered from outside the job".to_owned())
        }
        _ => Some(words(outcome)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::identity::Run;
    use portreeve::supervision::{Reason, StartFailure, Status};

    fn ended(end: Final, exit: Option<ExitStatus>) -> Outcome {
        let status = Status {
            run: Run(1),
            seq: 1,
            state: State::Final(end),
            ..Status::silent()
        };
        Outcome { status, exit }
    }

    #[test]
    fn the_service_s_own_end_is_passed_on() {
        let killed = ExitStatus::Signal {
            signal: 9,
            core: false,
            oom: false,
        };
        let failed = |exit| Final::Failed(Reason::Exit(exit));
        let not_started = Final::Failed(Reason::StartFailed(StartFailure::Errno(2)));
        let conflict = Final::PortConflict {
            port: portreeve::port::Port::MAX,
            protocol: portreeve::port::Protocol::Tcp,
            pid: None,
            comm: None,
        };
        let code = |code| Some(ExitStatus::Code(code));
        for (end, exit, signal, expected) in [
            (Final::Succeeded, code(0), None, 0),
            (failed(ExitStatus::Code(3)), code(3), None, 3),
            (failed(killed), Some(killed), None, 137),
            (Final::Stopped, code(0), Some(15), 0),
            (Final::Stopped, code(143), Some(15), 143),
            (Final::Stopped, None, Some(15), 143),
            (Final::Stopped, None, None, 0),
            (not_started, None, None, OUR_FAILURE),
            (
                failed(ExitStatus::Unknown),
                Some(ExitStatus::Unknown),
                None,
                OUR_FAILURE,
            ),
            (conflict, code(1), None, NO_PORT),
        ] {
            let outcome = ended(end, exit);
            assert_eq!(exit_code(&outcome, signal), expected, "{outcome:?}");
        }
    }
}
