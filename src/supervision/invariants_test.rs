//! What holds whatever happens: random rules, random events in any order, and an observer beside them.

use std::time::Duration;

use proptest::prelude::*;

use super::virtual_driver::{config, probe, signal};
use super::{
    Config, Effect, Event, ExitStatus, Final, GiveUp, Machine, ProbeKind, ProbeNumber,
    ProbeOutcome, ProbeTiming, Reason, Report, RestartPolicy, StartFailure, State, Then, Window,
};
use crate::identity::Run;
use crate::port::{Port, Protocol};
use crate::time::Monotonic;

/// So many cases, or as many as the environment asks for if that is more.
fn at_least(cases: u32) -> ProptestConfig {
    ProptestConfig::with_cases(ProptestConfig::default().cases.max(cases))
}

proptest! {
    #![proptest_config(at_least(2000))]

    #[test]
    fn the_invariants_hold_in_every_order_of_events(
        rules in rules(),
        seed: u64,
        steps in proptest::collection::vec(step(), 1..100),
    ) {
        let mut observer = Observer::new(rules, seed);
        for step in steps {
            observer.take(&step);
        }
    }
}

/// One thing that may happen; runs and probes are meant relative to the newest.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Wait(u64),
    /// Until the next deadline, and a little more.
    WaitForDeadline(u64),
    Command(Event),
    /// How many runs ago, and what.
    OfRun(u32, OfRun),
}

#[derive(Clone, Debug)]
pub(super) enum OfRun {
    PreExecStarted,
    Spawned,
    SpawnFailed,
    PortConflict,
    Exited(ExitStatus),
    GroupEmpty,
    Probe(ProbeKind, u32, ProbeOutcome),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        Just(ProbeKind::Startup),
        Just(ProbeKind::Liveness),
        Just(ProbeKind::Readiness)
    ];
    let outcome = prop_oneof![
        3 => Just(ProbeOutcome::Ok),
        3 => Just(ProbeOutcome::Fail),
        1 => Just(ProbeOutcome::Timeout),
        1 => Just(ProbeOutcome::Inconclusive)
    ];
    let status = prop_oneof![
        (0..4).prop_map(ExitStatus::Code),
        Just(signal(9)),
        Just(ExitStatus::Unknown)
    ];
    let of_run = prop_oneof![
        1 => Just(OfRun::PreExecStarted),
        6 => Just(OfRun::Spawned),
        1 => Just(OfRun::SpawnFailed),
        1 => Just(OfRun::PortConflict),
        5 => status.prop_map(OfRun::Exited),
        6 => Just(OfRun::GroupEmpty),
        8 => (kind, 0_u32..3, outcome).prop_map(|(kind, ago, outcome)| OfRun::Probe(kind, ago, outcome)),
    ];
    let milliseconds = proptest::option::of(0_u64..20_000);
    let grace = milliseconds
        .clone()
        .prop_map(|ms| ms.map(Duration::from_millis));
    let adopt = (milliseconds, any::<bool>()).prop_map(|(spread, stale)| Event::Adopt {
        spread: spread.map(Duration::from_millis),
        stale,
    });
    let command = prop_oneof![
        4 => Just(Event::Start),
        1 => grace.prop_map(|grace| Event::Stop { grace }),
        2 => Just(Event::UserRestart),
        1 => adopt,
    ];
    prop_oneof![
        2 => (0_u64..5000).prop_map(Step::Wait),
        8 => (0_u64..3).prop_map(Step::WaitForDeadline),
        2 => command.prop_map(Step::Command),
        16 => (prop_oneof![9 => Just(0_u32), 1 => 1_u32..3], of_run)
            .prop_map(|(ago, event)| Step::OfRun(ago, event)),
    ]
}

