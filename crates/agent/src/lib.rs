//! The per-host daemon: tells the controller what the host is like, keeps its lease, and starts a worker
//! for each replica that is wanted here.
//!
//! Everything dials out; nothing listens. The agent may be killed at any time: workers outlive it, and the
//! next one adopts them by boot, process number and start time. It stops nothing by itself; see
//! [`portreeve::residency`] for every decision about a replica.
//!
//! Each task has one part of the truth: `facts` looks at the host, `household` owns the replicas' folders,
//! `attached` keeps what jobs of another scheduler bring along, `uplink` reports and keeps the lease, `orders` holds the long poll and begins what `log_read` answers.

mod agent;
mod attached;
mod config;
mod facts;
mod household;
mod lock;
mod log_read;
mod orders;
mod uplink;

pub use agent::{Agent, StartError};
pub use attached::SocketError;
pub use config::{Config, Ephemeral, SocketPlace};
