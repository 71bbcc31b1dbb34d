//! A host that goes down in order: what runs there leaves the lists at once, is stopped, and follows elsewhere.
//!
//! That it goes down is news from the host, so no full disk keeps an endpoint listed that is about to close; the stops
//! are truth, decided from it. It is over with a full report that says otherwise, or of another boot.

use crate::identity::{HostId, HostName, ServiceId};
use crate::supervision::State;

use super::HostFacts;
use super::machine::Registry;
use super::records::{Phase, Placement, Replica, StopWhy};

/// In whose name the stops are ordered.
const ORDERED_BY: &str = "portreeve";

impl Registry {
    /// Takes in that a host goes down in order.
    pub(super) fn host_shutdown(&mut self, host: &HostName) {
        let Some(id) = self.host_names.get(host).copied() else {
            return;
        };
        if self.shuts_down(id) {
            return;
        }
        self.truth
            .hosts
            .note(&id, |host| host.facts.shutting_down = true);
        self.relay_host(id, "shutdown", "shuts down".to_owned());
        // Who may come here, and who waits for a place, are looked at again with it.
        self.address_moved(id);
    }

    /// Whether the host goes down in order.
    pub(super) fn shuts_down(&self, host: HostId) -> bool {
        let host = self.truth.hosts.find(&host);
        host.is_some_and(|host| host.facts.shutting_down)
    }

    /// What a partial report leaves out stands: only a full one, or another boot, ends a shutdown.
    pub(super) fn keep_shutdown(&self, id: HostId, facts: &mut HostFacts, is_full: bool) {
        let known = self.truth.hosts.find(&id).map(|host| &host.facts);
        let goes_on =
            known.is_some_and(|known| known.shutting_down && known.boot_id == facts.boot_id);
        facts.shutting_down |= goes_on && !is_full;
    }

    /// Orders the stop of every replica of the service whose host goes down.
    pub(super) fn stop_for_shutdown(&mut self, service: ServiceId) {
        let is_live = |replica: &Replica| {
            let status = replica.status.as_ref();
            status.is_none_or(|it| !matches!(it.state, State::Final(_)))
        };
        // The job of another scheduler is ended by that one.
        let is_ours = |at: &Placement| at.stop.is_none() && at.attached.is_none();
        let leaving: Vec<u32> = self
            .truth
            .replicas_of(service)
            .filter(|(_, replica)| match &replica.phase {
                Phase::Placed(at) => {
                    is_ours(at)
                        && is_live(replica)
                        && self.shuts_down(at.host)
                        && !self.was_rebooted(at)
                }
                _ => false,
            })
            .map(|(index, _)| index)
            .collect();
        for index in leaving {
            self.order_stop((service, index), StopWhy::HostShutdown, ORDERED_BY);
        }
    }
}
