//! The per-host daemon: tells the controller what the host is like, keeps its lease, and starts a worker
//! for each replica that is wanted here.
//!
//! Everything dials out; nothing listens. The agent may be killed at any time: workers outlive it, and the
//! next one adopts them by boot, process number and start time. It stops nothing by itself; see
//! [`portreeve::residency`] for every decision about a replica.
//!
//! Each task has one part of the truth: `facts` looks at the host, `household` owns the replicas' folders,
//! `uplink` reports and keeps the lease, `orders` holds the long poll and begins what `log_read` answers.

mod account;
mod agent;
mod config;
mod facts;
mod household;
mod lock;
mod log_file;
mod log_read;
mod orders;
mod owner;
mod uplink;

pub use agent::{Agent, StartError};
pub use config::{Config, Ephemeral};
