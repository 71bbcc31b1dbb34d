//! What the job sees: the names and values of its variables, and the values behind `${...}`.
//!
//! No two variables of one replica share a name: port names map one to one (see
//! [`crate::port::PortName::variable`]), ours begin with a prefix that a profile may not use, and aliases
//! were checked against each other and the user's own when the profile was read.

mod fill;
mod told;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::identity::{HostName, Incarnation, Run, ServiceName};
use crate::port::{Port, PortName};
use crate::port_pool::PortGrant;
use crate::profile::Profile;

pub use crate::profile::PREFIX;
pub use fill::{FillError, fill};
pub use told::{Tell, ToldPlacement, ToldPort};

/// Everything the variables of one run are made of.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Begins every variable of ours; [`PREFIX`] unless the site has its own.
    pub prefix: &'a str,
    /// The service.
    pub service: &'a ServiceName,
    /// Which copy.
    pub index: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// Which start.
    pub run: Run,
    /// The host's name.
    pub host: &'a HostName,
    /// The host's published address.
    pub host_address: IpAddr,
    /// The addresses of ports that have one of their own; the others have the host's.
    pub port_addresses: &'a BTreeMap<PortName, IpAddr>,
    /// The ports it holds.
    pub grant: &'a PortGrant,
    /// A directory of the run's own, new and empty.
    pub scratch: &'a str,
    /// Where the controller answers.
    pub controller: &'a str,
    /// A file with the replica's token, 0600.
    pub token_file: &'a str,
}

impl Setting<'_> {
    /// Where clients of this port are sent.
    fn address_of(&self, port: &PortName) -> IpAddr {
        let own = self.port_addresses.get(port);
        own.copied().unwrap_or(self.host_address)
    }
}

/// The variables of a run: ours, the aliases, and `PORT` where the profile has exactly one port and no
/// `PORT` of its own.
///
/// They come after the user's own and win over them, but for `PORT`: one that the `env_file` sets is the
/// user's wish, which only the reader of that file can know.
#[must_use]
pub fn environment(profile: &Profile, setting: &Setting<'_>) -> Vec<(String, String)> {
    let aliases = profile.ports.iter();
    let aliases = aliases.filter_map(|port| Some((&port.name, port.env.as_deref()?)));
    let mut all = variables(setting, aliases);
    let taken = |name: &str| {
        let alias = |port: &crate::profile::DeclaredPort| port.env.as_deref() == Some(name);
        profile.env.contains_key(name)
            || profile.env_secret.iter().any(|secret| secret == name)
            || profile.ports.iter().any(alias)
    };
    if let [only] = profile.ports.as_slice()
        && let Some(granted) = setting.grant.port(&only.name)
        && !taken("PORT")
    {
        all.push(("PORT".to_owned(), granted.numbers.first().to_string()));
    }
    all
}

/// Our variables and the aliases of ports, for a caller that has no profile.
pub fn variables<'n>(
    setting: &Setting<'_>,
    aliases: impl IntoIterator<Item = (&'n PortName, &'n str)>,
) -> Vec<(String, String)> {
    let prefix = setting.prefix;
    let mut all = Vec::new();
    let mut tell = |name: fmt::Arguments<'_>, value: fmt::Arguments<'_>| {
        all.push((name.to_string(), value.to_string()));
    };
    for port in &setting.grant.ports {
        let port = ToldPort {
            name: &port.name,
            numbers: port.numbers,
            address: Some(setting.address_of(&port.name)),
        };
        port.tell(prefix, &mut tell);
    }
    let placement = ToldPlacement {
        service: setting.service,
        index: setting.index,
        incarnation: setting.incarnation,
        host: setting.host,
        host_address: Some(setting.host_address),
    };
    placement.tell(prefix, &mut tell);
    let mut set =
        |name: &str, value: &str| tell(format_args!("{prefix}{name}"), format_args!("{value}"));
    set("RUN", &setting.run.to_string());
    set("SCRATCH", setting.scratch);
    set("CONTROLLER", setting.controller);
    set("TOKEN_FILE", setting.token_file);
    for (name, alias) in aliases {
        if let Some(granted) = setting.grant.port(name) {
            all.push((alias.to_owned(), granted.numbers.first().to_string()));
        }
    }
    all
}

/// `host:port`, IPv6 in brackets.
fn address(host: IpAddr, port: Port) -> String {
    std::net::SocketAddr::new(host, port.number()).to_string()
}

#[cfg(test)]
#[path = "variables_test.rs"]
mod tests;
