//! Where watched numbers can be had: for each number that was asked for as fixed, the hosts that
//! have it not.
//!
//! One bit per side and number says whether it is watched; a change of any other number costs a
//! look at that bit. The first question about a number visits every host. Whoever changes a
//! number under its host's lock says how it stands then, so an entry is always what the hosts' locks
//! say, also while it is being built: bit first, then host by host.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::identity::{HostId, ServiceId};
use crate::port::{Port, PortRange};
use crate::port_pool::{FixedStatus, PortPool, Side};

use super::HostSet;
use super::host::Host;
use super::host_table::HostTable;

/// The most numbers that are watched; of more, those asked for least recently are dropped. One
/// request fixes at most 512: 256 numbers, each on both sides.
pub(super) const MOST_WATCHED: usize = 512;

type Key = (Side, Port);

#[expect(
    clippy::disallowed_types,
    reason = "looked up only; its order reaches no decision"
)]
type Slots = std::collections::HashMap<Key, usize, foldhash::fast::FixedState>;

/// Watched numbers.
#[derive(Debug)]
pub(super) struct Watches {
    /// A bit for each watched number: TCP, then UDP.
    bits: Box<[AtomicU64]>,
    directory: Mutex<Directory>,
    entries: Box<[Mutex<Entry>]>,
}

/// Which number has which entry.
#[derive(Debug, Default)]
struct Directory {
    slots: Slots,
    /// The key of each entry in use, and when it was asked for last.
    asked: Vec<(Key, u64)>,
    /// Counts questions.
    clock: u64,
}

/// One watched number.
#[derive(Debug, Default)]
struct Entry {
    key: Option<Key>,
    /// The question that had this entry made.
    made_at: u64,
    /// Whether every host was visited.
    is_complete: bool,
    /// Hosts on which it carries anything at all, or which do not offer it.
    busy: HostSet,
    /// Of those, hosts on which it only cools.
    cools: HostSet,
    /// The same by the service it cools for; emptied ones are used again for other services.
    own: Vec<Own>,
    /// Below which number there may be hosts, as far as room was made for them.
    end: u32,
}

#[derive(Debug)]
struct Own {
    service: ServiceId,
    hosts: HostSet,
    count: u32,
}

/// How many words of bits one side takes.
const SIDE_WORDS: usize = 65_536 / 64;