pub(super) fn rules() -> impl Strategy<Value = Config> {
    let policy = prop_oneof![
        4 => Just(RestartPolicy::Always),
        1 => Just(RestartPolicy::OnFailure),
        1 => Just(RestartPolicy::Never)
    ];
    let timing =
        (0_u64..4, 1_u64..4, 1_u32..4, 1_u32..4).prop_map(|(delay, interval, bad, good)| {
            ProbeTiming {
                success_threshold: good,
                ..probe(delay, interval, 1, bad)
            }
        });
    let timing = proptest::option::of(timing);
    let window = prop_oneof![
        (1_u64..60).prop_map(|s| Window::Span(Duration::from_secs(s))),
        Just(Window::Lifetime)
    ];
    let give_up = proptest::option::of((0_u32..4, window));
    let spans = (0_u64..3, 0_u64..3, 0_u64..3, 0_u64..4, 0_u16..=1000);
    (
        policy,
        timing.clone(),
        timing.clone(),
        timing,
        give_up,
        spans,
    )
        .prop_map(
            |(
                policy,
                startup,
                liveness,
                readiness,
                give_up,
                (min_up, drain, grace, reset, jitter),
            )| {
                let mut rules = config(policy);
                rules.startup = startup;
                rules.liveness = liveness;
                rules.readiness = readiness;
                rules.give_up = give_up.map(|(max_restarts, window)| GiveUp {
                    max_restarts,
                    window,
                    then: Then::Exit,
                });
                rules.min_up = Duration::from_secs(min_up);
                rules.stop.drain = Duration::from_secs(drain);
                rules.stop.grace = Duration::from_secs(grace);
                rules.stop.unkillable_after = Duration::from_secs(grace * 2);
                rules.backoff.reset_after = Duration::from_secs(reset);
                rules.backoff.jitter_permille = jitter;
                rules
            },
        )
}

/// Drives a machine and holds what it says against what was said before: the eleven of supervision.md 1.7.
///
/// One live run, and a spawn only after the last group was empty (`Spawn`); ready and not ready alternate, and ready
/// only while up (`observe`, `observe_report`); one more restart at each automatic `Restarted`; no more grants in any
/// window than the rule has (`Backoff`); no spawn after a stop; no deadline in the past (`take`); nothing after the
/// end, and the end is not ready; old and repeated events have no effect (`take`).
pub(super) struct Observer {
    machine: Machine,
    now: Monotonic,
    ready: bool,
    pub(super) was_ready: bool,
    pub(super) restarts: u32,
    stopped: bool,
    pub(super) ended: bool,
    /// Writes the machine and reads it back before every step, not only before some.
    pub(super) restores: bool,
    /// The newest run whose group was seen empty.
    emptied: Run,
    spawned: Run,
    probes: [u32; 3],
    grants: Vec<Monotonic>,
    /// It was said of this run, or of its end, that it is stuck.
    stuck: bool,
}

impl Observer {
    pub(super) fn new(rules: Config, seed: u64) -> Self {
        Self {
            machine: Machine::new(rules, seed),
            now: Monotonic::from_millis(1000),
            ready: false,
            was_ready: false,
            restarts: 0,
            stopped: false,
            ended: false,
            restores: false,
            emptied: Run(0),
            spawned: Run(0),
            probes: [0; 3],
            grants: Vec::new(),
            stuck: false,
        }
    }

    pub(super) fn take(&mut self, step: &Step) {
        if self.restores {
            self.restore();
        }
        match step {
            Step::Wait(ms) => {
                self.now = self.now + Duration::from_millis(*ms);
                self.restore();
            }
            Step::WaitForDeadline(ms) => {
                if let Some(at) = self.machine.next_deadline() {
                    self.now = self.now.max(at) + Duration::from_millis(*ms);
                }
            }
            Step::Command(event) => {
                if let Event::Stop { .. } = event {
                    self.stopped = true;
                }
                self.hand(event.clone());
            }
            Step::OfRun(ago, what) => {
                let event = self.event(*ago, what);
                if matches!(what, OfRun::GroupEmpty) && *ago == 0 && self.awaits_empty_group() {
                    self.emptied = self.machine.run();
                }
                let before = (*ago > 0).then(|| self.machine.clone());
                let reaped = self.machine.state() == State::Reaping;
                let said = self.hand(event.clone());
                if !reaped && self.machine.state() == State::Reaping {
                    // From here on it is the others of its group that may be stuck.
                    self.stuck = false;
                }
                if let Some(before) = before {
                    assert!(
                        said.is_empty() && self.machine == before,
                        "an old {event:?} had effect"
                    );
                }
                let before = self.machine.clone();
                let said = self.hand(event.clone());
                assert!(
                    said.is_empty() && self.machine == before,
                    "a repeated {event:?} had effect"
                );
            }
        }
        let mut out = Vec::new();
        self.machine.on_deadline(self.now, &mut out);
        self.observe(&out);
        let next = self.machine.next_deadline();
        assert!(
            next.is_none_or(|at| at > self.now),
            "a past deadline is armed: {:?}",
            self.machine
        );
    }

    /// Whatever follows is decided by what was stored.
    fn restore(&mut self) {
        let text = serde_json::to_vec(&self.machine).unwrap();
        let stored = serde_json::from_slice(&text).unwrap();
        assert_eq!(self.machine, stored);
        self.machine = stored;
    }

