//! The structs and the table of `include/portreeve.h`, field by field.
//!
//! The header documents what they mean; a test compares size, offset and order with what a C compiler
//! makes of it.

#![expect(
    missing_docs,
    reason = "the header documents every field and function, once"
)]

use std::ffi::{c_char, c_void};

use crate::plugin_abi::border::memory::Plain;

pub type PrCtx = u64;
pub type PrTxn = u64;
pub type PrAlloc = u64;
pub type PrSnap = u64;
pub type PrWatch = u64;
pub type PrSup = u64;
pub type PrLog = unsafe extern "C" fn(*mut c_void, i32, i32, *const c_char, u64);

/// Where a compiler put the members of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The C name.
    pub name: &'static str,
    /// Of the whole struct, in bytes.
    pub size: usize,
    /// Name, offset and size of each member, in order.
    pub members: &'static [(&'static str, usize, usize)],
}

macro_rules! structs {
    ($($name:ident as $c_name:literal { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            #[doc = concat!("`", $c_name, "`.")]
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name { $(pub $field: $type),* }

            // SAFETY: a `repr(C)` struct whose members are integers, arrays of them, raw pointers,
            // optional function pointers, or structs of this list: any initialised bytes are a value.
            unsafe impl Plain for $name {}
        )*

        /// Every struct but the table, in the order of the header.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            name: $c_name,
            size: size_of::<$name>(),
            members: &[$((
                stringify!($field),
                std::mem::offset_of!($name, $field),
                size_of::<$type>(),
            )),*],
        }),*];
    };
}

structs! {
    PrStr as "pr_str" {
        p: *const c_char, n: u64,
    }
    PrRange as "pr_range" {
        lo: u16, hi: u16,
    }
    PrHostinfo as "pr_hostinfo" {
        size: u32, abi: u32, want_caps: u64,
    }
    PrConfig as "pr_config" {
        size: u32, flags: u32, max_hosts: u32, max_allocs: u32, max_profiles: u32, max_waits: u32, max_watches: u32, max_ports: u32, cool_ms: u32, foreign_rest_ms: u32, seed: u64, env_prefix: PrStr, ud: *mut c_void, log: Option<PrLog>,
    }
    PrHost as "pr_host" {
        size: u32, flags: u32, host: u32, state: u32, name: PrStr, dynamic: *const PrRange, fixed: *const PrRange, reserved: *const PrRange, n_dynamic: u32, n_fixed: u32, n_reserved: u32, cool_ms: u32,
    }
    PrNetwork as "pr_network" {
        size: u32, flags: u32, name: PrStr, ip: [u8; 16], family: u32, prefix: u32,
    }
    PrPort as "pr_port" {
        name: PrStr, env: PrStr, network: PrStr, within: *const PrRange, n_within: u32, fixed: u16, count: u16, proto: u32, flags: u32,
    }
    PrProfile as "pr_profile" {
        size: u32, flags: u32, name: PrStr, service: PrStr, ports: *const PrPort, n_ports: u32, port_size: u32,
    }
    PrNeed as "pr_need" {
        profile: u32, replicas: u32, at_ms: u64,
    }
    PrWant as "pr_want" {
        job: u64, step: u32, replica: u32, incarnation: u32, profile: u32, host: u32, flags: u32,
    }
    PrGrant as "pr_grant" {
        id: PrAlloc, rc: i32, reason: u32, host: u32, n_ports: u32, port_off: u32, retry_ms: u32,
    }
    PrRec as "pr_rec" {
        who: PrWant, id: PrAlloc, seq: u64, n_ports: u32, port_off: u32, state: u32, cool_left_ms: u32, ready: u32, run: u32, restarts: u32, flags: u32,
    }
    PrAddr as "pr_addr" {
        ip: [u8; 16], family: u32, scope: u32, pref: u32, flags: u32,
    }
    PrForeign as "pr_foreign" {
        lo: u16, hi: u16, proto: u32, pid: u32, flags: u32, comm: [c_char; 16],
    }
    PrReady as "pr_ready" {
        id: PrAlloc, seq: u64, run: u32, state: u32, reason: u32, restarts: u32,
    }
    PrWhy as "pr_why" {
        holder: PrAlloc, reason: u32, item: u32, proto: u32, have: u32, want: u32, retry_ms: u32, pid: u32, port: u16, zero: u16,
    }
    PrHeld as "pr_held" {
        id: PrAlloc, lo: u16, hi: u16, proto: u32, state: u32, left_ms: u32, replica: u32, pid: u32,
    }
    PrEndpoint as "pr_endpoint" {
        id: PrAlloc, revision: u64, ip: [u8; 16], port: u16, count: u16, family: u32, proto: u32, state: u32, service: u32, name: u32, replica: u32, host: u32,
    }
    PrChange as "pr_change" {
        ep: PrEndpoint, revision: u64, kind: u32, flags: u32,
    }
    PrStats as "pr_stats" {
        size: u32, flags: u32, hosts: u64, allocs: u64, waits: u64, ports_used: u64, ports_total: u64, ports_cooling: u64, commits: u64, aborts: u64, busy: u64, stale: u64, poisoned: u64, snaps: u64, watches: u64, watch_resets: u64, queued: u64, bytes: u64,
    }
    PrSupEvent as "pr_sup_event" {
        size: u32, kind: u32, run: u32, probe_kind: u32, probe: u32, result: u32, code: i32, flags: u32, ms: u64,
    }
    PrSupEffect as "pr_sup_effect" {
        size: u32, kind: u32, run: u32, probe_kind: u32, number: u32, report: u32, reason: u32, code: i32, count: u32, flags: u32, ms: u64,
    }
}

