//! `host NAME`: one host as the controller knows it.

use std::time::Duration;

use clap::Args;
use portreeve::host_addr::Prefix;
use portreeve::identity::HostName;
use portreeve::registry::HostOwner;
use portreeve_api::body::{DrainView, HostView};
use portreeve_api::paths;

use crate::command::services::PATIENCE;
use crate::connect::Connect;
use crate::exit::Failure;
use crate::output::{Format, moment, or_dash, print, print_json};

/// Show one host: its address and the rule that chose it, its ranges, what it can do, and how far a drain is.
#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The host
    pub(super) name: HostName,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,
}

impl Show {
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
        if let Some(drain) = &host.drain {
            text.push_str(&drained(drain));
        }
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
        if host.owner == HostOwner::Plugin {
            text.push_str(
                "owner: plugin, so another scheduler gives its ports and nothing new comes here\n",
            );
        }
        text.push_str(&machine(&host));
        text.push_str(&abilities(&host.capabilities));
        for warning in &host.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        print(&text)
    }
}

/// How far it is out of service.
fn drained(drain: &DrainView) -> String {
    let mut text = format!("drain: by {} since {}", drain.by, moment(drain.since));
    if let Some(until) = drain.until {
        text.push_str(&format!(", until {}", moment(until)));
    }
    text.push_str(&format!(", {} of {} left", drain.left, drain.replicas));
    if drain.attached > 0 {
        let jobs = "inside jobs of another scheduler stay";
        text.push_str(&format!(", {} {jobs}", drain.attached));
    }
    text.push('\n');
    for line in stays(drain) {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// What stays on a drained host for now, a line each.
pub(super) fn stays(drain: &DrainView) -> Vec<String> {
    let all = drain.stays.iter();
    let mut lines: Vec<String> = all
        .map(|stay| format!("{}/{} stays: {}", stay.service, stay.replica, stay.why))
        .collect();
    if drain.stays_more > 0 {
        lines.push(format!("{} more stay", drain.stays_more));
    }
    lines
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
