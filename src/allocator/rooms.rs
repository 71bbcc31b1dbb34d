//! How many numbers hosts that are short of them have free, to be read without the host's lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::identity::HostId;

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

#[cfg(test)]
mod tests {
    use super::*;

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
