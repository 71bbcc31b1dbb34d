//! The numbers of a host that are not free, as people see them: what the disk says, not what the pools are about to.

use std::time::Duration;

use crate::identity::{HostId, HostName, ReplicaId, ServiceId};
use crate::port::{PortName, PortRange, PortRanges, Protocol};
use crate::port_pool::{ListedPorts, PortGrant, PortState};
use crate::rights::Caller;
use crate::time::Now;

use super::machine::Registry;
use super::records::{Phase, Placement, Replica, Service, Stranded};
use super::survey::whole_seconds;
use super::truth::TenureKey;
use super::{HostPorts, HostRanges, PortCounts, PortView};

impl Registry {
    /// Every number of a host that is not free at `now`, ascending, with holders as far as `reader` may see
    /// them; `None`: an unknown host. Cost: linear in the grants of the host.
    #[must_use]
    pub fn host_ports(&mut self, now: Now, reader: &Caller, host: &HostName) -> Option<HostPorts> {
        let id = *self.host_names.get(host)?;
        // What is left of a rest is told as of now, not as of the newest input.
        self.now = now;
        let facts = &self.truth.hosts.find(&id)?.facts;
        let ranges = HostRanges {
            dynamic: facts.dynamic.clone(),
            fixed: facts.fixed.clone(),
            reserved: facts.reserved.clone(),
        };
        let mut ports = self.port_views(id);
        let counts = self.port_counts(id, &ports);
        for port in &mut ports {
            if !self.may_see_holder(reader, port) {
                (port.service, port.replica, port.name) = (None, None, None);
            }
        }
        Some(HostPorts {
            host: host.clone(),
            state: self.host_state(id).to_owned(),
            ranges,
            counts,
            ports,
        })
    }

    fn may_see_holder(&self, reader: &Caller, port: &PortView) -> bool {
        let Some(name) = &port.service else {
            return true;
        };
        let id = self.names.get(name);
        let service = id.and_then(|id| self.truth.services.find(id));
        reader.sees_all() || service.is_some_and(|service| reader.may_see(service.holding()))
    }

    /// How many numbers are in which state, by what is shown of them.
    pub(super) fn port_counts(&self, id: HostId, ports: &[PortView]) -> PortCounts {
        let dynamic = self.truth.hosts.find(&id);
        let Some(dynamic) = dynamic.map(|host| &host.facts.dynamic) else {
            return PortCounts::default();
        };
        let all = dynamic.count();
        let free = |is_on: fn(Protocol) -> bool| {
            let taken = ports.iter().filter(|port| is_on(port.protocol));
            let taken: PortRanges = PortRanges::new(taken.map(|port| port.numbers));
            all - taken.intersection(dynamic).count()
        };
        let in_state = |state: &str| {
            let those = ports.iter().filter(|port| port.state == state);
            those.map(|port| port.numbers.count()).sum()
        };
        PortCounts {
            dynamic: all,
            free_tcp: free(Protocol::has_tcp),
            free_udp: free(Protocol::has_udp),
            free_both: free(|_| true),
            held: in_state("held"),
            releasing: in_state("releasing"),
            cooling: in_state("cooling"),
            foreign: in_state("foreign"),
            reserved: in_state("reserved"),
        }
    }

    /// The numbers of a host that are not free, ascending.
    pub(super) fn port_views(&self, id: HostId) -> Vec<PortView> {
        let mut views = self.undurable_releases(id);
        // The pools are ahead of the disk: what they freed may still be its holder's there.
        let kept: Vec<(PortRange, Protocol)> = views
            .iter()
            .map(|view| (view.numbers, view.protocol))
            .collect();
        for listed in self.pools.listed(id) {
            let Some(view) = self.port_view(id, &listed) else {
                continue;
            };
            if kept.iter().all(|kept| !overlap(*kept, &listed)) {
                views.push(view);
                continue;
            }
            let is_kept = |numbers| {
                let one = ListedPorts {
                    numbers,
                    ..listed.clone()
                };
                kept.iter().any(|kept| overlap(*kept, &one))
            };
            let singles = listed.numbers.iter().map(PortRange::single);
            views.extend(
                singles
                    .filter(|numbers| !is_kept(*numbers))
                    .map(|numbers| PortView {
                        numbers,
                        ..view.clone()
                    }),
            );
        }
        if !kept.is_empty() {
            views.sort_by_key(|view| view.numbers.first());
        }
        joined(views)
    }

