//! The written profile: TOML or JSON in, valid domain types out, every error with its place.
//!
//! What is submitted may stand on profiles of the site and have flags set over it ([`Profile::from_layers`]);
//! the result is the effective profile, and for each value the layer that set it.
//!
//! A [`Profile`] that exists is valid. Its serde form is the profile's own JSON schema, so what is stored
//! or sent is read back by the same parser.

mod document;
mod error;
mod host_list;
mod layers;
mod lines;
mod merge;
mod origin;
mod parse;
mod read;
mod syntax;
mod template;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::{HostName, Label, NetworkName};
use crate::port::{PortName, PortRanges, Protocol};
use crate::port_pool::{Want, WantedPort};
use crate::supervision;

pub use crate::identity::{Audience, Visibility};
pub use error::{Place, ProfileError, ProfileErrors, Warning};
pub use host_list::{HostListError, expand as expand_hosts};
pub use layers::{
    Body, Layer, MAX_FLAGS, MAX_LAYERS, ParseLayerError, SiteProfiles, Source, Written,
};
pub use origin::EffectiveValue;
pub use parse::{Checked, MAX_FILE, MAX_JSON, PREFIX, check_site_profile, known_fields};
pub use read::is_variable;
pub use template::{ParseTemplateError, Segment, Template};

/// The effective profile of one service: every default filled in, every rule checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The service's name inside its namespace.
    pub name: Label,
    /// The namespace written in the profile, if any; else the submitter's own.
    pub namespace: Option<crate::identity::Namespace>,
    /// How many copies.
    pub replicas: Replicas,
    /// What to run.
    pub command: Command,
    /// Run once per placement, before the first run.
    pub pre_exec: Option<Command>,
    /// Where to run it; the submitter's choice, else the replica's own directory.
    pub working_dir: Option<String>,
    /// The user's own variables.
    pub env: BTreeMap<String, Template>,
    /// A file of variables, read at each start.
    pub env_file: Option<String>,
    /// Variables taken from the submitter's environment and never shown.
    pub env_secret: Vec<String>,
    /// Free words for readers.
    pub labels: BTreeMap<String, String>,
    /// Who sees endpoints.
    pub visibility: Visibility,
    /// Who reads logs beside the owner.
    pub logs: Vec<Audience>,
    /// Whether it is placed again after host loss.
    pub rerunnable: bool,
    /// What a worker does when cut off for longer than the grace.
    pub on_cut_off: OnCutOff,
    /// Its named ports, in the order written.
    pub ports: Vec<DeclaredPort>,
    /// Restart, backoff, give-up, probe timing, stop.
    pub supervision: Arc<supervision::Config>,
    /// The stop signal's number.
    pub stop_signal: i32,
    /// What the startup probe does; present exactly when `supervision.startup` is.
    pub startup: Option<Probe>,
    /// What the liveness probe does; present exactly when `supervision.liveness` is.
    pub liveness: Option<Probe>,
    /// What the readiness probe does; present exactly when `supervision.readiness` is.
    pub readiness: Option<Probe>,
    /// Where it may run.
    pub placement: PlacementRule,
}

/// How many copies of a service run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replicas {
    /// This many, 0 to [`Replicas::MOST`].
    Count(u32),
    /// One on each eligible host.
    PerHost,
}

impl Replicas {
    /// The most copies of one service.
    pub const MOST: u32 = 100_000;
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments; at least the program.
    Argv(Vec<Template>),
    /// A line for `/bin/sh -c`.
    Shell(Template),
}

/// One port as a profile declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredPort {
    /// Its name.
    pub name: PortName,
    /// The side or sides.
    pub protocol: Protocol,
    /// Fixed, any, or a block.
    pub want: Want,
    /// Narrows "any".
    pub within: Option<PortRanges>,
    /// A further variable with the bare number.
    pub env: Option<String>,
    /// Whether it appears among the endpoints.
    pub publish: bool,
    /// What speaks there, for readers: `http`, `https`, `grpc`.
    pub app_protocol: Option<String>,
    /// A path for readers.
    pub path: Option<String>,
    /// The site's network in which its address lies, instead of the published one.
    pub network: Option<NetworkName>,
    /// Whose listener counts as this replica's.
    pub owner: ListenerOwner,
}

impl DeclaredPort {
    /// What it asks of a pool.
    #[must_use]
    pub fn wanted(&self) -> WantedPort {
        WantedPort {
            name: self.name.clone(),
            protocol: self.protocol,
            want: self.want,
            within: self.within.clone(),
        }
    }
}

/// Whose listener counts as the replica's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerOwner {
    /// A process of this run.
    #[default]
    Run,
    /// A process of the same user.
    User,
    /// Anybody.
    Any,
}

/// What a worker does when it is cut off for longer than the host grace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnCutOff {
    /// The service goes on.
    #[default]
    Keep,
    /// The service is stopped.
    Stop,
}

/// What one probe does. Its timing is in [`supervision::Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// One GET.
    Http(HttpProbe),
    /// One connect.
    Tcp {
        /// The port.
        port: PortName,
        /// A literal address instead of the replica's.
        host: Option<std::net::IpAddr>,
    },
    /// A program whose exit code decides.
    Command(Command),
    /// No connection: the published ports have listeners of this replica.
    Listening,
}

/// One HTTP GET and what counts as success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// The port.
    pub port: PortName,
    /// A literal address instead of the replica's.
    pub host: Option<std::net::IpAddr>,
    /// Begins with `/`.
    pub path: Template,
    /// Accepted status codes as inclusive ranges; 200 to 399 by default.
    pub expect: Vec<(u16, u16)>,
    /// Further header lines.
    pub headers: BTreeMap<String, Template>,
    /// The body must contain this text.
    pub require_body: Option<String>,
}

/// Where a replica may be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementRule {
    /// Only these hosts; empty: all.
    pub hosts: Vec<HostName>,
    /// Not these hosts.
    pub exclude: Vec<HostName>,
    /// Only hosts with these labels.
    pub labels: BTreeMap<String, String>,
}

#[cfg(test)]
#[path = "layers_test.rs"]
mod layers_tests;
#[cfg(test)]
#[path = "stored_test.rs"]
mod stored_tests;
#[cfg(test)]
#[path = "profile_test.rs"]
mod tests;
