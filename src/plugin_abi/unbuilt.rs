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
    dump(PrCtx, *mut c_char, u32, *mut u32);
}
