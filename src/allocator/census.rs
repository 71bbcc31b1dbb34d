//! Which hosts are up, which are short of numbers, which have to be asked: sets kept in step with
//! the hosts, so that a question about all of them looks at words.

use parking_lot::{RwLock, RwLockReadGuard};

use crate::identity::HostId;
use crate::port::Protocol;

use super::HostSet;
use super::host::{Host, HostState};

/// What the census says of one host. Each host keeps its own entry, so that only a change of it
/// touches the sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
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
        Self {
            is_known: true,
            is_up: host.state == HostState::Up,
            is_scarce: free < ROOMY,
            is_scarcer: free < ROOM,
            is_resting: host.pool.next_deadline().is_some(),
            has_wishes: !host.awaited.is_empty(),
        }
    }
}

/// With so many numbers free on both sides, a host answers every usual request for single numbers.
/// Fewer in tests, whose hosts are small, so that they meet hosts on both sides of the bound.
pub(super) const ROOM: u32 = if cfg!(test) { 4 } else { 64 };
/// With so many, every possible one beside a few awaited numbers: one replica takes at most 256.
pub(super) const ROOMY: u32 = if cfg!(test) { 9 } else { 320 };

/// The sets of all hosts.
#[derive(Debug, Default)]
pub(super) struct Census(RwLock<Sets>);

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
    /// Hosts with new room that nobody was told of yet.
    pub(super) freed: HostSet,
}

impl Census {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Sets> {
        self.0.read()
    }

    /// Changes the sets from `before` to what `after` says. Called under the host's lock.
    pub(super) fn change(&self, host: HostId, before: Entry, after: Entry) {
        if before == after {
            return;
        }
        let mut sets = self.0.write();
        sets.known.set(host, after.is_known);
        sets.up.set(host, after.is_up);
        sets.scarce.set(host, after.is_scarce);
        sets.scarcer.set(host, after.is_scarcer);
        sets.resting.set(host, after.is_resting);
        sets.wished.set(host, after.has_wishes);
        if !after.is_known {
            sets.freed.remove(host);
        }
    }

    /// There is new room on `host`.
    pub(super) fn free(&self, host: HostId) {
        self.0.write().freed.insert(host);
    }

    /// There may be new room on every host.
    pub(super) fn free_all(&self) {
        let sets = &mut *self.0.write();
        sets.freed.extend(&sets.known);
    }

    /// The hosts with new room, which are then told of.
    pub(super) fn take_freed(&self) -> HostSet {
        std::mem::take(&mut self.0.write().freed)
    }
}
