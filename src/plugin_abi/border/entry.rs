//! The way in: nothing unwinds out, and a refusal is remembered for the thread that got it.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::injected;
use crate::plugin_abi::constants::PR_EPOISON;
use crate::plugin_abi::state::context::Context;
use crate::plugin_abi::state::contexts;

/// What a call may do; the letters of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// C: may block.
    Control,
    /// H: no system call, no log, no waiting.
    Hot,
    /// R: bounded.
    Report,
    /// A: never waits for a writer.
    Read,
}

/// Runs a call without a context.
pub(crate) fn outside(call: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    answer(guarded(|| {
        injected::point();
        call()
    }))
}

/// Runs a call on the context that `id` belongs to.
pub(crate) fn inside<A: From<i32>>(
    id: u64,
    kind: Kind,
    class: Class,
    call: impl FnOnce(&Context, Handle) -> Result<A, Failure>,
) -> A {
    even_poisoned(id, kind, class, |context, handle| {
        context.check_sound()?;
        call(context, handle)
    })
}

/// As [`inside`], also on a context in which a defect was caught.
pub(crate) fn even_poisoned<A: From<i32>>(
    id: u64,
    kind: Kind,
    class: Class,
    call: impl FnOnce(&Context, Handle) -> Result<A, Failure>,
) -> A {
    answer(guarded(|| {
        let handle = Handle::read(id, kind)?;
        let found = contexts::find(handle)?;
        let context = found.context().ok_or_else(|| handle.stale())?;
        // Caught here once more, because only here it is known whose state is now in doubt.
        let answered = match catch_unwind(AssertUnwindSafe(|| {
            injected::point();
            call(context, handle)
        })) {
            Ok(answered) => answered,
            Err(panic) => Err(context.poison(&said(&*panic), class)),
        };
        if let Err(failure) = &answered {
            context.counters.note(failure.code());
        }
        answered
    }))
}

/// Runs `call` and turns a panic into a refusal.
pub(crate) fn guarded<A>(call: impl FnOnce() -> Result<A, Failure>) -> Result<A, Failure> {
    quiet_panics();
    let outer = IN_CALL.replace(true);
    let answered = catch_unwind(AssertUnwindSafe(call));
    IN_CALL.set(outer);
    answered.unwrap_or_else(|panic| Err(Failure::told(PR_EPOISON, said(&*panic))))
}

fn answer<A: From<i32>>(answered: Result<A, Failure>) -> A {
    match answered {
        Ok(answer) => answer,
        Err(failure) => {
            let code = failure.code();
            failure.remember();
            code.into()
        }
    }
}

/// The words of a panic.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("caught: {}", words.unwrap_or("a panic without words"))
}

thread_local! {
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// The standard hook writes to stderr, which is the scheduler's, not ours; inside a call the words go
/// to `last_error` and the log callback instead. Panics elsewhere in the process keep their hook.
fn quiet_panics() {
    static DONE: AtomicBool = AtomicBool::new(false);
    /// The process in which a thread does it; 0 for none. No `Once`, for which a child would wait for ever if
    /// that thread was its parent's; who comes meanwhile does not wait at all.
    static DOING: AtomicU32 = AtomicU32::new(0);
    if DONE.load(Ordering::Acquire) {
        return;
    }
    let here = std::process::id();
    let before = DOING.load(Ordering::Acquire);
    let claimed = DOING.compare_exchange(before, here, Ordering::AcqRel, Ordering::Acquire);
    if before == here || claimed.is_err() {
        return;
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !IN_CALL.try_with(Cell::get).unwrap_or(false) {
            usual(panic);
        }
    }));
    DONE.store(true, Ordering::Release);
}
