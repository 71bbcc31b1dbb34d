//! The same scripts through C and through the machine itself: what C is told, read back with nothing but the
//! header's numbers, is what the machine said. Saved and loaded before every step, nothing changes.

use std::time::Duration;

use proptest::prelude::*;

use super::worker_test::{Worker, event, try_load, try_new};
use crate::identity::Run;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::{PrSupEffect, PrSupEvent};
use crate::port::{Port, Protocol};
use crate::profile::Profile;
use crate::supervision::{
    Effect, Event, ExitStatus, Final, Machine, ProbeKind, ProbeNumber, ProbeOutcome, Reason,
    Report, StartFailure,
};
use crate::time::Monotonic;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn c_sees_exactly_what_the_machine_does(
        profile in profile(),
        saves: bool,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut pair = Pair::of(&profile);
        pair.take(&Step::Now(Command::Start));
        for step in &steps {
            if saves {
                pair.save_and_load(&profile);
            }
            pair.take(step);
        }
    }
}

/// The machine, and the same one behind the table.
struct Pair {
    machine: Machine,
    worker: Worker,
    now: u64,
    /// The newest probe of each kind.
    probes: [u32; 3],
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    /// Until the next deadline, and a little more.
    Due(u64),
    Now(Command),
    /// Of the newest run, or of one so many before.
    OfRun(u32, OfRun),
}

#[derive(Clone, Debug)]
enum Command {
    Start,
    Stop(Option<u64>),
    UserRestart,
    Adopt(Option<u64>, bool),
}

#[derive(Clone, Debug)]
enum OfRun {
    PreExecStarted,
    Spawned,
    SpawnFailed(i32),
    PreExecFailed(ExitStatus),
    PortConflict(u16),
    Exited(ExitStatus),
    GroupEmpty,
    Probe(ProbeKind, u32, ProbeOutcome),
}

impl Pair {
    fn of(profile: &str) -> Self {
        let config = Profile::from_json_text(profile)
            .unwrap()
            .profile
            .supervision;
        Self {
            // The seed of `try_new`.
            machine: Machine::new(config, 7),
            worker: try_new(profile).unwrap(),
            now: 1_000,
            probes: [0; 3],
        }
    }

    fn save_and_load(&mut self, profile: &str) {
        let state = self.worker.save();
        self.worker = try_load(profile, &state).unwrap();
        assert_eq!(self.worker.save(), state);
    }

    fn take(&mut self, step: &Step) {
        let happened = match step {
            Step::Wait(ms) => {
                self.now += ms;
                None
            }
            Step::Due(ms) => {
                let next = self.machine.next_deadline();
                let next = next.map_or(0, Monotonic::as_millis);
                self.now = self.now.max(next) + ms;
                None
            }
            Step::Now(command) => Some(command.both()),
            Step::OfRun(ago, what) => {
                let run = self.machine.run().0.wrapping_sub(*ago);
                Some(what.both(run, self.probes))
            }
        };
        let now = Monotonic::from_millis(self.now);
        if let Some((event, raw)) = happened {
            let mut said = Vec::new();
            self.machine.handle(now, event, &mut said);
            let told = self.worker.after(self.now, raw);
            self.compare(&said, &told);
        }
        let mut said = Vec::new();
        self.machine.on_deadline(now, &mut said);
        let told = self.worker.after_deadline(self.now);
        self.compare(&said, &told);
        let next = self.machine.next_deadline();
        let next = next.map_or(PR_NEVER, Monotonic::as_millis);
        assert_eq!(self.worker.next_deadline(), next);
    }

    fn compare(&mut self, said: &[Effect], told: &[PrSupEffect]) {
        let told: Vec<_> = told.iter().map(read).collect();
        assert_eq!(said, told);
        for effect in said {
            match effect {
                Effect::Spawn { .. } => self.probes = [0; 3],
                Effect::Probe { kind, probe, .. } => self.probes[*kind as usize] = probe.0,
                _ => {}
            }
        }
    }
}

impl Command {
    fn both(&self) -> (Event, PrSupEvent) {
        let span = |kind, ms: Option<u64>, flags| PrSupEvent {
            ms: ms.unwrap_or(0),
            flags: flags | if ms == Some(0) { PR_SX_EXACT } else { 0 },
            ..event(kind, 0)
        };
        match self {
            Self::Start => (Event::Start, event(PR_SE_START, 0)),
            Self::UserRestart => (Event::UserRestart, event(PR_SE_USER_RESTART, 0)),
            Self::Stop(ms) => {
                let grace = ms.map(Duration::from_millis);
                (Event::Stop { grace }, span(PR_SE_STOP, *ms, 0))
            }
            Self::Adopt(ms, stale) => {
                let spread = ms.map(Duration::from_millis);
                let flags = if *stale { PR_SX_STALE } else { 0 };
                let event = Event::Adopt {
                    spread,
                    stale: *stale,
                };
                (event, span(PR_SE_ADOPT, *ms, flags))
            }
        }
    }
}

