//! Which replicas live on this host, and what must be done so that the host becomes what is wanted.
//!
//! Invariants: never two living incarnations of one copy are started; an older incarnation is stopped
//! before a newer one starts; a replica that the wanted set does not name is never stopped by itself;
//! acting twice on one wanted set is acting once. This module does nothing: it compares what lives here
//! with what is wanted and returns the difference. Facts that only a look at the host can give, such as
//! whether a process still is the one it was, are arguments.
//!
//! * `uplink` says what is told to the controller and asked of it, and when.
//! * `household` says what is done about the replicas that live here, one thing after another, and what came of it.
//! * `lease` is how often a host gives a sign of life, `skew` how far its display clock is ahead of the controller's.

mod action;
pub mod household;
pub mod lease;
mod pace;
mod resident;
pub mod skew;
pub mod uplink;

use std::collections::BTreeMap;

pub use action::Action;
pub use household::{Assigned, Errand, Household, Order};
pub use pace::Pace;
pub use resident::{Life, ReplicaName, Resident, Told, Want};
pub use uplink::{Outgoing, Uplink};

/// Everything that has a folder on this host, by service, index and incarnation.
pub type Residents = BTreeMap<ReplicaName, Resident>;

/// What is wanted of the host, by service, index and incarnation.
pub type WantedSet = BTreeMap<ReplicaName, Told>;

/// What must be done now, in an order in which it may be done.
///
/// `wanted` is `None` as long as no wanted set of the controller is known: then only workers that died
/// are started again, since the services they watch still run.
#[must_use]
pub fn difference(residents: &Residents, wanted: Option<&WantedSet>) -> Vec<Action> {
    difference_by(residents, wanted, |told| *told)
}

/// [`difference`] to orders of which more is known than what workers are told.
fn difference_by<W>(
    residents: &Residents,
    wanted: Option<&BTreeMap<ReplicaName, W>>,
    told_of: impl Fn(&W) -> Told,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let Some(wanted) = wanted else {
        for (name, resident) in residents {
            if resident.life == Life::Orphaned && !resident.is_final() {
                actions.push(Action::TakeOver {
                    name: name.clone(),
                    told: None,
                });
            }
        }
        return actions;
    };
    let mut copies: BTreeMap<_, Copy<'_>> = BTreeMap::new();
    for (name, resident) in residents {
        let copy = copies.entry(name.copy()).or_default();
        copy.residents.insert(name, resident);
    }
    for (name, order) in wanted {
        let copy = copies.entry(name.copy()).or_default();
        copy.wanted.insert(name, told_of(order));
    }
    for copy in copies.values() {
        copy.difference(&mut actions);
    }
    actions
}

/// All incarnations of one copy of a service.
#[derive(Default)]
struct Copy<'a> {
    residents: BTreeMap<&'a ReplicaName, &'a Resident>,
    wanted: BTreeMap<&'a ReplicaName, Told>,
}

impl Copy<'_> {
    fn difference(&self, actions: &mut Vec<Action>) {
        // Of several that are wanted to run, only the newest can be meant.
        let running = self
            .wanted
            .iter()
            .rev()
            .find(|(_, told)| told.want == Want::Run)
            .map(|(name, _)| *name);
        for (name, resident) in &self.residents {
            let told = self.wanted.get(*name).copied();
            let replaced = running.is_some_and(|newest| *name < newest)
                && told.is_none_or(|told| told.want == Want::Run);
            if replaced {
                resident.make_way((*name).clone(), actions);
            } else {
                resident.difference((*name).clone(), told, actions);
            }
        }
        for (name, told) in &self.wanted {
            if !self.residents.contains_key(*name) {
                self.arrive(name, *told, running, actions);
            }
        }
        self.clear_logs(actions);
    }

    /// What to do about a wanted incarnation that has no folder.
    fn arrive(
        &self,
        name: &ReplicaName,
        told: Told,
        running: Option<&ReplicaName>,
        actions: &mut Vec<Action>,
    ) {
        match told.want {
            // Any other incarnation that may still have a process is in the way: an older one is on its
            // way out, and a newer one means that this wanted set is older than what lives here.
            Want::Run
                if running == Some(name) && !self.residents.values().any(|one| one.may_live()) =>
            {
                actions.push(Action::Start { name: name.clone() });
            }
            Want::Run | Want::Forget => {}
            // Its ports wait for the word of its end, and nobody else can say it.
            Want::Stop => actions.push(Action::NeverBegun { name: name.clone() }),
        }
    }

    /// Of the incarnations that ended, the newest keeps its logs. One whose end the controller still waits
    /// for keeps its folder too: without it, the end would have to be told anew.
    fn clear_logs(&self, actions: &mut Vec<Action>) {
        let ended = self
            .residents
            .iter()
            .filter(|(_, resident)| resident.life == Life::Ended);
        for (name, _) in ended.rev().skip(1) {
            let waited_for = |told: &Told| told.want != Want::Forget;
            if !self.wanted.get(*name).is_some_and(waited_for) {
                actions.push(Action::Remove {
                    name: (*name).clone(),
                });
            }
        }
    }
}

#[cfg(test)]
#[path = "residency_test.rs"]
mod tests;