    fn awaits_empty_group(&self) -> bool {
        // Stuck before the exit does not await it yet; then the machine takes no notice either.
        matches!(self.machine.state(), State::Reaping | State::Stuck)
    }

    fn event(&self, ago: u32, what: &OfRun) -> Event {
        let run = Run(self.machine.run().0.wrapping_sub(ago));
        match what {
            OfRun::PreExecStarted => Event::PreExecStarted { run },
            OfRun::Spawned => Event::Spawned { run },
            OfRun::SpawnFailed => Event::SpawnFailed {
                run,
                why: StartFailure::Errno(2),
            },
            OfRun::PortConflict => Event::PortConflict {
                run,
                port: Port::MIN,
                protocol: Protocol::Tcp,
                pid: None,
                comm: None,
            },
            OfRun::Exited(status) => Event::Exited {
                run,
                status: *status,
            },
            OfRun::GroupEmpty => Event::GroupEmpty { run },
            OfRun::Probe(kind, ago, outcome) => Event::ProbeResult {
                run,
                kind: *kind,
                probe: ProbeNumber(self.probes[*kind as usize].wrapping_sub(*ago)),
                outcome: *outcome,
            },
        }
    }

    fn hand(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.machine.handle(self.now, event, &mut out);
        self.observe(&out);
        out
    }

    fn observe(&mut self, effects: &[Effect]) {
        assert!(
            !self.ended || effects.is_empty(),
            "after the end: {effects:?}"
        );
        for effect in effects {
            match effect {
                Effect::Spawn { run } => {
                    assert!(!self.stopped, "a start after the stop");
                    assert_eq!(*run, self.spawned.next());
                    assert_eq!(
                        self.emptied, self.spawned,
                        "the group of the last run may live"
                    );
                    self.spawned = *run;
                    self.probes = [0; 3];
                    self.stuck = false;
                }
                Effect::Probe { kind, probe, .. } => {
                    assert_eq!(probe.0, self.probes[*kind as usize] + 1);
                    self.probes[*kind as usize] = probe.0;
                }
                Effect::Report(report) => self.observe_report(report),
                Effect::Term { run }
                | Effect::KillGroup { run }
                | Effect::CancelProbe { run, .. } => {
                    assert_eq!(*run, self.spawned);
                }
            }
        }
        let machine = &self.machine;
        assert_eq!(machine.is_ready(), self.ready);
        assert!(!machine.is_ready() || machine.state() == State::Up);
        assert_eq!(machine.restarts(), self.restarts);
        assert_eq!(machine.is_final(), self.ended);
    }

    fn observe_report(&mut self, report: &Report) {
        match report {
            Report::Ready => {
                assert!(!self.ready, "ready twice");
                self.ready = true;
                self.was_ready = true;
            }
            Report::NotReady(_) => {
                assert!(self.ready, "not ready twice");
                self.ready = false;
            }
            Report::Restarted { count, reason, .. } => {
                self.restarts += u32::from(*reason != Reason::User);
                assert_eq!(*count, self.restarts);
            }
            Report::Backoff { delay, .. } => {
                let rules = self.machine.config();
                assert!(*delay <= rules.backoff.max);
                self.grants.push(self.now);
                if let Some(rule) = &rules.give_up {
                    let inside = self.grants.iter().filter(|at| match rule.window {
                        Window::Span(span) => self.now.since(**at) < span,
                        Window::Lifetime => true,
                    });
                    assert!(inside.count() <= rule.max_restarts as usize);
                }
            }
            Report::Stuck => {
                assert!(!self.stuck, "stuck twice");
                self.stuck = true;
            }
            Report::Final(_) => {
                assert!(!self.ready, "ended while ready");
                self.ended = true;
            }
        }
    }
}

fn at(ms: u64) -> Monotonic {
    Monotonic::from_millis(ms)
}

fn drive(machine: &mut Machine, ms: u64, events: Vec<Event>) -> Vec<Effect> {
    let mut out = Vec::new();
    for event in events {
        machine.handle(at(ms), event, &mut out);
    }
    machine.on_deadline(at(ms), &mut out);
    out
}

fn reports(effects: &[Effect]) -> Vec<&Report> {
    let mut found = Vec::new();
    for effect in effects {
        if let Effect::Report(report) = effect {
            found.push(report);
        }
    }
    found
}

