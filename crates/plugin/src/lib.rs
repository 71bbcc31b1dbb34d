//! The scheduler plugin: the core behind one exported C symbol, see [`portreeve::plugin_abi`].

use portreeve::plugin_abi::Cushioned;
pub use portreeve::plugin_abi::pr_get_api;

/// What lets `create` refuse where the system has no memory.
#[global_allocator]
static ALLOCATOR: Cushioned = Cushioned;
