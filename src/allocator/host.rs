//! A host as the allocator sees it: where it stands, what it offers, whether it takes new grants.

use std::time::Duration;

use crate::identity::{HostId, HostName, ReplicaId};
use crate::port_pool::{
    Awaited, Cause, Draw, NetworkSet, Phase, PoolRanges, PortPool, PortRequest, Why, WhyPort,
};
use crate::time::Monotonic;

use super::census::Entry;
use super::question::about_host;

/// What a host is and offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// The name is the host; its number is only where it stands.
    pub name: HostName,
    /// Its ranges.
    pub ranges: PoolRanges,
    /// Where "any" begins to look.
    pub draw: Draw,
    /// How long its released numbers rest; `None`: as long as everywhere.
    pub cooling: Option<Duration>,
}

impl HostSpec {
    /// A host of this name with the default ranges, drawing next-fit.
    #[must_use]
    pub fn new(name: HostName) -> Self {
        Self {
            name,
            ranges: PoolRanges::default(),
            draw: Draw::default(),
            cooling: None,
        }
    }
}

/// Whether a host takes new grants. Only [`HostState::Up`] does; none of them frees a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostState {
    /// In service.
    Up,
    /// Takes nothing new.
    Drained,
    /// Not heard of for a while.
    Suspect,
    /// Lost: its numbers stay held until it reports, reboots or is declared fenced.
    Lost,
    /// Has not said yet what runs on it. How a host begins.
    #[default]
    NotReported,
}

impl HostState {
    /// What keeps new grants away, if anything does.
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Up => None,
            Self::Drained => Some(Cause::HostDrained),
            Self::Suspect => Some(Cause::HostSuspect),
            Self::Lost => Some(Cause::HostLost),
            Self::NotReported => Some(Cause::HostNotReported),
        }
    }
}

/// Whether a host may be removed although replicas hold numbers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Refuse if anything is held.
    IfEmpty,
    /// Forget every grant there.
    Forced,
}

/// Why hosts could not be put. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutHostError {
    /// The number stands for another host on which numbers are held.
    #[error("host number {host} stands for {by}, where ports are held; remove {by} first")]
    Occupied {
        /// The number.
        host: HostId,
        /// Who stands there.
        by: HostName,
    },
    /// The host would change its number, or make room for another, while a transaction is open
    /// that took ports there.
    #[error("an open transaction took ports on {name}; end it, then put the hosts again")]
    InTransaction {
        /// The host.
        name: HostName,
    },
    /// One call names a host or a number twice.
    #[error("host {name} or its number {host} is named twice in one call")]
    Twice {
        /// The number.
        host: HostId,
        /// The name.
        name: HostName,
    },
    /// The number is not dense.
    #[error("host number {host} is beyond the limit of {limit}; number hosts from 0 without gaps")]
    BeyondLimit {
        /// The number.
        host: HostId,
        /// The highest allowed number plus one.
        limit: u32,
    },
}

/// Why a host could not be removed. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveHostError {
    /// There is no such host.
    #[error("host number {host} is not known")]
    Unknown {
        /// The number.
        host: HostId,
    },
    /// Replicas hold numbers there.
    #[error("{holders} replicas hold ports on {name}; drain it first, or force the removal")]
    Holders {
        /// The host.
        name: HostName,
        /// How many.
        holders: usize,
        /// The first of them.
        first: ReplicaId,
    },
    /// A transaction is open that took ports there.
    #[error("an open transaction took ports on {name}; end it, then remove the host")]
    InTransaction {
        /// The host.
        name: HostName,
    },
}

/// There is no such host. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host number {host} is not known")]
pub struct UnknownHost {
    /// The number.
    pub host: HostId,
}

/// One host, under the lock of its slot.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: HostName,
    pub(super) state: HostState,
    pub(super) cooling: Option<Duration>,
    /// The named networks in which it has an address; `None`: it has not said yet.
    pub(super) networks: Option<NetworkSet>,
    pub(super) pool: PortPool,
    /// Numbers that requests wait for which want this host.
    pub(super) awaited: Awaited,
    /// The earliest moment for which it is queued among the deadlines.
    pub(super) queued: Option<Monotonic>,
    /// What the census says of it.
    pub(super) counted: Entry,
}

impl Host {
    pub(super) fn new(spec: HostSpec) -> Self {
        Self {
            name: spec.name,
            state: HostState::default(),
            cooling: spec.cooling,
            networks: None,
            pool: PortPool::new(spec.ranges, spec.draw),
            awaited: Awaited::default(),
            queued: None,
            counted: Entry::default(),
        }
    }

    /// A copy to try something on; see [`Self::copy_from`].
    pub(super) fn copy(&self) -> Self {
        let mut copy = Self {
            name: self.name.clone(),
            state: self.state,
            cooling: self.cooling,
            networks: self.networks,
            pool: PortPool::default(),
            awaited: Awaited::default(),
            queued: None,
            counted: Entry::default(),
        };
        copy.copy_from(self);
        copy
    }

    /// Writes a copy of `from` over this one, to try something on: what is awaited there is known by its numbers
    /// only. Allocates nothing once there is the room.
    pub(super) fn copy_from(&mut self, from: &Self) {
        // By name, so that nothing is forgotten that is added one day.
        let Self {
            name,
            state,
            cooling,
            networks,
            pool,
            awaited,
            queued,
            counted,
        } = from;
        self.name.clone_from(name);
        self.state = *state;
        self.cooling = *cooling;
        self.networks = *networks;
        self.pool.clone_from(pool);
        self.awaited.copy_numbers(awaited);
        self.queued = *queued;
        self.counted = *counted;
    }

    /// Whether nothing keeps `request` away but, perhaps, its numbers.
    pub(super) fn takes(&self, request: &PortRequest) -> bool {
        let networks = self.networks.unwrap_or_default();
        self.state.cause().is_none() && networks.has_all(request.networks())
    }

    /// What keeps `request` away whatever its numbers are.
    pub(super) fn barriers(&self, request: &PortRequest) -> impl Iterator<Item = Why> {
        let silent = self.networks.is_none() && !request.networks().is_empty();
        let silent = silent && self.state != HostState::NotReported;
        let about_all = (self.state.cause()).or(silent.then_some(Cause::HostNotReported));
        let there = self.networks;
        let missing = request.named_networks().filter_map(move |(port, network)| {
            let why = WhyPort {
                name: port.name.clone(),
                protocol: port.protocol,
                number: None,
            };
            (!there?.contains(network)).then_some(Why {
                port: Some(why),
                cause: Cause::NoAddress,
            })
        });
        about_all.map(about_host).into_iter().chain(missing)
    }

    /// Whether a transaction is open that took ports here.
    pub(super) fn is_in_transaction(&self) -> bool {
        let holders = self.pool.holders();
        holders.iter().any(|(_, phase)| *phase == Phase::Tentative)
    }
}
