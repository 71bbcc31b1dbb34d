//! What is to be done, in the header's numbers.

use std::time::Duration;

use crate::identity::Run;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::proto;
use crate::plugin_abi::types::PrSupEffect;
use crate::supervision::{
    Config, Effect, ExitStatus, Final, ProbeKind, ProbeNumber, Reason, Report, StartFailure, Then,
};

/// `effect` as C reads it; `run` is the newest at its time.
pub(super) fn written(run: Run, effect: &Effect, config: &Config) -> PrSupEffect {
    match effect {
        Effect::Spawn { run } => of_run(PR_SF_SPAWN, *run),
        Effect::Term { run } => of_run(PR_SF_TERM, *run),
        Effect::KillGroup { run } => of_run(PR_SF_KILL_GROUP, *run),
        Effect::Probe {
            run,
            kind,
            probe,
            timeout,
        } => PrSupEffect {
            ms: milliseconds(*timeout),
            ..of_probe(PR_SF_PROBE, *run, *kind, *probe)
        },
        Effect::CancelProbe { run, kind, probe } => {
            of_probe(PR_SF_CANCEL_PROBE, *run, *kind, *probe)
        }
        Effect::Report(report) => {
            let mut said = of_run(PR_SF_REPORT, run);
            tell(report, config, &mut said);
            said
        }
    }
}

const fn of_run(kind: u32, run: Run) -> PrSupEffect {
    #[expect(clippy::cast_possible_truncation, reason = "48 bytes")]
    const SIZE: u32 = size_of::<PrSupEffect>() as u32;
    PrSupEffect {
        size: SIZE,
        kind,
        run: run.0,
        probe_kind: 0,
        number: 0,
        report: 0,
        reason: 0,
        code: 0,
        count: 0,
        flags: 0,
        ms: 0,
    }
}

const fn of_probe(kind: u32, run: Run, probe: ProbeKind, number: ProbeNumber) -> PrSupEffect {
    PrSupEffect {
        probe_kind: match probe {
            ProbeKind::Startup => PR_SK_STARTUP,
            ProbeKind::Liveness => PR_SK_LIVENESS,
            ProbeKind::Readiness => PR_SK_READINESS,
        },
        number: number.0,
        ..of_run(kind, run)
    }
}

fn tell(report: &Report, config: &Config, said: &mut PrSupEffect) {
    match report {
        Report::Ready => said.report = PR_SR_READY,
        Report::NotReady(reason) => {
            said.report = PR_SR_NOTREADY;
            give(reason, said);
        }
        Report::Backoff { reason, delay } => {
            said.report = PR_SR_BACKOFF;
            said.ms = milliseconds(*delay);
            give(reason, said);
        }
        Report::Restarted {
            count,
            reason,
            user_restarts,
        } => {
            said.report = PR_SR_RESTARTED;
            said.count = *count;
            said.number = *user_restarts;
            give(reason, said);
        }
        Report::Stuck => said.report = PR_SR_STUCK,
        Report::Final(end) => tell_end(end, config, said),
    }
}

fn tell_end(end: &Final, config: &Config, said: &mut PrSupEffect) {
    match end {
        Final::Succeeded => said.report = PR_SR_SUCCEEDED,
        Final::Failed(reason) => {
            said.report = PR_SR_FAILED;
            give(reason, said);
        }
        // That the host left by itself is a driver's word, which no machine says.
        Final::Stopped | Final::Left(_) => said.report = PR_SR_STOPPED,
        Final::GaveUp { reason, count } => {
            said.report = PR_SR_GAVEUP;
            said.count = *count;
            if let Some(rule) = &config.give_up
                && let Then::Requeue { rest, max_requeues } = rule.then
            {
                said.ms = milliseconds(rest);
                said.number = max_requeues;
            }
            give(reason, said);
        }
        Final::PortConflict { port, protocol, .. } => {
            said.report = PR_SR_PORT_CONFLICT;
            said.code = i32::from(port.number());
            said.flags = proto(*protocol);
        }
    }
}

fn give(reason: &Reason, said: &mut PrSupEffect) {
    let (class, code) = match reason {
        Reason::Exit(status) => return end_as(*status, said),
        Reason::StartFailed(failure) => match failure {
            StartFailure::PreExec(status) => {
                end_as(*status, said);
                said.reason = PR_SW_PRE_EXEC;
                return;
            }
            StartFailure::Errno(errno) | StartFailure::Exec { errno, .. } => {
                (PR_SW_START_FAILED, *errno)
            }
            StartFailure::Prepare(_) => (PR_SW_START_FAILED, 0),
        },
        Reason::Startup { failures } => (PR_SW_STARTUP, counted(*failures)),
        Reason::Liveness { failures } => (PR_SW_LIVENESS, counted(*failures)),
        Reason::Probe { failures } => (PR_SW_PROBE, counted(*failures)),
        Reason::User => (PR_SW_USER, 0),
        Reason::Stop => (PR_SW_STOP, 0),
        Reason::StaleRecord => (PR_SW_STALE_RECORD, 0),
    };
    said.reason = class;
    said.code = code;
}

fn end_as(status: ExitStatus, said: &mut PrSupEffect) {
    match status {
        ExitStatus::Code(code) => {
            said.reason = PR_SW_EXIT;
            said.code = code;
        }
        ExitStatus::Signal { signal, core, oom } => {
            said.reason = PR_SW_SIGNAL;
            said.code = signal;
            let core = if core { PR_SX_CORE } else { 0 };
            let oom = if oom { PR_SX_OOM } else { 0 };
            said.flags = PR_SX_SIGNAL | core | oom;
        }
        ExitStatus::Unknown => {
            said.reason = PR_SW_UNKNOWN;
            said.flags = PR_SX_UNKNOWN;
        }
    }
}

fn counted(failures: u32) -> i32 {
    i32::try_from(failures).unwrap_or(i32::MAX)
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
