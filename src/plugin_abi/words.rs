//! The words for codes and reasons, in static storage.

use std::ffi::{CStr, c_char};

use crate::plugin_abi::constants::*;

/// What a code means.
pub(super) const fn of_code(code: i32) -> &'static CStr {
    match code {
        PR_OK => c"done",
        PR_EINVAL => c"an argument is malformed",
        PR_ESTALE => c"the id, mark or report is out of date",
        PR_EBUSY => c"another call or a transaction is in the way",
        PR_EAGAIN => c"not yet: ask again later",
        PR_ENOSPC => c"the buffer is too small",
        PR_ENOPORT => c"the host cannot give these ports",
        PR_EEXIST => c"the key has its numbers already",
        PR_E2BIG => c"a field that this plugin does not know is used",
        PR_EVERSION => c"the versions or capabilities do not fit",
        PR_EFORK => c"the context belongs to the parent process",
        PR_EPOISON => {
            c"a defect was caught and the context is in doubt: destroy it, create and restore"
        }
        PR_ENOMEM => c"there is no memory",
        PR_ESTATE => c"not in this state",
        PR_ELIMIT => c"more than the limit",
        PR_EIO => c"the operating system refused",
        PR_ENOENT => c"there is no such thing",
        PR_ENOSYS => c"not built yet",
        _ => c"an unknown code",
    }
}

/// What a reason means, in the words that users see.
pub(super) const fn of_reason(reason: u32) -> &'static CStr {
    match reason {
        PR_R_NONE => c"NONE",
        PR_R_HELD => c"HELD",
        PR_R_RELEASING => c"RELEASING",
        PR_R_COOLING => c"COOLING",
        PR_R_RESERVED => c"RESERVED",
        PR_R_FOREIGN => c"FOREIGN",
        PR_R_NOT_IN_POOL => c"NOT IN POOL",
        PR_R_TOO_FEW => c"TOO FEW FREE",
        PR_R_NO_BLOCK => c"NO BLOCK",
        PR_R_AWAITED => c"AWAITED",
        PR_R_DRAINED => c"HOST DRAINED",
        PR_R_SUSPECT => c"HOST SUSPECT",
        PR_R_LOST => c"HOST LOST",
        PR_R_UNKNOWN_HOST => c"UNKNOWN HOST",
        PR_R_NO_ADDRESS => c"NO ADDRESS",
        PR_R_NOT_REPORTED => c"HOST NOT REPORTED",
        _ => c"UNKNOWN REASON",
    }
}

/// See `strerror_` in the header.
pub(super) unsafe extern "C" fn strerror(code: i32) -> *const c_char {
    of_code(code).as_ptr()
}

/// See `reason_` in the header.
pub(super) unsafe extern "C" fn reason(reason: u32) -> *const c_char {
    of_reason(reason).as_ptr()
}
