//! The rows: rules, what each run does, who says what, and everything that is to be seen.

use std::collections::BTreeSet;

use portreeve::supervision::{
    Backoff, ExitCause, GiveUp, ProbeTiming, RestartPolicy, StopRule, Then, Window,
};

use super::*;

pub(super) fn cases() -> Vec<Case> {
    let mut all = ends_and_waits();
    all.extend(probes());
    all.extend(stops_and_groups());
    all
}

const STOP: WorkerCommand = WorkerCommand::Stop { grace: None };

fn stop_within(grace_s: u64) -> WorkerCommand {
    WorkerCommand::Stop {
        grace: Some(seconds(grace_s)),
    }
}

fn ends_and_waits() -> Vec<Case> {
    use RestartPolicy::{Always, Never, OnFailure};
    let enoent = RunScript {
        spawn_error: Some(2),
        ..up()
    };
    vec![
        case(1, Always, &[exits(5000, 0), up()], "1 R; 5 N(x0); 5 B(x0,1); 6 S(1); 7 R"),
        case(2, OnFailure, &[exits(5000, 0)], "1 R; 5 N(x0); 5 SUCCEEDED"),
        case(3, OnFailure, &[exits(5000, 1), up()], "1 R; 5 N(x1); 5 B(x1,1); 6 S(1); 7 R"),
        case(4, Never, &[exits(5000, 1)], "1 R; 5 N(x1); 5 FAILED(x1)"),
        case(5, Never, &[exits(5000, 0)], "1 R; 5 N(x0); 5 SUCCEEDED"),
        case(
            6,
            OnFailure,
            &[ends(5000, signal(15)), up()],
            "1 R; 5 N(sig15); 5 B(sig15,1); 6 S(1); 7 R",
        ),
        case(
            7,
            OnFailure,
            &[exits(5000, 143), up()],
            "1 R; 5 N(x143); 5 B(x143,1); 6 S(1); 7 R",
        ),
        case(8, OnFailure, &[exits(5000, 3)], "1 R; 5 N(x3); 5 SUCCEEDED").rules(|c| {
            c.success_exit.insert(ExitCause::Code(3));
        }),
        case(9, Always, &[exits(5000, 78)], "1 R; 5 N(x78); 5 FAILED(x78)").rules(|c| {
            c.no_restart_exit.insert(ExitCause::Code(78));
        }),
        case(
            11,
            Always,
            &[exits(0, 1), exits(0, 1), exits(10_000, 1), up()],
            "0 B(x1,1); 1 S(1); 1 B(x1,2); 3 S(2); 4 R; 13 N(x1); 13 B(x1,1); 14 S(3); 15 R",
        )
        .rules(eight_ten),
        case(
            15,
            Always,
            &[exits(0, 1)],
            "0 B(x1,1); 1 S(1); 1 B(x1,2); 3 S(2); 3 B(x1,4); 7 S(3); 7 GAVEUP(x1,3)",
        )
        .rules(|c| c.give_up = Some(give_up(3, 60))),
        case(18, Always, &[exits(5000, 1)], "1 R; 5 N(x1); 5 GAVEUP(x1,0)")
            .rules(|c| c.give_up = Some(give_up(0, 60))),
        case(
            20,
            Always,
            &[enoent],
            "0 B(start-failed,1); 1 S(1); 1 B(start-failed,2); 3 S(2); 3 B(start-failed,4); 7 S(3); 7 GAVEUP(start-failed,3)",
        )
        .rules(|c| c.give_up = Some(give_up(3, 60))),
        case(
            10,
            Always,
            &[exits(0, 1)],
            "0 B(x1,1); 1 S(1); 1 B(x1,2); 3 S(2); 3 B(x1,4); 7 S(3); 7 B(x1,8); 15 S(4); 15 B(x1,8); 23 S(5); \
             23 B(x1,8); 31 S(6); 31 B(x1,8); 39 S(7); 39 B(x1,8)",
        )
        .rules(eight_ten)
        .until(40),
        case(
            12,
            Always,
            &[exits(0, 1), exits(0, 1), exits(9999, 1), up()],
            "0 B(x1,1); 1 S(1); 1 B(x1,2); 3 S(2); 4 R; 12.999 N(x1); 12.999 B(x1,4); 16.999 S(3); 17.999 R",
        )
        .rules(eight_ten),
        case(
            16,
            Always,
            &[exits(0, 1), exits(9000, 1), up()],
            "0 B(x1,1); 1 S(1); 2 R; 10 N(x1); 10 B(x1,2); 12 S(2); 13 R",
        )
        .rules(|c| c.give_up = Some(give_up(1, 10))),
        case(
            17,
            Always,
            &[exits(0, 1), exits(8999, 1)],
            "0 B(x1,1); 1 S(1); 2 R; 9.999 N(x1); 9.999 GAVEUP(x1,1)",
        )
        .rules(|c| c.give_up = Some(give_up(1, 10))),
        case(
            49,
            Always,
            &[exits(2000, 9)],
            "1 R; 2 N(x9); 2 B(x9,1); 3 S(1); 4 R; 5 N(x9); 5 GAVEUP(x9,1)",
        )
        .rules(|c| {
            let mut rule = give_up(1, 60);
            rule.then = Then::Requeue {
                rest: seconds(60),
                max_requeues: 5,
            };
            c.give_up = Some(rule);
        }),
        case(
            51,
            Always,
            &[exits(70_000, 1)],
            "1 R; 70 N(x1); 70 B(x1,1); 71 S(1); 72 R; 141 N(x1); 141 B(x1,1); 142 S(2); 143 R; 212 N(x1); 212 B(x1,1); \
             213 S(3); 214 R; 283 N(x1); 283 B(x1,1); 284 S(4)",
        )
        .until(284),
        case(
            58,
            Always,
            &[exits(0, 1)],
            "0 B(x1,1); 1 S(1); 1 B(x1,2); 3 S(2); 3 B(x1,4); 7 S(3); 7 B(x1,8); 15 S(4); 15 B(x1,16); 31 S(5); \
             31 B(x1,32); 63 S(6); 63 B(x1,60); 123 S(7); 123 B(x1,60); 183 S(8); 183 B(x1,60); 243 S(9); \
             243 B(x1,60); 303 S(10); 303 GAVEUP(x1,10)",
        )
        .rules(|c| c.give_up = Some(give_up(10, 606)))
        .until(400),
        case(
            19,
            Always,
            &[exits(50_000, 1), exits(4900, 1), exits(3900, 1), exits(1900, 1)],
            "1 R; 50 N(x1); 50 B(x1,0.1); 50.1 S(1); 51.1 R; 55 N(x1); 55 B(x1,0.1); 55.1 S(2); 56.1 R; \
             59 N(x1); 59 B(x1,0.1); 59.1 S(3); 60.1 R; 61 N(x1); 61 GAVEUP(x1,3)",
        )
        .rules(|c| {
            c.backoff.initial = Duration::from_millis(100);
            c.backoff.max = c.backoff.initial;
            c.backoff.reset_after = seconds(1000);
            c.give_up = Some(give_up(3, 60));
        }),
        case(
            52,
            Always,
            &[exits(59_000, 1)],
            "1 R; 59 N(x1); 59 B(x1,1); 60 S(1); 61 R; 119 N(x1); 119 B(x1,2); 121 S(2); 122 R; 180 N(x1); \
             180 B(x1,4); 184 S(3); 185 R; 243 N(x1); 243 B(x1,8); 251 S(4); 252 R; 310 N(x1); 310 B(x1,16); \
             326 S(5); 327 R; 385 N(x1); 385 B(x1,32); 417 S(6); 418 R; 476 N(x1); 476 B(x1,60); 536 S(7); 537 R",
        )
        .until(540),
        case(30, Always, &[up()], "1 R"),
        case(
            50,
            OnFailure,
            &[ends(5000, ExitStatus::Unknown), up()],
            "1 R; 5 N(unknown); 5 B(unknown,1); 6 S(1); 7 R",
        ),
        case(55, Always, &[exits(1000, 1), up()], "1 B(x1,1); 2 S(1); 3 R"),
    ]
}