impl Default for Watches {
    fn default() -> Self {
        Self {
            bits: (0..2 * SIDE_WORDS).map(|_| AtomicU64::new(0)).collect(),
            directory: Mutex::default(),
            entries: (0..MOST_WATCHED).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Watches {
    /// Makes room for as many numbers as are watched at most, on hosts below `end`, each with one service for which
    /// it cools. More services need theirs once.
    pub(super) fn make_room(&self, end: u32) {
        let mut directory = self.directory.lock();
        let more = MOST_WATCHED.saturating_sub(directory.asked.len());
        directory.asked.reserve(more);
        // Twice, since a map grows where more than half of it is in use and the rest was used before.
        let more = (2 * MOST_WATCHED).saturating_sub(directory.slots.len());
        directory.slots.reserve(more);
        for entry in &self.entries {
            let mut entry = entry.lock();
            entry.end = end;
            entry.busy.reserve(end);
            entry.cools.reserve(end);
            if entry.own.is_empty() {
                entry.own.push(Own {
                    service: ServiceId(0),
                    hosts: HostSet::new(),
                    count: 0,
                });
            }
            entry.own.iter_mut().for_each(|own| own.hosts.reserve(end));
        }
    }

    /// Leaves in `hosts` those on which a fixed request of `service` gets the number. `false` if the
    /// answer is not known because others build it at this moment: ask each host then.
    pub(super) fn narrow(
        &self,
        key: (Side, Port),
        service: ServiceId,
        table: &HostTable,
        hosts: &mut HostSet,
    ) -> bool {
        let slot = self.watch(key, table);
        let entry = self.entries[slot].lock();
        if entry.key != Some(key) || !entry.is_complete {
            return false;
        }
        let own = entry
            .own
            .iter()
            .find(|own| own.service == service && own.count > 0);
        match own {
            Some(own) => hosts.subtract_but(&entry.busy, &own.hosts),
            None => hosts.subtract(&entry.busy),
        }
        true
    }

    /// Says how the numbers of `range` stand on `host` now, where they are watched. Called under the
    /// host's lock after each change.
    pub(super) fn note(&self, host: HostId, pool: &PortPool, side: Side, range: PortRange) {
        let (first, last) = (range.first().number(), range.last().number());
        for word in first / 64..=last / 64 {
            let mut bits = self.word(side, word).load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            if word == first / 64 {
                bits &= u64::MAX << (first % 64);
            }
            if word == last / 64 {
                bits &= u64::MAX >> (63 - last % 64);
            }
            while bits != 0 {
                // At most 63.
                let bit = u16::try_from(bits.trailing_zeros()).unwrap_or(0);
                bits &= bits - 1;
                if let Some(port) = Port::new(word * 64 + bit) {
                    self.tell(host, (side, port), pool.fixed_status(side, port));
                }
            }
        }
    }

    /// Says how every watched number stands on `host` now; nobody has any where no host is. Called
    /// under the host's lock after it came, went or changed its ranges.
    pub(super) fn note_all(&self, host: HostId, there: Option<&Host>) {
        let keys: Vec<Key> = {
            let directory = self.directory.lock();
            directory.asked.iter().map(|(key, _)| *key).collect()
        };
        for (side, port) in keys {
            let status = there.map_or(FixedStatus::Free, |host| host.pool.fixed_status(side, port));
            self.tell(host, (side, port), status);
        }
    }

    /// Whether the number is watched already. Cost: one load.
    pub(super) fn is_watched(&self, (side, port): (Side, Port)) -> bool {
        let number = port.number();
        let bits = self.word(side, number / 64).load(Ordering::Relaxed);
        bits >> (number % 64) & 1 == 1
    }

    /// How many numbers are watched.
    pub(super) fn count(&self) -> usize {
        self.directory.lock().asked.len()
    }

    /// Gives back the sets of services for which nothing cools any more.
    pub(super) fn compact(&self) {
        for entry in &self.entries {
            let mut entry = entry.lock();
            entry.own.retain(|own| own.count > 0);
            entry.own.shrink_to_fit();
        }
    }

    fn tell(&self, host: HostId, key: Key, status: FixedStatus) {
        let slot = self.directory.lock().slots.get(&key).copied();
        let Some(slot) = slot else { return };
        let mut entry = self.entries[slot].lock();
        if entry.key == Some(key) {
            entry.set(host, status);
        }
    }

    /// The entry of a number, made and filled if there is none.
    fn watch(&self, key: Key, table: &HostTable) -> usize {
        let (slot, made_at) = {
            let mut directory = self.directory.lock();
            directory.clock += 1;
            let clock = directory.clock;
            if let Some(slot) = directory.slots.get(&key).copied() {
                directory.asked[slot].1 = clock;
                return slot;
            }
            let slot = self.room(&mut directory);
            if slot == directory.asked.len() {
                directory.asked.push((key, clock));
            } else {
                directory.asked[slot] = (key, clock);
            }
            directory.slots.insert(key, slot);
            self.set_bit(key, true);
            (slot, clock)
        };
        {
            let mut entry = self.entries[slot].lock();
            if entry.made_at > made_at {
                // It was given away again already.
                return slot;
            }
            entry.begin(key, made_at);
        }
        let (side, port) = key;
        for host in table.ids() {
            table.with(host, |there| {
                let status = there.pool.fixed_status(side, port);
                if status != FixedStatus::Free {
                    let mut entry = self.entries[slot].lock();
                    if entry.made_at == made_at {
                        entry.set(host, status);
                    }
                }
            });
        }
        let mut entry = self.entries[slot].lock();
        entry.is_complete |= entry.made_at == made_at;
        slot
    }

    /// An entry that is not used, or no more.
    fn room(&self, directory: &mut Directory) -> usize {
        if directory.asked.len() < MOST_WATCHED {
            return directory.asked.len();
        }
        let asked = directory.asked.iter().enumerate();
        let oldest = asked.min_by_key(|(_, (_, clock))| *clock);
        let Some((slot, (key, _))) = oldest else {
            return 0;
        };
        let key = *key;
        directory.slots.remove(&key);
        self.set_bit(key, false);
        slot
    }

    fn word(&self, side: Side, word: u16) -> &AtomicU64 {
        let offset = match side {
            Side::Tcp => 0,
            Side::Udp => SIDE_WORDS,
        };
        &self.bits[offset + usize::from(word)]
    }

    /// How many sets of services are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let own = self.entries.iter().map(|entry| entry.lock().own.len());
        own.sum()
    }

    /// Called under the lock of the directory.
    fn set_bit(&self, (side, port): Key, watched: bool) {
        let number = port.number();
        let word = self.word(side, number / 64);
        let bit = 1 << (number % 64);
        // The host's lock, which every visit takes, orders this before the look of whoever comes later.
        if watched {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl Entry {
    fn begin(&mut self, key: Key, made_at: u64) {
        self.key = Some(key);
        self.made_at = made_at;
        self.is_complete = false;
        self.busy.clear();
        self.cools.clear();
        for own in &mut self.own {
            own.hosts.clear();
            own.count = 0;
        }
    }

    fn set(&mut self, host: HostId, status: FixedStatus) {
        if self.cools.remove(host) {
            let before = self.own.iter().position(|own| own.hosts.contains(host));
            if let Some(at) = before {
                self.own[at].hosts.remove(host);
                self.own[at].count -= 1;
            }
        }
        self.busy.set(host, status != FixedStatus::Free);
        if let FixedStatus::CoolsFor(service) = status {
            self.cools.insert(host);
            let own = self.own_of(service);
            own.hosts.insert(host);
            own.count += 1;
        }
    }

    fn own_of(&mut self, service: ServiceId) -> &mut Own {
        let same = self
            .own
            .iter()
            .position(|own| own.service == service && own.count > 0);
        let at = same
            .or_else(|| self.own.iter().position(|own| own.count == 0))
            .unwrap_or_else(|| {
                // All of its room at once: it does not grow with each host.
                let mut hosts = HostSet::new();
                hosts.reserve(self.end);
                self.own.push(Own {
                    service,
                    hosts,
                    count: 0,
                });
                self.own.len() - 1
            });
        self.own[at].service = service;
        &mut self.own[at]
    }
}
