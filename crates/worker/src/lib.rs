//! The per-replica supervisor: starts one service, watches it, restarts it in place, and outlives agent
//! and controller.
//!
//! [`run`] drives [`portreeve::supervision::Machine`] on a real host. It keeps everything about its replica in
//! the replica's folder: killed at any moment, a new worker of the same folder takes over without a
//! restart, and learns how a service ended meanwhile from the run's [`shim`].
//!
//! It never speaks of other replicas, never chooses a port, and keeps no connection open.

mod account;
pub mod alone;
mod attached;
mod backend;
mod checks;
mod clock;
mod conflict;
mod containment;
mod driver;
mod env_file;
mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
mod inherited;
mod job;
mod journal;
mod lifeline;
mod limits;
mod log_cut;
mod logs;
mod orders;
mod own_log;
pub mod probe;
mod probing;
mod process;
pub mod shim;
mod sources;
mod unwritten;
mod uplink;
mod worker;

pub use account::BecomeError;
pub use alone::run_alone;
pub use attached::{Berth, Outcome, run_attached};
pub use backend::ShimProgram;
pub use inherited::is_ignored;
pub use worker::{WorkerError, run, run_with};
