//! Which hosts are up, which are short of numbers, which have to be asked: sets kept in step with
//! the hosts, so that a question about all of them looks at words.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};

use crate::identity::HostId;
use crate::port::Protocol;
use crate::port_pool::{NetworkNo, NetworkSet};

use super::HostSet;
use super::freed::Freed;
use super::host::{Host, HostState};
use super::host_set::Bits;
use super::rooms::{Offered, Rooms, UNCOUNTED};

/// What the census says of one host. Each host keeps its own entry, so that only a change of it
/// touches the sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    sets: Membership,
    /// In which named networks it has an address.
    networks: NetworkSet,
    /// Free TCP numbers where that is all that counts; [`ROOMY`] where they are plenty on both sides.
    room: u16,
}

/// In which sets a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Membership {
    is_known: bool,
    is_up: bool,
    is_scarce: bool,
    is_scarcer: bool,
    is_resting: bool,
    has_wishes: bool,
}

impl Entry {
    /// What is to be said of `host` now.
    pub(super) fn of(host: &Host) -> Self {
        let free = host.pool.free_count(Protocol::TcpUdp);
        let sets = Membership {
            is_known: true,
            is_up: host.state == HostState::Up,
            is_scarce: free < ROOMY,
            is_scarcer: free < ROOM,
            is_resting: host.pool.next_deadline().is_some(),
            has_wishes: !host.awaited.is_empty(),
        };
        let room = if sets.has_wishes {
            UNCOUNTED
        } else if !sets.is_scarce {
            u16::try_from(ROOMY).unwrap_or(UNCOUNTED)
        } else if sets.is_resting {
            UNCOUNTED
        } else {
            u16::try_from(host.pool.free_count(Protocol::Tcp)).unwrap_or(UNCOUNTED)
        };
        Self {
            sets,
            networks: host.networks.unwrap_or_default(),
            room,
        }
    }
}

/// With so many numbers free on both sides, a host answers every usual request for single numbers.
/// Fewer in tests, whose hosts are small, so that they meet hosts on both sides of the bound.
pub(super) const ROOM: u32 = if cfg!(test) { 4 } else { 64 };
/// With so many, every possible one beside a few awaited numbers: one replica takes at most 256.
pub(super) const ROOMY: u32 = if cfg!(test) { 9 } else { 320 };

/// The sets of all hosts, and how much room there is on those that are short of it.
#[derive(Debug, Default)]
pub(super) struct Census {
    sets: RwLock<Sets>,
    rooms: Rooms,
    /// Numbers that "any" may be answered with somewhere.
    pub(super) offered: Offered,
    /// Hosts with new room that nobody was told of yet.
    pub(super) freed: Freed,
    /// How often somebody looked for room in vain, or may have: began to wait, or was told of new
    /// room.
    looks: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Sets {
    /// Hosts that exist.
    pub(super) known: HostSet,
    /// Of those, hosts that take new grants.
    pub(super) up: HostSet,
    /// Fewer than [`ROOMY`] numbers are free on both sides.
    pub(super) scarce: HostSet,
    /// Fewer than [`ROOM`].
    pub(super) scarcer: HostSet,
    /// Something there will be over one day.
    pub(super) resting: HostSet,
    /// Somebody waits for numbers of this very host.
    pub(super) wished: HostSet,
    /// By named network, as far as one was ever named: hosts with an address in it.
    in_network: Vec<HostSet>,
}

impl Sets {
    /// The hosts with an address in a named network.
    pub(super) fn in_network(&self, network: NetworkNo) -> &HostSet {
        self.in_network.get(network.place()).unwrap_or(&NOWHERE)
    }
}

static NOWHERE: HostSet = HostSet::new();

impl Census {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Sets> {
        self.sets.read()
    }

    /// See [`Self::looked`]: as long as it stays the same, nobody did.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    /// Somebody looked for room, and what open transactions have was taken. What they give back is
    /// new room from now on.
    pub(super) fn looked(&self) {
        self.looks.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes the sets from `before` to what `after` says. Called under the host's lock.
    pub(super) fn change(&self, host: HostId, before: Entry, after: Entry) {
        if before.room != after.room {
            self.rooms.set(host, after.room);
        }
        if before.sets == after.sets && before.networks == after.networks {
            return;
        }
        let mut sets = self.sets.write();
        for network in before.networks.differing(after.networks).iter() {
            let there = after.networks.contains(network);
            let place = network.place();
            if sets.in_network.len() <= place {
                sets.in_network.resize_with(place + 1, HostSet::new);
            }
            sets.in_network[place].set(host, there);
        }
        let after = after.sets;
        sets.known.set(host, after.is_known);
        sets.up.set(host, after.is_up);
        sets.scarce.set(host, after.is_scarce);
        sets.scarcer.set(host, after.is_scarcer);
        sets.resting.set(host, after.is_resting);
        sets.wished.set(host, after.has_wishes);
        if !after.is_known {
            self.freed.remove(host);
        }
    }

    /// Of the hosts of the word `at` of a set: those with at least `enough` free TCP numbers, and
    /// those that have to be asked, as what is between `least` and `enough` does not tell.
    pub(super) fn roomy(&self, at: u32, hosts: u64, least: u32, enough: u32) -> (u64, u64) {
        let (mut roomy, mut unclear) = (0, 0);
        let Some(rooms) = self.rooms.of_word(at) else {
            return (0, 0);
        };
        for bit in Bits(hosts) {
            let room = rooms[bit as usize].load(Ordering::Acquire);
            if room == UNCOUNTED || (least..enough).contains(&u32::from(room)) {
                unclear |= 1 << bit;
            } else if u32::from(room) >= enough {
                roomy |= 1 << bit;
            }
        }
        (roomy, unclear)
    }

    /// Makes room for the hosts of so many named networks.
    pub(super) fn room_for_networks(&self, networks: usize) {
        let sets = &mut *self.sets.write();
        let networks = networks.max(sets.in_network.len());
        sets.in_network.resize_with(networks, HostSet::new);
        for there in &mut sets.in_network {
            there.room_as(&sets.known);
        }
    }

    /// There is new room on `host`.
    pub(super) fn free(&self, host: HostId) {
        self.freed.insert(host);
    }

    /// There may be new room on every host.
    pub(super) fn free_all(&self) {
        let sets = self.sets.read();
        sets.known.iter().for_each(|host| self.freed.insert(host));
    }

    /// The hosts with new room, which are then told of.
    pub(super) fn take_freed(&self) -> HostSet {
        self.looked();
        let mut freed = self.freed.take();
        // A host may have gone since.
        freed.intersect(&self.sets.read().known);
        freed
    }
}
