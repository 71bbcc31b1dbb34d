//! The numbers of `include/portreeve.h`: codes, reasons, states and flags. Appended to, never changed.

/// Declares each number once: as a constant of its C name and type, and in [`CONSTANTS`] for the test
/// that holds them against the header.
macro_rules! constants {
    ($($type:ty { $($name:ident = $value:expr),* $(,)? })*) => {
        $($(
            #[doc = concat!("`", stringify!($name), "` of the header.")]
            pub const $name: $type = $value;
        )*)*

        /// Every number by its C name, as 64 bits.
        #[expect(clippy::cast_possible_wrap, reason = "the bits are compared, whatever the type")]
        pub const CONSTANTS: &[(&str, i64)] = &[$($((stringify!($name), $name as i64)),*),*];
    };
}

constants! {
    // Of the handshake and of "no number".
    u32 { PR_ABI = 1, PR_ANY = u32::MAX }
    // No deadline.
    u64 { PR_NEVER = u64::MAX }
    // A code.
    i32 {
        PR_OK = 0, PR_EINVAL = -1, PR_ESTALE = -2, PR_EBUSY = -3, PR_EAGAIN = -4, PR_ENOSPC = -5,
        PR_ENOPORT = -6, PR_EEXIST = -7, PR_E2BIG = -8, PR_EVERSION = -9, PR_EFORK = -10,
        PR_EPOISON = -11, PR_ENOMEM = -12, PR_ESTATE = -13, PR_ELIMIT = -14, PR_EIO = -15,
        PR_ENOENT = -16, PR_ENOSYS = -17,
    }
    // Why a host does not fit.
    u32 {
        PR_R_NONE = 0, PR_R_HELD = 1, PR_R_RELEASING = 2, PR_R_COOLING = 3, PR_R_RESERVED = 4,
        PR_R_FOREIGN = 5, PR_R_NOT_IN_POOL = 6, PR_R_TOO_FEW = 7, PR_R_NO_BLOCK = 8,
        PR_R_AWAITED = 9, PR_R_DRAINED = 10, PR_R_SUSPECT = 11, PR_R_LOST = 12,
        PR_R_UNKNOWN_HOST = 13, PR_R_NO_ADDRESS = 14, PR_R_NOT_REPORTED = 15,
    }
    // A protocol.
    u32 { PR_TCP = 1, PR_UDP = 2, PR_TCP_UDP = 3 }
    // The state of a host.
    u32 { PR_HOST_UP = 0, PR_HOST_DRAINED = 1, PR_HOST_SUSPECT = 2, PR_HOST_LOST = 3 }
    // The state of a number.
    u32 {
        PR_P_FREE = 0, PR_P_HELD = 1, PR_P_RELEASING = 2, PR_P_COOLING = 3, PR_P_RESERVED = 4,
        PR_P_FOREIGN = 5,
    }
    // The state of an endpoint.
    u32 {
        PR_E_NOT_READY = 0, PR_E_READY = 1, PR_E_SERVING = 2, PR_E_UNCONFIRMED = 3,
        PR_E_TERMINATING = 4,
    }
    // The kind of a change.
    u32 { PR_CH_UPSERT = 1, PR_CH_REMOVE = 2, PR_CH_SERVICE_GONE = 3 }
    // What a number names.
    u32 { PR_TEXT_SERVICE = 1, PR_TEXT_PORT = 2, PR_TEXT_HOST = 3 }
    // A capability.
    u64 { PR_CAP_ENDPOINTS = 1, PR_CAP_SUPERVISION = 2 }
    // A flag.
    u32 {
        PR_CFG_NO_RESTORE = 1, PR_HOST_LOWEST = 1, PR_HOST_RANDOM = 2, PR_PORT_UNPUBLISHED = 1,
        PR_WANT_PREFER = 1, PR_TXN_WHATIF = 1, PR_RESERVE_ALL = 1, PR_RESERVE_SAME = 2,
        PR_REL_NO_COOL = 1, PR_REMOVE_FORCE = 1, PR_RESOLVE_ALL = 1, PR_REC_CONFLICT = 1,
        PR_REC_TCP = 2, PR_REC_UDP = 4,
        PR_MORE = 1, PR_RESET = 2,
    }
    // The kind of an event of supervision.
    u32 {
        PR_SE_START = 1, PR_SE_STOP = 2, PR_SE_USER_RESTART = 3, PR_SE_SPAWNED = 4,
        PR_SE_SPAWN_FAILED = 5, PR_SE_PORT_CONFLICT = 6, PR_SE_EXITED = 7, PR_SE_GROUP_EMPTY = 8,
        PR_SE_PROBE_RESULT = 9, PR_SE_ADOPT = 10, PR_SE_PRE_EXEC_STARTED = 11,
    }
    // The kind of an effect.
    u32 {
        PR_SF_SPAWN = 1, PR_SF_TERM = 2, PR_SF_KILL_GROUP = 3, PR_SF_PROBE = 4,
        PR_SF_CANCEL_PROBE = 5, PR_SF_REPORT = 6,
    }
    // The kind of a probe, and how one ended.
    u32 {
        PR_SK_STARTUP = 1, PR_SK_LIVENESS = 2, PR_SK_READINESS = 3,
        PR_SO_OK = 1, PR_SO_FAIL = 2, PR_SO_TIMEOUT = 3, PR_SO_INCONCLUSIVE = 4,
    }
    // What a report says.
    u32 {
        PR_SR_READY = 1, PR_SR_NOTREADY = 2, PR_SR_BACKOFF = 3, PR_SR_RESTARTED = 4,
        PR_SR_GAVEUP = 5, PR_SR_SUCCEEDED = 6, PR_SR_FAILED = 7, PR_SR_STOPPED = 8,
        PR_SR_STUCK = 9, PR_SR_PORT_CONFLICT = 10,
    }
    // Why.
    u32 {
        PR_SW_EXIT = 1, PR_SW_SIGNAL = 2, PR_SW_UNKNOWN = 3, PR_SW_START_FAILED = 4,
        PR_SW_PRE_EXEC = 5, PR_SW_STARTUP = 6, PR_SW_LIVENESS = 7, PR_SW_PROBE = 8,
        PR_SW_USER = 9, PR_SW_STOP = 10, PR_SW_STALE_RECORD = 11,
    }
    // A flag of an event or an effect.
    u32 {
        PR_SX_SIGNAL = 1, PR_SX_CORE = 2, PR_SX_OOM = 4, PR_SX_UNKNOWN = 8, PR_SX_PRE_EXEC = 16,
        PR_SX_EXACT = 32, PR_SX_STALE = 64,
    }
}
