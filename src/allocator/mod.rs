//! Ports for replicas over all hosts: who may have which numbers where, decided in transactions.
//!
//! Promises kept here:
//! * No number of a host belongs to two replicas, from the moment a transaction takes it until its
//!   release is confirmed. (Records that say otherwise are kept, both, and reported.)
//! * Refused means unchanged: a refusal, a rollback and an abort leave every byte as it was.
//! * A grant is idempotent: the same replica with the same request has the same numbers.
//! * Time is an argument. All cooling that is due ends at [`Allocator::begin`] or
//!   [`Allocator::on_deadline`], for every host, from one queue.
//! * Everything may be called from any thread. Each host has one short lock; nothing is called back
//!   under a lock. Several transactions may be open: each sees what the others took as taken. With
//!   several threads at work, a set of feasible hosts is a hint and `reserve` decides.
//! * What a cycle calls allocates nothing once warm: begin, feasible, reserve, mark, rollback, commit,
//!   the two steps of a release, deadlines.
//!
//! Locks are taken in one order: structure (names), waiting, hosts by number, then one of the leaves
//! (a shard of placements, census, a watched number, deadlines, names).
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
//! let allocator = Allocator::new(AllocatorConfig::default());
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

mod census;
mod copies;
mod deadlines;
mod feasibility;
mod freed;
mod gang;
mod host;
mod host_set;
mod host_table;
mod hosts;
mod need;
mod placements;
mod question;
mod release;
mod reserve;
mod restore;
mod rooms;
mod same;
mod stats;
mod summary;
mod transaction;
mod waiting;
mod watches;
mod what_if;
mod woken;
mod work;
mod world;

#[cfg(test)]
mod cases_test;
#[cfg(test)]
mod exactness_test;
#[cfg(test)]
mod gang_test;
#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod promises_test;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod threads_test;
#[cfg(test)]
mod woken_test;

use std::collections::{BTreeMap, TryReserveError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::identity::{HostId, HostName, Incarnation, ReplicaId, ServiceId};
use crate::port::PortRange;
use crate::port_pool::{ListedPorts, Phase, PortGrant, Side};
use crate::time::Monotonic;

pub use gang::{GangError, GangMember, SameNumbers};
pub use host::{HostSpec, HostState, PutHostError, Removal, RemoveHostError, UnknownHost};
pub use host_set::HostSet;
pub use hosts::PoolCounts;
pub use need::Need;
pub use release::{AfterRelease, ReleaseError};
pub use reserve::ReserveError;
pub use restore::{Conflict, CoolingRecord, Export, GrantRecord};
pub use same::SameError;
pub use stats::AllocatorStats;
pub use summary::{CauseCounts, Summary};
pub use transaction::{Mark, StaleMark, Suspended, Transaction};
pub use what_if::{SuspendedWhatIf, WhatIf};

use census::{Census, Entry};
use deadlines::Deadlines;
use host::Host;
use host_table::HostTable;
use placements::Placements;
use waiting::Waiting;
use watches::Watches;
use work::{Spares, next_number};
use world::Worlds;

/// Ports for replicas over all hosts. See the [module page](self) for what it promises.
#[derive(Debug)]
pub struct Allocator {
    config: AllocatorConfig,
    /// Which one of all in this process.
    no: u64,
    /// The largest moment seen, in milliseconds; an earlier one counts as this.
    now: AtomicU64,
    hosts: HostTable,
    /// Held while hosts come, go or change their numbers.
    structure: Mutex<()>,
    names: Mutex<BTreeMap<HostName, HostId>>,
    placements: Placements,
    waiting: Waiting,
    deadlines: Deadlines,
    census: Census,
    watches: Watches,
    spares: Spares,
    worlds: Worlds,
}

/// Spans and limits of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorConfig {
    /// How long released numbers rest, so that clients with an old endpoint do not reach a stranger.
    pub cooling: Duration,
    /// How long a number rests to which a bind was refused.
    pub foreign_rest: Duration,
    /// How many host numbers there may be: the bound of the memory that one number can cost. At most
    /// [`HostSet::MAX_HOSTS`] counts.
    pub max_hosts: u32,
    /// How many grants there will be at once, for which room is made at the start. More are no error:
    /// then what finds them grows while they come.
    pub room_for: u32,
    /// Fewer candidates than this are asked one by one for a fixed number that nobody asked about
    /// before; more have the hosts counted that have it, once and for all. 0: never one by one.
    pub direct_below: u32,
    /// Whether a release that is repeated is known as such for a while. If not, who holds nothing any more
    /// is [`ReleaseError::NotHeld`] as anybody else.
    pub remembers_releases: bool,
}

