//! The per-host daemon: tells the controller what the host is like, keeps its lease, and starts a worker
//! for each replica that is wanted here.
//!
//! Everything dials out; nothing listens but a socket by which agents of one network find each other. The agent may be killed at any time: workers outlive it, and the
//! next one adopts them by boot, process number and start time. It stops nothing by itself; see
//! [`portreeve::residency`] for every decision about a replica.
//!
//! Each task has one part of the truth: `facts` looks at the host, `household` owns the replicas' folders,
//! `attached` keeps what jobs of another scheduler bring along, `uplink` is the line to the controller, on which `orders` hands over
//! what is wanted and begins what `log_read` answers.

mod account;
mod agent;
mod attached;
mod check;
mod clock;
mod config;
mod contact;
mod facts;
#[cfg(fuzzing)]
pub mod fuzzing;
mod household;
mod identity;
mod lock;
mod log_file;
mod log_read;
mod neighbours;
mod orders;
mod owner;
mod shutdown;
mod uplink;

pub use agent::{Agent, StartError};
pub use attached::SocketError;
pub use check::{ABILITIES, Finding, Verdict, check, chosen_address, told_abilities};
pub use config::{Config, Ephemeral, SocketPlace};
pub use neighbours::SharedNumbers;
