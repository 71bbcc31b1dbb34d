//! Who waits for numbers, and who of them could start now.

use crate::plugin_abi::constants::*;
use crate::plugin_abi::context::{Context, find_profile};
use crate::plugin_abi::entry::{Class, inside};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::Kind;
use crate::plugin_abi::memory::{Input, Output, Room};
use crate::plugin_abi::register::Key;
use crate::plugin_abi::types::{PrCtx, PrWant};

/// See `wait_put` in the header.
pub(super) unsafe extern "C" fn wait_put(
    ctx: PrCtx,
    wants: *const PrWant,
    n: u32,
    rc: *mut i32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        // SAFETY: by C's promise null, or `n` readable elements, and null or room for `n` codes.
        unsafe { each(context, wants, n, rc, |want| put(context, want)) }
    })
}

/// See `wait_drop` in the header.
pub(super) unsafe extern "C" fn wait_drop(
    ctx: PrCtx,
    wants: *const PrWant,
    n: u32,
    rc: *mut i32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        // SAFETY: by C's promise null, or `n` readable elements, and null or room for `n` codes.
        unsafe {
            each(context, wants, n, rc, |want| {
                context.register().drop_wait(want)
            })
        }
    })
}

/// Tries each; the answer is the first refusal.
///
/// # Safety
///
/// `wants` is null or points to `n` elements, `rc` is null or has room for `n` codes, during the call.
unsafe fn each(
    context: &Context,
    wants: *const PrWant,
    n: u32,
    rc: *mut i32,
    act: impl Fn(&PrWant) -> Result<(), Failure>,
) -> Result<i32, Failure> {
    let most = context.settings().limits.waits;
    // SAFETY: the caller's promise.
    let wants = unsafe { Input::new(wants, n, most, "wants") }?;
    // SAFETY: the caller's promise.
    let codes = unsafe { Room::optional(rc, n, "rc") }?;
    let mut first = None;
    for (place, want) in (0..).zip(wants.iter()) {
        let done = act(&want);
        codes.set(place, done.as_ref().err().map_or(PR_OK, Failure::code));
        first = first.or(done.err());
    }
    first.map_or(Ok(PR_OK), Err)
}

fn put(context: &Context, want: &PrWant) -> Result<(), Failure> {
    if want.flags & !PR_WANT_PREFER != 0 {
        return Err(Failure::value(PR_EINVAL, "want.flags", want.flags.into()));
    }
    if want.host != PR_ANY {
        context.report(|board| board.host_at(want.host))?;
    }
    let mut register = context.register();
    let profile = find_profile(&register.profiles, want.profile)?;
    if register.find(Key::from(want), want.incarnation).is_some() {
        return Err(Failure::value(PR_EEXIST, "job", want.job));
    }
    register.wait(want, &profile)
}

/// See `wait_next` in the header.
pub(super) unsafe extern "C" fn wait_next(
    ctx: PrCtx,
    wants: *mut PrWant,
    cap: u32,
    n: *mut u32,
    flags: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise null, or room for `cap` elements.
        let room = unsafe { Room::new(wants, cap, "wants") }?;
        // SAFETY: by C's promise null, or writable.
        let n = unsafe { Output::new(n, "n") }?;
        // SAFETY: by C's promise null, or writable.
        let flags = unsafe { Output::new(flags, "flags") }?;
        let mut register = context.register();
        let mut told = 0;
        while told < cap
            && let Some(want) = register.next_woken()
        {
            room.set(told, want);
            told += 1;
        }
        n.set(told);
        flags.set(if register.has_woken() { PR_MORE } else { 0 });
        Ok(PR_OK)
    })
}
