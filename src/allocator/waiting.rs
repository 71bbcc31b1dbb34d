//! Requests that wait: "any" leaves the numbers they fix alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::port_pool::{Awaited, PortRequest};

use super::Allocator;
use super::feasibility::SeenAwaited;

/// Who waits for what, and where.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    requests: Mutex<Requests>,
    /// How many wait, so that nobody waiting costs no lock.
    count: AtomicUsize,
    /// Changes with the numbers that are awaited anywhere.
    version: AtomicU64,
}

/// Everybody who waits.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waits: BTreeMap<ReplicaId, Wait>,
    /// The same, oldest first.
    by_age: BTreeMap<u64, ReplicaId>,
    /// Those that want one host.
    wished: BTreeSet<(HostId, ReplicaId)>,
    next_age: u64,
    /// The numbers of requests that take any host.
    anywhere: Awaited,
    /// A copy of them that searches share, and its version.
    published: (u64, Arc<Awaited>),
    /// Earlier copies, to be written over when no search has them any more.
    earlier: Vec<Arc<Awaited>>,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The host wanted; `None`: any.
    pub(super) wanted: Option<HostId>,
    pub(super) request: PortRequest,
    age: u64,
}

fn new_copy() -> Arc<Awaited> {
    Arc::new(Awaited::roomy())
}

impl Waiting {
    pub(super) fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock()
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Brings `seen` up to date. Cost: one load, unless numbers came or went.
    pub(super) fn refresh(&self, seen: &mut SeenAwaited) {
        let version = self.version.load(Ordering::Acquire);
        if seen.version == version {
            return;
        }
        let mut requests = self.requests();
        // Under the lock it does not change.
        let version = self.version.load(Ordering::Acquire);
        if requests.published.0 != version {
            requests.publish(version);
        }
        seen.version = version;
        seen.numbers = Arc::clone(&requests.published.1);
    }

    /// Called under the lock of the requests, after a change of the numbers awaited anywhere.
    fn changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

/// How many copies are kept for searches that have one still: one each, mostly.
const COPIES: usize = 8;
/// How many of them are made when somebody begins to wait, so that no search has to.
const COPIES_AHEAD: usize = 2;

impl Requests {
    /// Makes a copy of the numbers awaited anywhere, in the memory of an earlier one.
    fn publish(&mut self, version: u64) {
        let unused = |copy: &mut Arc<Awaited>| Arc::get_mut(copy).is_some();
        let at = self.earlier.iter_mut().position(unused);
        let mut copy = at.map_or_else(new_copy, |at| self.earlier.swap_remove(at));
        if let Some(awaited) = Arc::get_mut(&mut copy) {
            awaited.copy_numbers(&self.anywhere);
        }
        let (first, before) = std::mem::replace(&mut self.published, (version, copy));
        // The very first is none of ours.
        if first > 0 && self.earlier.len() < COPIES {
            self.earlier.push(before);
        }
    }

    /// Makes copies for searches to come.
    fn make_copies(&mut self) {
        self.earlier.reserve(COPIES - self.earlier.len());
        while self.earlier.len() < COPIES_AHEAD {
            self.earlier.push(new_copy());
        }
    }

    /// The numbers that requests name which want `host`.
    pub(super) fn wished_of(&self, host: HostId) -> Awaited {
        let lowest = ReplicaId {
            service: ServiceId(0),
            index: 0,
            incarnation: Incarnation(0),
        };
        let wishes = self.wished.range((host, lowest)..);
        let mut awaited = Awaited::default();
        for (_, replica) in wishes.take_while(|(wanted, _)| *wanted == host) {
            if let Some(wait) = self.waits.get(replica) {
                awaited.add(&wait.request);
            }
        }
        awaited
    }

    /// Everybody who waits, oldest first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = (ReplicaId, &Wait)> {
        let waits = self.by_age.values();
        waits.filter_map(|replica| Some((*replica, self.waits.get(replica)?)))
    }

