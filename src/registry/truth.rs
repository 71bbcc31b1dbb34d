//! Every stored record, by table, and the batches that make changes of them durable.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId, ServiceName};
use crate::port::{Port, Protocol};

use super::ledger::Ledger;
use super::records::{
    DecodeError, FORMAT, Host, Meta, Replica, Resting, Service, Stranded, Tenure, Tombstone,
    decode, encode,
};
use super::{EventView, LoadError, Stored, Token, TokenId, Write, tables};

/// A replica whatever its incarnation: its service and index.
pub(super) type ReplicaKey = (ServiceId, u32);

/// The stored records.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub(super) meta: Ledger<MetaKey, Meta>,
    pub(super) tombstones: Ledger<TombstoneKey, Tombstone>,
    pub(super) services: Ledger<ServiceId, Service>,
    pub(super) replicas: Ledger<ReplicaKey, Replica>,
    pub(super) hosts: Ledger<HostId, Host>,
    pub(super) resting: Ledger<NumberKey, Resting>,
    pub(super) events: Ledger<(ServiceId, u64), EventView>,
    pub(super) stranded: Ledger<TenureKey, Stranded>,
    pub(super) host_events: Ledger<(HostId, u64), EventView>,
    pub(super) history: Ledger<TenureKey, Tenure>,
    pub(super) tokens: Ledger<TokenId, Token>,
}

impl Truth {
    /// Reads every table.
    pub(super) fn load(stored: &Stored) -> Result<Self, LoadError> {
        Ok(Self {
            meta: Ledger::new(read(stored, tables::META)?),
            tombstones: Ledger::new(read(stored, tables::META)?),
            services: Ledger::new(read(stored, tables::SERVICES)?),
            replicas: Ledger::new(read(stored, tables::REPLICAS)?),
            hosts: Ledger::new(read(stored, tables::HOSTS)?),
            resting: Ledger::new(read(stored, tables::COOLING)?),
            events: Ledger::new(read(stored, tables::EVENTS)?),
            stranded: Ledger::new(read(stored, tables::STRANDED)?),
            host_events: Ledger::new(read(stored, tables::HOST_EVENTS)?),
            history: Ledger::new(read(stored, tables::PORT_HISTORY)?),
            tokens: Ledger::new(read(stored, tables::TOKENS)?),
        })
    }

    /// Whether something was changed that readers must not see before it is durable.
    pub(super) fn is_changed(&self) -> bool {
        self.meta.is_changed()
            || self.tombstones.is_changed()
            || self.services.is_changed()
            || self.replicas.is_changed()
            || self.hosts.is_changed()
            || self.resting.is_changed()
            || self.events.is_changed()
            || self.stranded.is_changed()
            || self.host_events.is_changed()
            || self.history.is_changed()
            || self.tokens.is_changed()
    }

    /// Whether news waits for the next batch.
    pub(super) fn has_news(&self) -> bool {
        self.meta.has_news()
            || self.tombstones.has_news()
            || self.services.has_news()
            || self.replicas.has_news()
            || self.hosts.has_news()
            || self.resting.has_news()
            || self.events.has_news()
            || self.stranded.has_news()
            || self.host_events.has_news()
            || self.history.has_news()
            || self.tokens.has_news()
    }