fn probes() -> Vec<Case> {
    use ProbeKind::{Liveness, Readiness, Startup};
    use RestartPolicy::{Always, OnFailure};
    const EVER: u64 = u64::MAX;
    let slow = || [stays(500, signal(15)), up()];
    vec![
        case(
            21,
            Always,
            &slow(),
            "1 R; 45 N(liveness); 45 T; 45.5 B(liveness,1); 46.5 S(1); 47.5 R",
        )
        .live()
        .bad(1, Liveness, 20_000, EVER, Bad::Fails),
        case(
            22,
            Always,
            &slow(),
            "1 R; 46 N(liveness); 46 T; 46.5 B(liveness,1); 47.5 S(1); 48.5 R",
        )
        .live()
        .bad(1, Liveness, 20_000, EVER, Bad::Hangs),
        case(
            24,
            OnFailure,
            &[stays(500, ExitStatus::Code(0)), up()],
            "1 R; 45 N(liveness); 45 T; 45.5 B(liveness,1); 46.5 S(1); 47.5 R",
        )
        .live()
        .bad(1, Liveness, 20_000, EVER, Bad::Fails),
        case(
            25,
            Always,
            &[deaf(), up()],
            "1 R; 45 N(liveness); 45 T; 55 K; 55 B(liveness,1); 56 S(1); 57 R",
        )
        .live()
        .bad(1, Liveness, 20_000, EVER, Bad::Fails),
        case(
            28,
            Always,
            &[exits(36_000, 1), up()],
            "1 R; 36 N(x1); 36 B(x1,1); 37 S(1); 38 R",
        )
        .live()
        .bad(1, Liveness, 20_000, EVER, Bad::Fails)
        .bad(2, Liveness, 0, 20_000, Bad::Fails),
        case(29, Always, &[up()], "12 R; 42 N(probe); 57 R")
            .rules(|c| {
                c.readiness = Some(ProbeTiming {
                    success_threshold: 2,
                    ..probe(2, 5, 1, 3)
                });
            })
            .bad(0, Readiness, 0, 5_000, Bad::Fails)
            .bad(0, Readiness, 30_000, 50_000, Bad::Fails),
        case(33, Always, &[up()], "")
            .rules(|c| c.readiness = Some(probe(0, 5, 1, 3)))
            .bad(0, Readiness, 0, EVER, Bad::Fails),
        case(34, Always, &[up()], "15 R")
            .rules(|c| {
                c.startup = Some(probe(0, 5, 1, 6));
                c.liveness = Some(probe(0, 10, 1, 3));
                c.readiness = Some(probe(0, 1, 1, 3));
            })
            .bad(0, Startup, 0, 12_000, Bad::Fails)
            .bad(0, Liveness, 0, 13_000, Bad::Fails),
        case(35, Always, &[up()], "11 T; 11 B(startup,1); 12 S(1)")
            .rules(|c| c.startup = Some(probe(0, 5, 1, 3)))
            .bad(0, Startup, 0, EVER, Bad::Hangs)
            .until(20),
        case(
            40,
            Always,
            &[deaf()],
            "1 R; 5 N(liveness); 5 T; 10 K; 10 STOPPED",
        )
        .rules(|c| c.liveness = Some(probe(5, 10, 1, 1)))
        .bad(0, Liveness, 0, EVER, Bad::Fails)
        .order(8.0, stop_within(2)),
        case(
            13,
            Always,
            &[exits(0, 1), exits(14_000, 1)],
            "0 B(x1,1); 1 S(1); 6 R; 15 N(x1); 15 B(x1,2)",
        )
        .rules(eight_ten)
        .rules(|c| c.readiness = Some(probe(0, 1, 1, 3)))
        .bad(2, Readiness, 0, 5000, Bad::Fails)
        .until(16),
        case(
            14,
            Always,
            &[exits(0, 1), exits(30_000, 1)],
            "0 B(x1,1); 1 S(1); 31 B(x1,2)",
        )
        .rules(eight_ten)
        .rules(|c| c.readiness = Some(probe(0, 1, 1, 3)))
        .bad(2, Readiness, 0, EVER, Bad::Fails)
        .until(32),
        case(23, Always, &[up()], "1 R")
            .live()
            .bad(0, Liveness, 20_000, 40_000, Bad::Fails)
            .bad(0, Liveness, 50_000, 70_000, Bad::Fails),
        case(
            26,
            Always,
            &[exits(45_000, 1), up()],
            "1 R; 45 N(x1); 45 B(x1,1); 46 S(1); 47 R",
        )
        .live()
        .bad(1, Liveness, 20_000, EVER, Bad::Fails),
        case(
            27,
            Always,
            &[exits(5500, 1), up()],
            "1 R; 5.5 N(x1); 5.5 B(x1,1); 6.5 S(1); 7.5 R",
        )
        .rules(|c| c.liveness = Some(probe(5, 10, 1, 1)))
        .bad(1, Liveness, 0, EVER, Bad::FailsLate),
        case(
            31,
            Always,
            &[exits(3200, 1), up()],
            "0 R; 3.2 N(x1); 3.2 B(x1,1); 4.2 S(1); 4.2 R",
        )
        .rules(|c| c.readiness = Some(probe(0, 1, 1, 3))),
        case(32, Always, &[up()], "0 R; 2 N(probe); 4 R; 6 N(probe); 8 R")
            .rules(|c| c.readiness = Some(probe(0, 2, 1, 1)))
            .bad(0, Readiness, 1000, 3000, Bad::Fails)
            .bad(0, Readiness, 5000, 7000, Bad::Fails),
        case(54, Always, &[up()], "1 R")
            .live()
            .bad(0, Liveness, 0, 30_000, Bad::SaysNothing),
        case(
            56,
            Always,
            &[up()],
            "1 R; 30 N(liveness); 30 T; 30 B(liveness,1); 31 S(1); 32 R",
        )
        .rules(|c| c.liveness = Some(probe(0, 10, 10, 3)))
        .bad(1, Liveness, 0, EVER, Bad::Hangs),
        case(60, Always, &[up()], "15 T; 15 B(startup,1); 16 S(1); 17 R")
            .rules(|c| c.startup = Some(probe(0, 5, 1, 4)))
            .bad(1, Startup, 0, EVER, Bad::Fails),
        case(
            57,
            Always,
            &[up(), up()],
            "1 R; 33 N(liveness); 33 T; 33 B(liveness,1); 34 S(1); 35 R",
        )
        .rules(|c| c.liveness = Some(probe(0, 10, 11, 3)))
        .bad(1, Liveness, 0, EVER, Bad::Hangs)
        .until(60),
    ]
}

