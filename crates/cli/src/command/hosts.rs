//! `hosts`, `host` and `whoami`.

use std::time::Duration;

use clap::Args;
use portreeve::host_addr::Prefix;
use portreeve::identity::HostName;
use portreeve_api::body::{HostList, HostView, WhoAmI};
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::output::{Format, moment, or_dash, print, print_json, rows, tell};

use super::services::PATIENCE;

/// List hosts.
#[derive(Args, Debug)]
pub(crate) struct Hosts {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Hosts {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let list: HostList = connect.client()?.get(&paths::hosts(), PATIENCE).await?;
        if self.output == Format::Json {
            return print_json(&list);
        }
        let lines = list.hosts.iter().map(|host| {
            vec![
                host.host.to_string(),
                host.state.clone(),
                or_dash(host.address),
                host.dynamic.to_string(),
                host.counts.held.to_string(),
                moment(host.last_seen),
            ]
        });
        if list.hosts.is_empty() {
            tell!("no host has reported; `portreeve agent` on a host makes it one");
            return Ok(());
        }
        let heading = ["HOST", "STATE", "ADDRESS", "DYNAMIC", "HELD", "LAST SEEN"];
        print(&rows(&heading, lines.collect()))
    }
}

/// Show one host: its address and the rule that chose it, its ranges, what it can do.
#[derive(Args, Debug)]
pub(crate) struct Host {
    /// The host
    name: HostName,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Host {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let path = paths::host(&self.name);
        let host: HostView = connect.client()?.get(&path, PATIENCE).await?;
        if self.output == Format::Json {
            return print_json(&host);
        }
        let mut text = format!(
            "{}: {}, last seen {}\naddress: {} ({})\n",
            host.host,
            host.state,
            moment(host.last_seen),
            or_dash(host.address),
            host.address_rule,
        );
        for one in &host.addresses {
            let usage = if host.address == Some(one.address) {
                "published"
            } else {
                "usable"
            };
            let route = if one.default_route {
                ", carries the default route"
            } else {
                ""
            };
            text.push_str(&format!(
                "  {} {}/{}: {usage}{route}\n",
                one.interface, one.address, one.prefix
            ));
        }
        for one in &host.unusable {
            text.push_str(&format!(
                "  {} {}/{}: not published, {}\n",
                one.interface, one.address, one.prefix, one.reason
            ));
        }
        for (name, network) in &host.networks {
            let address = match network.address {
                Some(address) => address.to_string(),
                None => "no address here, so no port that names it".to_owned(),
            };
            let parts = Prefix::alternatives(&network.prefixes);
            text.push_str(&format!("network {name} ({parts}): {address}\n"));
        }
        text.push_str(&format!("dynamic ports: {}\n", host.dynamic));
        text.push_str(&machine(&host));
        text.push_str(&abilities(&host.capabilities));
        for warning in &host.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        print(&text)
    }
}

/// The machine, its agent and its clock.
fn machine(host: &HostView) -> String {
    let clock = match host.clock_skew_ms {
        None => "not compared with the controller's yet".to_owned(),
        Some(skew) => {
            let side = if skew < 0 { "behind" } else { "ahead of" };
            let off = Duration::from_millis(skew.unsigned_abs()).as_secs_f64();
            format!("{off:.1} s {side} the controller's")
        }
    };
    let machine = host.agent.as_ref().map(|agent| &agent.machine);
    format!(
        "machine: {}, boot {}, agent {}\nclock: {clock}\n",
        or_dash(machine),
        host.boot_id,
        host.agent_version,
    )
}

/// What the host can do, and what it means where something is missing.
fn abilities(can: &[String]) -> String {
    let mut text = format!("can: {}\n", portreeve_agent::told_abilities(can));
    for (word, means) in portreeve_agent::ABILITIES {
        if !can.iter().any(|one| one == word) {
            text.push_str(&format!("cannot: {word}: {means}\n"));
        }
    }
    text
}

/// Show who you are to the controller.
#[derive(Args, Debug)]
pub(crate) struct Whoami {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Whoami {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let who: WhoAmI = connect.client()?.get(&paths::whoami(), PATIENCE).await?;
        if self.output == Format::Json {
            return print_json(&who);
        }
        let role = if who.admin { "admin" } else { "user" };
        print(&format!(
            "{} ({role}, by {}, sees {})\n",
            who.user, who.method, who.view_scope
        ))
    }
}
