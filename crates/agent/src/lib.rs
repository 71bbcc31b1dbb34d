//! The per-host daemon: tells the controller what the host is like, keeps its lease, and starts a worker
//! for each replica that is wanted here.
//!
//! Everything dials out; nothing listens but Unix sockets: for agents of one network, for jobs, for people. The agent may be killed at any time: workers outlive it, and the
//! next one adopts them by boot, process number and start time. It stops nothing by itself; see
//! [`portreeve::residency`] for every decision about a replica.
//!
//! Each task has one part of the truth: `facts` looks at the host, `household` owns the replicas' folders,
//! `attached` keeps what jobs of another scheduler bring along, `uplink` is the line to the controller, on which `orders` hands over
//! what is wanted and begins what `log_read` answers. `membership` has the host's token, `relay` asks under it for the host's people.

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
mod membership;
mod neighbours;
mod orders;
mod owner;
mod relay;
mod shutdown;
mod socket;
mod uplink;

pub use agent::{Agent, StartError};
pub use check::{ABILITIES, Finding, Verdict, check, chosen_address, told_abilities};
pub use config::{Config, Ephemeral, SocketPlace, TokenPlaces};
pub use membership::{JoinError, replace};
pub use neighbours::SharedNumbers;
pub use socket::SocketError;