fn stops_and_groups() -> Vec<Case> {
    use RestartPolicy::Always;
    let three = || stays(3000, signal(15));
    let empties = |after: Option<Duration>| RunScript {
        empties: after,
        ..exits(5000, 1)
    };
    let starts_slowly = RunScript {
        spawn_takes: seconds(2),
        ..stays(100, signal(15))
    };
    vec![
        case(36, Always, &[three()], "1 R; 20 N(stop); 20 T; 23 STOPPED").order(20.0, STOP),
        case(37, Always, &[three()], "1 R; 20 N(stop); 22 T; 25 STOPPED")
            .rules(|c| c.stop.drain = seconds(2))
            .order(20.0, STOP),
        case(
            38,
            Always,
            &[exits(5000, 1)],
            "1 R; 5 N(x1); 5 B(x1,1); 5.5 STOPPED",
        )
        .order(5.5, STOP),
        case(39, Always, &[starts_slowly], "2 T; 2.1 STOPPED").order(1.0, STOP),
        case(
            41,
            Always,
            &[deaf()],
            "1 R; 20 N(stop); 20 T; 30 K; 30 STOPPED",
        )
        .order(20.0, STOP),
        case(
            42,
            Always,
            &[deaf()],
            "1 R; 20 N(stop); 20 T; 25 K; 25 STOPPED",
        )
        .order(20.0, stop_within(5))
        .order(22.0, stop_within(60)),
        case(
            43,
            Always,
            &[exits(20_000, 1)],
            "1 R; 20 N(stop); 20 T; 20 STOPPED",
        )
        .order(20.0, STOP),
        case(
            44,
            Always,
            &[empties(Some(seconds(3))), up()],
            "1 R; 5 N(x1); 5 B(x1,1); 8 S(1); 9 R",
        ),
        case(
            45,
            Always,
            &[empties(None)],
            "1 R; 5 N(x1); 5 B(x1,1); 65 STUCK",
        ),
        case(
            46,
            Always,
            &[empties(Some(seconds(95))), up()],
            "1 R; 5 N(x1); 5 B(x1,1); 65 STUCK; 100 S(1); 101 R",
        )
        .until(110),
        case(
            47,
            Always,
            &[stays(1000, signal(15)), up()],
            "1 R; 20 N(user); 20 T; 21 S(0,user); 22 R",
        )
        .order(20.0, WorkerCommand::Restart),
        case(
            48,
            Always,
            &[exits(5000, 1), up()],
            "1 R; 5 N(x1); 5 B(x1,30); 10 S(0,user); 11 R",
        )
        .rules(|c| c.backoff.initial = seconds(30))
        .order(10.0, WorkerCommand::Restart),
    ]
}

