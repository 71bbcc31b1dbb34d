//! The numbers of a host that are not free, as people see them: what the disk says, not what the pools are about to.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::identity::{HostId, HostName, ReplicaId};
use crate::port::Port;
use crate::port_pool::{PortState, Side};
use crate::time::Spelled;

use super::PortView;
use super::machine::Registry;
use super::pending::process;
use super::records::{Phase, Placement, Replica};

impl Registry {
    /// Every number of a host that is not free, ascending; `None`: an unknown host.
    #[must_use]
    pub fn host_ports(&self, host: &HostName) -> Option<Vec<PortView>> {
        let id = self.host_names.get(host)?;
        Some(self.port_views(*id, true))
    }

    /// The numbers of a host that are not free; reserved ones, which may be very many, only on wish.
    pub(super) fn port_views(&self, id: HostId, with_reserved: bool) -> Vec<PortView> {
        let mut views = self.undurable_releases(id);
        // The pools are ahead of the disk: what they freed may still be its holder's there.
        let kept: BTreeSet<(Port, Side)> = views
            .iter()
            .flat_map(|view| Side::of(view.protocol).map(|side| (view.port, side)))
            .collect();
        for listed in self.pools.listed(id) {
            let (state, replica, service, detail) = match &listed.state {
                PortState::Held { by } | PortState::Releasing { by } => {
                    (self.hold(*by), Some(*by), None, None)
                }
                PortState::Cooling { until, service } => {
                    let left = until.since(self.now.mono);
                    let whole = Duration::from_secs((left + Duration::from_millis(999)).as_secs());
                    let detail = format!("free in {}", Spelled(whole));
                    ("cooling", None, Some(*service), Some(detail))
                }
                PortState::Foreign(stranger) => {
                    let detail = process(stranger);
                    let detail = detail.trim_matches([' ', '(', ')']).to_owned();
                    (
                        "foreign",
                        None,
                        None,
                        Some(detail).filter(|it| !it.is_empty()),
                    )
                }
                PortState::Reserved if with_reserved => ("reserved", None, None, None),
                PortState::Reserved | PortState::Free => continue,
            };
            if replica.is_some_and(|replica| !self.is_durable(replica)) {
                // Granted, but not yet on disk.
                continue;
            }
            let service = service.or(replica.map(|replica| replica.service));
            let name = service
                .and_then(|id| self.truth.services.find(&id))
                .map(|service| service.name.clone());
            let free =
                |port: &Port| Side::of(listed.protocol).all(|side| !kept.contains(&(*port, side)));
            views.extend(listed.numbers.iter().filter(free).map(|port| PortView {
                port,
                protocol: listed.protocol,
                state: state.to_owned(),
                service: name.clone(),
                replica: replica.map(|replica| replica.index),
                detail: detail.clone(),
            }));
        }
        if !kept.is_empty() {
            views.sort_by_key(|view| view.port);
        }
        views
    }

    /// The numbers of ends that were decided but are not on disk: a start now would find them held.
    fn undurable_releases(&self, host: HostId) -> Vec<PortView> {
        let mut views = Vec::new();
        for (key, before, now) in self.truth.replicas.undurable() {
            let Some(Replica {
                incarnation,
                phase: Phase::Placed(placement),
                ..
            }) = before
            else {
                continue;
            };
            let holds = |now: &Replica| {
                now.incarnation == *incarnation && matches!(now.phase, Phase::Placed(_))
            };
            if placement.host != host || now.is_some_and(holds) {
                continue;
            }
            let service = self.truth.services.durable(&key.0);
            for port in &placement.grant.ports {
                views.extend(port.numbers.iter().map(|number| PortView {
                    port: number,
                    protocol: port.protocol,
                    state: held_or_releasing(placement).to_owned(),
                    service: service.map(|service| service.name.clone()),
                    replica: Some(key.1),
                    detail: None,
                }));
            }
        }
        views
    }

    /// How the holder holds: it releases once the order to stop is on disk.
    fn hold(&self, by: ReplicaId) -> &'static str {
        let replica = self.truth.replicas.durable(&(by.service, by.index));
        match replica.map(|replica| &replica.phase) {
            Some(Phase::Placed(placement)) => held_or_releasing(placement),
            _ => "held",
        }
    }

    fn is_durable(&self, id: ReplicaId) -> bool {
        let replica = self.truth.replicas.durable(&(id.service, id.index));
        replica.is_some_and(|replica| {
            replica.incarnation == id.incarnation && matches!(replica.phase, Phase::Placed(_))
        })
    }
}

const fn held_or_releasing(placement: &Placement) -> &'static str {
    if placement.stop.is_some() {
        "releasing"
    } else {
        "held"
    }
}
