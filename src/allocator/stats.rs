//! What the allocator as a whole looks like, in numbers.

use super::Allocator;
use super::host::Host;

/// Sums over hosts, replicas and waits. Taken one after the other: with other threads at work not of
/// one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorStats {
    /// Hosts.
    pub hosts: u64,
    /// Of those, hosts that take new grants.
    pub hosts_up: u64,
    /// Hosts on which fewer than 64 numbers of the dynamic range are free on both sides.
    pub hosts_scarce: u64,
    /// Hosts on which something rests.
    pub hosts_resting: u64,
    /// Grants that are held or releasing; a replica that records place on two hosts counts twice.
    pub grants: u64,
    /// Grants that open transactions took.
    pub tentative: u64,
    /// Replicas that wait.
    pub waiting: u64,
    /// The memory of hosts and their numbers, about: what a host takes is known, what is shared by all is not
    /// counted.
    pub bytes: u64,
    /// Numbers for which the hosts that have them are kept; those of both sides count twice.
    pub watched: u64,
}

impl Allocator {
    fn bytes(&self) -> u64 {
        let hosts = self.hosts.ids().filter_map(|id| {
            let beside = self.hosts.with(id, |host| host.pool.bytes())?;
            Some((size_of::<Host>() + beside) as u64)
        });
        // Its slot, and its bits in the sets.
        const PLACE: u64 = 32;
        self.hosts.ids().count() as u64 * PLACE + hosts.sum::<u64>()
    }

    /// The present numbers. Cost: linear in hosts and replicas.
    #[must_use]
    pub fn stats(&self) -> AllocatorStats {
        let (grants, tentative) = self.placements.counts();
        let waiting = self.waiting.count() as u64;
        let watched = self.watches.count() as u64;
        // Before the sets are read: they are changed under a host's lock, so nobody waits for a host beside them.
        let bytes = self.bytes();
        let sets = self.census.read();
        AllocatorStats {
            hosts: sets.known.len(),
            hosts_up: sets.up.len(),
            hosts_scarce: sets.scarcer.len(),
            hosts_resting: sets.resting.len(),
            grants,
            tentative,
            waiting,
            bytes,
            watched,
        }
    }
}
