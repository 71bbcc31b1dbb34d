//! The worker half of the table: a machine per replica, for a worker or node manager written in C.
//!
//! Events go in, effects are pulled out one by one, deadlines are asked for; the state is saved and loaded
//! as bytes that the caller keeps where it likes. No context belongs to it. The rules are those of
//! [`crate::supervision`], the numbers those of the header: [`event`] reads them, [`effect`] writes them.

#[cfg(test)]
mod calls_test;
mod effect;
mod event;
mod machines;
#[cfg(test)]
mod machines_test;
#[cfg(test)]
mod reports_test;
mod saved;
#[cfg(test)]
mod saved_test;
#[cfg(test)]
mod scripts_test;
mod supervised;
#[cfg(test)]
mod worker_test;

use std::ffi::c_void;
use std::sync::Arc;

use crate::plugin_abi::border::entry::outside;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::memory::{
    Output, Room, SizedOutput, read_bytes, read_sized, read_text, write_bytes,
};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::{PrStr, PrSup, PrSupEffect, PrSupEvent};
use crate::profile::{MAX_JSON, Profile};
use crate::supervision::Config;
use supervised::Supervised;

/// See `sup_new` in the header.
pub(super) unsafe extern "C" fn sup_new(profile_json: PrStr, seed: u64, sup: *mut PrSup) -> i32 {
    outside(|| {
        // SAFETY: by C's promise null, or writable.
        let sup = unsafe { Output::new(sup, "sup") }?;
        // SAFETY: by C's promise as many bytes as it says are readable.
        let config = unsafe { rules(profile_json) }?;
        sup.set(machines::add(Supervised::new(config, seed))?);
        Ok(PR_OK)
    })
}

/// See `sup_load` in the header.
pub(super) unsafe extern "C" fn sup_load(
    profile_json: PrStr,
    state: *const c_void,
    n: u64,
    sup: *mut PrSup,
) -> i32 {
    outside(|| {
        // SAFETY: by C's promise null, or writable.
        let sup = unsafe { Output::new(sup, "sup") }?;
        // SAFETY: by C's promise null, or `n` readable bytes.
        let bytes = unsafe { read_bytes(state.cast(), n, saved::MOST, "state") }?;
        // SAFETY: by C's promise as many bytes as it says are readable.
        let config = unsafe { rules(profile_json) }?;
        sup.set(machines::add(saved::read(&bytes, &config)?)?);
        Ok(PR_OK)
    })
}

/// See `sup_save` in the header.
pub(super) unsafe extern "C" fn sup_save(
    sup: PrSup,
    buf: *mut c_void,
    cap: u32,
    need: *mut u32,
) -> i32 {
    machines::on(sup, |machine| {
        // SAFETY: by C's promise null, or writable.
        let need = unsafe { Output::new(need, "need") }?;
        // SAFETY: by C's promise null, or room for `cap` bytes.
        let room = unsafe { Room::new(buf.cast(), cap, "buf") }?;
        write_bytes(&saved::write(machine)?, &room, &need)
    })
}

/// See `sup_event` in the header.
pub(super) unsafe extern "C" fn sup_event(
    sup: PrSup,
    now_ms: u64,
    event: *const PrSupEvent,
) -> i32 {
    machines::on(sup, |machine| {
        // SAFETY: by C's promise null, or a struct of the size it says.
        let raw = unsafe { read_sized(event, "event") }?;
        machine.handle(now_ms, event::read(&raw)?)?;
        Ok(PR_OK)
    })
}

/// See `sup_deadline` in the header.
pub(super) unsafe extern "C" fn sup_deadline(sup: PrSup, now_ms: u64) -> i32 {
    machines::on(sup, |machine| {
        machine.act_until(now_ms)?;
        Ok(PR_OK)
    })
}

/// See `sup_next_deadline` in the header.
pub(super) unsafe extern "C" fn sup_next_deadline(sup: PrSup, ms: *mut u64) -> i32 {
    machines::on(sup, |machine| {
        // SAFETY: by C's promise null, or writable.
        let ms = unsafe { Output::new(ms, "ms") }?;
        ms.set(machine.next_deadline_ms());
        Ok(PR_OK)
    })
}

/// See `sup_next_effect` in the header.
pub(super) unsafe extern "C" fn sup_next_effect(sup: PrSup, effect: *mut PrSupEffect) -> i32 {
    machines::on(sup, |machine| {
        // SAFETY: by C's promise null, or a struct of the size it says.
        let room = unsafe { SizedOutput::new(effect, "effect") }?;
        let Some(next) = machine.take_effect() else {
            return Ok(0);
        };
        room.set(next);
        Ok(1)
    })
}

/// See `sup_free` in the header.
pub(super) unsafe extern "C" fn sup_free(sup: PrSup) -> i32 {
    outside(|| {
        machines::remove(sup)?;
        Ok(PR_OK)
    })
}

/// What a profile says of supervision; everything else of it is read and refused all the same.
///
/// # Safety
///
/// As `read_text`.
unsafe fn rules(json: PrStr) -> Result<Arc<Config>, Failure> {
    // SAFETY: the caller's promise is the same.
    let text = unsafe { read_text(json, MAX_JSON, "profile_json") }?.unwrap_or_default();
    let checked = Profile::from_json_text(&text);
    let checked = checked.map_err(|errors| Failure::malformed("profile_json", errors))?;
    Ok(checked.profile.supervision)
}
