//! Where clients of a port are sent: the host's published address, or the one in the network that the port names.
//!
//! The networks are configuration, not truth: after a start with others, a port whose network is gone has no address
//! until it is back, and its replica runs on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::host_addr::{Candidate, Prefix};
use crate::identity::{HostId, NetworkName};
use crate::port::PortName;
use crate::profile::{DeclaredPort, Profile};

use super::HostFacts;
use super::host_view::NetworkView;
use super::machine::Registry;

impl Registry {
    /// The host's address in a network; `None` too where another host is published there.
    pub(super) fn address_in(&self, host: HostId, network: &NetworkName) -> Option<IpAddr> {
        let life = self.lives.get(&host)?;
        let address = life.networks.get(network)?;
        (!life.doubles.contains_key(address)).then_some(*address)
    }

    /// The addresses of the profile's ports that name a network, as far as the host has them.
    pub(super) fn own_addresses(
        &self,
        host: HostId,
        profile: &Profile,
    ) -> BTreeMap<PortName, IpAddr> {
        let named = profile.ports.iter().filter_map(|port| {
            let address = self.address_in(host, port.network.as_ref()?)?;
            Some((port.name.clone(), address))
        });
        named.collect()
    }

    /// The networks that ports of these name and in which the host has no address, each with the first such port.
    pub(super) fn lacking<'p>(
        &self,
        host: HostId,
        ports: impl IntoIterator<Item = &'p DeclaredPort>,
    ) -> Vec<(&'p DeclaredPort, &'p NetworkName)> {
        let mut seen = BTreeSet::new();
        let named = ports
            .into_iter()
            .filter_map(|port| Some((port, port.network.as_ref()?)));
        named
            .filter(|(_, network)| seen.insert(*network))
            .filter(|(_, network)| self.address_in(host, network).is_none())
            .collect()
    }

    /// What keeps a port that names such a network from ever having an address; nothing if the network is known.
    pub(super) fn unknown_network(&self, profile: &Profile) -> Option<String> {
        let known = &self.config.networks;
        let (port, network) = profile.ports.iter().find_map(|port| {
            let network = port.network.as_ref()?;
            known.find(network).is_none().then_some((port, network))
        })?;
        let names: Vec<String> = known.iter().map(|(name, _)| name.to_string()).collect();
        let known = match names.as_slice() {
            [] => {
                "this controller has no network; leave `network` out to use the published address, \
                   or have it started with `--network NAME=10.20.0.0/16`"
                    .to_owned()
            }
            names => format!("there are: {}", names.join(", ")),
        };
        Some(format!(
            "port {} names the network {network:?}, which is unknown; {known}",
            port.name,
            network = network.as_str()
        ))
    }

    /// Finds the host's address in each network and notes all it claims; whether one in a network is another now.
    pub(super) fn claim_addresses(&mut self, id: HostId, facts: &HostFacts) -> bool {
        let usable: Vec<Candidate> = facts.addresses.iter().map(candidate).collect();
        let networks = self.config.networks.choose(&usable);
        let all = networks.values().copied().chain(facts.published);
        self.claims.note(id, all.collect());
        let life = self.lives.entry(id).or_default();
        let changed = life.networks != networks;
        life.networks = networks;
        if changed {
            // The host is told of them with what is wanted there.
            self.shown.orders.insert(id);
        }
        changed
    }

    /// Every network with the host's address there.
    pub(super) fn network_views(&self, host: HostId) -> BTreeMap<NetworkName, NetworkView> {
        let all = self.config.networks.iter();
        let view = |name: &NetworkName, prefixes: &[Prefix]| NetworkView {
            prefixes: prefixes.to_vec(),
            address: self.address_in(host, name),
        };
        all.map(|(name, prefixes)| (name.clone(), view(name, prefixes)))
            .collect()
    }
}

/// A host reports only what is usable.
fn candidate(reported: &super::ReportedAddress) -> Candidate {
    Candidate {
        interface: reported.interface.clone(),
        address: reported.address.to_canonical(),
        prefix: reported.prefix,
        up: true,
        default_route: reported.default_route,
        passing: false,
    }
}
