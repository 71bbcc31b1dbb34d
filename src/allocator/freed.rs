//! Hosts with new room that nobody was told of yet: one bit for each, set without a lock.
//!
//! Every release says so, mostly for a host that stands here already: that is a look at a word which
//! nobody changes, where a set behind a lock would have all threads meet at it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::identity::HostId;

use super::HostSet;
use super::host_table::{SEGMENTS, place, slots};

/// Bits by host, in the segments of the table of hosts.
#[derive(Debug, Default)]
pub(super) struct Freed {
    segments: [OnceLock<Box<[AtomicU64]>>; SEGMENTS],
}

impl Freed {
    pub(super) fn insert(&self, host: HostId) {
        let Some((segment, at)) = place(host) else {
            return;
        };
        let words = self.segments[segment].get_or_init(|| {
            let words = slots(segment) / 64;
            (0..words).map(|_| AtomicU64::new(0)).collect()
        });
        let (word, bit) = (&words[at / 64], 1 << (at % 64));
        // Acquire and release with `take`: who is told of the host sees the room that was meant.
        if word.load(Ordering::Acquire) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    pub(super) fn remove(&self, host: HostId) {
        let words = place(host).and_then(|(segment, at)| Some((self.segments[segment].get()?, at)));
        if let Some((words, at)) = words {
            words[at / 64].fetch_and(!(1 << (at % 64)), Ordering::AcqRel);
        }
    }

    /// The hosts, none of which stands here afterwards.
    pub(super) fn take(&self) -> HostSet {
        self.read(|word| {
            if word.load(Ordering::Relaxed) == 0 {
                return 0;
            }
            word.swap(0, Ordering::AcqRel)
        })
    }

    /// The hosts, to hold two states against each other.
    #[cfg(test)]
    pub(super) fn all(&self) -> HostSet {
        self.read(|word| word.load(Ordering::Acquire))
    }

    fn read(&self, read: impl Fn(&AtomicU64) -> u64) -> HostSet {
        let mut words = Vec::new();
        for (segment, freed) in self.segments.iter().enumerate() {
            let Some(freed) = freed.get() else { continue };
            for (at, word) in freed.iter().enumerate() {
                let bits = read(word);
                if bits != 0 {
                    // A segment begins at as many words as all before it have.
                    let at = (slots(segment) - slots(0)) / 64 + at;
                    words.resize(at, 0);
                    words.push(bits);
                }
            }
        }
        HostSet::from_words(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_with_new_room_is_told_once() {
        let freed = Freed::default();
        assert!(freed.take().is_empty());
        let hosts = [0, 63, 64, 191, 192, 500, 70_000].map(HostId);
        for host in hosts {
            freed.insert(host);
            freed.insert(host);
        }
        freed.remove(HostId(500));
        freed.remove(HostId(1_000_000));
        let told: Vec<HostId> = hosts.into_iter().filter(|host| host.0 != 500).collect();
        assert_eq!(freed.all().iter().collect::<Vec<_>>(), told);
        assert_eq!(freed.take().iter().collect::<Vec<_>>(), told);
        assert!(freed.take().is_empty());
    }
}
