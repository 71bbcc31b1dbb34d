//! Ports for replicas over all hosts: who may have which numbers where, decided in transactions.
//!
//! Promises kept here:
//! * No number of a host belongs to two replicas, from the moment a transaction takes it until its
//!   release is confirmed. (Records that say otherwise are kept, both, and reported.)
//! * Refused means unchanged: a refusal, a rollback and an abort leave every byte as it was.
//! * A grant is idempotent: the same replica with the same request has the same numbers.
//! * Time is an argument. All cooling that is due ends at [`Allocator::begin`] or
//!   [`Allocator::on_deadline`], for every host, from one queue.
//!
//! The allocator knows services by number only; who shows a cause to people names the holder and
//! decides whether they may see it. It stores nothing: grants come back through
//! [`Allocator::restore`].
//!
//! ```
//! use portreeve::allocator::{Allocator, AllocatorConfig, HostSpec, HostState};
//! use portreeve::identity::{HostId, Incarnation, ReplicaId, ServiceId};
//! use portreeve::port::Protocol;
//! use portreeve::port_pool::{PortRequest, Want, WantedPort};
//! use portreeve::time::Monotonic;
//!
//! let mut allocator = Allocator::new(AllocatorConfig::default());
//! allocator.put_host(HostId(0), HostSpec::new("n1".parse()?))?;
//! allocator.set_host_state(HostId(0), HostState::Up)?;
//! let request = PortRequest::new(vec![WantedPort {
//!     name: "http".parse()?,
//!     protocol: Protocol::Tcp,
//!     want: Want::Any { count: std::num::NonZeroU16::MIN },
//!     within: None,
//! }])?;
//! let replica = ReplicaId { service: ServiceId(1), index: 0, incarnation: Incarnation(0) };
//! let mut transaction = allocator.begin(Monotonic::from_millis(0));
//! let grant = transaction.reserve(HostId(0), replica, &request, None)?;
//! assert_eq!(grant.ports[0].numbers.to_string(), "20000");
//! transaction.commit();
//! assert_eq!(allocator.grant(replica), Some((HostId(0), grant)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod host;
mod host_set;
mod hosts;
mod release;
mod restore;
mod summary;
mod transaction;
mod waiting;

#[cfg(test)]
mod cases_test;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod promises_test;
#[cfg(test)]
mod testing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::identity::{HostId, HostName, Incarnation, ReplicaId, ServiceId};
use crate::port_pool::{Choice, ListedPorts, Phase, PortGrant};
use crate::time::Monotonic;

pub use host::{HostSpec, HostState, PutHostError, Removal, RemoveHostError, UnknownHost};
pub use host_set::HostSet;
pub use hosts::PoolCounts;
pub use release::{AfterRelease, ReleaseError};
pub use restore::{Conflict, CoolingRecord, Export, GrantRecord};
pub use summary::Summary;
pub use transaction::{Mark, ReserveError, StaleMark, Transaction};

use host::Host;
use release::Released;
use transaction::Open;
use waiting::Waiting;

/// Ports for replicas over all hosts. See the [module page](self) for what it promises.
#[derive(Debug)]
pub struct Allocator {
    config: AllocatorConfig,
    /// The largest moment seen; an earlier one counts as this.
    now: Monotonic,
    hosts: Vec<Option<Host>>,
    names: BTreeMap<HostName, HostId>,
    /// Where replicas hold ports, tentative ones too. One host each, unless records say otherwise.
    placed: BTreeSet<(ReplicaId, HostId)>,
    released: Released,
    waiting: Waiting,
    /// When something on a host is due next.
    due: BTreeSet<(Monotonic, HostId)>,
    /// Hosts with new room that nobody was told of yet.
    freed: HostSet,
    open: Option<Open>,
    /// Reused by every search.
    choice: Choice,
}

/// Spans and limits of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorConfig {
    /// How long released numbers rest, so that clients with an old endpoint do not reach a stranger.
    pub cooling: Duration,
    /// How long a number rests to which a bind was refused.
    pub foreign_rest: Duration,
    /// How many host numbers there may be: the bound of the memory that one number can cost.
    pub max_hosts: u32,
}

impl Default for AllocatorConfig {
    /// 60 s, 60 s and 1,048,576 hosts.
    fn default() -> Self {
        Self {
            cooling: Duration::from_secs(60),
            foreign_rest: Duration::from_secs(60),
            max_hosts: 1 << 20,
        }
    }
}

