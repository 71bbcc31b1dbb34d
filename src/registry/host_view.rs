//! What readers see of hosts and their ports: plain data, the bodies of the REST answers too.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::host_addr::Prefix;
use crate::identity::{HostName, NetworkName, ServiceName};
use crate::port::{PortName, PortRange, PortRanges, Protocol};
use crate::time::WallClock;

use super::roster::Named;
use super::seats::AgentIdentity;
use super::{HostOwner, ReportedAddress, UnusableAddress};

/// One host as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostView {
    /// Its name.
    pub host: HostName,
    /// `up`, `not reported`, `draining`, `drained`, `shutting down`, `suspect` or `lost`.
    pub state: String,
    /// Who gives its numbers: `controller` or `plugin`.
    #[serde(default)]
    pub owner: HostOwner,
    /// That it is taken out of service, and how far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainView>,
    /// The published address.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub address: Option<IpAddr>,
    /// Which rule chose it.
    pub address_rule: String,
    /// The site's networks, each with the host's address there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<NetworkName, NetworkView>,
    /// The addresses it may be reached at, as it found them.
    #[serde(default)]
    pub addresses: Vec<ReportedAddress>,
    /// Its other addresses, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<UnusableAddress>,
    /// New at each boot.
    pub boot_id: String,
    /// Which agent speaks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentIdentity>,
    /// The version of that agent.
    #[serde(default)]
    pub agent_version: String,
    /// When it was last heard of.
    pub last_seen: WallClock,
    /// Of a suspect host, since when it is silent; of a lost one, since when it is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallClock>,
    /// How far its clock is ahead of the controller's, in milliseconds and within half a second, once it measured that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_skew_ms: Option<i64>,
    /// Numbers that "any" draws from.
    pub dynamic: PortRanges,
    /// How many numbers are in which state.
    pub counts: PortCounts,
    /// What the host warns of, such as an ephemeral range that overlaps the pool.
    pub warnings: Vec<String>,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// How far a host is out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DrainView {
    /// Who ordered it.
    pub by: String,
    /// When.
    pub since: WallClock,
    /// When whatever is left is stopped at once; none: what has nowhere to go stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallClock>,
    /// How many replicas were to leave when it began.
    pub replicas: u32,
    /// How many of those are still there.
    pub left: u32,
    /// Replicas in jobs of another scheduler, which are not moved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attached: u32,
    /// The first 20 replicas that stay for now, with the reason, as far as the reader may see them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<StayView>,
    /// How many more stay.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stays_more: u32,
}

/// A replica that stays on a drained host for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StayView {
    /// Whose copy.
    pub service: ServiceName,
    /// Which copy.
    pub replica: u32,
    /// Why it stays.
    pub why: String,
}

/// One network of the site, as a host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkView {
    /// Which addresses are in it; an earlier one is preferred.
    pub prefixes: Vec<Prefix>,
    /// The host's address in it: where clients of ports that name it are sent.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub address: Option<IpAddr>,
}

/// Every number of a host that is not free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostPorts {
    /// The host.
    pub host: HostName,
    /// `up`, `not reported`, `draining`, `drained`, `shutting down`, `suspect` or `lost`.
    pub state: String,
    /// Which numbers it offers.
    pub ranges: HostRanges,
    /// How many numbers are in which state.
    pub counts: PortCounts,
    /// What is not free, ascending; consecutive numbers of one holder and state are one entry.
    pub ports: Vec<PortView>,
}

/// Which numbers a host offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostRanges {
    /// Numbers that "any" draws from.
    pub dynamic: PortRanges,
    /// Numbers that a fixed request may name.
    pub fixed: PortRanges,
    /// Numbers never given.
    pub reserved: PortRanges,
}

/// How many numbers of a host are in which state. A number in one state on both sides counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortCounts {
    /// Numbers of the dynamic range.
    pub dynamic: u32,
    /// Of those, free for TCP.
    pub free_tcp: u32,
    /// Of those, free for UDP.
    pub free_udp: u32,
    /// Of those, free for both.
    pub free_both: u32,
    /// Held by a replica.
    pub held: u32,
    /// Its stop is ordered, its end not confirmed.
    pub releasing: u32,
    /// Freed, and resting.
    pub cooling: u32,
    /// A process outside portreeve listens.
    pub foreign: u32,
    /// Never given, and in none of the other states.
    pub reserved: u32,
}

/// Numbers of a host that are not free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortView {
    /// The number, or consecutive ones.
    pub numbers: PortRange,
    /// The side or sides.
    pub protocol: Protocol,
    /// `held`, `releasing`, `cooling`, `foreign` or `reserved`.
    pub state: String,
    /// The holder, or whose they were, where the reader may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u32>,
    /// What the holder's profile calls them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PortName>,
    /// For how many seconds they still rest, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_s: Option<u64>,
    /// The stranger's process, where the host could read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The stranger's command name, where the host could read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Why they are held although their holder was given up: its host was lost, and may still run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stranded: Option<String>,
}

impl HostView {
    /// Whether both show the same but for how long the host has been silent within its grace.
    pub(super) fn same_but_for_age(&self, other: &Self) -> bool {
        let is_there = |it: &Self| matches!(it.state.as_str(), "up" | "suspect");
        let mut ageless = self.clone();
        ageless.last_seen = other.last_seen;
        if is_there(self) && is_there(other) {
            ageless.state.clone_from(&other.state);
            ageless.since = other.since;
        }
        ageless == *other
    }
}

impl Named for HostView {
    type Name = HostName;

    fn name(&self) -> &HostName {
        &self.host
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}
