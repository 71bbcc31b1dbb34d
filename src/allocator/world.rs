//! What is different from the real hosts in a what-if, and the memory that is kept for the next one.

use parking_lot::Mutex;

use crate::identity::{HostId, ReplicaId};
use crate::port_pool::{PortPool, PortRequest, UndoLog};
use crate::time::Monotonic;

use super::Allocator;
use super::copies::Copies;
use super::feasibility::Scratch;
use super::host::Host;
use super::placements::{Key, Map, TransactionNo, key};
use super::same::SameRoom;
use super::work::{Marks, next_number};

/// What is different from the real hosts.
#[derive(Debug)]
pub(super) struct World {
    pub(super) no: TransactionNo,
    /// The allocator that it belongs to.
    pub(super) home: u64,
    pub(super) copies: Copies,
    pub(super) steps: Vec<Step>,
    /// The last step of each replica, whatever its incarnation.
    latest: Map<Key, usize>,
    undo: UndoLog,
    pub(super) marks: Marks,
    pub(super) scratch: Scratch,
    pub(super) same: SameRoom,
}

/// One thing that was tried, on one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) host: HostId,
    pub(super) replica: ReplicaId,
    pub(super) does: Does,
    /// The step of the same replica before this one.
    before: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Reserve,
    Give,
}

impl World {
    pub(super) fn new(home: u64) -> Self {
        Self {
            no: TransactionNo(next_number()),
            home,
            copies: Copies::default(),
            steps: Vec::new(),
            latest: Map::default(),
            undo: UndoLog::default(),
            marks: Marks::default(),
            scratch: Scratch::default(),
            same: SameRoom::default(),
        }
    }

    /// Notes what was tried.
    fn note(&mut self, host: HostId, replica: ReplicaId, does: Does) {
        let before = self.latest.insert(key(replica), self.steps.len());
        self.steps.push(Step {
            host,
            replica,
            does,
            before,
        });
    }

    /// Undoes the last step.
    pub(super) fn take_back(&mut self) {
        let Some(step) = self.steps.pop() else {
            return;
        };
        match step.before {
            Some(before) => self.latest.insert(key(step.replica), before),
            None => self.latest.remove(&key(step.replica)),
        };
        if let Some(host) = self.copies.get_mut(step.host) {
            let whose = host.pool.undo(&mut self.undo);
            debug_assert_eq!(
                whose,
                Some(step.replica),
                "steps and their undo go together"
            );
        }
    }

    /// What was tried with a replica, the last first.
    pub(super) fn steps_of(&self, replica: ReplicaId) -> impl Iterator<Item = &Step> {
        let latest = self.latest.get(&key(replica)).copied();
        std::iter::successors(latest.and_then(|at| self.steps.get(at)), |step| {
            self.steps.get(step.before?)
        })
    }

    /// Whether this incarnation has ended here, on this host or on any.
    pub(super) fn is_given(&self, replica: ReplicaId, host: Option<HostId>) -> bool {
        self.steps_of(replica).any(|step| {
            step.does == Does::Give
                && step.replica == replica
                && host.is_none_or(|host| step.host == host)
        })
    }

    /// Forgets everything, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.copies.clear();
        self.steps.clear();
        self.latest.clear();
        self.undo.clear();
        self.marks.clear();
        self.scratch.listed.host = None;
    }
}

impl World {
    /// The copy of a host, made if it is touched for the first time.
    pub(super) fn copy_of(&mut self, allocator: &Allocator, id: HostId) -> Option<&mut Host> {
        if self.copies.get(id).is_none() {
            let copies = &mut self.copies;
            let made = |host: &mut Host| {
                copies.make(id, host);
            };
            allocator.hosts.with(id, made)?;
        }
        self.copies.get_mut(id)
    }

    /// Takes what was chosen for a replica on a host that was copied.
    pub(super) fn take_chosen<R>(
        &mut self,
        id: HostId,
        replica: ReplicaId,
        request: &PortRequest,
        taken: impl FnOnce(&PortPool) -> R,
    ) -> Option<R> {
        let choice = &self.scratch.look.choice;
        let host = self.copies.get_mut(id)?;
        host.pool.take(replica, request, choice, &mut self.undo);
        let told = taken(&host.pool);
        self.note(id, replica, Does::Reserve);
        Some(told)
    }

    /// Ends a replica on a host that was copied. Whether it had anything there.
    pub(super) fn give(
        &mut self,
        id: HostId,
        replica: ReplicaId,
        until: Option<Monotonic>,
    ) -> bool {
        let Some(host) = self.copies.get_mut(id) else {
            return false;
        };
        let given = host.pool.give_back(replica, until, &mut self.undo);
        if given.is_some() {
            self.note(id, replica, Does::Give);
        }
        given.is_some()
    }
}

/// What ended what-ifs leave for later ones.
#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "what is lent out and suspended moves as one word"
)]
pub(super) struct Worlds(Mutex<Vec<Box<World>>>);

impl Worlds {
    /// A world in which nothing was tried, for the allocator `home`.
    pub(super) fn take(&self, home: u64) -> Box<World> {
        let spare = self.0.lock().pop();
        spare.unwrap_or_else(|| Box::new(World::new(home)))
    }

    /// Keeps a world for the next what-if.
    pub(super) fn keep(&self, mut world: Box<World>) {
        world.clear();
        let mut spare = self.0.lock();
        if spare.len() < MOST_SPARE {
            spare.push(world);
        }
    }
}

/// More than are open at once, mostly.
const MOST_SPARE: usize = 8;
