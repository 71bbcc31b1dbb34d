//! Giving ports back, in two steps, from any thread.

use crate::allocator::AfterRelease;
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Input, Output, Room};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::state::context::Context;
use crate::plugin_abi::types::{PrAlloc, PrCtx};

/// See `release_begin` in the header.
pub(crate) unsafe extern "C" fn release_begin(
    ctx: PrCtx,
    ids: *const PrAlloc,
    n: u32,
    flags: u32,
    rc: *mut i32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or `n` readable ids, and null or room for `n` codes.
        let batch = unsafe { Batch::new(context, ids, n, rc) }?;
        if flags != 0 {
            return Err(Failure::flags("flags", flags));
        }
        batch.each(|handle| context.register().begin_release(handle))
    })
}

/// See `release_confirm` in the header.
pub(crate) unsafe extern "C" fn release_confirm(
    ctx: PrCtx,
    ids: *const PrAlloc,
    n: u32,
    flags: u32,
    now_ms: u64,
    rc: *mut i32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or `n` readable ids, and null or room for `n` codes.
        let batch = unsafe { Batch::new(context, ids, n, rc) }?;
        let after = match flags {
            0 => AfterRelease::Cool,
            PR_REL_NO_COOL => AfterRelease::Free,
            other => return Err(Failure::flags("flags", other)),
        };
        let at = context.at(now_ms);
        batch.each(|handle| context.register().confirm_release(handle, at, after))
    })
}

/// See `release_job` in the header.
pub(crate) unsafe extern "C" fn release_job(
    ctx: PrCtx,
    job: u64,
    step: u32,
    confirm: u32,
    now_ms: u64,
    done: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or writable.
        let done = unsafe { Output::new(done, "done") }?;
        if confirm > 1 {
            return Err(Failure::none_of("confirm", confirm, "0 or 1"));
        }
        // Not beside a cycle, which may be placing others of the job.
        let _cycle = context.hot()?;
        let at = context.at(now_ms);
        let mut released = 0;
        context.register().of_job(job, step, |register, handle| {
            let given = if confirm == 1 {
                register.confirm_release(handle, at, AfterRelease::Cool)
            } else {
                register.begin_release(handle)
            };
            // Those that are not committed, and those whose release has begun, are passed over.
            released += u32::from(given.is_ok());
        });
        done.set(released);
        Ok(PR_OK)
    })
}

/// Ids of grants with room for one code each.
pub(crate) struct Batch {
    ids: Input<PrAlloc>,
    codes: Room<i32>,
}

impl Batch {
    /// # Safety
    ///
    /// `ids` is null or points to `n` ids, `rc` is null or has room for `n` codes, during the call.
    pub(crate) unsafe fn new(
        context: &Context,
        ids: *const PrAlloc,
        n: u32,
        rc: *mut i32,
    ) -> Result<Self, Failure> {
        let most = context.settings().limits.allocs;
        Ok(Self {
            // SAFETY: the caller's promise.
            ids: unsafe { Input::new(ids, n, most, "ids") }?,
            // SAFETY: the caller's promise.
            codes: unsafe { Room::optional(rc, n, "rc") }?,
        })
    }

    /// Tries each; the answer is the first refusal.
    pub(crate) fn each(
        &self,
        mut act: impl FnMut(Handle) -> Result<(), Failure>,
    ) -> Result<i32, Failure> {
        let mut first = None;
        for (place, id) in (0..).zip(self.ids.iter()) {
            let done = Handle::read(id, Kind::Alloc).and_then(&mut act);
            self.codes
                .set(place, done.as_ref().err().map_or(PR_OK, Failure::code));
            first = first.or(done.err());
        }
        first.map_or(Ok(PR_OK), Err)
    }
}
