//! What a transaction works with, kept and used by the next one.

use std::collections::TryReserveError;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::identity::{HostId, ReplicaId};
use crate::port::PortRange;
use crate::port_pool::{Side, UndoLog};

use super::feasibility::Scratch;
use super::placements::TransactionNo;
use super::same::SameRoom;

/// The steps of one open transaction, and room for its questions.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) no: TransactionNo,
    /// The allocator that it belongs to.
    pub(super) home: u64,
    /// How often somebody had looked for room when the transaction began.
    pub(super) looks: u64,
    pub(super) steps: Vec<Step>,
    pub(super) undo: UndoLog,
    pub(super) marks: Marks,
    pub(super) scratch: Scratch,
    pub(super) same: SameRoom,
    /// Numbers that are about to change.
    pub(super) changed: Vec<(Side, PortRange)>,
}

/// One take, to be undone in reverse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) host: HostId,
    pub(super) replica: ReplicaId,
}

impl Work {
    fn new(home: u64) -> Self {
        Self {
            no: TransactionNo(next_number()),
            home,
            looks: 0,
            steps: Vec::new(),
            undo: UndoLog::default(),
            marks: Marks::default(),
            scratch: Scratch::default(),
            same: SameRoom::default(),
            changed: Vec::new(),
        }
    }

    /// Makes room for so many takes, and for the numbers of one grant.
    fn make_room(&mut self, takes: usize) -> Result<(), TryReserveError> {
        const NUMBERS: usize = 512;
        self.steps.try_reserve_exact(takes)?;
        self.undo.try_reserve(takes)?;
        self.changed.try_reserve(NUMBERS.min(takes))
    }

    pub(super) fn is_blank(&self) -> bool {
        self.steps.is_empty() && self.undo.is_empty()
    }
}

/// A number that no transaction and no allocator of the process has: what was suspended in one allocator
/// is known as another's when it is resumed there.
pub(super) fn next_number() -> NonZeroU64 {
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    NonZeroU64::MIN.saturating_add(BEFORE.fetch_add(1, Ordering::Relaxed))
}

/// Points to come back to, ascending.
#[derive(Debug, Default)]
pub(super) struct Marks {
    set: Vec<(u64, usize)>,
    /// Never used again, so that a mark of an earlier transaction is known as stale.
    next: u64,
}

impl Marks {
    /// Sets a mark after `steps` steps.
    pub(super) fn set(&mut self, steps: usize) -> u64 {
        let mark = self.next;
        self.next += 1;
        self.set.push((mark, steps));
        mark
    }

    /// The number of steps before `mark`, all later marks being dropped; `None` if it is stale.
    pub(super) fn back_to(&mut self, mark: u64) -> Option<usize> {
        let at = self
            .set
            .binary_search_by_key(&mark, |(mark, _)| *mark)
            .ok()?;
        self.set.truncate(at + 1);
        Some(self.set[at].1)
    }

    pub(super) fn clear(&mut self) {
        self.set.clear();
    }
}

/// Work that nobody uses at the moment: a few places, so that threads seldom meet at one.
#[derive(Debug, Default)]
pub(super) struct Spares {
    places: [Spare; SPARES],
    /// For how many takes work has room when it is made.
    room: usize,
}

const SPARES: usize = 8;

/// A cache line of its own, and the one that is fetched beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Spare(
    #[expect(
        clippy::vec_box,
        reason = "what is lent out and suspended moves as one word"
    )]
    Mutex<Vec<Box<Work>>>,
);

impl Spares {
    /// With work that has room for `takes` takes, unless that is 0.
    pub(super) fn with_room(home: u64, takes: u32) -> Result<Self, TryReserveError> {
        let mut spares = Self {
            room: usize::try_from(takes).unwrap_or(0),
            ..Self::default()
        };
        if takes > 0 {
            // Each thread keeps it in a place of its own.
            for spare in &mut spares.places {
                spare.0.get_mut().try_reserve(1)?;
            }
            let mut work = Box::new(Work::new(home));
            work.make_room(spares.room)?;
            spares.keep(work);
        }
        Ok(spares)
    }

    /// Work with nothing done, for the allocator `home`.
    pub(super) fn take(&self, home: u64) -> Box<Work> {
        let begin = hint();
        for offset in 0..SPARES {
            let spare = &self.places[(begin + offset) % SPARES];
            if let Some(work) = spare.0.try_lock().and_then(|mut works| works.pop()) {
                return work;
            }
        }
        let mut work = Box::new(Work::new(home));
        // Without the memory it grows while it is used.
        let _ = work.make_room(self.room);
        work
    }

    /// Keeps `work`, which is blank, for the next transaction.
    pub(super) fn keep(&self, mut work: Box<Work>) {
        debug_assert!(work.is_blank(), "what is kept was undone or committed");
        work.marks.clear();
        work.changed.clear();
        work.scratch.listed.host = None;
        let begin = hint();
        for offset in 0..SPARES {
            let spare = &self.places[(begin + offset) % SPARES];
            if let Some(mut works) = spare.0.try_lock() {
                works.push(work);
                return;
            }
        }
    }
}

/// A number that mostly differs between threads and stays the same within one: threads have stacks
/// of their own. Only where a search begins depends on it.
fn hint() -> usize {
    let here = 0_u8;
    let page = std::ptr::from_ref(&here).addr() >> 21;
    page.wrapping_mul(0x9e37_79b9) >> 16
}
