//! Grants and cooling out of somebody's records and back: the allocator itself stores nothing.

use std::time::Duration;

use crate::identity::{HostId, ReplicaId, ServiceId};
use crate::port::{PortRange, Protocol};
use crate::port_pool::{Phase, PortGrant, Side};
use crate::time::Monotonic;

use super::Allocator;
use super::host::Host;

/// One grant as a record says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// Where.
    pub host: HostId,
    /// Whose.
    pub replica: ReplicaId,
    /// Which numbers.
    pub grant: PortGrant,
    /// Whether its stop was ordered.
    pub releasing: bool,
}

/// Numbers that rest, as a record says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoolingRecord {
    /// Where.
    pub host: HostId,
    /// On which side or sides.
    pub protocol: Protocol,
    /// Which numbers.
    pub numbers: PortRange,
    /// Whose they were.
    pub service: ServiceId,
    /// How long they rest still.
    pub left: Duration,
}

/// Everything that is to be restored one day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Grants by host, then replica.
    pub grants: Vec<GrantRecord>,
    /// Resting numbers by host, then side, then number.
    pub cooling: Vec<CoolingRecord>,
}

/// Records that cannot all be right. Nothing of them is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// Two records name one number; both hold it until both are released.
    #[error(
        "{numbers}/{protocol} on host number {host} is recorded for two replicas: {first:?} and {second:?}"
    )]
    Shared {
        /// Where.
        host: HostId,
        /// Which numbers.
        numbers: PortRange,
        /// On which side.
        protocol: Protocol,
        /// Who held it first.
        first: ReplicaId,
        /// Whose record came later.
        second: ReplicaId,
    },
    /// One replica is recorded on two hosts; it holds its numbers on both.
    #[error("{replica:?} is recorded on host number {host} and on {other}")]
    TwoHosts {
        /// Who.
        replica: ReplicaId,
        /// The host of the later record.
        host: HostId,
        /// The host of the earlier one.
        other: HostId,
    },
    /// An open transaction is placing the replica. The record holds nothing: end the transaction, then
    /// restore it again.
    #[error("{:?} is being placed by an open transaction", .record.replica)]
    BeingPlaced {
        /// The record.
        record: GrantRecord,
    },
    /// The record's host is not known. It holds nothing: put the host, then restore it again.
    #[error("{:?} is recorded on host number {}, which is not known", .record.replica, .record.host)]
    UnknownHost {
        /// The record.
        record: GrantRecord,
    },
}

impl Allocator {
    /// Holds what records say is held, whatever today's ranges and host states are. A record that is
    /// restored again changes nothing. Returns what the records disagree about; a job that needs
    /// none of the numbers concerned is not touched by that.
    pub fn restore(&self, records: impl IntoIterator<Item = GrantRecord>) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for record in records {
            let restored = self.hosts.with(record.host, |host| {
                self.restore_on(host, &record, &mut conflicts)
            });
            match restored {
                Some(true) => {}
                Some(false) => conflicts.push(Conflict::BeingPlaced { record }),
                None => conflicts.push(Conflict::UnknownHost { record }),
            }
        }
        conflicts
    }

    /// Restores one record on its host, under the host's lock. `false` if a transaction is placing
    /// the replica.
    fn restore_on(
        &self,
        host: &mut Host,
        record: &GrantRecord,
        conflicts: &mut Vec<Conflict>,
    ) -> bool {
        let (id, replica) = (record.host, record.replica);
        let Ok(other) = self.placements.stand(replica, id) else {
            return false;
        };
        let phase = if record.releasing {
            Phase::Releasing
        } else {
            Phase::Held
        };
        let clashes = host.pool.restore(replica, &record.grant, phase);
        for (side, range) in host.pool.numbers_of(replica) {
            self.watches.note(id, &host.pool, side, range);
        }
        self.recount(id, host);
        conflicts.extend(other.map(|other| Conflict::TwoHosts {
            replica,
            host: id,
            other,
        }));
        conflicts.extend(clashes.into_iter().map(|clash| Conflict::Shared {
            host: id,
            numbers: clash.numbers,
            protocol: clash.protocol,
            first: clash.holder,
            second: replica,
        }));
        true
    }

    /// Whether `replica` holds a number on `host` that another replica holds there too: a [`Conflict::Shared`] that
    /// lasts. Takes the host's lock, allocates nothing.
    #[must_use]
    pub fn shares_numbers(&self, host: HostId, replica: ReplicaId) -> bool {
        let shares = |there: &mut Host| there.pool.shares_numbers(replica);
        self.hosts.with(host, shares).unwrap_or(false)
    }

    /// Lets numbers rest that records say rest, from `now`. Numbers that are held stay held. Returns
    /// the records of unknown hosts.
    pub fn restore_cooling(
        &self,
        records: impl IntoIterator<Item = CoolingRecord>,
        now: Monotonic,
    ) -> Vec<CoolingRecord> {
        let now = self.advance(now);
        let mut unknown = Vec::new();
        for record in records {
            let CoolingRecord {
                host: id,
                protocol,
                numbers,
                service,
                left,
            } = record;
            let known = self.hosts.with(id, |host| {
                host.pool
                    .restore_cooling(numbers, protocol, now + left, service);
                for side in Side::of(protocol) {
                    self.watches.note(id, &host.pool, side, numbers);
                }
                self.recount(id, host);
            });
            if known.is_none() {
                unknown.push(record);
            }
        }
        unknown
    }

    /// Everything held, releasing and cooling, as records that [`Self::restore`] and
    /// [`Self::restore_cooling`] take. What an open transaction took is left out. Each host is exported
    /// in one moment; with other threads at work not all hosts in the same one.
    #[must_use]
    pub fn export(&self) -> Export {
        let mut export = Export::default();
        let now = self.now();
        for host in self.hosts.ids() {
            self.hosts.with(host, |there| {
                for (replica, grant, phase) in there.pool.holdings() {
                    if phase != Phase::Tentative {
                        export.grants.push(GrantRecord {
                            host,
                            replica,
                            grant,
                            releasing: phase == Phase::Releasing,
                        });
                    }
                }
                for (side, numbers, until, service) in there.pool.cooling() {
                    export.cooling.push(CoolingRecord {
                        host,
                        protocol: side.protocol(),
                        numbers,
                        service,
                        left: until.since(now),
                    });
                }
            });
        }
        export
    }
}
