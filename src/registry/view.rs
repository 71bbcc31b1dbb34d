//! What readers see of services, replicas and hosts: plain data, the bodies of the REST answers too.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::{HostName, Incarnation, ServiceId, ServiceName};
use crate::port::{Port, PortRange, PortRanges, Protocol};
use crate::port_pool::PortGrant;
use crate::profile::Profile;
use crate::residency::{ReplicaName, Want};
use crate::supervision::{Failure, Status};
use crate::time::WallClock;

/// Everything at one moment; built anew for what changed, shared for the rest.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The newest revision of anything in it.
    pub revision: u64,
    /// Services by name.
    pub services: BTreeMap<ServiceName, Arc<ServiceView>>,
    /// Hosts by name.
    pub hosts: BTreeMap<HostName, Arc<HostView>>,
}

/// One service as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceView {
    /// Its full name.
    pub service: ServiceName,
    /// Who submitted it.
    pub owner: String,
    /// `running`, `stopped` or `ended`.
    pub state: String,
    /// How many replicas there shall be.
    pub desired: u32,
    /// How many are listed.
    pub ready: u32,
    /// The restart or replacement that is not through yet, in words. Until it is, `ready` counts replicas that
    /// are still to be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<String>,
    /// When it was submitted.
    pub submitted: WallClock,
    /// The last change that anything here shows.
    pub changed: WallClock,
    /// Rises with every change that anything here shows; what a long poll waits for.
    pub revision: u64,
    /// Its replicas, by index.
    pub replicas: Vec<ReplicaView>,
    /// The effective profile, as JSON of the profile's schema; secrets are names only.
    pub profile: Profile,
    /// Who may see it beside the owner is in the profile; the id is for logs.
    pub id: ServiceId,
}

/// One replica as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// Its index.
    pub replica: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// The job state: `PEND`, `RUN`, `DONE` or `EXIT`.
    pub job_state: String,
    /// The detail: `pending`, `starting`, `ready`, `not ready`, `backoff`, `stopping`, `stuck`,
    /// `gave up`, `stopped`, `completed`, `port conflict`, …
    pub state: String,
    /// Whether it is listed.
    pub ready: bool,
    /// Why it is as it is, one sentence: why it pends, is not ready, or ended.
    pub reason: Option<String>,
    /// Automatic restarts of this incarnation.
    pub restarts: u32,
    /// Automatic restarts over all incarnations; never falls.
    pub restarts_total: u32,
    /// Restarts by the user in this incarnation.
    pub user_restarts: u32,
    /// The newest failure in words, such as `signal 9 (KILL)`.
    pub last_failure: Option<String>,
    /// The newest failure whole.
    pub last_failure_detail: Option<Failure>,
    /// The first failure of this incarnation whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure_detail: Option<Failure>,
    /// The newest start of this incarnation; 0 before the first.
    #[serde(default)]
    pub run: crate::identity::Run,
    /// Where it is placed.
    pub host: Option<HostName>,
    /// The host's published address.
    pub address: Option<IpAddr>,
    /// Its numbers by port name: `20001`, or `20001-20004` for a block.
    pub ports: BTreeMap<String, PortRange>,
    /// The process of the living run.
    pub pid: Option<u32>,
    /// Since when it is in this state.
    pub since: WallClock,
}

/// One host as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    /// Its name.
    pub host: HostName,
    /// `up`, `not reported`, `drained`, `suspect` or `lost`.
    pub state: String,
    /// The published address.
    pub address: Option<IpAddr>,
    /// Which rule chose it.
    pub address_rule: String,
    /// New at each boot.
    pub boot_id: String,
    /// When it was last heard of.
    pub last_seen: WallClock,
    /// Numbers that "any" draws from.
    pub dynamic: PortRanges,
    /// Every number that is held, releasing, cooling or foreign, ascending. Reserved ones, which may be very
    /// many, are only in `Registry::host_ports`.
    pub ports: Vec<PortView>,
    /// What the host warns of, such as an ephemeral range that overlaps the pool.
    pub warnings: Vec<String>,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// One number of a host that is not free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortView {
    /// The number.
    pub port: Port,
    /// The side.
    pub protocol: Protocol,
    /// `held`, `releasing`, `cooling`, `reserved` or `foreign`.
    pub state: String,
    /// The holder, where it is a replica.
    pub service: Option<ServiceName>,
    /// Its index.
    pub replica: Option<u32>,
    /// What else is known: the stranger's process, the rest that is left.
    pub detail: Option<String>,
}

/// Something that happened to a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// When.
    pub at: WallClock,
    /// To which replica; `None`: the service.
    pub replica: Option<u32>,
    /// In which placement.
    pub incarnation: Option<Incarnation>,
    /// One word: `submitted`, `placed`, `ready`, `not-ready`, `restarted`, `gave-up`, …
    pub kind: String,
    /// One sentence.
    pub text: String,
}

/// What a host shall do about one replica. State, not a message: acting on it twice is harmless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Desired {
    /// Whose copy.
    pub service: ServiceName,
    /// Its number.
    pub service_id: ServiceId,
    /// Which copy.
    pub index: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// Run, drain or stop.
    pub want: Want,
    /// A number above the one acted on is a restart by the user.
    pub restart_no: u64,
    /// Its ports.
    pub grant: PortGrant,
    /// What to run.
    pub profile: Profile,
    /// The submitting account.
    pub user: String,
    /// Its uid.
    pub uid: u32,
    /// The newest status the controller has, so that a host that lost its records knows.
    pub last_status: Option<Status>,
}

impl Desired {
    /// Whom it speaks of.
    #[must_use]
    pub fn name(&self) -> ReplicaName {
        ReplicaName {
            service: self.service.clone(),
            index: self.index,
            incarnation: self.incarnation,
        }
    }
}
