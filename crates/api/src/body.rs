//! Request and answer bodies. Times are RFC 3339 UTC on the wire where people read them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::local::Tokens;

use portreeve::identity::HostName;
use portreeve::profile::EffectiveValue;
use portreeve::supervision::Forecast;
use portreeve::time::WallClock;

pub use crate::tokens::{JoinAsk, Joined, TokenAsk, TokenList, TokenMade, TokenView};
pub use portreeve::registry::{
    AgentIdentity, Answer, CauseSum, Desired, DrainView, EventView, FitView, HolderView, HostFacts,
    HostFit, HostPorts, HostRanges, HostSums, HostView, PortCounts, PortHistory, PortView,
    ReasonView, ReplicaReport, ReplicaView, ReportedAddress, ServiceView, StayView, TenureView,
    UnusableAddress, Want,
};

/// `GET /services`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceList {
    /// What the caller may see: `own`, `group:…` or `all`.
    pub view_scope: String,
    /// The number of this answer; give it back as `revision=R&wait=30s` to wait for the next.
    pub revision: u64,
    /// There are more: give it back as `cursor=` for the next page of the same moment. Without it this is the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The visible services, by name.
    pub services: Vec<ServiceView>,
}

/// `GET /hosts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostList {
    /// There are more: give it back as `cursor=` for the next page of the same moment. Without it this is the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The hosts, by name.
    pub hosts: Vec<HostView>,
}

/// `GET /services/{service}/events`, `GET /hosts/{host}/events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventList {
    /// Oldest first.
    pub events: Vec<EventView>,
    /// How many earlier ones `limit` leaves out.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

/// `POST /services/{service}/scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// How many replicas there shall be.
    pub replicas: u32,
}

/// `POST /hosts/{host}/drain`. Empty: one replica of a service after the other, for as long as that takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainAsk {
    /// What is left after this time, such as `1h`, is stopped at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Everything is stopped at once.
    #[serde(default, skip_serializing_if = "is_false")]
    pub now: bool,
}

/// `POST /hosts/{host}/down`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DownAsk {
    /// Nothing runs there any more, by the asker's word: its numbers are free again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fenced: bool,
}

/// `POST /hosts/{host}/adopt` and `/fence`: a replica that runs there and is not known here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UnknownReplica {
    /// Its service; a label alone is in the asker's own namespace.
    pub service: String,
    /// Its index.
    pub replica: u32,
    /// Which placement; needed where several of the index run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u32>,
}

/// `GET /services/{service}/endpoints`: one atomic snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Endpoints {
    /// The full name.
    pub service: String,
    /// The life of the revision line.
    pub epoch: String,
    /// The snapshot's number.
    pub revision: u64,
    /// The port asked for, if one was.
    pub port_filter: Option<String>,
    /// How many replicas there shall be.
    pub desired: u32,
    /// How many are listed.
    pub ready: u32,
    /// What the caller may see.
    pub view_scope: String,
    /// Whether the hosts have not confirmed it since the controller started.
    pub stale: bool,
    /// The endpoints, by index.
    pub endpoints: Vec<Endpoint>,
}

/// One replica of [`Endpoints`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Endpoint {
    /// Its index.
    pub replica: u32,
    /// The job of another scheduler that runs it, in that one's words, such as `slurm 4711`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The host's name.
    pub host: String,
    /// The host's published address.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub address: Option<IpAddr>,
    /// The published ports.
    pub ports: Vec<EndpointPort>,
    /// Whether clients may be sent here.
    pub conditions: Conditions,
    /// Why not; only under `state=all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it is ready, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<String>,
    /// Automatic restarts of this incarnation.
    pub restarts: u32,
    /// The share of the clients that it shall get, against that of the others.
    #[serde(default = "weight")]
    pub weight: u32,
    /// The profile's labels.
    pub labels: BTreeMap<String, String>,
    /// The number of its last change.
    #[serde(default)]
    pub revision: u64,
}

/// One published port of an [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointPort {
    /// Its name.
    pub name: String,
    /// The number, or the first of a block.
    pub port: u16,
    /// How many consecutive numbers; 1 for a single one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u16,
    /// `TCP`, `UDP` or `TCP+UDP`.
    pub protocol: String,
    /// What speaks there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// A path for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The network that it is in, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Where clients of it are sent, where it names a network; without, at the address of the [`Endpoint`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub address: Option<IpAddr>,
}

impl Endpoint {
    /// The weight of every endpoint for now: a profile cannot set another.
    pub const WEIGHT: u32 = 100;