    /// Everything that is not durable yet.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        let mut writes = Vec::new();
        write(tables::META, &mut self.meta, &mut writes);
        write(tables::META, &mut self.tombstones, &mut writes);
        write(tables::SERVICES, &mut self.services, &mut writes);
        write(tables::REPLICAS, &mut self.replicas, &mut writes);
        write(tables::HOSTS, &mut self.hosts, &mut writes);
        write(tables::COOLING, &mut self.resting, &mut writes);
        write(tables::EVENTS, &mut self.events, &mut writes);
        write(tables::STRANDED, &mut self.stranded, &mut writes);
        write(tables::HOST_EVENTS, &mut self.host_events, &mut writes);
        write(tables::PORT_HISTORY, &mut self.history, &mut writes);
        write(tables::TOKENS, &mut self.tokens, &mut writes);
        writes
    }

    /// Every record, as written.
    #[cfg(test)]
    pub(super) fn all_writes(&self) -> Vec<Write> {
        fn all<K: StoredKey, V: Clone + Serialize>(
            table: &'static str,
            ledger: &Ledger<K, V>,
            out: &mut Vec<Write>,
        ) {
            out.extend(ledger.iter().map(|(key, record)| Write {
                table,
                key: key.text(),
                value: Some(encode(record)),
            }));
        }
        let mut writes = Vec::new();
        all(tables::META, &self.meta, &mut writes);
        all(tables::META, &self.tombstones, &mut writes);
        all(tables::SERVICES, &self.services, &mut writes);
        all(tables::REPLICAS, &self.replicas, &mut writes);
        all(tables::HOSTS, &self.hosts, &mut writes);
        all(tables::COOLING, &self.resting, &mut writes);
        all(tables::EVENTS, &self.events, &mut writes);
        all(tables::STRANDED, &self.stranded, &mut writes);
        all(tables::HOST_EVENTS, &self.host_events, &mut writes);
        all(tables::PORT_HISTORY, &self.history, &mut writes);
        all(tables::TOKENS, &self.tokens, &mut writes);
        writes
    }

    /// The batch of the last [`Truth::take_writes`] is durable.
    pub(super) fn commit(&mut self) {
        self.meta.commit();
        self.tombstones.commit();
        self.services.commit();
        self.replicas.commit();
        self.hosts.commit();
        self.resting.commit();
        self.events.commit();
        self.stranded.commit();
        self.host_events.commit();
        self.history.commit();
        self.tokens.commit();
    }

    /// The batch of the last [`Truth::take_writes`] is not durable and never will be.
    pub(super) fn revert(&mut self) {
        self.meta.revert();
        self.tombstones.revert();
        self.services.revert();
        self.replicas.revert();
        self.hosts.revert();
        self.resting.revert();
        self.events.revert();
        self.host_events.revert();
        self.history.revert();
        self.tokens.revert();
        self.stranded.revert();
    }

    /// Hosts that were not removed.
    pub(super) fn known_hosts(&self) -> impl Iterator<Item = (&HostId, &Host)> {
        self.hosts.iter().filter(|(_, host)| host.removed.is_none())
    }

    /// The replicas of a service, by index, with every change.
    pub(super) fn replicas_of(
        &self,
        service: ServiceId,
    ) -> impl DoubleEndedIterator<Item = (u32, &Replica)> {
        self.replicas
            .range((service, 0)..=(service, u32::MAX))
            .map(|((_, index), replica)| (*index, replica))
    }
}

/// The key of the one record of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MetaKey;

/// The key of a deleted service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TombstoneKey(pub(super) ServiceName);

/// A number of a host on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NumberKey {
    pub(super) host: HostId,
    pub(super) protocol: Protocol,
    pub(super) port: Port,
}

/// An incarnation and the host on which it has, or had, ports: each has one tenure, and may be stranded there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TenureKey {
    pub(super) host: HostId,
    pub(super) replica: ReplicaId,
}

impl TenureKey {
    /// All of one host.
    pub(super) const fn all_of(host: HostId) -> RangeInclusive<Self> {
        let first = ReplicaId {
            service: ServiceId(0),
            index: 0,
            incarnation: Incarnation(0),
        };
        let last = ReplicaId {
            service: ServiceId(u64::MAX),
            index: u32::MAX,
            incarnation: Incarnation(u32::MAX),
        };
        Self {
            host,
            replica: first,
        }..=Self {
            host,
            replica: last,
        }
    }
}

/// A key as the store writes it: in the order of the key.
trait StoredKey: Ord + Clone {
    fn text(&self) -> String;

    /// `None`: another kind of record of the same table.
    fn read(text: &str) -> Option<Self>;
}

impl StoredKey for MetaKey {
    fn text(&self) -> String {
        "meta".into()
    }

    fn read(text: &str) -> Option<Self> {
        (text == "meta").then_some(Self)
    }
}

impl StoredKey for TombstoneKey {
    fn text(&self) -> String {
        format!("tombstone/{}", self.0)
    }

    fn read(text: &str) -> Option<Self> {
        Some(Self(text.strip_prefix("tombstone/")?.parse().ok()?))
    }
}

