//! One replica's place in the table.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::{HostName, Incarnation, NetworkName, ServiceName};
use crate::port::{PortName, PortRange, Protocol};
use crate::time::WallClock;

/// Everything the table holds of one service; replaced whole.
///
/// What one entry holds is the publisher's choice: the controller tells people and their tools about an
/// [`Endpoint`], a scheduler's plugin keeps plain numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEndpoints<E = Endpoint> {
    /// Whose endpoints.
    pub service: ServiceName,
    /// How many replicas there shall be.
    pub desired: u32,
    /// One entry per placed replica, by index.
    pub endpoints: Vec<E>,
}

/// What the table must know of an entry to keep and number it.
pub trait Entry: Clone + PartialEq + fmt::Debug {
    /// What tells two replicas of one service apart, and orders them.
    type Key: Clone + Ord + fmt::Debug;

    /// How the versions of a service keep an entry that they share: by count where it is costly to copy,
    /// else as it is.
    type Kept: Clone + fmt::Debug;

    /// For keeping.
    fn keep(self) -> Self::Kept;

    /// The entry that is kept.
    fn of(kept: &Self::Kept) -> &Self;

    /// Which replica this is.
    fn key(&self) -> Self::Key;

    /// Which of two entries of one replica is kept: the higher.
    fn incarnation(&self) -> Incarnation;

    /// Whether a default answer lists it: clients may be sent there and it is known where that is.
    fn is_listed(&self) -> bool;

    /// Whether both tell a reader the same, however old our knowledge of them is.
    fn same_but_for_age(&self, other: &Self) -> bool;
}

/// One replica with its address and its published ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its index.
    pub replica: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// The job of another scheduler that runs it, in that one's words, such as `slurm 4711`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The host's name.
    pub host: HostName,
    /// The host's published address; `None` before it is known: then it is never listed.
    pub address: Option<IpAddr>,
    /// The published ports, in the order of the profile.
    pub ports: Vec<EndpointPort>,
    /// Whether clients may be sent here.
    pub state: EndpointState,
    /// Why not, in words for people.
    pub reason: Option<String>,
    /// Since when it is ready.
    pub ready_since: Option<WallClock>,
    /// Automatic restarts of this incarnation.
    pub restarts: u32,
    /// The profile's labels.
    pub labels: Arc<BTreeMap<String, String>>,
}

impl Entry for Endpoint {
    type Key = u32;
    type Kept = Arc<Self>;

    fn keep(self) -> Arc<Self> {
        Arc::new(self)
    }

    fn of(kept: &Arc<Self>) -> &Self {
        kept
    }

    fn key(&self) -> u32 {
        self.replica
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn is_listed(&self) -> bool {
        self.state.is_listed() && self.address.is_some()
    }

    fn same_but_for_age(&self, other: &Self) -> bool {
        let ageless = |endpoint: &Self| Self {
            state: EndpointState::Ready,
            reason: None,
            ..endpoint.clone()
        };
        self == other
            || self.state.is_listed() && other.state.is_listed() && ageless(self) == ageless(other)
    }
}

/// One published port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointPort {
    /// Its name.
    pub name: PortName,
    /// The number, or the numbers of a block.
    pub numbers: PortRange,
    /// The side or sides.
    pub protocol: Protocol,
    /// What speaks there.
    pub app_protocol: Option<String>,
    /// A path for readers.
    pub path: Option<String>,
    /// The network that it is in, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkName>,
    /// The host's address in that network; `None` without a network, or where the host has none in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

impl Endpoint {
    /// Where clients of this port of it are sent.
    #[must_use]
    pub const fn address_of(&self, port: &EndpointPort) -> Option<IpAddr> {
        match port.network {
            None => self.address,
            Some(_) => port.address,
        }
    }
}

/// Whether clients may be sent to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndpointState {
    /// Not yet, or not any more.
    NotReady,
    /// Listed.
    Ready,
    /// Stopping but still answering: shown, not listed.
    Serving,
    /// Ready when last heard of, but the host is silent: listed.
    Unconfirmed,
    /// Stopping.
    Terminating,
}

impl EndpointState {
    /// Whether default answers list it.
    #[must_use]
    pub const fn is_listed(self) -> bool {
        matches!(self, Self::Ready | Self::Unconfirmed)
    }
}