    /// Everything that is decided by, to hold two states against each other.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(ReplicaId, Wait)> {
        let waits = self.waits.iter();
        waits
            .map(|(replica, wait)| (*replica, wait.clone()))
            .collect()
    }
}

impl Allocator {
    /// Makes known that `replica` waits for `request`, on `host` or on any. From now on "any" draws
    /// none of the numbers it fixes there. Replaces what it waited for before; the same again keeps
    /// its place among those who wait. A grant to it, once committed, ends it.
    ///
    /// Who was refused for what an open transaction has, and waits (or says again that it does), is told by
    /// [`Self::take_woken`] if the transaction gives it back. What other threads free between a refusal
    /// and this call may have been told of before it: ask once more after it.
    pub fn wait(&self, replica: ReplicaId, host: Option<HostId>, request: &PortRequest) {
        self.census.looked();
        let mut requests = self.waiting.requests();
        let same = requests
            .waits
            .get(&replica)
            .is_some_and(|wait| wait.wanted == host && wait.request == *request);
        if same {
            return;
        }
        let before = self.take_out(&mut requests, replica);
        let age = requests.next_age;
        requests.next_age += 1;
        let wait = Wait {
            wanted: host,
            request: request.clone(),
            age,
        };
        requests.waits.insert(replica, wait);
        requests.by_age.insert(age, replica);
        match host {
            None => {
                requests.anywhere.add(request);
                if !requests.anywhere.is_empty() {
                    requests.make_copies();
                }
            }
            Some(id) => {
                requests.wished.insert((id, replica));
                self.hosts.with(id, |host| {
                    host.awaited.add(request);
                    self.recount(id, host);
                });
            }
        }
        self.told(&requests, host, request);
        if let Some(before) = before {
            self.told(&requests, before.wanted, &before.request);
            drop(requests);
            self.free_awaited(&before);
        }
    }

    /// As if every host had new room: the next [`Self::take_woken`] asks for everybody who waits. For
    /// callers that cannot ask once more after [`Self::wait`].
    pub fn look_again(&self) {
        self.census.free_all();
    }

    /// `replica` waits no more. Whether it did.
    pub fn stop_waiting(&self, replica: ReplicaId) -> bool {
        let mut requests = self.waiting.requests();
        let Some(wait) = self.take_out(&mut requests, replica) else {
            return false;
        };
        self.told(&requests, wait.wanted, &wait.request);
        drop(requests);
        self.free_awaited(&wait);
        true
    }

    /// What was awaited may be what an "any" waits for.
    fn free_awaited(&self, wait: &Wait) {
        if wait.request.fixed().is_empty() {
            return;
        }
        match wait.wanted {
            None => self.census.free_all(),
            Some(host) => self.census.free(host),
        }
    }

    /// A grant of `replica` was committed: it waits no more.
    pub(super) fn end_wait(&self, replica: ReplicaId) {
        if self.waiting.count() > 0 {
            self.stop_waiting(replica);
        }
    }

    /// Takes a request out, and its numbers from those that are awaited.
    fn take_out(&self, requests: &mut Requests, replica: ReplicaId) -> Option<Wait> {
        let wait = requests.waits.remove(&replica)?;
        requests.by_age.remove(&wait.age);
        match wait.wanted {
            None => requests.anywhere.remove(&wait.request),
            Some(id) => {
                requests.wished.remove(&(id, replica));
                self.hosts.with(id, |host| {
                    host.awaited.remove(&wait.request);
                    self.recount(id, host);
                });
            }
        }
        Some(wait)
    }

    fn told(&self, requests: &Requests, wanted: Option<HostId>, request: &PortRequest) {
        self.waiting
            .count
            .store(requests.waits.len(), Ordering::Release);
        if wanted.is_none() && !request.fixed().is_empty() {
            self.waiting.changed();
        }
    }
}