    /// What is shown of one entry of the pool; nothing of a grant that is not on disk.
    fn port_view(&self, host: HostId, listed: &ListedPorts) -> Option<PortView> {
        let mut view = PortView {
            numbers: listed.numbers,
            protocol: listed.protocol,
            state: String::new(),
            service: None,
            replica: None,
            name: None,
            left_s: None,
            pid: None,
            comm: None,
            stranded: None,
        };
        let state = match &listed.state {
            PortState::Held { by } | PortState::Releasing { by } => {
                view.replica = Some(by.index);
                if let Some((service, placement)) = self.durable_placement(*by) {
                    view.service = Some(service.name.clone());
                    view.name = name_of(&placement.grant, listed);
                    held_or_releasing(placement)
                } else if let Some((name, unknown)) = self.unknown_by(host, *by) {
                    view.service = Some(name.service.clone());
                    view.name = unknown.grant.as_ref().and_then(|it| name_of(it, listed));
                    "held"
                } else {
                    let stranded = self.durable_stranded(host, *by)?;
                    view.service = Some(stranded.name.clone());
                    view.name = name_of(&stranded.grant, listed);
                    view.stranded = Some(stranded.why.clone());
                    "held"
                }
            }
            PortState::Cooling { until, service } => {
                let left = until.since(self.now.mono).max(Duration::from_millis(1));
                view.left_s = Some(whole_seconds(left).as_secs());
                view.service = self.name_of(*service);
                "cooling"
            }
            PortState::Foreign(stranger) => {
                view.pid = stranger.pid;
                view.comm = stranger.comm.as_ref().map(ToString::to_string);
                "foreign"
            }
            PortState::Reserved => "reserved",
            PortState::Free => return None,
        };
        state.clone_into(&mut view.state);
        Some(view)
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
            views.extend(placement.grant.ports.iter().map(|port| PortView {
                numbers: port.numbers,
                protocol: port.protocol,
                state: held_or_releasing(placement).to_owned(),
                service: service.map(|service| service.name.clone()),
                replica: Some(key.1),
                name: Some(port.name.clone()),
                left_s: None,
                pid: None,
                comm: None,
                stranded: None,
            }));
        }
        let on_disk = self.truth.stranded.undurable();
        let freed = on_disk.filter(|(at, _, now)| at.host == host && now.is_none());
        for (at, before, _) in freed {
            let Some(stranded) = before else {
                continue;
            };
            let taken_back = self
                .truth
                .replicas
                .find(&(at.replica.service, at.replica.index));
            let is_held = taken_back.is_some_and(|it| {
                it.incarnation == at.replica.incarnation && matches!(it.phase, Phase::Placed(_))
            });
            if is_held {
                continue;
            }
            views.extend(stranded.grant.ports.iter().map(|port| PortView {
                numbers: port.numbers,
                protocol: port.protocol,
                state: "held".to_owned(),
                service: Some(stranded.name.clone()),
                replica: Some(at.replica.index),
                name: Some(port.name.clone()),
                left_s: None,
                pid: None,
                comm: None,
                stranded: Some(stranded.why.clone()),
            }));
        }
        views
    }

    /// The placement of a holder as the disk has it: it releases once the order to stop is there.
    fn durable_placement(&self, by: ReplicaId) -> Option<(&Service, &Placement)> {
        let replica = self.truth.replicas.durable(&(by.service, by.index))?;
        let service = self.truth.services.durable(&by.service)?;
        match &replica.phase {
            Phase::Placed(placement) if replica.incarnation == by.incarnation => {
                Some((service, placement))
            }
            _ => None,
        }
    }

    pub(super) fn is_durable(&self, host: HostId, id: ReplicaId) -> bool {
        self.durable_placement(id).is_some() || self.durable_stranded(host, id).is_some()
    }

    /// What the disk has of an incarnation that was given up with the host.
    fn durable_stranded(&self, host: HostId, replica: ReplicaId) -> Option<&Stranded> {
        self.truth.stranded.durable(&TenureKey { host, replica })
    }

    fn name_of(&self, service: ServiceId) -> Option<crate::identity::ServiceName> {
        let service = self.truth.services.find(&service)?;
        Some(service.name.clone())
    }
}

/// Makes one of neighbours of which the same is shown: rests differ by less than the second that is told.
fn joined(views: Vec<PortView>) -> Vec<PortView> {
    let mut all: Vec<PortView> = Vec::with_capacity(views.len());
    for view in views {
        if let Some(last) = all.last_mut()
            && last.state == "cooling"
            && last.numbers.last().number().checked_add(1) == Some(view.numbers.first().number())
            && let Some(numbers) = PortRange::new(last.numbers.first(), view.numbers.last())
            && *last
                == (PortView {
                    numbers: last.numbers,
                    ..view.clone()
                })
        {
            last.numbers = numbers;
            continue;
        }
        all.push(view);
    }
    all
}

/// What the holder's profile calls the numbers.
fn name_of(grant: &PortGrant, listed: &ListedPorts) -> Option<PortName> {
    let mut ports = grant.ports.iter();
    let port = ports.find(|port| overlap((port.numbers, port.protocol), listed))?;
    Some(port.name.clone())
}

fn overlap((numbers, protocol): (PortRange, Protocol), listed: &ListedPorts) -> bool {
    protocol.overlaps(listed.protocol)
        && numbers.first() <= listed.numbers.last()
        && listed.numbers.first() <= numbers.last()
}

const fn held_or_releasing(placement: &Placement) -> &'static str {
    if placement.stop.is_some() {
        "releasing"
    } else {
        "held"
    }
}
