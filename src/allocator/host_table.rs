//! Where hosts stand: one lock per host number, in segments that double.
//!
//! A slot never moves, so a host is reached without a lock but its own, and a table that grows
//! stops nobody. Putting hosts one by one costs the same as together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::identity::HostId;

use super::HostSet;
use super::host::Host;

/// One host number: 16 bytes while nobody stands there.
type Slot = Mutex<Option<Box<Host>>>;

/// Slots by host number.
#[derive(Debug, Default)]
pub(super) struct HostTable {
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
    /// The highest number that anybody ever stood at, plus one.
    end: AtomicU32,
}

/// The first segment has 2^6 slots, each later one twice as many as the one before.
const FIRST_BITS: u32 = 6;
pub(super) const SEGMENTS: usize = (HostSet::MAX_HOSTS.trailing_zeros() - FIRST_BITS + 1) as usize;

impl HostTable {
    /// The locked slot of `host`; `None` where nobody ever stood near.
    pub(super) fn slot(&self, host: HostId) -> Option<MutexGuard<'_, Option<Box<Host>>>> {
        let (segment, at) = place(host)?;
        Some(self.segments[segment].get()?.get(at)?.lock())
    }

    /// The locked slot of `host`, made if need be; `None` beyond [`HostSet::MAX_HOSTS`].
    pub(super) fn slot_made(&self, host: HostId) -> Option<MutexGuard<'_, Option<Box<Host>>>> {
        let (segment, at) = place(host)?;
        let slots = self.segments[segment]
            .get_or_init(|| (0..slots(segment)).map(|_| Slot::default()).collect());
        self.end.fetch_max(host.0 + 1, Ordering::AcqRel);
        Some(slots.get(at)?.lock())
    }

    /// Asks about a host under its lock; `None` if there is no such host.
    pub(super) fn with<R>(&self, host: HostId, ask: impl FnOnce(&mut Host) -> R) -> Option<R> {
        let mut slot = self.slot(host)?;
        slot.as_deref_mut().map(ask)
    }

    /// Every number that a host may stand at, ascending.
    pub(super) fn ids(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.end.load(Ordering::Acquire)).map(HostId)
    }
}

/// How many hosts a segment has room for.
pub(super) const fn slots(segment: usize) -> usize {
    1 << (FIRST_BITS as usize + segment)
}

/// The segment of a host number, and its place there.
pub(super) fn place(host: HostId) -> Option<(usize, usize)> {
    if host.0 >= HostSet::MAX_HOSTS {
        return None;
    }
    let shifted = host.0 + (1 << FIRST_BITS);
    let top = shifted.ilog2();
    let segment = (top - FIRST_BITS) as usize;
    Some((segment, (shifted - (1 << top)) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_number_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for host in 0..100_000 {
            assert_eq!(place(HostId(host)), Some(next));
            next.1 += 1;
            if next.1 == 64 << next.0 {
                next = (next.0 + 1, 0);
            }
        }
        let last = place(HostId(HostSet::MAX_HOSTS - 1)).unwrap();
        assert!(last.0 < SEGMENTS);
        assert_eq!(place(HostId(HostSet::MAX_HOSTS)), None);
        assert_eq!(place(HostId(u32::MAX)), None);
    }

    #[test]
    fn a_number_where_nobody_ever_stood_makes_no_room() {
        let table = HostTable::default();
        assert!(table.slot(HostId(70)).is_none());
        assert!(table.slot_made(HostId(70)).is_some());
        assert_eq!(table.ids().count(), 71);
        assert!(table.slot(HostId(5)).is_none(), "another segment");
        assert!(table.slot(HostId(71)).is_some_and(|slot| slot.is_none()));
    }
}
