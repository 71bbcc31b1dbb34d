//! portreeve: ports, supervision and endpoints for long-running services on batch and HPC clusters.
//!
//! This package is the lean core. It decides and does nothing else: no clock, no socket, no thread, no
//! file; time, randomness and outcomes are arguments and return values. The crates beside it do.

pub mod allocator;
pub mod endpoints;
pub mod host_addr;
pub mod identity;
pub mod plugin_abi;
pub mod port;
pub mod port_pool;
pub mod profile;
pub mod registry;
pub mod residency;
pub mod rights;
pub mod supervision;
pub mod time;
pub mod variables;
