//! Rows of supervision.md 2.1 through the driver that ships, in virtual time, behind a backend that starts
//! nothing. What each row must give is written down here; that the machine alone gives the same is told by
//! the record the driver keeps, which is played through a machine again.

use std::collections::BTreeSet;
use std::rc::Rc;

use portreeve::identity::{Incarnation, ServiceId};
use portreeve::port_pool::PortGrant;
use portreeve::profile::Profile;
use portreeve::registry::Desired;
use portreeve::supervision::record::replay;
use portreeve::supervision::{
    Backoff, Config, ExitCause, GiveUp, Machine, ProbeTiming, Reason, Report, RestartPolicy,
    StopRule, Then, Window,
};
use portreeve_api::local::{LogStream, Tokens};
use portreeve_api::service_manager::BackendKind;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::*;
use crate::backend::simulated::{Done, RunScript, SimulatedBackend};

/// One row.
struct Case {
    number: u32,
    rules: Config,
    runs: Vec<RunScript>,
    /// At which second somebody says what.
    orders: Vec<(f64, WorkerCommand)>,
    /// From and until when, in ms from the run's spawn, probes of a kind fail or hang in a run; 0: in every run.
    probes: Vec<(u32, ProbeKind, u64, u64, Bad)>,
    until_s: u64,
    /// Everything that is reported and done to processes, in order: `SECOND WORD DETAIL`.
    expected: &'static str,
}

#[derive(Clone, Copy)]
enum Bad {
    Fails,
    Hangs,
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

/// What is seen of a row, and the record the driver kept of it.
async fn play(case: &Case) -> (Vec<String>, String) {
    let place = tempfile::tempdir().unwrap();
    let folder = ReplicaFolder::at(place.path());
    let begin = Instant::now();
    let clock = Clock::EventLoop(begin);
    let seen = Rc::new(std::cell::RefCell::new(Vec::new()));
    let (send_order, orders) = mpsc::channel(16);
    let (send_event, backend) = mpsc::unbounded_channel();
    let (send_probe, probes) = mpsc::unbounded_channel();
    let (heard, mut reports) = mpsc::unbounded_channel();
    let (done, mut does) = mpsc::unbounded_channel();

    let spawned_at = Rc::new(std::cell::Cell::new(Duration::ZERO));
    let (log, spawned) = (seen.clone(), spawned_at.clone());
    tokio::task::spawn_local(async move {
        loop {
            let line = tokio::select! {
                biased;
                Some(report) = reports.recv() => Some(words(&report)),
                Some(done) = does.recv() => match done {
                    Done::Spawned(_) => {
                        spawned.set(begin.elapsed());
                        None
                    }
                    Done::Signalled(_) => Some("T".to_owned()),
                    Done::Killed(_) => Some("K".to_owned()),
                },
                else => return,
            };
            if let Some(line) = line {
                let at = begin.elapsed().as_millis();
                log.borrow_mut().push(format!("{} {line}", in_seconds(at)));
            }
        }
    });
    for (at, command) in case.orders.clone() {
        let orders = send_order.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep_until(begin + Duration::from_secs_f64(at)).await;
            let (reply, answer) = oneshot::channel();
            // One that ended takes no orders.
            if orders.send((command, reply)).await.is_ok() {
                _ = answer.await;
            }
        });
    }
    let mut probing = Probing::new(send_probe);
    let bad = case.probes.clone();
    probing.script = Some(Rc::new(move |run: Run, kind| {
        let at = u64::try_from((begin.elapsed() - spawned_at.get()).as_millis()).unwrap();
        let now = bad.iter().find(|(of, what, from, to, _)| {
            (*of == 0 || *of == run.0) && *what == kind && (*from..*to).contains(&at)
        });
        match now {
            Some((.., Bad::Hangs)) => None,
            Some((.., Bad::Fails)) => Some((Duration::ZERO, ProbeOutcome::Fail)),
            None => Some((Duration::ZERO, ProbeOutcome::Ok)),
        }
    }));
    let assignment = assignment(case);
    let supervision = assignment.desired.profile.supervision.clone();
    let driver = Driver {
        clock,
        folder: folder.clone(),
        record: Record {
            boot_id: "simulated".into(),
            machine: Machine::new(supervision, 1),
            refused: None,
            restart_no: 0,
            host_address: assignment.host_address,
            process: None,
            ready_run: None,
            status: None,
            first_failure: None,
            last_failure: None,
            began: Some(clock.monotonic()),
        },
        assignment,
        journal: Journal::new(folder.clone(), clock.monotonic()),
        backend: Box::new(SimulatedBackend::new(case.runs.clone(), send_event, done)),
        probing,
        teller: Teller::Test(heard),
        progress: Progress::default(),
    };
    let sources = Sources {
        clock,
        orders,
        backend,
        probes,
        lifeline: None,
    };
    // One millisecond more: the timers of the event loop are as fine as that.
    let until = seconds(case.until_s) + Duration::from_millis(1);
    _ = tokio::time::timeout(until, driver.run(sources)).await;
    tokio::task::yield_now().await;
    let record = std::fs::read_to_string(folder.log(LogStream::Events)).unwrap_or_default();
    let seen = seen.borrow().clone();
    (seen, record)
}

