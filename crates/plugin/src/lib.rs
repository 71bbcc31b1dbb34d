//! The scheduler plugin: everything is in the core, see [`portreeve::plugin_abi`].
pub use portreeve::*;