impl StoredKey for ServiceId {
    fn text(&self) -> String {
        format!("{:020}", self.0)
    }

    fn read(text: &str) -> Option<Self> {
        Some(Self(text.parse().ok()?))
    }
}

impl StoredKey for HostId {
    fn text(&self) -> String {
        format!("{:010}", self.0)
    }

    fn read(text: &str) -> Option<Self> {
        Some(Self(text.parse().ok()?))
    }
}

impl StoredKey for ReplicaKey {
    fn text(&self) -> String {
        format!("{}/{:010}", self.0.text(), self.1)
    }

    fn read(text: &str) -> Option<Self> {
        let (service, index) = text.split_once('/')?;
        Some((ServiceId::read(service)?, index.parse().ok()?))
    }
}

impl StoredKey for (ServiceId, u64) {
    fn text(&self) -> String {
        format!("{}/{:020}", self.0.text(), self.1)
    }

    fn read(text: &str) -> Option<Self> {
        let (service, number) = text.split_once('/')?;
        Some((ServiceId::read(service)?, number.parse().ok()?))
    }
}

impl StoredKey for (HostId, u64) {
    fn text(&self) -> String {
        format!("{}/{:020}", self.0.text(), self.1)
    }

    fn read(text: &str) -> Option<Self> {
        let (host, number) = text.split_once('/')?;
        Some((HostId::read(host)?, number.parse().ok()?))
    }
}

impl StoredKey for TokenId {
    fn text(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl StoredKey for TenureKey {
    fn text(&self) -> String {
        let ReplicaId {
            service,
            index,
            incarnation,
        } = self.replica;
        let (host, replica) = (self.host.text(), (service, index).text());
        format!("{host}/{replica}/{:010}", incarnation.0)
    }

    fn read(text: &str) -> Option<Self> {
        let (host, rest) = text.split_once('/')?;
        let (replica, incarnation) = rest.rsplit_once('/')?;
        let (service, index) = ReplicaKey::read(replica)?;
        Some(Self {
            host: HostId::read(host)?,
            replica: ReplicaId {
                service,
                index,
                incarnation: Incarnation(incarnation.parse().ok()?),
            },
        })
    }
}

impl StoredKey for NumberKey {
    fn text(&self) -> String {
        format!(
            "{}/{}/{:05}",
            self.host.text(),
            self.protocol,
            u16::from(self.port)
        )
    }

    fn read(text: &str) -> Option<Self> {
        let (host, rest) = text.split_once('/')?;
        let (protocol, port) = rest.split_once('/')?;
        Some(Self {
            host: HostId::read(host)?,
            protocol: protocol.parse().ok()?,
            port: Port::new(port.parse().ok()?)?,
        })
    }
}

fn write<K: StoredKey, V: Clone + Serialize>(
    table: &'static str,
    ledger: &mut Ledger<K, V>,
    out: &mut Vec<Write>,
) {
    out.extend(ledger.take_writes().into_iter().map(|(key, record)| Write {
        table,
        key: key.text(),
        value: record.map(encode),
    }));
}

fn read<K: StoredKey, V: DeserializeOwned>(
    stored: &Stored,
    table: &str,
) -> Result<BTreeMap<K, V>, LoadError> {
    let mut records = BTreeMap::new();
    for (text, bytes) in stored.tables.get(table).into_iter().flatten() {
        let damaged = |reason: String| LoadError::Damaged {
            table: table.to_owned(),
            key: text.clone(),
            reason,
        };
        let Some(key) = K::read(text) else {
            // The counters and the tombstones share a table; each reader takes its own.
            if table == tables::META
                && (MetaKey::read(text).is_some() || TombstoneKey::read(text).is_some())
            {
                continue;
            }
            return Err(damaged("the key is malformed".into()));
        };
        let record = decode(bytes).map_err(|error| match error {
            DecodeError::Damaged(reason) => damaged(reason),
            DecodeError::Newer(found) => LoadError::Newer {
                table: table.to_owned(),
                key: text.clone(),
                found,
                known: FORMAT,
            },
        })?;
        records.insert(key, record);
    }
    Ok(records)
}
