//! Runs that seeds make: every seed another cluster, with other services and another mix of faults.
//!
//! * `case` makes a `Spec` of a seed, of `profiles`, `scripts` and the `faults` of its `mix`; `draw` is its chance.
//! * `hunt` plays one and watches it; `shorten` makes one that broke a promise as short as it can, `written` tells it as a scenario.

mod case;
mod draw;
mod faults;
mod hunt;
mod mix;
mod profiles;
mod scripts;
mod shorten;
mod written;

use std::fmt;
use std::time::Duration;

use portreeve::time::Monotonic;

use crate::cluster::check::Coverage;
use crate::cluster::spec::Spec;
use hunt::Failure;
use shorten::Attempt;

/// What became of the run of one seed.
#[derive(Debug)]
pub struct Tried {
    /// The seed.
    pub seed: u64,
    /// How many steps it took: each is one message, deadline, act or commit that reached whom it was for.
    pub steps: u64,
    /// What it reached of all that can be reached.
    pub reached: Reached,
    /// The first promise that was broken, where one was; the run ended with it.
    pub broken: Option<Broken>,
}

/// Plays the run of this seed and holds every promise against it after each step. Equal seeds are equal runs, whatever
/// else the machine does: seeds may be tried on several threads.
///
/// Cost: a few thousand to some ten thousand steps; memory of a small cluster.
#[must_use]
pub fn try_seed(seed: u64) -> Tried {
    let run = hunt::run(Spec::of_seed(seed));
    Tried {
        seed,
        steps: run.steps,
        reached: run.reached,
        broken: run.failure.map(Broken),
    }
}

/// Looks for the shortest run that breaks the same promise as this seed's, in at most `most_steps` steps of trying, and
/// the run under way.
#[must_use]
pub fn shorten(seed: u64, broken: &Broken, most_steps: u64) -> Shortened {
    let spec = Spec::of_seed(seed);
    let (short, failure) = shorten::shorten(&spec, &broken.0, most_steps, |spec| {
        let run = hunt::run(spec.clone());
        Attempt {
            failure: run.failure,
            steps: run.steps,
        }
    });
    Shortened {
        scenario: written::written(&short),
        trace: hunt::trace(short, failure.step, Some(LAST_LINES)),
        broken: Broken(failure),
    }
}

/// Everything that happens in the run of this seed, one line each, until its end or its first broken promise.
#[must_use]
pub fn trace(seed: u64) -> String {
    hunt::trace(Spec::of_seed(seed), u64::MAX, None)
}

/// So many lines of a trace are read; what broke is near its end.
const LAST_LINES: usize = 60;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(Failure);

impl Broken {
    /// Which promise: the same word whenever it is broken.
    #[must_use]
    pub const fn invariant(&self) -> &'static str {
        self.0.invariant
    }

    /// After which step, counted from 1.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.0.step
    }

    /// When, since the beginning of the run.
    #[must_use]
    pub const fn at(&self) -> Duration {
        self.0.at.since(Monotonic::from_millis(0))
    }
}

/// `no-collision after step 4711, at 3m12s: n2 8000/tcp: …`
impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = portreeve::time::Spelled(self.at());
        write!(
            f,
            "{} after step {}, at {at}: {}",
            self.0.invariant, self.0.step, self.0.detail
        )
    }
}

/// The shortest run found that breaks a promise.
#[derive(Debug)]
pub struct Shortened {
    /// Where it breaks it.
    pub broken: Broken,
    /// It as a scenario, for `portreeve sim`.
    pub scenario: String,
    /// The last lines of what happens in it.
    pub trace: String,
}

/// What runs reached of all that they can reach: acts, states, transitions, refusals.
#[derive(Clone, Debug, Default)]
pub struct Reached(Coverage);

impl Reached {
    /// Adds what another run reached.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }
}

impl fmt::Display for Reached {
    /// A table, what was never reached at its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
