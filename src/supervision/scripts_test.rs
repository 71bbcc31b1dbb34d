//! The invariants again, over many more scripts than a shrinking generator makes in the time: each script is the
//! work of one number, which a failure names.

use std::time::Duration;

use super::decision::mix;
use super::invariants_test::{Observer, OfRun, Step};
use super::virtual_driver::{config, probe, signal};
use super::{
    Config, Event, ExitStatus, GiveUp, ProbeKind, ProbeOutcome, ProbeTiming, RestartPolicy, Then,
    Window,
};

/// So many scripts, of 40 steps on average; `PORTREEVE_SCRIPTS` asks for another number, `make test` for 100,000.
const SCRIPTS: u64 = 4_000;
const LONGEST: u64 = 80;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how many scripts is asked of the one who tests, not of the core"
)]
#[expect(clippy::print_stdout, reason = "it is shown only if the test fails")]
fn the_invariants_hold_over_many_scripts() {
    let asked = std::env::var("PORTREEVE_SCRIPTS").ok();
    let scripts = asked.and_then(|text| text.parse().ok()).unwrap_or(SCRIPTS);
    let mut reached = Reached::default();
    for number in 0..scripts {
        println!("script {number}");
        let mut dice = Dice {
            number,
            rolled: 0,
            gentle: number % 2 == 0,
        };
        let mut observer = Observer::new(rules(&mut dice), number);
        observer.restores = number % 20 == 0;
        if !dice.one_in(10) {
            observer.take(&Step::Command(Event::Start));
        }
        for _ in 0..=dice.below(LONGEST) {
            observer.take(&step(&mut dice));
        }
        reached.note(&observer);
    }
    // Scripts that never get anywhere would prove nothing.
    let each = |count: u64, share: u64| count >= scripts / share;
    assert!(
        each(reached.restarted, 8) && each(reached.ready, 8) && each(reached.ended, 5),
        "{reached:?}"
    );
    println!("{scripts} scripts: {reached:?}");
}

/// In how many scripts something was seen.
#[derive(Debug, Default)]
struct Reached {
    restarted: u64,
    ready: u64,
    ended: u64,
}

impl Reached {
    fn note(&mut self, observer: &Observer) {
        self.restarted += u64::from(observer.restarts > 0);
        self.ready += u64::from(observer.was_ready);
        self.ended += u64::from(observer.ended);
    }
}

/// Numbers that follow from the script's own.
struct Dice {
    number: u64,
    rolled: u64,
    /// Runs mostly live and probes mostly succeed: else few would come as far as ready.
    gentle: bool,
}

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.rolled += 1;
        mix(self.number, self.rolled) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// The place that a throw hits, by the places' weights.
    fn weighed<const N: usize>(&mut self, weights: [u64; N]) -> usize {
        let mut throw = self.below(weights.iter().sum());
        let hit = weights.iter().position(|weight| {
            let hit = throw < *weight;
            throw = throw.saturating_sub(*weight);
            hit
        });
        hit.unwrap()
    }

    fn small(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(bound.into())).unwrap()
    }
}

fn step(dice: &mut Dice) -> Step {
    match dice.weighed([2, 8, 2, 16]) {
        0 => Step::Wait(dice.below(5000)),
        1 => Step::WaitForDeadline(dice.below(3)),
        2 => Step::Command(command(dice)),
        _ => {
            let ago = if dice.one_in(10) {
                1 + dice.small(2)
            } else {
                0
            };
            Step::OfRun(ago, of_run(dice))
        }
    }
}

fn command(dice: &mut Dice) -> Event {
    let span = |dice: &mut Dice| {
        let given = dice.one_in(2);
        given.then(|| Duration::from_millis(dice.below(20_000)))
    };
    let weights = if dice.gentle {
        [12, 1, 2, 4]
    } else {
        [4, 1, 2, 1]
    };
    match dice.weighed(weights) {
        0 => Event::Start,
        1 => Event::Stop { grace: span(dice) },
        2 => Event::UserRestart,
        _ => Event::Adopt {
            spread: span(dice),
            stale: dice.one_in(2),
        },
    }
}

fn of_run(dice: &mut Dice) -> OfRun {
    let weights = if dice.gentle {
        [1, 12, 1, 1, 2, 12, 40]
    } else {
        [1, 6, 1, 1, 5, 6, 8]
    };
    match dice.weighed(weights) {
        0 => OfRun::PreExecStarted,
        1 => OfRun::Spawned,
        2 => OfRun::SpawnFailed,
        3 => OfRun::PortConflict,
        4 => OfRun::Exited(match dice.below(6) {
            4 => signal(9),
            5 => ExitStatus::Unknown,
            code => ExitStatus::Code(i32::try_from(code).unwrap()),
        }),
        5 => OfRun::GroupEmpty,
        _ => {
            let kinds = [
                ProbeKind::Startup,
                ProbeKind::Liveness,
                ProbeKind::Readiness,
            ];
            let kind = kinds[dice.weighed([1, 1, 1])];
            let outcomes = [
                ProbeOutcome::Ok,
                ProbeOutcome::Fail,
                ProbeOutcome::Timeout,
                ProbeOutcome::Inconclusive,
            ];
            let (good, newest) = if dice.gentle { (12, 9) } else { (3, 1) };
            let outcome = outcomes[dice.weighed([good, 3, 1, 1])];
            let ago = dice.weighed([newest, 1, 1]);
            OfRun::Probe(kind, u32::try_from(ago).unwrap(), outcome)
        }
    }
}

fn rules(dice: &mut Dice) -> Config {
    let policies = [
        RestartPolicy::Always,
        RestartPolicy::OnFailure,
        RestartPolicy::Never,
    ];
    let mut rules = config(policies[dice.weighed([4, 1, 1])]);
    rules.startup = timing(dice);
    rules.liveness = timing(dice);
    rules.readiness = timing(dice);
    rules.give_up = dice.one_in(2).then(|| GiveUp {
        max_restarts: dice.small(4),
        window: match dice.one_in(2) {
            true => Window::Lifetime,
            false => Window::Span(Duration::from_secs(1 + dice.below(59))),
        },
        then: Then::Exit,
    });
    let mut seconds = |bound| Duration::from_secs(dice.below(bound));
    rules.min_up = seconds(3);
    rules.stop.drain = seconds(3);
    rules.stop.grace = seconds(3);
    rules.stop.unkillable_after = rules.stop.grace * 2;
    rules.backoff.reset_after = seconds(4);
    rules.backoff.jitter_permille = u16::try_from(dice.below(1001)).unwrap();
    rules
}

fn timing(dice: &mut Dice) -> Option<ProbeTiming> {
    dice.one_in(2).then(|| ProbeTiming {
        success_threshold: 1 + dice.small(3),
        ..probe(dice.below(4), 1 + dice.below(3), 1, 1 + dice.small(3))
    })
}
