//! How many numbers hosts that are short of them have free, to be read without the host's lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::identity::HostId;
use crate::port::{Port, PortRanges};

use super::host_table::{SEGMENTS, place, slots};

/// Counts by host, in the segments of the table of hosts: 2 bytes for each host number.
///
/// A host writes its own under its lock, and only where it changes: a host with room for everything
/// stands at one value, so that what comes and goes there touches no line that others read.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    segments: [OnceLock<Box<[AtomicU16]>>; SEGMENTS],
}

/// The host has to be asked: numbers rest there that count as well, or some are awaited there.
pub(super) const UNCOUNTED: u16 = u16::MAX;

impl Rooms {
    pub(super) fn set(&self, host: HostId, free: u16) {
        let Some((segment, at)) = place(host) else {
            return;
        };
        let counts = self.segments[segment]
            .get_or_init(|| (0..slots(segment)).map(|_| AtomicU16::new(0)).collect());
        counts[at].store(free, Ordering::Release);
    }

    /// What the 64 hosts of a word of a set wrote last; `None` if none of them ever wrote.
    pub(super) fn of_word(&self, at: u32) -> Option<&[AtomicU16]> {
        // A segment holds whole words.
        let (segment, first) = place(HostId(at.checked_mul(64)?))?;
        self.segments[segment].get()?.get(first..first + 64)
    }
}

/// The lowest and the highest number that any host ever offered to "any". A fixed number outside is
/// taken from no count.
#[derive(Debug)]
pub(super) struct Offered(AtomicU32);

impl Default for Offered {
    fn default() -> Self {
        Self(AtomicU32::new(packed(u16::MAX, 0)))
    }
}

impl Offered {
    /// A host is about to offer these.
    pub(super) fn widen(&self, dynamic: &PortRanges) {
        let (Some(low), Some(high)) = (dynamic.as_slice().first(), dynamic.as_slice().last())
        else {
            return;
        };
        let (low, high) = (low.first().number(), high.last().number());
        let widened = |(first, last): (u16, u16)| packed(first.min(low), last.max(high));
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                Some(widened(unpacked(now)))
            })
            .ok();
    }

    pub(super) fn contains(&self, port: Port) -> bool {
        let (first, last) = unpacked(self.0.load(Ordering::Acquire));
        (first..=last).contains(&port.number())
    }
}

fn packed(first: u16, last: u16) -> u32 {
    u32::from(first) << 16 | u32::from(last)
}

const fn unpacked(both: u32) -> (u16, u16) {
    let [a, b, c, d] = both.to_be_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_offer_lies_between_the_lowest_and_the_highest() {
        let offered = Offered::default();
        let port = |number| Port::new(number).unwrap();
        assert!(!offered.contains(port(1)));
        offered.widen(&PortRanges::default());
        assert!(!offered.contains(port(20_000)));
        offered.widen(&"20000-20999".parse().unwrap());
        offered.widen(&"30000-30010,40000".parse().unwrap());
        offered.widen(&"25000".parse().unwrap());
        for (number, inside) in [
            (19_999, false),
            (20_000, true),
            (40_000, true),
            (40_001, false),
        ] {
            assert_eq!(offered.contains(port(number)), inside, "{number}");
        }
    }

    #[test]
    fn each_host_reads_back_its_own_count() {
        let rooms = Rooms::default();
        let get = |host: u32| {
            let counts = rooms.of_word(host / 64)?;
            Some(counts[(host % 64) as usize].load(Ordering::Acquire))
        };
        assert_eq!(get(0), None);
        for host in [0, 63, 64, 191, 192, 70_000] {
            rooms.set(HostId(host), u16::try_from(host % 1_000).unwrap() + 1);
        }
        for host in [0, 63, 64, 191, 192, 70_000] {
            let count = u16::try_from(host % 1_000).unwrap() + 1;
            assert_eq!(get(host), Some(count));
        }
        assert_eq!(get(65), Some(0));
        assert_eq!(get(1_000_000), None);
    }
}
