//! The virtual clock over all replicas, and what came of a whole run.

use std::collections::BTreeSet;

use portreeve::identity::Incarnation;
use portreeve::profile::Replicas;
use portreeve::supervision::{Final, State};

use crate::expectation;
use crate::outcome::{Outcome, ready_times};
use crate::play::{PlayError, Played};
use crate::replica::Replica;
use crate::scenario::Scenario;
use crate::timeline::Entry;

/// The most steps in one instant; beyond it the script makes time stand still.
const MOST_AT_ONCE: u64 = 100_000;
/// The most steps and the most entries of one run, so that it ends and fits into memory.
const MOST_STEPS: u64 = 50_000_000;
const MOST_ENTRIES: usize = 2_000_000;

/// Plays a scenario of one service whose replicas have nothing to do with each other.
pub(crate) fn play_alone(scenario: &Scenario) -> Result<Played, PlayError> {
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
        outcomes: outcomes(scenario, &replicas, &timeline),
        services: Vec::new(),
        timeline,
        unmet,
        more_unmet,
        broken: None,
        steps,
        ended: scenario.spec.until,
    })
}

fn outcomes(scenario: &Scenario, replicas: &[Replica], timeline: &[Entry]) -> Vec<Outcome> {
    let service = scenario.spec.services[0].name();
    let ready_for = ready_times(timeline, scenario.spec.until);
    let outcome = |(index, replica): (u32, &Replica)| {
        let machine = &replica.machine;
        Outcome {
            service: service.clone(),
            replica: index,
            incarnation: Incarnation(1),
            host: None,
            state: match machine.state() {
                State::Final(Final::GaveUp { .. }) => "gave up".to_owned(),
                State::Final(end) => end.to_string(),
                state => format!("{state:?}").to_lowercase(),
            },
            reason: None,
            ready: machine.is_ready(),
            runs: machine.run().0,
            restarts: machine.restarts(),
            ready_for: ready_for
                .get(&(&service, index))
                .copied()
                .unwrap_or_default(),
        }
    };
    (0..).zip(replicas).map(outcome).collect()
}