impl OfRun {
    fn both(&self, number: u32, probes: [u32; 3]) -> (Event, PrSupEvent) {
        let run = Run(number);
        let of = |kind| event(kind, number);
        match self {
            Self::PreExecStarted => (Event::PreExecStarted { run }, of(PR_SE_PRE_EXEC_STARTED)),
            Self::Spawned => (Event::Spawned { run }, of(PR_SE_SPAWNED)),
            Self::GroupEmpty => (Event::GroupEmpty { run }, of(PR_SE_GROUP_EMPTY)),
            Self::SpawnFailed(errno) => {
                let why = StartFailure::Errno(*errno);
                let code = *errno;
                let raw = PrSupEvent {
                    code,
                    ..of(PR_SE_SPAWN_FAILED)
                };
                (Event::SpawnFailed { run, why }, raw)
            }
            Self::PreExecFailed(status) => {
                let why = StartFailure::PreExec(*status);
                let mut raw = with_status(*status, of(PR_SE_SPAWN_FAILED));
                raw.flags |= PR_SX_PRE_EXEC;
                (Event::SpawnFailed { run, why }, raw)
            }
            Self::PortConflict(port) => {
                let event = Event::PortConflict {
                    run,
                    port: Port::new(*port).unwrap(),
                    protocol: Protocol::Tcp,
                    pid: None,
                    comm: None,
                };
                let raw = PrSupEvent {
                    code: i32::from(*port),
                    flags: PR_TCP,
                    ..of(PR_SE_PORT_CONFLICT)
                };
                (event, raw)
            }
            Self::Exited(status) => {
                let raw = with_status(*status, of(PR_SE_EXITED));
                let status = *status;
                (Event::Exited { run, status }, raw)
            }
            Self::Probe(kind, ago, outcome) => {
                let probe = probes[*kind as usize].wrapping_sub(*ago);
                let raw = PrSupEvent {
                    probe_kind: *kind as u32 + 1,
                    probe,
                    result: *outcome as u32 + 1,
                    ..of(PR_SE_PROBE_RESULT)
                };
                let event = Event::ProbeResult {
                    run,
                    kind: *kind,
                    probe: ProbeNumber(probe),
                    outcome: *outcome,
                };
                (event, raw)
            }
        }
    }
}

fn with_status(status: ExitStatus, raw: PrSupEvent) -> PrSupEvent {
    let (code, flags) = match status {
        ExitStatus::Code(code) => (code, 0),
        ExitStatus::Unknown => (0, PR_SX_UNKNOWN),
        ExitStatus::Signal { signal, core, oom } => {
            (signal, 1 | (u32::from(core) << 1) | (u32::from(oom) << 2))
        }
    };
    PrSupEvent { code, flags, ..raw }
}

/// The effect that C was told, from the header's words alone.
fn read(told: &PrSupEffect) -> Effect {
    let run = Run(told.run);
    let kind = || match told.probe_kind {
        1 => ProbeKind::Startup,
        2 => ProbeKind::Liveness,
        _ => ProbeKind::Readiness,
    };
    let probe = ProbeNumber(told.number);
    match told.kind {
        1 => Effect::Spawn { run },
        2 => Effect::Term { run },
        3 => Effect::KillGroup { run },
        4 => Effect::Probe {
            run,
            kind: kind(),
            probe,
            timeout: Duration::from_millis(told.ms),
        },
        5 => Effect::CancelProbe {
            run,
            kind: kind(),
            probe,
        },
        _ => Effect::Report(report(told)),
    }
}

fn report(told: &PrSupEffect) -> Report {
    match told.report {
        1 => Report::Ready,
        2 => Report::NotReady(reason(told)),
        3 => Report::Backoff {
            reason: reason(told),
            delay: Duration::from_millis(told.ms),
        },
        4 => Report::Restarted {
            count: told.count,
            reason: reason(told),
            user_restarts: told.number,
        },
        5 => Report::Final(Final::GaveUp {
            reason: reason(told),
            count: told.count,
        }),
        6 => Report::Final(Final::Succeeded),
        7 => Report::Final(Final::Failed(reason(told))),
        8 => Report::Final(Final::Stopped),
        9 => Report::Stuck,
        _ => Report::Final(Final::PortConflict {
            port: Port::new(u16::try_from(told.code).unwrap()).unwrap(),
            protocol: Protocol::Tcp,
            pid: None,
            comm: None,
        }),
    }
}

