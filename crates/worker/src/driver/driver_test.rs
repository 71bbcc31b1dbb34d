//! Rows of supervision.md 2.1 through the driver that ships, in virtual time, behind a backend that starts
//! nothing. What each row must give is written down here; that the machine alone gives the same is told by
//! the record the driver keeps, which is played through a machine again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use portreeve::attendance::Manner;
use portreeve::identity::{Incarnation, ServiceId};
use portreeve::port::PortRanges;
use portreeve::port_pool::PortGrant;
use portreeve::profile::{OnCutOff, Profile};
use portreeve::registry::{Desired, Want};
use portreeve::supervision::record::replay;
use portreeve::supervision::{
    Config, ExitStatus, Final, Leaving, ProbeKind, ProbeOutcome, Reason, Report, State, Status,
};
use portreeve_api::containment::Containment;
use portreeve_api::host_limits::{Contact, HostLimits};
use portreeve_api::local::{LogBounds, LogStream, Tokens, WorkerCommand};
use portreeve_api::service_manager::BackendKind;
use portreeve_api::tls::TlsFiles;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::*;
use crate::backend::simulated::{Done, RunScript, SimulatedBackend};
use crate::worker::new_record;

#[path = "driver_cases_test.rs"]
mod cases;

/// One row.
pub(super) struct Case {
    pub(super) number: u32,
    pub(super) rules: Config,
    pub(super) runs: Vec<RunScript>,
    /// At which second somebody says what.
    pub(super) orders: Vec<(f64, WorkerCommand)>,
    /// From and until when, in ms from the run's spawn, probes of a kind fail or hang in a run; 0: in every run.
    pub(super) probes: Vec<(u32, ProbeKind, u64, u64, Bad)>,
    pub(super) until_s: u64,
    /// Everything that is reported and done to processes, in order: `SECOND WORD DETAIL`.
    pub(super) expected: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Bad {
    Fails,
    FailsLate,
    Hangs,
    SaysNothing,
}

/// What is seen of a row, and the record the driver kept of it.
async fn play(case: &Case) -> (Vec<String>, String) {
    let (seen, record, _) = play_on(case, Limits::of_process()).await;
    (seen, record)
}

/// The same under the limits of a host, by a profile that stops when cut off; with the status that was told last.
async fn play_on(case: &Case, limits: Limits) -> (Vec<String>, String, Option<Status>) {
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

    let spawned_at = Rc::new(Cell::new(Duration::ZERO));
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
            Some((.., Bad::FailsLate)) => Some((Duration::from_millis(900), ProbeOutcome::Fail)),
            Some((.., Bad::SaysNothing)) => Some((Duration::ZERO, ProbeOutcome::Inconclusive)),
            None => Some((Duration::ZERO, ProbeOutcome::Ok)),
        }
    }));
    let mut assignment = assignment(case);
    std::sync::Arc::make_mut(&mut assignment.desired.profile).on_cut_off = OnCutOff::Stop;
    let record = new_record(&assignment, &assignment.boot_id).unwrap();
    let manner = Manner {
        ends_cut_off: limits.are_shared(),
        ends_with_replica: true,
        hands_over: false,
    };
    let driver = Driver {
        clock,
        folder: folder.clone(),
        attendance: Attendance::new(clock.monotonic(), record, manner),
        assignment,
        journal: Journal::new(folder.clone()),
        backend: Box::new(SimulatedBackend::new(case.runs.clone(), send_event, done)),
        probing,
        limits,
        teller: Teller::Test(heard),
        inside: Inside::default(),
    };
    let sources = Sources {
        clock,
        orders,
        backend,
        probes,
        lifeline: None,
    };
    // One millisecond more: the timers of the event loop are as fine as that.
    let until = Duration::from_secs(case.until_s) + Duration::from_millis(1);
    _ = tokio::time::timeout(until, driver.run(sources)).await;
    tokio::task::yield_now().await;
    let record = std::fs::read_to_string(folder.log(LogStream::Events)).unwrap_or_default();
    let seen = seen.borrow().clone();
    let status = std::fs::read(folder.status()).unwrap();
    (seen, record, serde_json::from_slice(&status).ok())
}