#[test]
fn an_exit_seen_before_its_spawn_publishes_nothing_ready() {
    // A prototype took the late `Spawned` for a living run and said READY for a dead one.
    let mut rules = config(RestartPolicy::Always);
    rules.min_up = Duration::ZERO;
    let mut machine = Machine::new(rules, 0);
    drive(&mut machine, 0, vec![Event::Start]);
    let run = Run(1);
    let status = ExitStatus::Code(1);
    let said = drive(
        &mut machine,
        5,
        vec![Event::Exited { run, status }, Event::Spawned { run }],
    );
    assert!(!reports(&said).contains(&&Report::Ready), "{said:?}");
    assert_eq!(machine.state(), State::Reaping);
    drive(&mut machine, 6, vec![Event::Spawned { run }]);
    assert!(!machine.is_ready());
}

#[test]
fn a_stop_while_stuck_arms_no_deadline_and_ends_with_the_group() {
    // A prototype armed a past deadline again here, and its driver never slept.
    let mut machine = Machine::new(config(RestartPolicy::Always), 0);
    let run = Run(1);
    let status = ExitStatus::Code(1);
    drive(&mut machine, 0, vec![Event::Start, Event::Spawned { run }]);
    drive(&mut machine, 5000, vec![Event::Exited { run, status }]);
    let said = drive(&mut machine, 65_000, vec![]);
    assert_eq!(reports(&said), [&Report::Stuck]);
    let said = drive(&mut machine, 70_000, vec![Event::Stop { grace: None }]);
    assert_eq!((machine.next_deadline(), said), (None, vec![]));
    let said = drive(&mut machine, 80_000, vec![Event::GroupEmpty { run }]);
    assert_eq!(reports(&said), [&Report::Final(Final::Stopped)]);
}

#[test]
fn a_port_conflict_is_an_end_of_its_own_that_charges_nothing() {
    let run = Run(1);
    let conflict = || Event::PortConflict {
        run,
        port: Port::MAX,
        protocol: Protocol::Tcp,
        pid: Some(41),
        comm: Some("python3".to_owned()),
    };
    let end = Final::PortConflict {
        port: Port::MAX,
        protocol: Protocol::Tcp,
        pid: Some(41),
        comm: Some("python3".to_owned()),
    };
    let mut rules = config(RestartPolicy::Always);
    rules.give_up = Some(super::virtual_driver::give_up(0, 60));
    // In place of the spawn, and at an exit before the first readiness.
    for spawned in [false, true] {
        let mut machine = Machine::new(rules.clone(), 0);
        drive(&mut machine, 0, vec![Event::Start]);
        if spawned {
            drive(&mut machine, 1, vec![Event::Spawned { run }]);
        }
        let said = drive(&mut machine, 500, vec![conflict()]);
        // Its ports are freed only when nothing of it lives.
        assert_eq!(said, [Effect::KillGroup { run }]);
        // Another start could only fail.
        assert_eq!(drive(&mut machine, 600, vec![Event::UserRestart]), []);
        let said = drive(&mut machine, 700, vec![Event::GroupEmpty { run }]);
        assert_eq!(reports(&said), [&Report::Final(end.clone())]);
        assert_eq!(machine.state(), State::Final(end.clone()));
        assert_eq!(machine.restarts(), 0);
        assert_eq!(machine.standing().last_failure, None);
    }
    // Under a stop it is an ordinary end.
    let mut machine = Machine::new(rules, 0);
    drive(&mut machine, 0, vec![Event::Start]);
    let said = drive(
        &mut machine,
        1,
        vec![
            Event::Stop { grace: None },
            conflict(),
            Event::GroupEmpty { run },
        ],
    );
    assert_eq!(reports(&said), [&Report::Final(Final::Stopped)]);
}

#[test]
fn a_process_that_outlives_its_kill_is_reported_stuck_and_resumes_at_its_exit() {
    // A main process in uninterruptible sleep never exits, so no wait that begins at the exit would tell.
    let mut machine = Machine::new(config(RestartPolicy::Always), 0);
    let run = Run(1);
    drive(&mut machine, 0, vec![Event::Start, Event::Spawned { run }]);
    drive(&mut machine, 5000, vec![Event::Stop { grace: None }]);
    assert!(drive(&mut machine, 15_000, vec![]).contains(&Effect::KillGroup { run }));
    assert_eq!(
        reports(&drive(&mut machine, 75_000, vec![])),
        [&Report::Stuck]
    );
    let events = vec![
        Event::Exited {
            run,
            status: signal(9),
        },
        Event::GroupEmpty { run },
    ];
    let said = drive(&mut machine, 90_000, events);
    assert_eq!(reports(&said), [&Report::Final(Final::Stopped)]);
}

