//! One replica's place in the table.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::{HostName, Incarnation, ServiceName};
use crate::port::{PortName, PortRange, Protocol};
use crate::time::WallClock;

/// Everything the table holds of one service; replaced whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEndpoints {
    /// Whose endpoints.
    pub service: ServiceName,
    /// How many replicas there shall be.
    pub desired: u32,
    /// One entry per placed replica, by index.
    pub endpoints: Vec<Endpoint>,
}

/// One replica with its address and its published ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its index.
    pub replica: u32,
    /// Which placement.
    pub incarnation: Incarnation,
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

impl Endpoint {
    /// Whether a default answer lists it: clients may be sent there and it is known where that is.
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.state.is_listed() && self.address.is_some()
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