fn assignment(case: &Case) -> Assignment {
    let text = "name = \"web\"\ncommand = [\"web\"]";
    let mut profile = Profile::from_toml(text).unwrap().profile;
    profile.supervision = case.rules.clone().into();
    Assignment {
        desired: Desired {
            service: "web.alice".parse().unwrap(),
            service_id: ServiceId(1),
            index: 0,
            incarnation: Incarnation(1),
            want: Want::Run,
            restart_no: 0,
            addresses: BTreeMap::new(),
            grant: PortGrant::default(),
            profile: profile.into(),
            user: "alice".into(),
            uid: rustix::process::geteuid().as_raw(),
            last_status: None,
            attached: false,
        },
        host: "n01".parse().unwrap(),
        host_address: [127, 0, 0, 1].into(),
        single_host: true,
        controller: None,
        further_controllers: Vec::new(),
        tls: TlsFiles::default(),
        tokens: Tokens {
            worker: String::new(),
            job: String::new(),
        },
        boot_id: "simulated".into(),
        lifeline: None,
        prefix: "PORTREEVE_".into(),
        backend: BackendKind::Process,
        containment: Containment::default(),
        logs: LogBounds::default(),
        pool: PortRanges::default(),
        user: None,
    }
}

/// In seconds, exact.
fn in_seconds(ms: u128) -> String {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
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
        Report::Final(Final::Stopped | Final::Left(_)) => "STOPPED".into(),
        Report::Final(Final::GaveUp { reason, count }) => {
            format!("GAVEUP({},{count})", why(reason))
        }
        Report::Final(Final::PortConflict { .. }) => "PORT_CONFLICT".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_driver_tells_what_the_page_says_at_the_same_times() {
    for case in cases::cases() {
        let local = tokio::task::LocalSet::new();
        let (seen, record) = local.run_until(play(&case)).await;
        assert_eq!(seen.join("; "), case.expected, "case {}", case.number);
        let replayed = replay(&record).unwrap_or_else(|cause| panic!("{}: {cause}", case.number));
        assert_eq!(replayed.differences, [], "case {}", case.number);
        assert_eq!(replayed.unread, 0, "case {}", case.number);
    }
}

/// What is seen of a service that runs on a host of which the controller hears at these seconds, and its last status.
async fn heard_of_at(seconds: &'static [u64], orders: &[(f64, WorkerCommand)]) -> (String, Status) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("limits");
    let agent = HostLimits::open(&path).unwrap();
    let limits = Limits::on(HostLimits::open(&path).unwrap());
    let begin = Instant::now();
    let noting = async move {
        for second in seconds {
            tokio::time::sleep_until(begin + Duration::from_secs(*second)).await;
            let contact = Contact {
                at: Monotonic::from_millis(second * 1000),
                grace: Duration::from_secs(90),
            };
            agent.note_contact(contact).unwrap();
        }
    };
    let case = Case {
        until_s: 300,
        orders: orders.to_vec(),
        ..cases::stays_up()
    };
    let local = tokio::task::LocalSet::new();
    local.spawn_local(noting);
    let (seen, _, status) = local.run_until(play_on(&case, limits)).await;
    (seen.join("; "), status.unwrap())
}

// hosts 4: `on_cut_off = "stop"`.
#[tokio::test(start_paused = true)]
async fn a_service_ends_once_its_host_was_not_heard_of_for_the_grace_and_says_why() {
    let (seen, status) = heard_of_at(&[0, 5, 10, 100], &[]).await;
    assert_eq!(seen, "1 R; 190 N(stop); 190 T; 191 STOPPED");
    assert_eq!(status.state, State::Final(Final::Left(Leaving::CutOff)));
    let why = "stopped: cut off from the controller for longer than the grace";
    assert_eq!(status.not_ready_reason.as_deref(), Some(why));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_heard_of_within_the_grace_ends_nothing() {
    let (seen, status) = heard_of_at(&[0, 89, 178, 267], &[]).await;
    assert_eq!((seen.as_str(), status.state), ("1 R", State::Up));
}

// An agent that notes nothing, or a controller that tells no grace.
#[tokio::test(start_paused = true)]
async fn where_nobody_notes_when_the_host_was_heard_of_nothing_ends() {
    assert_eq!(heard_of_at(&[], &[]).await.0, "1 R");
}

#[tokio::test(start_paused = true)]
async fn what_was_told_to_end_by_its_owner_is_not_called_cut_off() {
    let stop = WorkerCommand::Want {
        want: Want::Stop,
        restart_no: 0,
    };
    let (_, status) = heard_of_at(&[0], &[(89.9, stop)]).await;
    assert_eq!(status.state, State::Final(Final::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_shut_down_ends_its_services_and_says_so() {
    let why = Leaving::Shutdown;
    let leave = (50.0, WorkerCommand::Leave { why });
    let (seen, status) = heard_of_at(&[0, 80], &[leave]).await;
    assert_eq!(seen, "1 R; 50 N(stop); 50 T; 51 STOPPED");
    assert_eq!(status.state, State::Final(Final::Left(why)));
}
