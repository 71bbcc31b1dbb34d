//! The virtual clock over all replicas, and what came of a whole run.

use std::collections::BTreeSet;
use std::time::Duration;

use portreeve::profile::Replicas;
use portreeve::supervision::{Report, State};
use portreeve::time::Monotonic;

use crate::expectation::{self, Unmet};
use crate::replica::Replica;
use crate::scenario::Scenario;
use crate::timeline::{Entry, What};

/// The most steps in one instant; beyond it the script makes time stand still.
const MOST_AT_ONCE: u64 = 100_000;
/// The most steps and the most entries of one run, so that it ends and fits into memory.
const MOST_STEPS: u64 = 50_000_000;
const MOST_ENTRIES: usize = 2_000_000;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Played {
    /// Everything that was seen, in the order of time; within one instant by replica.
    pub timeline: Vec<Entry>,
    /// Where each replica stands at the end, by index.
    pub outcomes: Vec<Outcome>,
    /// What the scenario expected and did not see.
    pub unmet: Vec<Unmet>,
    /// How many more there are than are told in `unmet`.
    pub more_unmet: usize,
}

/// Where one replica stands at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its state.
    pub state: State,
    /// Whether clients are sent to it.
    pub ready: bool,
    /// How many starts there were.
    pub runs: u32,
    /// Automatic restarts.
    pub restarts: u32,
    /// How long it was ready, all in all.
    pub ready_for: Duration,
}

/// Plays a scenario to its end. The same scenario gives the same result, byte for byte.
///
/// Cost: proportional to what happens, about a microsecond each in an unoptimised build; nothing waits.
///
/// # Errors
///
/// [`PlayError`]: the scenario does not end within bounds.
pub fn play(scenario: &Scenario) -> Result<Played, PlayError> {
    let count = match scenario.spec.services[0].profile.replicas {
        Replicas::Count(count) => count,
        Replicas::PerHost => 1,
    };
    let replicas = (0..count).map(|index| Replica::new(scenario, index));
    let mut replicas: Vec<_> = replicas.collect();
    let wakes = replicas.iter().enumerate();
    let wakes = wakes.filter_map(|(index, replica)| Some((replica.next()?, index)));
    let mut wakes: BTreeSet<_> = wakes.collect();
    let mut timeline = Vec::new();
    let mut steps = 0_u64;
    while let Some((now, index)) = wakes.pop_first()
        && now <= scenario.spec.until
    {
        let replica = &mut replicas[index];
        let mut at_once = 0;
        while replica.next().is_some_and(|next| next <= now) {
            replica.step(now, &mut timeline);
            at_once += 1;
            if at_once > MOST_AT_ONCE {
                return Err(PlayError::StandsStill { at: now });
            }
        }
        wakes.extend(replica.next().map(|next| (next, index)));
        steps += at_once;
        if steps > MOST_STEPS || timeline.len() > MOST_ENTRIES {
            return Err(PlayError::TooLong { at: now });
        }
    }
    let (unmet, more_unmet) = expectation::unmet(&timeline, &scenario.expectations);
    Ok(Played {
        outcomes: outcomes(&replicas, &timeline, scenario.spec.until),
        timeline,
        unmet,
        more_unmet,
    })
}

fn outcomes(replicas: &[Replica], timeline: &[Entry], until: Monotonic) -> Vec<Outcome> {
    let mut since = vec![None; replicas.len()];
    let mut ready_for = vec![Duration::ZERO; replicas.len()];
    for entry in timeline {
        let Some(place) = entry.replica.map(|replica| replica as usize) else {
            continue;
        };
        match entry.what {
            What::Report(Report::Ready) => since[place] = Some(entry.at),
            What::Report(Report::NotReady(_)) => {
                let from = since[place].take();
                ready_for[place] += from.map_or(Duration::ZERO, |from| entry.at.since(from));
            }
            _ => {}
        }
    }
    let outcome = |(place, replica): (usize, &Replica)| {
        let machine = &replica.machine;
        let rest = since[place].map_or(Duration::ZERO, |from| until.since(from));
        Outcome {
            state: machine.state(),
            ready: machine.is_ready(),
            runs: machine.run().0,
            restarts: machine.restarts(),
            ready_for: ready_for[place] + rest,
        }
    };
    replicas.iter().enumerate().map(outcome).collect()
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