macro_rules! table {
    ($($name:ident: ($($type:ty),*) -> $answer:ty,)*) => {
        /// `pr_api`: what the one exported function hands out.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct PrApi {
            pub size: u32,
            pub abi: u32,
            pub caps: u64,
            $(pub $name: unsafe extern "C" fn($($type),*) -> $answer,)*
        }

        /// The table's own layout.
        pub const API_LAYOUT: Layout = Layout {
            name: "pr_api",
            size: size_of::<PrApi>(),
            members: &[
                ("size", std::mem::offset_of!(PrApi, size), size_of::<u32>()),
                ("abi", std::mem::offset_of!(PrApi, abi), size_of::<u32>()),
                ("caps", std::mem::offset_of!(PrApi, caps), size_of::<u64>()),
                $((
                    stringify!($name),
                    std::mem::offset_of!(PrApi, $name),
                    size_of::<unsafe extern "C" fn($($type),*) -> $answer>(),
                )),*
            ],
        };
    };
}

table! {
    create: (*const PrConfig, *mut PrCtx) -> i32,
    destroy: (PrCtx) -> i32,
    host_put: (PrCtx, *const PrHost, u32) -> i32,
    host_remove: (PrCtx, u32, u32) -> i32,
    network_put: (PrCtx, *const PrNetwork, u32) -> i32,
    profile_put: (PrCtx, *const PrProfile, *mut u32) -> i32,
    profile_drop: (PrCtx, u32) -> i32,
    restore_put: (PrCtx, *const PrRec, u32, *const u16, u32, *mut PrGrant) -> i32,
    restore_end: (PrCtx, u32, u64, *mut u32) -> i32,
    export_: (PrCtx, *mut u64, *mut PrRec, u32, *mut u16, u32, *mut u32, *mut u32) -> i32,
    txn_begin: (PrCtx, u32, u64, *mut PrTxn) -> i32,
    feasible: (PrTxn, *const PrNeed, *const u64, *mut u64, *mut u16, u32) -> i64,
    explain: (PrTxn, *const PrNeed, u32, *mut PrWhy, u32, *mut u32) -> i32,
    explain_all: (PrTxn, *const PrNeed, *const u64, u32, *mut u32, u32) -> i32,
    reserve: (PrTxn, u32, *const PrWant, u32, *mut PrGrant, *mut u16, u32, *mut u32) -> i32,
    give: (PrTxn, *const PrAlloc, u32, *mut i32) -> i32,
    mark: (PrTxn, *mut u32) -> i32,
    rollback: (PrTxn, u32) -> i32,
    commit: (PrTxn, *mut u64) -> i32,
    abort_: (PrTxn) -> i32,
    holders: (PrTxn, u32, *mut u32, *mut PrHeld, u32, *mut u32) -> i32,
    release_begin: (PrCtx, *const PrAlloc, u32, u32, *mut i32) -> i32,
    release_confirm: (PrCtx, *const PrAlloc, u32, u32, u64, *mut i32) -> i32,
    release_job: (PrCtx, u64, u32, u32, u64, *mut u32) -> i32,
    grant_find: (PrCtx, *const PrWant, *mut PrAlloc) -> i32,
    grant_get: (PrCtx, PrAlloc, *mut PrRec, *mut u16, u32, *mut u32) -> i32,
    env: (PrCtx, PrAlloc, u32, *mut c_char, u32, *mut u32) -> i32,
    pump: (PrCtx, u64, *mut u64) -> i32,
    host_state: (PrCtx, u32, u32) -> i32,
    report_addr: (PrCtx, u32, u64, *const PrAddr, u32) -> i32,
    report_foreign: (PrCtx, u32, u64, *const PrForeign, u32) -> i32,
    report_conflict: (PrCtx, PrAlloc, u16, u32, u32) -> i32,
    report_ready: (PrCtx, *const PrReady, u32, *mut i32) -> i32,
    wait_put: (PrCtx, *const PrWant, u32, *mut i32) -> i32,
    wait_drop: (PrCtx, *const PrWant, u32, *mut i32) -> i32,
    wait_fd: (PrCtx, *mut i32) -> i32,
    wait_next: (PrCtx, *mut PrWant, u32, *mut u32, *mut u32) -> i32,
    resolve: (PrCtx, PrStr, PrStr, u32, *mut PrEndpoint, u32, *mut u32, *mut u64) -> i32,
    snap_open: (PrCtx, PrStr, *mut PrSnap, *mut u64, *mut u32) -> i32,
    snap_read: (PrSnap, u32, *mut PrEndpoint, u32, *mut u32) -> i32,
    snap_close: (PrSnap) -> i32,
    watch_open: (PrCtx, PrStr, u64, *mut PrWatch, *mut i32) -> i32,
    watch_next: (PrWatch, *mut PrChange, u32, *mut u32, *mut u32) -> i32,
    watch_close: (PrWatch) -> i32,
    text: (PrCtx, u32, u32, *mut c_char, u32, *mut u32) -> i32,
    stats: (PrCtx, *mut PrStats) -> i32,
    dump: (PrCtx, *mut c_char, u32, *mut u32) -> i32,
    last_error: (*mut c_char, u32, *mut u32) -> i32,
    strerror_: (i32) -> *const c_char,
    reason_: (u32) -> *const c_char,
    sup_new: (PrStr, u64, *mut PrSup) -> i32,
    sup_load: (PrStr, *const c_void, u64, *mut PrSup) -> i32,
    sup_save: (PrSup, *mut c_void, u32, *mut u32) -> i32,
    sup_event: (PrSup, u64, *const PrSupEvent) -> i32,
    sup_deadline: (PrSup, u64) -> i32,
    sup_next_deadline: (PrSup, *mut u64) -> i32,
    sup_next_effect: (PrSup, *mut PrSupEffect) -> i32,
    sup_free: (PrSup) -> i32,
}