impl Allocator {
    /// An allocator without hosts.
    #[must_use]
    pub fn new(config: AllocatorConfig) -> Self {
        Self {
            config,
            now: Monotonic::default(),
            hosts: Vec::new(),
            names: BTreeMap::new(),
            placed: BTreeSet::new(),
            released: Released::default(),
            waiting: Waiting::default(),
            due: BTreeSet::new(),
            freed: HostSet::new(),
            open: None,
            choice: Choice::default(),
        }
    }

    /// What `replica` holds and where. What an open transaction took is not seen.
    #[must_use]
    pub fn grant(&self, replica: ReplicaId) -> Option<(HostId, PortGrant)> {
        self.holding(replica)
            .filter(|(_, _, phase)| *phase != Phase::Tentative)
            .map(|(host, grant, _)| (host, grant))
    }

    /// How firm the grant of `replica` is: held or releasing; `None` if it has none.
    #[must_use]
    pub fn phase(&self, replica: ReplicaId) -> Option<Phase> {
        let (_, _, phase) = self.holding(replica)?;
        Some(phase).filter(|phase| *phase != Phase::Tentative)
    }

    /// The newest incarnation of a replica that holds ports, tentative ones included.
    #[must_use]
    pub fn newest(&self, service: ServiceId, index: u32) -> Option<Incarnation> {
        let id = |incarnation| ReplicaId {
            service,
            index,
            incarnation: Incarnation(incarnation),
        };
        let all = (id(0), HostId(0))..=(id(u32::MAX), HostId(u32::MAX));
        let (replica, _) = self.placed.range(all).next_back()?;
        Some(replica.incarnation)
    }

    /// Every number of `host` that is not free, ascending, with its state; nothing for an unknown
    /// host. What an open transaction took is not shown.
    #[must_use]
    pub fn ports(&self, host: HostId) -> Vec<ListedPorts> {
        self.host(host)
            .map(|host| host.pool.listed())
            .unwrap_or_default()
    }

    /// When cooling, or the rest after a refused bind, next ends somewhere; `None` if nothing
    /// rests. May be earlier than needed, never later.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Ends everything that is due by `now` and returns every host with room that was not told
    /// of yet, be it by cooling that ended or began, by a report, by a changed range or state.
    ///
    /// Numbers that begin to cool make room too: "any" gets them rather than a refusal, and a fixed
    /// request of the same service at once.
    pub fn on_deadline(&mut self, now: Monotonic) -> HostSet {
        self.advance(now);
        self.take_freed()
    }

    /// The hosts with room that was not told of yet, as [`Self::on_deadline`] returns them. For
    /// callers that retry who waits after each change.
    pub fn take_freed(&mut self) -> HostSet {
        std::mem::take(&mut self.freed)
    }

    /// Moves time on and ends all that is due, on every host.
    fn advance(&mut self, now: Monotonic) {
        self.now = self.now.max(now);
        while let Some((due, id)) = self
            .due
            .first()
            .copied()
            .filter(|(due, _)| *due <= self.now)
        {
            self.due.remove(&(due, id));
            let now = self.now;
            if let Some(host) = self.host_mut(id) {
                host.due = None;
                if host.pool.end_due(now, &mut |_, _| {}) {
                    self.freed.insert(id);
                }
            }
            self.requeue(id);
        }
        self.released.forget_due(self.now);
    }

    /// Gives the host its place in the queue of deadlines, after its pool changed.
    fn requeue(&mut self, id: HostId) {
        let Some(host) = self.hosts.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let next = host.pool.next_deadline();
        let before = std::mem::replace(&mut host.due, next);
        if before != next {
            if let Some(before) = before {
                self.due.remove(&(before, id));
            }
            if let Some(next) = next {
                self.due.insert((next, id));
            }
        }
    }

    fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.get(id.0 as usize)?.as_ref()
    }

    fn host_mut(&mut self, id: HostId) -> Option<&mut Host> {
        self.hosts.get_mut(id.0 as usize)?.as_mut()
    }

    /// The hosts on which `replica` holds ports.
    fn hosts_of(&self, replica: ReplicaId) -> impl Iterator<Item = HostId> + '_ {
        self.placed
            .range((replica, HostId(0))..=(replica, HostId(u32::MAX)))
            .map(|(_, host)| *host)
    }

    fn holding(&self, replica: ReplicaId) -> Option<(HostId, PortGrant, Phase)> {
        let id = self.hosts_of(replica).next()?;
        let pool = &self.host(id)?.pool;
        Some((id, pool.grant(replica)?, pool.phase(replica)?))
    }
}
