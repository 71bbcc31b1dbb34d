//! When something on a host is due: one queue for all hosts, with entries that may be out of date.
//!
//! A host knows the earliest moment it is queued for and is queued again only for an earlier one, so
//! an entry may be too early, never too late. Whoever takes one asks the host what is really due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::identity::HostId;
use crate::time::Monotonic;

/// Hosts by the moment at which they are to be looked at.
#[derive(Debug)]
pub(super) struct Deadlines {
    queue: Mutex<BinaryHeap<Reverse<(Monotonic, HostId)>>>,
    /// The moment of the first entry, so that nothing due costs no lock.
    first: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            first: AtomicU64::new(NEVER),
        }
    }
}

impl Deadlines {
    pub(super) fn push(&self, at: Monotonic, host: HostId) {
        let mut queue = self.queue.lock();
        if queue.len() == queue.capacity() {
            // A host whose earlier entry was taken is queued for a later moment again, although its entry for
            // that may be here still. Before there is more room, each is kept once.
            let mut entries = std::mem::take(&mut *queue).into_vec();
            entries.sort_unstable();
            entries.dedup();
            // Half of it at least stays free, so that this is seldom done.
            if entries.len() * 2 > entries.capacity() {
                entries.reserve(entries.len());
            }
            *queue = BinaryHeap::from(entries);
        }
        queue.push(Reverse((at, host)));
        self.note(&queue);
    }

    /// Makes room for hosts below `end`: twice as much as entries that differ, of which a host seldom has more
    /// than two.
    pub(super) fn make_room(&self, end: u32) {
        const EACH: usize = 4;
        let mut queue = self.queue.lock();
        let most = EACH * usize::try_from(end).unwrap_or(0);
        let more = most.saturating_sub(queue.len());
        queue.reserve(more);
    }

    /// The first moment; `None` if nothing is queued.
    pub(super) fn first(&self) -> Option<Monotonic> {
        let first = self.first.load(Ordering::Acquire);
        (first != NEVER).then(|| Monotonic::from_millis(first))
    }

    /// Whether an entry may be due by `now`; if not, none is. Cost: one load.
    pub(super) fn may_be_due(&self, now: Monotonic) -> bool {
        self.first.load(Ordering::Acquire) <= now.as_millis()
    }

    /// Takes an entry that is due by `now`.
    pub(super) fn pop_due(&self, now: Monotonic) -> Option<(Monotonic, HostId)> {
        if !self.may_be_due(now) {
            return None;
        }
        let mut queue = self.queue.lock();
        let Reverse((at, _)) = *queue.peek()?;
        let due = if at <= now { queue.pop() } else { None };
        self.note(&queue);
        due.map(|Reverse(entry)| entry)
    }

    /// Gives back room that a past peak needed.
    pub(super) fn compact(&self) {
        let mut queue = self.queue.lock();
        if queue.capacity() > 64 && queue.len() < queue.capacity() / 8 {
            let half = queue.len() * 2;
            queue.shrink_to(half);
        }
    }

    fn note(&self, queue: &BinaryHeap<Reverse<(Monotonic, HostId)>>) {
        let first = queue
            .peek()
            .map_or(NEVER, |Reverse((at, _))| at.as_millis());
        self.first.store(first, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_queued_for_one_moment_again_and_again_needs_no_more_room() {
        let at = Monotonic::from_millis;
        let queue = Deadlines::default();
        for _ in 0..100_000 {
            queue.push(at(1000), HostId(0));
            queue.push(at(10), HostId(0));
            assert_eq!(queue.pop_due(at(10)), Some((at(10), HostId(0))));
        }
        assert!(queue.queue.lock().capacity() < 64);
        assert_eq!(queue.first(), Some(at(1000)));
    }

    #[test]
    fn what_is_due_comes_out_by_its_moment_and_nothing_else_does() {
        let at = Monotonic::from_millis;
        let queue = Deadlines::default();
        assert_eq!((queue.first(), queue.pop_due(at(9))), (None, None));
        for (ms, host) in [(7, 0), (5, 2), (5, 1), (9, 3)] {
            queue.push(at(ms), HostId(host));
        }
        assert_eq!(queue.first(), Some(at(5)));
        assert_eq!(queue.pop_due(at(4)), None);
        let due: Vec<u32> = std::iter::from_fn(|| queue.pop_due(at(7)))
            .map(|(_, host)| host.0)
            .collect();
        assert_eq!(due, [1, 2, 0]);
        assert_eq!(queue.first(), Some(at(9)));
    }
}
