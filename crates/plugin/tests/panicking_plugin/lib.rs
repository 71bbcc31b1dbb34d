//! The plugin as it is, but for calls that panic where a test tells them to.

use portreeve::plugin_abi::Cushioned;
pub use portreeve::plugin_abi::{pr_get_api, pr_panic_at};

#[global_allocator]
static ALLOCATOR: Cushioned = Cushioned;