/// One that runs until it is told to end, which takes it a second.
pub(super) fn stays_up() -> Case {
    case(0, RestartPolicy::Always, &[stays(1000, signal(15))], "")
}

fn case(number: u32, policy: RestartPolicy, runs: &[RunScript], expected: &'static str) -> Case {
    Case {
        number,
        rules: config(policy),
        runs: runs.to_vec(),
        orders: Vec::new(),
        probes: Vec::new(),
        until_s: 100,
        expected,
    }
}

impl Case {
    fn rules(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.rules);
        self
    }

    /// First at 5 s, every 10 s, within 1 s, three failures.
    fn live(self) -> Self {
        self.rules(|c| c.liveness = Some(probe(5, 10, 1, 3)))
    }

    fn order(mut self, at_s: f64, command: WorkerCommand) -> Self {
        self.orders.push((at_s, command));
        self
    }

    fn bad(mut self, run: u32, kind: ProbeKind, from: u64, to: u64, how: Bad) -> Self {
        self.probes.push((run, kind, from, to, how));
        self
    }

    fn until(mut self, until_s: u64) -> Self {
        self.until_s = until_s;
        self
    }
}

fn config(restart: RestartPolicy) -> Config {
    Config {
        restart,
        backoff: Backoff {
            initial: seconds(1),
            max: seconds(60),
            jitter_permille: 0,
            reset_after: seconds(60),
        },
        give_up: None,
        success_exit: BTreeSet::from([ExitCause::Code(0)]),
        no_restart_exit: BTreeSet::new(),
        startup: None,
        liveness: None,
        readiness: None,
        min_up: seconds(1),
        stop: StopRule {
            drain: Duration::ZERO,
            grace: seconds(10),
            unkillable_after: seconds(60),
        },
    }
}

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

