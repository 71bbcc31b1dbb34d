//! The scheduler plugin: the core behind one C symbol, see [`portreeve::plugin_abi`].
pub use portreeve::plugin_abi::pr_get_api;
