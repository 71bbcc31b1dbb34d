//! A host that is being shut down: what its workers hear of it, and how far it is.

use super::super::resident::{Life, ReplicaName};
use super::Household;
use super::assigned::Assigned;
use super::errand::Talk;
use crate::supervision::Leaving;

impl<A: Assigned> Household<A> {
    /// How many replicas run and how many ended without the controller's knowing, while the host is being shut down.
    #[must_use]
    pub fn closing(&self) -> Option<(usize, usize)> {
        if !self.is_closing {
            return None;
        }
        let (mut running, mut untold) = (0, 0);
        for (_, resident) in self.living() {
            if !resident.is_final() {
                running += 1;
            } else if resident.life == Life::Watched || !resident.reported {
                // A worker ends once the controller has the end and says so.
                untold += 1;
            }
        }
        Some((running, untold))
    }

    /// What workers are to hear of a shutdown: that the host is being shut down, and then whether they are done, since no
    /// controller may be there to say so.
    pub(super) fn farewells(&self) -> Vec<(ReplicaName, Talk<A::Tokens>)> {
        if !self.is_closing {
            return Vec::new();
        }
        let watched = self.watched().filter(|(_, one)| !one.is_final());
        let talks = watched.filter_map(|(name, _)| {
            let talk = if self.keeping.get(name)?.is_leaving {
                Talk::Ask
            } else {
                Talk::Leave(Leaving::Shutdown)
            };
            Some((name.clone(), talk))
        });
        talks.collect()
    }
}
