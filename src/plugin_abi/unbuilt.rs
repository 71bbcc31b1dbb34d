//! Calls whose place in the table is fixed and whose work is not built yet.

use std::ffi::c_char;

use crate::plugin_abi::constants::PR_ENOSYS;
use crate::plugin_abi::entry::outside;
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::types::*;

macro_rules! unbuilt {
    ($($name:ident($($type:ty),*);)*) => {$(
        /// See the header. Touches nothing and answers `PR_ENOSYS`.
        pub(super) unsafe extern "C" fn $name($(_: $type),*) -> i32 {
            outside(|| Err(Failure::said(PR_ENOSYS, stringify!($name))))
        }
    )*};
}

unbuilt! {
    wait_fd(PrCtx, *mut i32);
    snap_open(PrCtx, PrStr, *mut PrSnap, *mut u64, *mut u32);
    snap_read(PrSnap, u32, *mut PrEndpoint, u32, *mut u32);
    snap_close(PrSnap);
    watch_open(PrCtx, PrStr, u64, *mut PrWatch, *mut i32);
    watch_next(PrWatch, *mut PrChange, u32, *mut u32, *mut u32);
    watch_close(PrWatch);
    dump(PrCtx, *mut c_char, u32, *mut u32);
}
