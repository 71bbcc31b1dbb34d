//! Why a replica has no place, for machines: one entry per host and cause, and the sums over all hosts.

use serde::{Deserialize, Serialize};

use crate::identity::{HostName, NetworkName, ServiceName};
use crate::port::{Port, PortName, PortRanges, Protocol};

/// One cause that keeps a replica from one host. What does not belong to a cause is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReasonView {
    /// The host.
    pub host: HostName,
    /// The cause as a stable word, such as `HELD` or `NOT IN POOL`. New words may come.
    pub code: String,
    /// Its number in the C header (`PR_R_*`); none for a cause that only the controller knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_number: Option<u32>,
    /// The port's name in the profile; none: the cause is about the host as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortName>,
    /// The number, where the cause is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<Port>,
    /// The side or sides concerned: of a `tcp+udp` port only the one that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Who has the number, where a replica has it and the reader may see that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderView>,
    /// For how many seconds the number still rests, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_s: Option<u64>,
    /// The stranger's process, where the host could read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The stranger's command name, where the host could read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// How many numbers there are for the ports that ask alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub have: Option<u32>,
    /// How many those ports need; of a block its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub want: Option<u32>,
    /// The numbers that the host offers for such a port, where none of them will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<PortRanges>,
    /// The network in which the host has no address for the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkName>,
    /// The same in words.
    pub sentence: String,
}

/// A replica that has a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HolderView {
    /// Its service.
    pub service: ServiceName,
    /// Its index.
    pub replica: u32,
}

/// All hosts that the placement allows, by the first cause against each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostSums {
    /// Hosts that are known.
    pub known: u32,
    /// Hosts that the profile's placement allows.
    pub hosts: u32,
    /// How many of them were asked; fewer than all where a waiting replica met very many.
    pub asked: u32,
    /// Hosts that fit.
    pub fitting: u32,
    /// The others, most first.
    pub causes: Vec<CauseSum>,
}

/// How many hosts one cause keeps a replica from first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CauseSum {
    /// The cause as a stable word.
    pub code: String,
    /// Its number in the C header; none for a cause that only the controller knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_number: Option<u32>,
    /// How many hosts.
    pub hosts: u32,
}

/// Where a replica would fit now, and what is against every other host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FitView {
    /// The service, or what the profile would be called.
    pub service: ServiceName,
    /// The waiting replica that is meant; none: one more replica.
    pub replica: Option<u32>,
    /// The sum in words: `2 of 5 hosts fit; 2 HELD, 1 HOST DRAINED`.
    pub sentence: String,
    /// What else to know, one sentence each.
    pub notes: Vec<String>,
    /// The sum.
    pub sums: HostSums,
    /// The hosts by name; at most 1,000.
    pub hosts: Vec<HostFit>,
}

/// One host of a [`FitView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostFit {
    /// Its name.
    pub host: HostName,
    /// Whether it fits.
    pub fits: bool,
    /// What is against it, each blocked port; at most 64.
    pub reasons: Vec<ReasonView>,
    /// How many causes more there are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
const fn is_none(count: &u32) -> bool {
    *count == 0
}
