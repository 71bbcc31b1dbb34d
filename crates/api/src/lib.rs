//! The REST contract: paths, bodies and a thin client. Controller, agent, worker and command line meet here,
//! also in what those of one host share: the folder of a replica, the limits, the reader of the kernel's sockets.
//!
//! Everything is JSON under `/api/v1`; errors are `application/problem+json` (RFC 9457) with a stable
//! `code`. The bodies of services, replicas, hosts and reports are the registry's own views.

mod account;
mod assigned;
pub mod attach;
pub mod body;
pub mod client;
pub mod containment;
mod flow;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod host_limits;
pub mod local;
mod log_parts;
pub mod moment;
mod pass;
pub mod paths;
pub mod plain_file;
mod problem;
pub mod removal;
pub mod service_manager;
pub mod site_profiles;
pub mod sockets;
pub mod stream;
mod target;
pub mod tls;
pub mod tokens;

pub use client::{Client, ClientError, ON_BEHALF_HEADER, SENT_HEADER};
pub use pass::Passed;
pub use problem::Problem;
pub use target::{ParseTargetError, Target};
