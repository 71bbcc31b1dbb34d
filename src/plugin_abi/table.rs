//! The table, and the one function that hands it out.

use crate::plugin_abi::border::entry::outside;
use crate::plugin_abi::border::failure;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::memory::{Output, read_sized};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::{export, host, network, profile, restore};
use crate::plugin_abi::cycle::{explain, grants, release, reserve, trial, txn};
use crate::plugin_abi::reading::{dump, resolve, snap, text};
use crate::plugin_abi::reports::{report, waits};
use crate::plugin_abi::state::context;
use crate::plugin_abi::types::{PrApi, PrHostinfo};
use crate::plugin_abi::{supervision, watch, words};

/// What we can do.
const CAPABILITIES: u64 = PR_CAP_ENDPOINTS | PR_CAP_SUPERVISION;

/// In the order of the header.
static API: PrApi = PrApi {
    size: SIZE,
    abi: PR_ABI,
    caps: CAPABILITIES,
    create: context::create,
    destroy: context::destroy,
    host_put: host::host_put,
    host_remove: host::host_remove,
    network_put: network::network_put,
    profile_put: profile::profile_put,
    profile_drop: profile::profile_drop,
    restore_put: restore::restore_put,
    restore_end: restore::restore_end,
    export_: export::export,
    txn_begin: txn::txn_begin,
    feasible: txn::feasible,
    explain: explain::explain,
    explain_all: explain::explain_all,
    reserve: reserve::reserve,
    give: trial::give,
    mark: txn::mark,
    rollback: txn::rollback,
    commit: txn::commit,
    abort_: txn::abort,
    holders: explain::holders,
    release_begin: release::release_begin,
    release_confirm: release::release_confirm,
    release_job: release::release_job,
    grant_find: grants::grant_find,
    grant_get: grants::grant_get,
    env: grants::env,
    pump: report::pump,
    host_state: host::host_state,
    report_addr: report::report_addr,
    report_foreign: report::report_foreign,
    report_conflict: report::report_conflict,
    report_ready: report::report_ready,
    wait_put: waits::wait_put,
    wait_drop: waits::wait_drop,
    wait_fd: waits::wait_fd,
    wait_next: waits::wait_next,
    resolve: resolve::resolve,
    snap_open: snap::snap_open,
    snap_read: snap::snap_read,
    snap_close: snap::snap_close,
    watch_open: watch::watch_open,
    watch_next: watch::watch_next,
    watch_close: watch::watch_close,
    text: text::text,
    stats: context::stats,
    dump: dump::dump,
    last_error: failure::last_error,
    strerror_: words::strerror,
    reason_: words::reason,
    sup_new: supervision::sup_new,
    sup_load: supervision::sup_load,
    sup_save: supervision::sup_save,
    sup_event: supervision::sup_event,
    sup_deadline: supervision::sup_deadline,
    sup_next_deadline: supervision::sup_next_deadline,
    sup_next_effect: supervision::sup_next_effect,
    sup_free: supervision::sup_free,
};

#[expect(clippy::cast_possible_truncation, reason = "58 functions and 16 bytes")]
const SIZE: u32 = size_of::<PrApi>() as u32;

/// Hands out the table: the only symbol of the plugin.
///
/// # Safety
///
/// `host` is null or points to a struct of the size that it says; `api` and `plugin_abi` are null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_get_api(
    host: *const PrHostinfo,
    api: *mut *const PrApi,
    plugin_abi: *mut u32,
) -> i32 {
    outside(|| {
        // SAFETY: the caller's promise.
        let host = unsafe { read_sized::<PrHostinfo>(host, "host") }?;
        // SAFETY: the caller's promise.
        let api = unsafe { Output::new(api, "api") }?;
        // SAFETY: the caller's promise.
        let plugin_abi = unsafe { Output::optional(plugin_abi, "plugin_abi") }?;
        let lacking = host.want_caps & !CAPABILITIES;
        if host.abi != PR_ABI || lacking != 0 {
            if let Some(plugin_abi) = plugin_abi {
                plugin_abi.set(PR_ABI);
            }
            return Err(if host.abi == PR_ABI {
                let words = format_args!("this plugin lacks the capabilities {lacking:#x}");
                Failure::told(PR_EVERSION, words)
            } else {
                let asked = host.abi;
                let words = format_args!("this plugin speaks {PR_ABI}, the program {asked}");
                Failure::told(PR_EVERSION, words)
            });
        }
        api.set(&raw const API);
        Ok(PR_OK)
    })
}