const fn probe(delay: u64, interval: u64, timeout: u64, failures: u32) -> ProbeTiming {
    ProbeTiming {
        initial_delay: seconds(delay),
        interval: seconds(interval),
        timeout: seconds(timeout),
        failure_threshold: failures,
        success_threshold: 1,
    }
}

const fn give_up(max_restarts: u32, window_s: u64) -> GiveUp {
    GiveUp {
        max_restarts,
        window: Window::Span(seconds(window_s)),
        then: Then::Exit,
    }
}

/// It ends by itself with this code.
fn exits(after_ms: u64, code: i32) -> RunScript {
    ends(after_ms, ExitStatus::Code(code))
}

fn ends(after_ms: u64, status: ExitStatus) -> RunScript {
    RunScript {
        exit: Some((Duration::from_millis(after_ms), status)),
        ..RunScript::default()
    }
}

const fn signal(number: i32) -> ExitStatus {
    ExitStatus::Signal {
        signal: number,
        core: false,
        oom: false,
    }
}

/// It runs until it is told to end, which takes this long.
fn stays(takes_ms: u64, status: ExitStatus) -> RunScript {
    RunScript {
        on_term: Some((Duration::from_millis(takes_ms), status)),
        ..RunScript::default()
    }
}

fn up() -> RunScript {
    RunScript::default()
}

fn deaf() -> RunScript {
    RunScript {
        on_term: None,
        ..RunScript::default()
    }
}

/// At most 8 s, from the beginning again after 10 s.
fn eight_ten(rules: &mut Config) {
    rules.backoff.max = seconds(8);
    rules.backoff.reset_after = seconds(10);
}
