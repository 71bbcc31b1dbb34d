//! Every machine of the process, by the slot in its id. Found without a lock that another thread may hold.
//!
//! A slot is empty or has one machine; each try to fill it takes a generation of its own, so that no id is
//! ever given twice, whoever wins. A forked child sees its parent's machines and is told so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::{Mutex, MutexGuard};

use super::supervised::Supervised;
use crate::plugin_abi::border::entry::{outside, said};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind, LAST_GENERATION};
use crate::plugin_abi::border::injected;
use crate::plugin_abi::border::process::ProcessMark;
use crate::plugin_abi::constants::{PR_EBUSY, PR_EFORK, PR_EPOISON};
use crate::plugin_abi::types::PrSup;

/// How many machines one process may have.
pub(super) const MOST: usize = 1 << 16;

static SLOTS: [Slot; MOST] = [const { Slot::new() }; MOST];

/// Where the search for an empty slot begins: behind the last one filled, so that generations rise evenly.
static NEXT: AtomicU32 = AtomicU32::new(0);

struct Slot {
    kept: ArcSwapOption<Kept>,
    /// The highest generation that was tried here.
    used: AtomicU32,
}

impl Slot {
    const fn new() -> Self {
        Self {
            kept: ArcSwapOption::const_empty(),
            used: AtomicU32::new(0),
        }
    }
}

/// What an id names.
struct Kept {
    handle: Handle,
    made_in: ProcessMark,
    state: Mutex<State>,
}

enum State {
    Sound(Box<Supervised>),
    /// A defect of ours was caught in it.
    Poisoned,
    /// Ended by a call that another one waited out.
    Freed,
}

/// Keeps a machine and says its id.
///
/// # Errors
///
/// `PR_ELIMIT` if there are [`MOST`] already.
pub(super) fn add(machine: Supervised) -> Result<PrSup, Failure> {
    let made_in = ProcessMark::make();
    let mut state = Some(State::Sound(Box::new(machine)));
    let first = NEXT.load(Ordering::Relaxed) as usize;
    for step in 0..MOST {
        let number = (first + step) % MOST;
        let slot = &SLOTS[number];
        if slot.kept.load().is_some() || slot.used.load(Ordering::Relaxed) >= LAST_GENERATION {
            continue;
        }
        let generation = slot.used.fetch_add(1, Ordering::Relaxed) + 1;
        if generation > LAST_GENERATION {
            continue;
        }
        #[expect(clippy::cast_possible_truncation, reason = "below 2^16")]
        let handle = Handle::new(Kind::Sup, 0, number as u32, generation);
        let kept = Arc::new(Kept {
            handle,
            made_in,
            state: Mutex::new(state.take().unwrap_or(State::Freed)),
        });
        let before = slot
            .kept
            .compare_and_swap(&None::<Arc<Kept>>, Some(Arc::clone(&kept)));
        if before.is_none() {
            NEXT.store(handle.slot() + 1, Ordering::Relaxed);
            return Ok(handle.id());
        }
        // Another thread was quicker; nobody has seen ours.
        state = Some(std::mem::replace(&mut *kept.state.lock(), State::Freed));
    }
    Err(Failure::limit("machines", MOST as u64 + 1, MOST as u64))
}

/// Runs a call on the machine that `id` names; a panic in it is the end of this machine alone.
pub(super) fn on(id: PrSup, call: impl FnOnce(&mut Supervised) -> Result<i32, Failure>) -> i32 {
    outside(|| {
        let found = find(id)?;
        let kept = found.kept()?;
        let mut state = kept.enter()?;
        let State::Sound(machine) = &mut *state else {
            return Err(poisoned());
        };
        let answered = catch_unwind(AssertUnwindSafe(|| {
            injected::point();
            call(machine)
        }));
        match answered {
            Ok(answered) => answered,
            Err(panic) => {
                *state = State::Poisoned;
                Err(Failure::told(PR_EPOISON, said(&*panic)))
            }
        }
    })
}

/// Ends a machine, a poisoned one too; its id is stale from here on.
pub(super) fn remove(id: PrSup) -> Result<(), Failure> {
    let found = find(id)?;
    let kept = found.kept()?;
    *kept.enter()? = State::Freed;
    // Only who turned it into `Freed` comes here, and nothing else empties a slot.
    SLOTS[kept.handle.slot() as usize].kept.store(None);
    Ok(())
}

fn poisoned() -> Failure {
    Failure::said(
        PR_EPOISON,
        "free this machine; a state saved before may be loaded",
    )
}

/// A machine that stays while this is kept, even if another thread frees it.
struct Found {
    handle: Handle,
    kept: Guard<Option<Arc<Kept>>>,
}

fn find(id: PrSup) -> Result<Found, Failure> {
    let handle = Handle::read(id, Kind::Sup)?;
    let slot = SLOTS
        .get(handle.slot() as usize)
        .filter(|_| handle.place() == 0);
    let kept = slot.ok_or_else(|| handle.stale())?.kept.load();
    Ok(Found { handle, kept })
}

impl Found {
    fn kept(&self) -> Result<&Kept, Failure> {
        let kept = self
            .kept
            .as_deref()
            .filter(|kept| kept.handle == self.handle);
        let kept = kept.ok_or_else(|| self.handle.stale())?;
        if kept.made_in.is_here() {
            Ok(kept)
        } else {
            Err(Failure::said(
                PR_EFORK,
                "its machine is the parent's: load a saved state here",
            ))
        }
    }
}

impl Kept {
    /// The state, for this thread alone until the guard is dropped; never waits.
    fn enter(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let state = self.state.try_lock();
        let state =
            state.ok_or_else(|| Failure::said(PR_EBUSY, "another thread is in this machine"))?;
        match &*state {
            State::Freed => Err(self.handle.stale()),
            State::Sound(_) | State::Poisoned => Ok(state),
        }
    }
}
