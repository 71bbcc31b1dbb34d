//! The whole system on virtual time: one controller, its store, the network, and hosts with agents, workers and
//! processes. Everything that decides is production's: this folder only carries, delays, loses and breaks.
//!
//! * `spec` says what a cluster is made of, `act` what can be done to it, `wire` what its parts say to each other, `sight` what is seen of it, `check` what must be true of it.

mod act;
mod check;
mod host;
mod sight;
mod spec;
mod wire;
