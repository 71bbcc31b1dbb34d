//! What happened, in the header's numbers.

use std::time::Duration;

use crate::identity::Run;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::protocol;
use crate::plugin_abi::types::PrSupEvent;
use crate::port::Port;
use crate::supervision::{Event, ExitStatus, ProbeKind, ProbeNumber, ProbeOutcome, StartFailure};

/// The event that `raw` spells. Members that its kind does not name are not read, unknown flags are refused.
pub(super) fn read(raw: &PrSupEvent) -> Result<Event, Failure> {
    let run = Run(raw.run);
    match raw.kind {
        PR_SE_STOP => allowed(raw, PR_SX_EXACT)?,
        PR_SE_ADOPT => allowed(raw, PR_SX_EXACT | PR_SX_STALE)?,
        PR_SE_SPAWN_FAILED => allowed(raw, PR_SX_PRE_EXEC | ENDS)?,
        PR_SE_EXITED => allowed(raw, ENDS)?,
        // Its flags are a protocol, which is read as one.
        PR_SE_PORT_CONFLICT => {}
        _ => allowed(raw, 0)?,
    }
    Ok(match raw.kind {
        PR_SE_START => Event::Start,
        PR_SE_STOP => Event::Stop { grace: span(raw) },
        PR_SE_USER_RESTART => Event::UserRestart,
        PR_SE_SPAWNED => Event::Spawned { run },
        PR_SE_SPAWN_FAILED => Event::SpawnFailed {
            run,
            why: start_failure(raw)?,
        },
        PR_SE_PORT_CONFLICT => Event::PortConflict {
            run,
            port: port(raw.code)?,
            protocol: protocol(raw.flags)?,
            pid: None,
            comm: None,
        },
        PR_SE_EXITED => Event::Exited {
            run,
            status: status(raw)?,
        },
        PR_SE_GROUP_EMPTY => Event::GroupEmpty { run },
        PR_SE_PROBE_RESULT => Event::ProbeResult {
            run,
            kind: probe_kind(raw.probe_kind)?,
            probe: ProbeNumber(raw.probe),
            outcome: outcome(raw.result)?,
        },
        PR_SE_ADOPT => Event::Adopt {
            spread: span(raw),
            stale: raw.flags & PR_SX_STALE != 0,
        },
        PR_SE_PRE_EXEC_STARTED => Event::PreExecStarted { run },
        kind => return Err(unknown("the kind of the event", kind)),
    })
}

/// How a process ended.
const ENDS: u32 = PR_SX_SIGNAL | PR_SX_CORE | PR_SX_OOM | PR_SX_UNKNOWN;

fn allowed(raw: &PrSupEvent, flags: u32) -> Result<(), Failure> {
    match raw.flags & !flags {
        0 => Ok(()),
        others => Err(unknown("flags of such an event", others)),
    }
}

fn unknown(what: &'static str, value: u32) -> Failure {
    Failure::value(PR_EINVAL, what, value.into())
}

/// A span that was given, if one was.
fn span(raw: &PrSupEvent) -> Option<Duration> {
    let given = raw.ms > 0 || raw.flags & PR_SX_EXACT != 0;
    given.then(|| Duration::from_millis(raw.ms))
}

fn start_failure(raw: &PrSupEvent) -> Result<StartFailure, Failure> {
    if raw.flags & PR_SX_PRE_EXEC != 0 {
        return status(raw).map(StartFailure::PreExec);
    }
    allowed(raw, 0)?;
    match raw.code {
        1..=LAST_ERRNO => Ok(StartFailure::Errno(raw.code)),
        code => Err(unsound("an errno is 1 to 4095", code)),
    }
}

fn status(raw: &PrSupEvent) -> Result<ExitStatus, Failure> {
    let has = |flag| raw.flags & flag != 0;
    match raw.flags & ENDS {
        0 => match raw.code {
            0..=255 => Ok(ExitStatus::Code(raw.code)),
            code => Err(unsound("an exit code is 0 to 255", code)),
        },
        PR_SX_UNKNOWN => Ok(ExitStatus::Unknown),
        _ if has(PR_SX_SIGNAL) && !has(PR_SX_UNKNOWN) => match raw.code {
            1..=LAST_SIGNAL => Ok(ExitStatus::Signal {
                signal: raw.code,
                core: has(PR_SX_CORE),
                oom: has(PR_SX_OOM),
            }),
            code => Err(unsound("a signal is 1 to 127", code)),
        },
        flags => Err(unknown(
            "core and oom go with a signal, unknown alone",
            flags,
        )),
    }
}

const LAST_ERRNO: i32 = 4095;
/// As much as a wait status has room for.
const LAST_SIGNAL: i32 = 127;

fn unsound(what: &'static str, code: i32) -> Failure {
    Failure::malformed(what, code)
}

fn port(code: i32) -> Result<Port, Failure> {
    let port = u16::try_from(code).ok().and_then(Port::new);
    port.ok_or_else(|| unsound("the port", code))
}

fn probe_kind(number: u32) -> Result<ProbeKind, Failure> {
    match number {
        PR_SK_STARTUP => Ok(ProbeKind::Startup),
        PR_SK_LIVENESS => Ok(ProbeKind::Liveness),
        PR_SK_READINESS => Ok(ProbeKind::Readiness),
        _ => Err(unknown("the kind of the probe", number)),
    }
}

fn outcome(number: u32) -> Result<ProbeOutcome, Failure> {
    match number {
        PR_SO_OK => Ok(ProbeOutcome::Ok),
        PR_SO_FAIL => Ok(ProbeOutcome::Fail),
        PR_SO_TIMEOUT => Ok(ProbeOutcome::Timeout),
        PR_SO_INCONCLUSIVE => Ok(ProbeOutcome::Inconclusive),
        _ => Err(unknown("the result of the probe", number)),
    }
}