#[test]
fn a_stop_signals_a_running_pre_exec_and_kills_it_after_the_grace() {
    let mut machine = Machine::new(config(RestartPolicy::Always), 0);
    let run = Run(1);
    drive(
        &mut machine,
        0,
        vec![Event::Start, Event::PreExecStarted { run }],
    );
    let said = drive(&mut machine, 1000, vec![Event::Stop { grace: None }]);
    assert_eq!(said, [Effect::Term { run }]);
    assert_eq!(
        drive(&mut machine, 11_000, vec![]),
        [Effect::KillGroup { run }]
    );
    let why = StartFailure::PreExec(signal(9));
    let events = vec![Event::SpawnFailed { run, why }, Event::GroupEmpty { run }];
    let said = drive(&mut machine, 11_000, events);
    assert_eq!(reports(&said), [&Report::Final(Final::Stopped)]);
}

#[test]
fn a_stale_record_takes_readiness_back_until_the_first_success() {
    let mut rules = config(RestartPolicy::Always);
    let mut ready = probe(0, 5, 1, 3);
    ready.success_threshold = 3;
    rules.readiness = Some(ready);
    let mut machine = Machine::new(rules, 0);
    let run = Run(1);
    drive(&mut machine, 0, vec![Event::Start, Event::Spawned { run }]);
    let ok = |number| Event::ProbeResult {
        run,
        kind: ProbeKind::Readiness,
        probe: ProbeNumber(number),
        outcome: ProbeOutcome::Ok,
    };
    for number in 1..=3 {
        drive(&mut machine, u64::from(number) * 5000, vec![ok(number)]);
    }
    assert!(machine.is_ready());
    let adopt = |stale| Event::Adopt {
        spread: Some(Duration::ZERO),
        stale,
    };
    assert_eq!(
        reports(&drive(&mut machine, 16_000, vec![adopt(false)])),
        [] as [&Report; 0]
    );
    let said = drive(&mut machine, 17_000, vec![adopt(true)]);
    assert_eq!(reports(&said), [&Report::NotReady(Reason::StaleRecord)]);
    let said = drive(&mut machine, 17_001, vec![ok(6)]);
    assert_eq!(reports(&said), [&Report::Ready]);
}

#[test]
fn ten_thousand_equal_results_report_nothing_and_the_flip_once() {
    // probes 53
    let mut rules = config(RestartPolicy::Always);
    rules.readiness = Some(probe(0, 1, 1, 1));
    let mut machine = Machine::new(rules, 0);
    let run = Run(1);
    drive(&mut machine, 0, vec![Event::Start, Event::Spawned { run }]);
    let mut said = Vec::new();
    for number in 1..=10_001_u32 {
        let outcome = if number == 10_001 {
            ProbeOutcome::Fail
        } else {
            ProbeOutcome::Ok
        };
        let result = Event::ProbeResult {
            run,
            kind: ProbeKind::Readiness,
            probe: ProbeNumber(number),
            outcome,
        };
        said.extend(drive(&mut machine, u64::from(number) * 1000, vec![result]));
    }
    assert_eq!(
        reports(&said),
        [
            &Report::Ready,
            &Report::NotReady(Reason::Probe { failures: 1 })
        ]
    );
}

#[test]
fn the_first_and_the_last_failure_are_kept() {
    let mut machine = Machine::new(config(RestartPolicy::Always), 0);
    let mut ms = 0;
    drive(&mut machine, ms, vec![Event::Start]);
    for (number, status) in [
        ExitStatus::Code(1),
        ExitStatus::Code(0),
        signal(9),
        ExitStatus::Code(0),
    ]
    .into_iter()
    .enumerate()
    {
        let run = Run(u32::try_from(number).unwrap() + 1);
        ms += 100_000;
        let events = vec![
            Event::Spawned { run },
            Event::Exited { run, status },
            Event::GroupEmpty { run },
        ];
        drive(&mut machine, ms, events);
        ms += 100_000;
        drive(&mut machine, ms, vec![]);
    }
    let standing = machine.standing();
    let (first, last) = (
        standing.first_failure.unwrap(),
        standing.last_failure.unwrap(),
    );
    assert_eq!(
        (first.run, &first.reason),
        (Run(1), &Reason::Exit(ExitStatus::Code(1)))
    );
    assert_eq!((last.run, last.exit), (Run(3), Some(signal(9))));
}