impl Default for AllocatorConfig {
    /// 60 s, 60 s, 1,048,576 hosts, no room made, 256 candidates, and releases are remembered.
    fn default() -> Self {
        Self {
            cooling: Duration::from_secs(60),
            foreign_rest: Duration::from_secs(60),
            max_hosts: 1 << 20,
            room_for: 0,
            direct_below: 256,
            remembers_releases: true,
        }
    }
}

impl Allocator {
    /// An allocator without hosts.
    ///
    /// # Panics
    ///
    /// If there is no memory for [`AllocatorConfig::room_for`]: see [`Self::try_new`].
    #[must_use]
    pub fn new(config: AllocatorConfig) -> Self {
        match Self::try_new(config) {
            Ok(allocator) => allocator,
            Err(refused) => panic!("no room for {} grants: {refused}", config.room_for),
        }
    }

    /// As [`Self::new`], for callers that bear that there is not as much memory.
    ///
    /// # Errors
    ///
    /// [`TryReserveError`] if there is no memory for [`AllocatorConfig::room_for`].
    pub fn try_new(config: AllocatorConfig) -> Result<Self, TryReserveError> {
        let no = next_number().get();
        Ok(Self {
            config,
            no,
            now: AtomicU64::new(0),
            hosts: HostTable::default(),
            structure: Mutex::default(),
            names: Mutex::default(),
            placements: Placements::with_room(config.room_for, config.remembers_releases)?,
            waiting: Waiting::default(),
            deadlines: Deadlines::default(),
            census: Census::default(),
            watches: Watches::default(),
            spares: Spares::with_room(no, config.room_for)?,
            worlds: Worlds::default(),
        })
    }

    /// What `replica` holds and where. What an open transaction took is not seen.
    #[must_use]
    pub fn grant(&self, replica: ReplicaId) -> Option<(HostId, PortGrant)> {
        self.standing(replica, |host| host.pool.grant(replica))
    }

    /// How firm the grant of `replica` is: held or releasing; `None` if it has none.
    #[must_use]
    pub fn phase(&self, replica: ReplicaId) -> Option<Phase> {
        let (_, phase) = self.standing(replica, |host| host.pool.phase(replica))?;
        Some(phase)
    }

    /// Asks the first host on which `replica` has a grant that is not tentative.
    fn standing<R>(
        &self,
        replica: ReplicaId,
        ask: impl Fn(&Host) -> Option<R>,
    ) -> Option<(HostId, R)> {
        // A host that changes its number between the two looks is found at the second one.
        for _ in 0..TRIES {
            let id = *self.placements.of(replica, None).first()?;
            let answer = self.hosts.with(id, |host| {
                let phase = host.pool.phase(replica)?;
                (phase != Phase::Tentative).then(|| ask(host)).flatten()
            });
            if let Some(answer) = answer.flatten() {
                return Some((id, answer));
            }
        }
        None
    }

    /// The newest incarnation of a replica that holds ports, tentative ones included.
    #[must_use]
    pub fn newest(&self, service: ServiceId, index: u32) -> Option<Incarnation> {
        self.placements.newest(service, index)
    }

