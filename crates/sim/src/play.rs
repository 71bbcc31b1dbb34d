//! A scenario from its first instant to its end, and what came of it.

use portreeve::time::Monotonic;

use crate::expectation::Unmet;
use crate::outcome::{Outcome, ServiceOutcome};
use crate::scenario::Scenario;
use crate::timeline::Entry;
use crate::world::play_alone;

/// The most steps and the most entries of one run, so that it ends and fits into memory.
const MOST_STEPS: u64 = 500_000_000;
const MOST_ENTRIES: usize = 2_000_000;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Played {
    /// Everything that was seen, in the order of time.
    pub timeline: Vec<Entry>,
    /// Where each replica stands at the end, by service and index.
    pub outcomes: Vec<Outcome>,
    /// Where each service stands at the end, by name.
    pub services: Vec<ServiceOutcome>,
    /// What the scenario expected and did not see.
    pub unmet: Vec<Unmet>,
    /// How many more there are than are told in `unmet`.
    pub more_unmet: usize,
    /// A promise of portreeve that was broken, in words: the run ended there. A bug of ours.
    pub broken: Option<String>,
    /// How many steps there were: a message that arrived, a deadline, an act, a finished commit.
    pub steps: u64,
    /// Where it ended.
    pub ended: Monotonic,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual time.
    pub at: Monotonic,
    /// Where it ends.
    pub until: Monotonic,
    /// Steps so far.
    pub steps: u64,
}

/// Plays a scenario to its end. The same scenario gives the same result, byte for byte.
///
/// Cost: proportional to what happens; nothing waits.
///
/// # Errors
///
/// [`PlayError`]: the scenario does not end within bounds.
pub fn play(scenario: &Scenario) -> Result<Played, PlayError> {
    play_with(scenario, |_| {})
}

/// The same, and tells from time to time how far it is.
///
/// # Errors
///
/// [`PlayError`]: the scenario does not end within bounds.
pub fn play_with(scenario: &Scenario, mut tell: impl FnMut(Progress)) -> Result<Played, PlayError> {
    let _ = &mut tell;
    play_alone(scenario)
}

/// Why a scenario has no end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// Something happens again and again in one instant.
    #[error(
        "time stands still at {} ms: a run that takes no time follows another for ever; let something take time",
        at.as_millis()
    )]
    StandsStill {
        /// Where.
        at: Monotonic,
    },
    /// It is too much.
    #[error(
        "too much happens: {} steps or {MOST_ENTRIES} lines are reached at {} ms; play a shorter time or fewer replicas",
        MOST_STEPS,
        at.as_millis()
    )]
    TooLong {
        /// Where.
        at: Monotonic,
    },
}
