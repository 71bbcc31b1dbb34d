//! The REST contract: paths, bodies and a thin client. Controller, agent, worker and command line meet here.
//!
//! Everything is JSON under `/api/v1`; errors are `application/problem+json` (RFC 9457) with a stable
//! `code`. The bodies of services, replicas, hosts and reports are the registry's own views.

pub mod body;
pub mod client;
pub mod local;
pub mod paths;
mod problem;
pub mod site_profiles;

pub use client::{Client, ClientError, SENT_HEADER, Target};
pub use problem::Problem;
