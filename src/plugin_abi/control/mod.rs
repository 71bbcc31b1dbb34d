//! Class C: what a context is told outside its transactions. Hosts, their networks, the ports of a kind of job; what
//! is read out of one context and restored into the next.

pub(super) mod export;
#[cfg(test)]
mod export_test;
pub(super) mod host;
pub(super) mod network;
#[cfg(test)]
pub(super) mod network_test;
pub(super) mod profile;
pub(super) mod restore;
