//! The whole system on virtual time: one controller, its store, the network, and hosts with agents, workers and
//! processes. Everything that decides is production's: this folder only carries, delays, loses and breaks.
//!
//! * `spec` says what a cluster is made of, `act` what can be done to it, `wire` what its parts say to each other, `sight` what is seen of it, `check` what must be true of it.

pub(crate) mod act;
pub(crate) mod check;
pub(crate) mod host;
pub(crate) mod sight;
pub(crate) mod spec;
pub(crate) mod wire;
