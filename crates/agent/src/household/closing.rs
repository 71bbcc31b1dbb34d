//! The shutdown of the host: every replica is ended by its stop rule, with or without a controller that answers, and
//! nothing begins any more. The next agent of the host begins afresh.

use portreeve::residency::{Life, ReplicaName};
use portreeve::supervision::Leaving;
use portreeve_api::attach::Closing;
use tracing::info;

use super::Household;
use super::talk::Talk;

impl Household {
    /// From now on everything here is to end. Said twice it is said once.
    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closing, true) {
            info!("this host is being shut down: its replicas are ended");
        }
    }

    /// What workers are to hear of it: that the host is being shut down, and then whether they are done, since no
    /// controller may be there to say so.
    pub(super) fn farewells(&self) -> Vec<(ReplicaName, Talk)> {
        if !self.is_closing {
            return Vec::new();
        }
        let watched = self
            .residents
            .iter()
            .filter(|(_, one)| one.life == Life::Watched && !one.is_final());
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

    /// Tells how far it is, if it began.
    pub(super) fn tell_closing(&self) {
        if !self.is_closing {
            return;
        }
        let living = self
            .residents
            .values()
            .filter(|one| matches!(one.life, Life::Watched | Life::Orphaned));
        let mut now = Closing::default();
        for resident in living {
            if !resident.is_final() {
                now.running += 1;
            } else if resident.life == Life::Watched || !resident.reported {
                // A worker ends once the controller has the end and says so.
                now.untold += 1;
            }
        }
        self.closing.send_if_modified(|before| {
            let changed = *before != Some(now);
            *before = Some(now);
            changed
        });
    }
}