    /// Every number of `host` that is not free, ascending, with its state; nothing for an unknown
    /// host. What an open transaction took is not shown.
    #[must_use]
    pub fn ports(&self, host: HostId) -> Vec<ListedPorts> {
        let listed = self.hosts.with(host, |host| host.pool.listed());
        listed.unwrap_or_default()
    }

    /// What rests on `host` after its release: by side, then ascending, with the end of the rest and whose it
    /// was; nothing for an unknown host. Cost: linear in what rests.
    #[must_use]
    pub fn resting(&self, host: HostId) -> Vec<(Side, PortRange, Monotonic, ServiceId)> {
        let resting = self.hosts.with(host, |host| host.pool.cooling().collect());
        resting.unwrap_or_default()
    }

    /// When cooling, or the rest after a refused bind, next ends somewhere; `None` if nothing
    /// rests. May be earlier than needed, never later. Cost: one load.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first()
    }

    /// Ends everything that is due by `now` and returns every host with room that was not told
    /// of yet, be it by cooling that ended or began, by a report, by a changed range or state.
    ///
    /// Numbers that begin to cool make room too: "any" gets them rather than a refusal, and a fixed
    /// request of the same service at once.
    pub fn on_deadline(&self, now: Monotonic) -> HostSet {
        self.advance(now);
        self.take_freed()
    }

    /// The hosts with room that was not told of yet, as [`Self::on_deadline`] returns them. For
    /// callers that retry who waits after each change; [`Self::take_woken`] does it for them.
    pub fn take_freed(&self) -> HostSet {
        self.census.take_freed()
    }

    /// Gives back memory that was needed once and is not now: sets in their smallest form, room of
    /// past peaks. Changes nothing that can be asked. Cost: linear in hosts and numbers; call it between
    /// cycles.
    pub fn compact(&self) {
        for id in self.hosts.ids() {
            self.hosts.with(id, |host| host.pool.compact());
        }
        self.placements.compact(self.now());
        self.watches.compact();
        self.deadlines.compact();
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_millis(self.now.load(Ordering::Acquire))
    }

    /// Moves time on and ends all that is due, on every host. Returns the present moment.
    fn advance(&self, now: Monotonic) -> Monotonic {
        let seen = self.now();
        let now = if now > seen {
            let before = self.now.fetch_max(now.as_millis(), Ordering::AcqRel);
            now.max(Monotonic::from_millis(before))
        } else {
            seen
        };
        if !self.deadlines.may_be_due(now) {
            return now;
        }
        while let Some((at, id)) = self.deadlines.pop_due(now) {
            self.hosts.with(id, |host| {
                if host.queued == Some(at) {
                    host.queued = None;
                }
                if self.end_due(id, host, now) {
                    self.census.free(id);
                }
                self.recount(id, host);
            });
        }
        now
    }

    /// Ends what is due by `now` on a host, under its lock. Whether numbers can be had again. However much it is,
    /// no list of it is made.
    fn end_due(&self, id: HostId, host: &mut Host, now: Monotonic) -> bool {
        let mut freed = false;
        while let Some(over) = host.pool.end_next_due(now) {
            self.watches.note(id, &host.pool, over.side, over.numbers);
            freed |= over.has_freed;
        }
        freed
    }

    /// Says how the changed numbers of a host stand now. Called under its lock.
    fn note(&self, id: HostId, host: &Host, changed: &[(Side, PortRange)]) {
        for (side, range) in changed {
            self.watches.note(id, &host.pool, *side, *range);
        }
    }

    /// Brings census and deadlines in step with a host. Called under its lock, after each change.
    fn recount(&self, id: HostId, host: &mut Host) {
        let entry = Entry::of(host);
        self.census.change(id, host.counted, entry);
        host.counted = entry;
        if let Some(next) = host.pool.next_deadline()
            && host.queued.is_none_or(|queued| next < queued)
        {
            host.queued = Some(next);
            self.deadlines.push(next, id);
        }
    }
}

/// How often a look by replica is repeated that met a host changing its number.
const TRIES: usize = 8;
