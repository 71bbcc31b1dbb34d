//! What is promised to need no allocation needs none.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose profile is refused has failed"
)]

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use portreeve::attendance::{
    Attendance, Beginning, Contact, Found, Happened, MainProcess, Manner, Output, ProbeEnd,
    ProcessEvent, Record, Standing, Stranger, Surroundings, Token,
};
use portreeve::identity::Run;
use portreeve::profile::Profile;
use portreeve::residency::Want;
use portreeve::supervision::{Config, Effect, Event, Machine, ProbeOutcome, Report};
use portreeve::time::{Monotonic, Now};

const PROFILE: &str = "name = \"web\"\ncommand = [\"serve\"]\n[ports]\nhttp = \"any\"\n\
    [liveness]\nhttp = {}\ninterval = \"1s\"\n[readiness]\nhttp = {}\ninterval = \"1s\"\nfailure_threshold = 1\n";

/// Answers every probe that is asked for, a second at a time.
struct Prober {
    machine: Machine,
    now: Monotonic,
    out: Vec<Effect>,
    answers: Vec<Event>,
    results: u64,
    reports: u64,
}

impl Prober {
    fn begin() -> Self {
        let config = Profile::from_toml(PROFILE).unwrap().profile.supervision;
        let mut prober = Self {
            machine: Machine::new(config, 7),
            now: Monotonic::from_millis(0),
            out: Vec::with_capacity(16),
            answers: Vec::with_capacity(16),
            results: 0,
            reports: 0,
        };
        prober.hand(Event::Start, ProbeOutcome::Ok);
        let run = prober.machine.run();
        prober.hand(Event::Spawned { run }, ProbeOutcome::Ok);
        prober
    }

    fn hand(&mut self, event: Event, outcome: ProbeOutcome) {
        self.machine.handle(self.now, event, &mut self.out);
        self.take(outcome);
    }

    fn wake(&mut self, outcome: ProbeOutcome) {
        self.now = self.machine.next_deadline().unwrap();
        self.machine.on_deadline(self.now, &mut self.out);
        self.take(outcome);
        while let Some(answer) = self.answers.pop() {
            self.results += 1;
            self.hand(answer, outcome);
        }
    }

    fn take(&mut self, outcome: ProbeOutcome) {
        for effect in self.out.drain(..) {
            match effect {
                Effect::Probe {
                    run, kind, probe, ..
                } => self.answers.push(Event::ProbeResult {
                    run,
                    kind,
                    probe,
                    outcome,
                }),
                Effect::Report(Report::Ready | Report::NotReady(_)) => self.reports += 1,
                _ => {}
            }
        }
    }
}

#[test]
fn a_probe_result_allocates_nothing_whether_it_changes_readiness_or_not() {
    let mut prober = Prober::begin();
    prober.wake(ProbeOutcome::Ok);
    let allocated = measure(|| {
        for nth in 0..10_000 {
            // Liveness bears two failures in a row.
            let outcome = match nth % 3 {
                0 => ProbeOutcome::Ok,
                1 => ProbeOutcome::Fail,
                _ => ProbeOutcome::Timeout,
            };
            prober.wake(outcome);
        }
    });
    assert_eq!(allocated.count_total, 0);
    assert_eq!(prober.results, 20_002);
    assert!(prober.reports > 6_000, "{}", prober.reports);
}

/// A host on which nothing is in the way.
struct Empty;

impl Surroundings for Empty {
    fn contact(&mut self) -> Option<Contact> {
        None
    }

    fn restart_token(&mut self, _: Monotonic, _: Run) -> Token {
        Token::After(Duration::ZERO)
    }

    fn stranger_after(&mut self, _: Run) -> Option<Stranger> {
        None
    }
}

/// One that has just begun, by rules that others share.
fn attendance(rules: &Arc<Config>) -> Attendance {
    let standing = Standing {
        user: (1000, "alice"),
        worker_uid: 1000,
        assigned_in: "b1",
        boot_id: "b1",
        restart_no: 0,
        host_address: [10, 0, 0, 1].into(),
        port_addresses: std::collections::BTreeMap::new(),
    };
    let record = Record::new(Machine::new(Arc::clone(rules), 1), standing);
    let mut attendance = Attendance::new(Monotonic::from_millis(0), record, Manner::default());
    let mut out = Vec::<Output<()>>::new();
    let beginning = Beginning {
        unrecorded: 0,
        is_behind: false,
        found: Found::Nothing,
        want: Want::Run,
        restart_no: 0,
    };
    attendance.begin(Now::default(), beginning, &mut Empty, &mut out);
    attendance
}

/// Starts it and lets its probes succeed until it is ready.
fn make_ready(attendance: &mut Attendance) {
    let mut out = Vec::<Output<()>>::new();
    let run = attendance.run();
    let process = MainProcess {
        pid: 1,
        start_ticks: 1,
        boot_id: "b1".to_owned(),
    };
    let mut happened = Happened {
        processes: vec![
            ProcessEvent::Cleared { run },
            ProcessEvent::Spawned { run, process },
        ],
        ..Happened::default()
    };
    attendance.turn(Now::default(), &mut happened, &mut Empty, &mut out);
    for output in std::mem::take(&mut out) {
        if let Output::Probe { kind, probe, .. } = output {
            happened.probes.push(ProbeEnd {
                run,
                kind,
                probe,
                outcome: ProbeOutcome::Ok,
                text: String::new(),
            });
        }
    }
    attendance.turn(Now::default(), &mut happened, &mut Empty, &mut out);
    assert!(attendance.machine().is_ready());
}

#[test]
fn a_hundred_thousand_replicas_that_are_ready_fit_where_their_rules_are_shared() {
    const REPLICAS: usize = 100;
    let rules = Profile::from_toml(PROFILE).unwrap().profile.supervision;
    let mut kept = Vec::with_capacity(REPLICAS);
    let held = measure(|| {
        for _ in 0..REPLICAS {
            let mut one = attendance(&rules);
            make_ready(&mut one);
            kept.push(one);
        }
    });
    let heap = u64::try_from(held.bytes_current).unwrap() / REPLICAS as u64;
    let each = heap + size_of::<Attendance>() as u64;
    println!("an attendance: {each} bytes, {heap} of them on the heap");
    assert!(each <= 1_300, "{each} bytes each, {heap} on the heap");
}
