//! `controller`, `agent`, `shim`: what runs for long.

mod agent;
mod controller;
mod host_options;
mod shim;

pub(crate) use agent::{Agent, agent_config};
pub(crate) use controller::{Controller, NetworkOptions};
pub(crate) use host_options::{BackendOption, HostOptions, system_host_name};
pub(crate) use shim::Shim;
