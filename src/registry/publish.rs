//! The endpoints of a service: durable placement, the host's published address, the newest readiness.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::endpoints::{Endpoint, EndpointPort, EndpointState};
use crate::identity::{HostId, ServiceId};
use crate::profile::Profile;
use crate::supervision::{State, Status};
use crate::time::{Utc, WallClock};

use super::contact::Suspects;
use super::machine::Registry;
use super::records::{Phase, Placement, Replica, Service, StopWhy};

/// The labels of a profile, shared by its replicas.
type Labels = Arc<BTreeMap<String, String>>;

impl Registry {
    /// What clients may know of the service's replicas now, by index.
    pub(super) fn endpoints(
        &self,
        service: &Service,
        replicas: &[(u32, &Replica)],
    ) -> Vec<Endpoint> {
        let mut labels: BTreeMap<u64, Labels> = BTreeMap::new();
        let placed = replicas.iter().filter_map(|(index, replica)| {
            let Phase::Placed(placement) = &replica.phase else {
                return None;
            };
            let shared = labels.get(&replica.generation);
            let endpoint = self.endpoint(service, *index, replica, placement, shared)?;
            let shared = Arc::clone(&endpoint.labels);
            labels.entry(replica.generation).or_insert(shared);
            Some(endpoint)
        });
        placed.collect()
    }

    /// What clients may know of one placed replica; with these labels, if they are its own.
    pub(super) fn endpoint(
        &self,
        service: &Service,
        index: u32,
        replica: &Replica,
        placement: &Placement,
        labels: Option<&Labels>,
    ) -> Option<Endpoint> {
        let profile = service.profile_of(replica.generation);
        let (state, reason) = self.condition(profile, replica, placement);
        let host = self.truth.hosts.find(&placement.host)?;
        let shared = labels.filter(|labels| ***labels == profile.labels);
        Some(Endpoint {
            replica: index,
            incarnation: replica.incarnation,
            job: placement.attached.as_ref().and_then(|it| it.job.clone()),
            host: host.name().clone(),
            address: self.published(host.id),
            ports: self.published_ports(profile, placement),
            state,
            reason,
            ready_since: replica.ready_since.filter(|_| state.is_listed()),
            restarts: replica.status.as_ref().map_or(0, |it| it.restarts),
            labels: shared.map_or_else(|| Arc::new(profile.labels.clone()), Arc::clone),
        })
    }

    /// The replicas of a service as far as they are durable, with the newest news.
    pub(super) fn durable_replicas(&self, service: ServiceId) -> Vec<(u32, &Replica)> {
        self.truth
            .replicas
            .durable_range((service, 0)..=(service, u32::MAX))
            .into_iter()
            .map(|((_, index), replica)| (*index, replica))
            .collect()
    }

    /// Whether clients may be sent to a placed replica, and why not.
    pub(super) fn condition(
        &self,
        profile: &Profile,
        replica: &Replica,
        placement: &Placement,
    ) -> (EndpointState, Option<String>) {
        let up = |status: &Status| status.ready && status.state == State::Up;
        let is_up = replica.status.as_ref().is_some_and(up);
        if self.was_rebooted(placement) {
            return (EndpointState::NotReady, Some("host rebooted".to_owned()));
        }
        if let Some(lost) = self.shown_lost(placement.host) {
            let state = match placement.stop {
                Some(_) => EndpointState::Terminating,
                None => EndpointState::NotReady,
            };
            return (state, Some(lost.reason()));
        }
        if let Some(order) = &placement.stop {
            let serves = is_up || replica.status.as_ref().is_some_and(|it| it.serving);
            let state = if serves {
                EndpointState::Serving
            } else {
                EndpointState::Terminating
            };
            let reason = match order.why {
                StopWhy::Drained => format!("its host is drained by {}", order.by),
                StopWhy::HostShutdown => "its host shuts down".to_owned(),
                _ => format!("stop ordered by {}", order.by),
            };
            return (state, Some(reason));
        }
        if self.shuts_down(placement.host) {
            let state = if is_up {
                EndpointState::Serving
            } else {
                EndpointState::Terminating
            };
            return (state, Some("its host shuts down".to_owned()));
        }
        if is_up {
            let unpublished = |why: String| (EndpointState::NotReady, Some(why));
            if self.published(placement.host).is_none() {
                return unpublished("its host has no address to publish".to_owned());
            }
            let published = profile.ports.iter().filter(|port| port.publish);
            return match self.lacking(placement.host, published).first() {
                None => self.confirmed(placement.host),
                Some((port, network)) => unpublished(format!(
                    "its host has no address in network {network} for port {}",
                    port.name
                )),
            };
        }
        (
            EndpointState::NotReady,
            Some(not_ready(replica.status.as_ref())),
        )
    }

    /// How a replica is listed that was ready when its host was last heard of.
    fn confirmed(&self, host: HostId) -> (EndpointState, Option<String>) {
        let Some(since) = self.unknown_since(host) else {
            return (EndpointState::Ready, None);
        };
        let suspects = self.config.silence.map(|it| it.suspects());
        let state = match suspects.unwrap_or_default() {
            Suspects::StayListed => EndpointState::Unconfirmed,
            Suspects::AreWithdrawn => EndpointState::NotReady,
        };
        (state, Some(self.silent(host, since)))
    }

    /// Why nothing is known of what runs on a host.
    pub(super) fn silent(&self, host: HostId, since: WallClock) -> String {
        format!(
            "unknown since {}: host {} is silent",
            Utc(since),
            self.host_name(host)
        )
    }

    /// The published ports, in the order of the profile.
    fn published_ports(&self, profile: &Profile, placement: &Placement) -> Vec<EndpointPort> {
        profile
            .ports
            .iter()
            .filter(|port| port.publish)
            .filter_map(|port| {
                let granted = placement.grant.port(&port.name)?;
                let network = port.network.as_ref();
                Some(EndpointPort {
                    name: port.name.clone(),
                    numbers: granted.numbers,
                    protocol: granted.protocol,
                    app_protocol: port.app_protocol.clone(),
                    path: port.path.clone(),
                    network: network.cloned(),
                    address: network.and_then(|it| self.address_in(placement.host, it)),
                })
            })
            .collect()
    }
}

/// Why a replica that runs, or is about to, is not ready.
fn not_ready(status: Option<&Status>) -> String {
    let Some(status) = status else {
        return "its host was told to start it".to_owned();
    };
    let failure = || status.last_failure.as_ref().map(|it| it.reason.to_string());
    let told = |words: &str| match status.not_ready_reason.clone().or_else(failure) {
        Some(why) => format!("{words}: {why}"),
        None => words.to_owned(),
    };
    match &status.state {
        State::Idle | State::Starting => "starting".to_owned(),
        State::Startup => match &status.not_ready_reason {
            Some(why) => format!("waits for its startup probe: {why}"),
            None => "waits for its startup probe".to_owned(),
        },
        State::Up => match &status.not_ready_reason {
            Some(why) => why.clone(),
            None => "not ready yet".to_owned(),
        },
        State::Stopping | State::Reaping => told("its run is ending"),
        State::Backoff => told("waits to be started again"),
        State::Stuck => told("its processes cannot be removed"),
        State::Final(end) => end.to_string(),
    }
}
