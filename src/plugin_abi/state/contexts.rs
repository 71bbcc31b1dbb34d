//! Every context of the process, by the place in its id. Looked up without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::plugin_abi::border::cushion::cushioned;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind, LAST_GENERATION, PLACES};
use crate::plugin_abi::border::process::ProcessMark;
use crate::plugin_abi::constants::{PR_EBUSY, PR_EFORK, PR_ELIMIT};
use crate::plugin_abi::state::context::Context;

static ALL: [Place; PLACES] = [const { Place::new() }; PLACES];

/// The process in which a thread makes or ends a context; 0 for none. Making and ending are rare; this
/// instead of a lock, because a child process would inherit a lock that nobody unlocks.
static CHANGING: AtomicU64 = AtomicU64::new(0);

struct Place {
    context: ArcSwapOption<Context>,
    /// The highest generation in any id that a context in this place gave out.
    used: AtomicU32,
    /// How many transactions its contexts opened.
    transactions: AtomicU64,
}

impl Place {
    const fn new() -> Self {
        Self {
            context: ArcSwapOption::const_empty(),
            used: AtomicU32::new(0),
            transactions: AtomicU64::new(0),
        }
    }
}

/// A context that stays while this is kept, even if another thread destroys it.
pub(crate) struct Found(Guard<Option<Arc<Context>>>);

impl Found {
    pub(crate) fn context(&self) -> Option<&Context> {
        self.0.as_deref()
    }
}

/// The context that `handle` belongs to, if it was made in this process.
///
/// Whether anything lives under the handle is for the context to say, unless it is the context's own.
pub(crate) fn find(handle: Handle) -> Result<Found, Failure> {
    let found = Found(ALL[handle.place()].context.load());
    let context = found.context().ok_or_else(|| handle.stale())?;
    if !context.is_of_this_process() {
        return Err(Failure::said(
            PR_EFORK,
            "create one in this process and restore into it",
        ));
    }
    if handle.is(Kind::Context) && handle != context.handle() {
        return Err(handle.stale());
    }
    Ok(found)
}

/// Makes this thread warm: its first look-up takes what the next ones use.
pub(crate) fn warm() {
    drop(ALL[0].context.load());
}

/// Gives a new context its place and keeps it there.
pub(crate) fn add(
    make: impl FnOnce(Handle) -> Result<Context, Failure>,
) -> Result<Handle, Failure> {
    let _alone = Alone::begin()?;
    let (place, handle, context) = cushioned(|| {
        let (number, place) = free_place()?;
        let generation = place.used.load(Ordering::Acquire) + 1;
        let handle = Handle::new(Kind::Context, number, 0, generation);
        Ok((place, handle, Arc::new(make(handle)?)))
    })?;
    place.used.store(handle.generation(), Ordering::Release);
    place.context.store(Some(context));
    Ok(handle)
}

fn free_place() -> Result<(u32, &'static Place), Failure> {
    let free = (0..).zip(&ALL).find(|(_, place)| {
        place.context.load().is_none() && place.used.load(Ordering::Acquire) < LAST_GENERATION
    });
    free.ok_or(Failure::value(PR_ELIMIT, "contexts", PLACES as u64))
}

/// The id of a new transaction of `context`.
pub(crate) fn next_transaction(context: Handle) -> Handle {
    let counter = &ALL[context.place()].transactions;
    context.transaction(counter.fetch_add(1, Ordering::Relaxed))
}

/// Ends a context; all its ids are stale from here on.
pub(crate) fn remove(handle: Handle) -> Result<(), Failure> {
    let _alone = Alone::begin()?;
    let found = find(handle)?;
    let context = found.context().ok_or_else(|| handle.stale())?;
    let highest = context.end();
    let place = &ALL[handle.place()];
    place.used.fetch_max(highest, Ordering::AcqRel);
    place.context.store(None);
    Ok(())
}

/// The only one that makes or ends a context now.
struct Alone;

impl Alone {
    fn begin() -> Result<Self, Failure> {
        let here = ProcessMark::make().number();
        let claim =
            |from| CHANGING.compare_exchange(from, here, Ordering::Acquire, Ordering::Relaxed);
        let claimed = match claim(0) {
            // A thread of our parent's was at work when we were forked; here it will never end.
            Err(other) if other != here => claim(other),
            claimed => claimed,
        };
        claimed
            .map(|_| Self)
            .map_err(|_| Failure::said(PR_EBUSY, "another thread makes or ends a context"))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        CHANGING.store(0, Ordering::Release);
    }
}