fn assignment(case: &Case) -> Assignment {
    let text = "name = \"web\"\ncommand = [\"web\"]";
    let mut profile = Profile::from_toml(text).unwrap().profile;
    profile.supervision = case.rules.clone();
    Assignment {
        desired: Desired {
            service: "web.alice".parse().unwrap(),
            service_id: ServiceId(1),
            index: 0,
            incarnation: Incarnation(1),
            want: Want::Run,
            restart_no: 0,
            grant: PortGrant::default(),
            profile,
            user: "alice".into(),
            uid: 0,
            last_status: None,
        },
        host: "n01".parse().unwrap(),
        host_address: [127, 0, 0, 1].into(),
        single_host: true,
        controller: None,
        tokens: Tokens {
            worker: String::new(),
            job: String::new(),
        },
        boot_id: "simulated".into(),
        lifeline: None,
        prefix: "PORTREEVE_".into(),
        backend: BackendKind::Process,
    }
}

/// In seconds, to ten milliseconds: the event loop may be one late.
fn in_seconds(ms: u128) -> String {
    let tenths = (ms + 2) / 10;
    let text = format!("{}.{:02}", tenths / 100, tenths % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A report in the shorthand of the page.
fn words(report: &Report) -> String {
    let why = |reason: &Reason| match reason {
        Reason::Exit(ExitStatus::Code(code)) => format!("x{code}"),
        Reason::Exit(ExitStatus::Signal { signal, .. }) => format!("sig{signal}"),
        Reason::Exit(ExitStatus::Unknown) => "unknown".into(),
        Reason::StartFailed(_) => "start-failed".into(),
        Reason::Startup { .. } => "startup".into(),
        Reason::Liveness { .. } => "liveness".into(),
        Reason::Probe { .. } => "probe".into(),
        Reason::User => "user".into(),
        Reason::Stop => "stop".into(),
        Reason::StaleRecord => "stale-record".into(),
    };
    match report {
        Report::Ready => "R".into(),
        Report::NotReady(reason) => format!("N({})", why(reason)),
        Report::Backoff { reason, delay } => {
            format!("B({},{})", why(reason), in_seconds(delay.as_millis()))
        }
        Report::Restarted {
            reason: Reason::User,
            count,
            ..
        } => format!("S({count},user)"),
        Report::Restarted { count, .. } => format!("S({count})"),
        Report::Stuck => "STUCK".into(),
        Report::Final(Final::Succeeded) => "SUCCEEDED".into(),
        Report::Final(Final::Failed(reason)) => format!("FAILED({})", why(reason)),
        Report::Final(Final::Stopped) => "STOPPED".into(),
        Report::Final(Final::GaveUp { reason, count }) => {
            format!("GAVEUP({},{count})", why(reason))
        }
        Report::Final(Final::PortConflict { .. }) => "PORT_CONFLICT".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_driver_tells_what_the_page_says_at_the_same_times() {
    for case in cases() {
        let local = tokio::task::LocalSet::new();
        let (seen, record) = local.run_until(play(&case)).await;
        assert_eq!(seen.join("; "), case.expected, "case {}", case.number);
        let replayed = replay(&record).unwrap_or_else(|cause| panic!("{}: {cause}", case.number));
        assert_eq!(replayed.differences, [], "case {}", case.number);
        assert_eq!(replayed.unread, 0, "case {}", case.number);
    }
}

fn cases() -> Vec<Case> {
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
    let eight = |c: &mut Config| {
        c.backoff.max = seconds(8);
        c.backoff.reset_after = seconds(10);
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
        .rules(eight),
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
    let three = stays(3000, signal(15));
    let empties = |after: Option<Duration>| RunScript {
        empties: after,
        ..exits(5000, 1)
    };
    let starts_slowly = RunScript {
        spawn_takes: seconds(2),
        ..stays(100, signal(15))
    };
    vec![
        case(
            36,
            Always,
            &[three.clone()],
            "1 R; 20 N(stop); 20 T; 23 STOPPED",
        )
        .order(20.0, STOP),
        case(37, Always, &[three], "1 R; 20 N(stop); 22 T; 25 STOPPED")
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
