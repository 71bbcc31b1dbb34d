//! What is promised to need no allocation needs none.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose profile is refused has failed"
)]

use allocation_counter::measure;
use portreeve::profile::Profile;
use portreeve::supervision::{Effect, Event, Machine, ProbeOutcome, Report};
use portreeve::time::Monotonic;

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
