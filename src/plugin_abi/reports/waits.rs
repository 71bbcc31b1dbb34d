//! Who waits for numbers, and who of them could start now.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::eventfd::Eventfd;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{Input, Output, Room};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::state::context::{Context, find_profile};
use crate::plugin_abi::state::register::Key;
use crate::plugin_abi::types::{PrCtx, PrWant};
use crate::plugin_abi::watch::{bell::Bell, ended};

/// See `wait_put` in the header.
pub(crate) unsafe extern "C" fn wait_put(
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
pub(crate) unsafe extern "C" fn wait_drop(
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
        return Err(Failure::flags("want.flags", want.flags));
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
pub(crate) unsafe extern "C" fn wait_next(
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
        context.doorbell.hush();
        let mut register = context.register();
        let mut told = 0;
        while told < cap
            && let Some(want) = register.waits.next_woken()
        {
            room.set(told, want);
            told += 1;
        }
        let is_left = register.waits.has_woken();
        drop(register);
        if is_left {
            context.doorbell.leave();
        }
        n.set(told);
        flags.set(if is_left { PR_MORE } else { 0 });
        Ok(PR_OK)
    })
}

/// See `wait_fd` in the header.
pub(crate) unsafe extern "C" fn wait_fd(ctx: PrCtx, fd: *mut i32) -> i32 {
    inside(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise null, or writable.
        let fd = unsafe { Output::new(fd, "fd") }?;
        let number = context.doorbell.number()?;
        // Whom a pump found before there was a bell.
        if context.register().waits.has_woken() {
            context.doorbell.leave();
        }
        fd.set(number);
        Ok(PR_OK)
    })
}

/// Rings when somebody who waits fits; made when a scheduler first asks for its descriptor.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    /// Looked at without a lock.
    bell: ArcSwapOption<Bell>,
    /// Taken by those who make or end it; whether the context has ended.
    is_ended: Mutex<bool>,
}

impl Doorbell {
    /// Somebody was put into the list of those who fit.
    pub(crate) fn tell(&self) {
        if let Some(bell) = &*self.bell.load() {
            bell.tell(0);
        }
    }

    /// Somebody is left in it.
    fn leave(&self) {
        if let Some(bell) = &*self.bell.load() {
            bell.leave(0);
        }
    }

    /// Before the look at the list, never after.
    fn hush(&self) {
        if let Some(bell) = &*self.bell.load() {
            bell.take();
        }
    }

    /// The number of its descriptor.
    ///
    /// # Errors
    ///
    /// `PR_EIO` if there is no descriptor left; `PR_ESTALE` if the context has ended.
    fn number(&self) -> Result<i32, Failure> {
        let is_ended = self.is_ended.lock();
        if *is_ended {
            return Err(ended());
        }
        if let Some(bell) = &*self.bell.load() {
            return Ok(bell.ring().number());
        }
        let bell = Arc::new(Bell::new(Eventfd::new()?));
        let number = bell.ring().number();
        self.bell.store(Some(bell));
        Ok(number)
    }

    /// The descriptor is readable once more, then closed.
    pub(crate) fn end(&self) {
        *self.is_ended.lock() = true;
        if let Some(bell) = self.bell.swap(None) {
            bell.tell(0);
        }
    }
}