fn reason(told: &PrSupEffect) -> Reason {
    let failures = u32::try_from(told.code).unwrap();
    let status = if told.flags & 8 != 0 {
        ExitStatus::Unknown
    } else if told.flags & 1 != 0 {
        ExitStatus::Signal {
            signal: told.code,
            core: told.flags & 2 != 0,
            oom: told.flags & 4 != 0,
        }
    } else {
        ExitStatus::Code(told.code)
    };
    match told.reason {
        1..=3 => Reason::Exit(status),
        4 => Reason::StartFailed(StartFailure::Errno(told.code)),
        5 => Reason::StartFailed(StartFailure::PreExec(status)),
        6 => Reason::Startup { failures },
        7 => Reason::Liveness { failures },
        8 => Reason::Probe { failures },
        9 => Reason::User,
        10 => Reason::Stop,
        _ => Reason::StaleRecord,
    }
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        Just(ProbeKind::Startup),
        Just(ProbeKind::Liveness),
        Just(ProbeKind::Readiness)
    ];
    let outcome = prop_oneof![
        4 => Just(ProbeOutcome::Ok),
        3 => Just(ProbeOutcome::Fail),
        1 => Just(ProbeOutcome::Timeout),
        1 => Just(ProbeOutcome::Inconclusive)
    ];
    let status = prop_oneof![
        (0..4).prop_map(ExitStatus::Code),
        (1_i32..16, any::<bool>(), any::<bool>())
            .prop_map(|(signal, core, oom)| ExitStatus::Signal { signal, core, oom }),
        Just(ExitStatus::Unknown)
    ];
    let of_run = prop_oneof![
        1 => Just(OfRun::PreExecStarted),
        8 => Just(OfRun::Spawned),
        1 => (1_i32..100).prop_map(OfRun::SpawnFailed),
        1 => status.clone().prop_map(OfRun::PreExecFailed),
        1 => (1_u16..).prop_map(OfRun::PortConflict),
        4 => status.prop_map(OfRun::Exited),
        8 => Just(OfRun::GroupEmpty),
        9 => (kind, 0_u32..2, outcome).prop_map(|(kind, ago, outcome)| OfRun::Probe(kind, ago, outcome)),
    ];
    let span = || proptest::option::of(0_u64..20_000);
    let command = prop_oneof![
        1 => Just(Command::Start),
        1 => span().prop_map(Command::Stop),
        3 => Just(Command::UserRestart),
        2 => (span(), any::<bool>()).prop_map(|(spread, stale)| Command::Adopt(spread, stale)),
    ];
    prop_oneof![
        2 => (0_u64..5000).prop_map(Step::Wait),
        8 => (0_u64..3).prop_map(Step::Due),
        2 => command.prop_map(Step::Now),
        18 => (prop_oneof![12 => Just(0_u32), 1 => 1_u32..3], of_run)
            .prop_map(|(ago, what)| Step::OfRun(ago, what)),
    ]
}

/// A profile in JSON with rules that chance chose among the valid ones.
fn profile() -> impl Strategy<Value = String> {
    let policy = prop_oneof![4 => Just("always"), 1 => Just("on-failure"), 1 => Just("never")];
    let probe = || proptest::option::of((0_u32..4, 1_u32..4, 1_u32..4));
    let give_up = prop_oneof![
        2 => Just(r#""never""#.to_owned()),
        2 => (0_u32..4).prop_map(|most| format!(r#"{{"max_restarts": {most}, "window": "lifetime"}}"#)),
        1 => (0_u32..4).prop_map(|most| format!(
            r#"{{"max_restarts": {most}, "window": "60s", "then": "requeue"}}"#
        )),
    ];
    let spans = (0_u32..3, 0_u32..3, 1_u32..5, 0_u32..=1000);
    (policy, probe(), probe(), probe(), give_up, spans).prop_map(
        |(policy, startup, liveness, readiness, give_up, (drain, grace, reset, jitter))| {
            let probes = [("startup", startup), ("liveness", liveness), ("readiness", readiness)];
            let mut written = String::new();
            for (name, rule) in probes {
                if let Some((delay, interval, failures)) = rule {
                    written += &format!(
                        r#","{name}": {{"tcp": {{}}, "initial_delay": "{delay}s", "interval": "{interval}s",
                        "timeout": "1s", "failure_threshold": {failures}}}"#
                    );
                }
            }
            format!(
                r#"{{"name": "web", "command": ["serve"], "ports": {{"http": "any"}}{written},
                "restart": {{"policy": "{policy}", "no_restart_exit": [3], "give_up": {give_up},
                    "backoff": {{"reset_after": "{reset}s", "jitter": {}}}}},
                "stop": {{"drain": "{drain}s", "grace": "{grace}s", "unkillable_after": "{}s"}}}}"#,
                f64::from(jitter) / 1000.0,
                grace * 2 + 1,
            )
        },
    )
}
