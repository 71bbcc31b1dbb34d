//! Grants and cooling out of somebody's records and back: the allocator itself stores nothing.

use std::time::Duration;

use crate::identity::{HostId, ReplicaId, ServiceId};
use crate::port::{PortRange, Protocol};
use crate::port_pool::{Phase, PortGrant};
use crate::time::Monotonic;

use super::Allocator;

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
    pub fn restore(&mut self, records: impl IntoIterator<Item = GrantRecord>) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for record in records {
            let (id, replica) = (record.host, record.replica);
            let other = self.hosts_of(replica).find(|other| *other != id);
            let Some(host) = self.host_mut(id) else {
                conflicts.push(Conflict::UnknownHost { record });
                continue;
            };
            let phase = if record.releasing {
                Phase::Releasing
            } else {
                Phase::Held
            };
            let clashes = host.pool.restore(replica, &record.grant, phase);
            self.placed.insert((replica, id));
            self.requeue(id);
            if let Some(other) = other {
                conflicts.push(Conflict::TwoHosts {
                    replica,
                    host: id,
                    other,
                });
            }
            for clash in clashes {
                conflicts.push(Conflict::Shared {
                    host: id,
                    numbers: clash.numbers,
                    protocol: clash.protocol,
                    first: clash.holder,
                    second: replica,
                });
            }
        }
        conflicts
    }

    /// Lets numbers rest that records say rest, from `now`. Numbers that are held stay held. Returns
    /// the records of unknown hosts.
    pub fn restore_cooling(
        &mut self,
        records: impl IntoIterator<Item = CoolingRecord>,
        now: Monotonic,
    ) -> Vec<CoolingRecord> {
        self.advance(now);
        let mut unknown = Vec::new();
        for record in records {
            let until = self.now + record.left;
            let Some(host) = self.host_mut(record.host) else {
                unknown.push(record);
                continue;
            };
            host.pool
                .restore_cooling(record.numbers, record.protocol, until, record.service);
            self.requeue(record.host);
        }
        unknown
    }

    /// Everything held, releasing and cooling, as records that [`Self::restore`] and
    /// [`Self::restore_cooling`] take. What an open transaction took is left out.
    #[must_use]
    pub fn export(&self) -> Export {
        let mut export = Export::default();
        for (host, _, _) in self.hosts() {
            let Some(there) = self.host(host) else {
                continue;
            };
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
                    left: until.since(self.now),
                });
            }
        }
        export
    }
}
