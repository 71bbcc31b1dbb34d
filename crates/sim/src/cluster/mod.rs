//! The whole system on virtual time: one controller, its store, the network, and hosts with agents, workers and
//! processes. Everything that decides is production's: this folder only carries, delays, loses and breaks.
//!
//! * `spec` says what a cluster is made of, `act` what can be done to it, `wire` what its parts say to each other, `sight` what is seen of it,
//!   `check` what must be true of it.
//! * `run` is the loop: `schedule` says who is next, `network` carries what they say, `controller` (with `store`, `desks` and `telling`) and `host`
//!   are who they are; `people` and `workload` want something of them. All chance is drawn from `chance`, and `trace` keeps
//!   what happened.
//! * `fleet` is the same hosts beside a real controller.

pub(crate) mod act;
pub(crate) mod chance;
pub(crate) mod check;
pub(crate) mod controller;
mod desks;
pub(crate) mod fleet;
pub(crate) mod host;
pub(crate) mod network;
pub(crate) mod people;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod sight;
pub(crate) mod spec;
mod store;
mod telling;
pub(crate) mod trace;
pub(crate) mod wire;
mod workload;
