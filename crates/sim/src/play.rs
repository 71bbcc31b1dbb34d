//! A scenario from its first instant to its end, and what came of it.

use std::sync::Arc;

use portreeve::registry::View;
use portreeve::time::Monotonic;

use crate::claim::Claims;
use crate::cluster::check::Checks;
use crate::cluster::run::Cluster;
use crate::expectation::{self, Unmet};
use crate::outcome::{Outcome, ServiceOutcome, outcomes, services};
use crate::scenario::Scenario;
use crate::timeline::{Entry, Names};

/// The most steps and the most entries of one run, so that it ends and fits into memory.
const MOST_STEPS: u64 = 500_000_000;
const MOST_ENTRIES: usize = 2_000_000;
/// After so many steps somebody who waits is told how far it is.
const STEPS_A_TELLING: u64 = 4_096;

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
    let spec = &scenario.spec;
    let mut cluster = Cluster::new(Arc::clone(spec));
    let mut checks = Checks::new(cluster.spec());
    let mut claims = Claims::new(&scenario.expectations.holds);
    let names = Names::new(spec);
    let mut timeline = Vec::new();
    let mut broken = None;
    let mut view = None;
    while let Some(step) = cluster.step() {
        if claims.is_due(Some(step.at)) {
            claims.look(Some(step.at), view.as_deref());
        }
        let newer = cluster.controller().view();
        if !is_same(view.as_ref(), newer) {
            view = newer.cloned();
            claims.hold(step.at, view.as_deref());
        }
        timeline.extend(step.sights.iter().map(|sight| names.entry(sight)));
        if let Err(violation) = checks.after(&cluster, &step) {
            broken = Some(format!("{violation} (step {})", step.number));
            break;
        }
        if step.number >= MOST_STEPS || timeline.len() > MOST_ENTRIES {
            return Err(PlayError::TooLong { at: step.at });
        }
        if step.number % STEPS_A_TELLING == 0 {
            tell(Progress {
                at: step.at,
                until: spec.until,
                steps: step.number,
            });
        }
    }
    let ended = cluster.now();
    if cluster.stands_still() {
        return Err(PlayError::StandsStill { at: ended });
    }
    let ended = if broken.is_none() {
        claims.look(None, view.as_deref());
        broken = checks
            .at_end(&cluster)
            .err()
            .map(|violation| violation.to_string());
        spec.until
    } else {
        ended
    };
    let (mut unmet, more_unmet) = expectation::unmet(&timeline, &scenario.expectations);
    unmet.extend(claims.unmet.into_iter().map(Unmet::new));
    Ok(Played {
        outcomes: outcomes(view.as_deref(), &timeline, ended),
        services: services(view.as_deref(), &timeline),
        timeline,
        unmet,
        more_unmet,
        broken,
        steps: cluster.steps(),
        ended,
    })
}

fn is_same(old: Option<&Arc<View>>, new: Option<&Arc<View>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        (None, None) => true,
        _ => false,
    }
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
