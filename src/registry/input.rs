//! What the driver tells the registry.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::identity::{HostName, Incarnation, ServiceId, ServiceName};
use crate::port::PortRanges;
use crate::port_pool::{Foreign, PortGrant};
use crate::profile::{Profile, Source};
use crate::residency::ReplicaName;
use crate::rights::Caller;
use crate::supervision::Status;

use super::attach::Attachment;
use super::effect::Ticket;
use super::host_verbs::HostVerb;
use super::limits::Limits;
use super::precondition::Precondition;
use super::seats::AgentIdentity;
use super::tokens::TokenOrder;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Somebody wants something; answered under `ticket`.
    Command {
        /// Names the answer.
        ticket: Ticket,
        /// Who asks; the right was not checked yet.
        by: Caller,
        /// What.
        command: Command,
    },
    /// A host's full report: at join, on change, and after a new controller instance.
    HostReport(HostFacts),
    /// A host's sign of life.
    Lease {
        /// Which host.
        host: HostName,
        /// How far its clock is ahead of ours, in milliseconds, where it measured that.
        skew_ms: Option<i64>,
    },
    /// A replica's newest status.
    Status(ReplicaReport),
    /// A host goes down in order: what runs there is to be stopped.
    HostShutdown {
        /// Which host.
        host: HostName,
    },
    /// Other limits hold from now on.
    Limits(Box<Limits>),
}

/// What a user can ask for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Create or replace a service; unchanged is no change.
    Submit(Submission),
    /// Set the number of replicas.
    Scale {
        /// Which service.
        service: ServiceName,
        /// How many.
        replicas: u32,
    },
    /// Start a stopped service, and every replica that ended, with a fresh budget.
    Start {
        /// Which service.
        service: ServiceName,
    },
    /// Stop every replica; the service stays known.
    Stop {
        /// Which service.
        service: ServiceName,
    },
    /// Restart one replica or all in place; not charged to the budget.
    Restart {
        /// Which service.
        service: ServiceName,
        /// Which replica; `None`: all, one at a time, highest index first.
        index: Option<u32>,
    },
    /// Stop one replica; its index stays empty until start or submit.
    Kill {
        /// Which service.
        service: ServiceName,
        /// Which replica.
        index: u32,
    },
    /// Grant ports on the host of another scheduler's job, which runs the replica itself.
    Attach(Box<Attachment>),
    /// Does it only if its service is as the asker knows it.
    OnlyIf {
        /// What has to be true.
        precondition: Precondition,
        /// What then.
        command: Box<Command>,
    },
    /// Forget a stopped service.
    Delete {
        /// Which service.
        service: ServiceName,
    },
    /// Make, renew, revoke or trade a token.
    Token(Box<TokenOrder>),
    /// Order something about a host; for operators.
    Host {
        /// Which host.
        host: HostName,
        /// What.
        verb: HostVerb,
    },
}

/// A profile on its way into the registry.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The full name.
    pub service: ServiceName,
    /// What to run.
    pub profile: Profile,
    /// What the profile was made of, where it came as a text.
    pub source: Option<Source>,
    /// Whether a changed profile may replace a running one.
    pub replace: bool,
}

/// What a host says about itself. Replaces what it said before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its name.
    pub host: HostName,
    /// New at each boot of the machine.
    pub boot_id: String,
    /// The version of the agent.
    pub agent_version: String,
    /// Which agent tells this; `None`: one that is older than its having an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentIdentity>,
    /// Rises with each report of one boot, whichever agent tells it: one that arrives after a newer one is no news.
    /// `None`: an agent that is older than this number; what it tells is news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The addresses it may be reached at, as it found them.
    pub addresses: Vec<ReportedAddress>,
    /// Its other addresses, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<UnusableAddress>,
    /// The published one by the agent's rule.
    pub published: Option<IpAddr>,
    /// Which rule won, in words.
    pub address_rule: String,
    /// Numbers that "any" draws from.
    pub dynamic: PortRanges,
    /// Numbers that a fixed request may name.
    pub fixed: PortRanges,
    /// Numbers never given.
    pub reserved: PortRanges,
    /// The kernel's ephemeral range.
    pub ephemeral: PortRanges,
    /// Who listens here without being ours.
    pub foreign: Vec<Foreign>,
    /// Labels for placement.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Who gives its numbers.
    #[serde(default)]
    pub owner: HostOwner,
    /// What the host can do, in words: `pidfd`, `subreaper`, `cgroup-v2-kill`, `owner-proof`.
    pub capabilities: Vec<String>,
    /// What is wrong with the host itself, in words: shown among its warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// It goes down in order: what runs here is stopped and nothing new begins, until a full report says otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shutting_down: bool,
    /// The newest status of every replica that lives here; in a full report also [`Status::silent`] of one whose worker
    /// has not said a word yet, since what a full report leaves out is gone.
    pub replicas: Vec<ReplicaReport>,
    /// Whether `replicas` is complete: true at join and after a new controller instance.
    pub full: bool,
}

/// Who gives the numbers of a host: each host's pool has one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum HostOwner {
    /// This controller.
    #[default]
    Controller,
    /// A scheduler that has the plugin loaded: nothing new is granted here.
    Plugin,
}

/// One address of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportedAddress {
    /// The interface.
    pub interface: String,
    /// The address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: IpAddr,
    /// Bits of the network part.
    pub prefix: u8,
    /// Whether the interface carries the default route of the address's family.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_route: bool,
}

/// One address of a host that is never published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnusableAddress {
    /// The interface.
    pub interface: String,
    /// The address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: IpAddr,
    /// Bits of the network part.
    pub prefix: u8,
    /// Why not, in words.
    pub reason: String,
}

/// A replica's newest status, as its worker tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// The host it runs on.
    pub host: HostName,
    /// Whose copy.
    pub service: ServiceName,
    /// Which copy.
    pub index: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// The number of the service that it was placed for; told in a full report only, as is the next. A service of this
    /// name that was submitted later has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_id: Option<ServiceId>,
    /// The numbers it was given, as its host wrote them down: a controller that does not know the replica keeps them
    /// from others. `None`: not told, or lost there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<PortGrant>,
    /// The status; the highest `(run, seq)` wins.
    pub status: Status,
}

impl ReplicaReport {
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