    /// Where clients of this port of it are sent.
    #[must_use]
    pub const fn address_of(&self, port: &EndpointPort) -> Option<IpAddr> {
        match port.network {
            None => self.address,
            Some(_) => port.address,
        }
    }
}

const fn weight() -> u32 {
    Endpoint::WEIGHT
}

const fn one() -> u16 {
    1
}

// serde hands the field over by reference.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
const fn is_one(count: &u16) -> bool {
    *count == 1
}

/// The terms of Kubernetes' EndpointSlice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Conditions {
    /// Listed by default.
    pub ready: bool,
    /// Still answering.
    pub serving: bool,
    /// On its way out.
    pub terminating: bool,
    /// Ready when last heard of, but its host is silent; only under `state=all`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unconfirmed: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// `GET /hosts/{host}/desired?since=R`: the whole wanted set of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesiredSet {
    /// Random per start of the controller; a change asks the agent for one full report.
    pub instance: String,
    /// Rises with each change of the set.
    pub revision: u64,
    /// Whether the controller wants a full report before this set may be acted on.
    pub report_first: bool,
    /// What is wanted, by service and index.
    pub replicas: Vec<DesiredReplica>,
    /// Pieces of log files that readers wait for.
    pub reads: Vec<LogRead>,
}

/// One wanted replica with what only its worker may know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesiredReplica {
    /// What is wanted.
    #[serde(flatten)]
    pub desired: Desired,
    /// What its worker and its job prove themselves with.
    pub tokens: Tokens,
}

/// A reader waits for a piece of a log file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRead {
    /// Names the answer.
    pub read: u64,
    /// Whose log.
    pub service: portreeve::identity::ServiceName,
    /// Which replica.
    pub index: u32,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// From this byte; `None`: the last `max` bytes.
    pub offset: Option<u64>,
    /// Of which incarnation the offset is; `None`: of the newest.
    #[serde(default)]
    pub incarnation: Option<u32>,
    /// At most so many bytes.
    pub max: u32,
}

/// The agent's answer to a [`LogRead`]: where the piece begins; the bytes are the body.
pub const LOG_OFFSET_HEADER: &str = "portreeve-log-offset";
/// Beside it: of which incarnation the piece is.
pub const LOG_INCARNATION_HEADER: &str = "portreeve-log-incarnation";

/// `POST /hosts/{host}/lease`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// Random per start of the controller.
    pub instance: String,
    /// The controller's time, for the host to measure its skew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<WallClock>,
    /// How long the silence of a host is forgiven, in milliseconds; after it what runs there is given up and may be run
    /// elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_grace_ms: Option<u64>,
    /// How often it wants a sign of life, in milliseconds; `None`: every 5 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
}

/// The body of `POST /hosts/{host}/lease`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAsk {
    /// Which agent speaks for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentIdentity>,
    /// How far the host's clock was ahead of the controller's at the last lease, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew_ms: Option<i64>,
}

/// `GET /counters`: since the controller's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Random per start of the controller.
    pub instance: String,
    /// Statuses that workers sent.
    pub statuses: u64,
    /// Reports that agents sent.
    pub reports: u64,
    /// Leases that agents kept.
    pub leases: u64,
    /// Commits of the store.
    pub commits: u64,
}

/// `GET /whoami`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhoAmI {
    /// The account.
    pub user: String,
    /// How it was found: `unix socket`, `loopback peer`, `agent`, `token`, `jwt`, `host token` or `replica token`.
    pub method: String,
    /// `viewer`, `user`, `operator` or `admin`; `host` for a host's token.
    #[serde(default)]
    pub role: String,
    /// Whose services it sees: `own`, `group`, `group:NAME` or `all`.
    pub view_scope: String,
    /// Whose services it manages; `none`: nobody's.
    #[serde(default)]
    pub manage_scope: String,
    /// Whether it may manage every service.
    pub admin: bool,
    /// When what it is known by ends, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WallClock>,
    /// The id of the token that it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The host that it speaks for, if it is a host's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The controller's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<WallClock>,
}

/// `POST /explain`, and a service's `explain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explained {
    /// Where a replica would fit now, and what is against every other host.
    #[serde(flatten)]
    pub fit: FitView,
    /// Of a profile: the effective one, value by value, each with the layer that set it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub effective: Vec<EffectiveValue>,
    /// What its rules will do in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub forecast: Option<Forecast>,
}

/// `POST /check` and a successful submit: what to know although nothing is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Checked {
    /// The service's label.
    pub name: String,
    /// The namespace, where the profile names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// One sentence each.
    pub warnings: Vec<String>,
}
