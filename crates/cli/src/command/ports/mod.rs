//! `ports`: which numbers of a host are taken, and by whom; which were, and by whom.

mod history;

use std::io::IsTerminal;

use clap::Args;
use portreeve::identity::HostName;
use portreeve::port::{Port, PortRanges};
use portreeve_api::body::{HostPorts, PortView};
use portreeve_api::moment::Moment;
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::output::{Format, or_dash, print, print_json, rows};

use super::services::PATIENCE;

/// Show the ports of a host: its ranges, how many are free, and each number that is not, with its holder.
///
/// held: by a replica. releasing: until that has stopped. cooling: freed, and rests before the next gets it.
/// foreign: a process outside portreeve listens there. reserved: never given.
///
/// In a pipe: one line per number, or run of them, with port/protocol, state, holder, detail; ranges and counts are
/// left out there, --counts prints them.
///
/// With --port, --at or --since: who has or had the number, earliest first, one line with port/protocol, from, until
/// (or now), holder, name, account and job, and how it ended. What ended is known for 90 days.
#[derive(Args, Debug)]
pub(crate) struct Ports {
    /// The host
    name: HostName,
    /// Only ranges and counts, a name and its value a line
    #[arg(long, conflicts_with_all = ["port", "at", "since"])]
    counts: bool,
    /// Who has and had this number
    #[arg(long, value_name = "N")]
    port: Option<Port>,
    /// Who had it at this moment: 2026-11-30T02:00:00Z, milliseconds since 1970, or -2h for two hours ago
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "since"
    )]
    at: Option<Moment>,
    /// Who had it at this moment or later
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<Moment>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Ports {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        if self.port.is_some() || self.at.is_some() || self.since.is_some() {
            return history::show(&self, &connect.client()?).await;
        }
        let path = paths::host_part(&self.name, "ports");
        let host: HostPorts = connect.client()?.get(&path, PATIENCE).await?;
        if self.output == Format::Json {
            return print_json(&host);
        }
        if self.counts {
            return print(&figures(&host));
        }
        let mut text = String::new();
        if std::io::stdout().is_terminal() {
            text.push_str(&summary(&host));
            if host.ports.is_empty() {
                return print(&text);
            }
            text.push('\n');
        }
        text.push_str(&rows(
            &["PORT", "STATE", "HOLDER", "DETAIL"],
            host.ports.iter().map(row).collect(),
        ));
        print(&text)
    }
}

fn row(port: &PortView) -> Vec<String> {
    let holder = port.service.as_ref().map(|service| match port.replica {
        Some(index) => format!("{service}/{index}"),
        None => service.to_string(),
    });
    vec![
        format!("{}/{}", port.numbers, port.protocol),
        port.state.clone(),
        or_dash(holder),
        or_dash(detail(port)),
    ]
}

/// The port's name, the seconds left, the stranger's process, or why they are held by who was given up.
fn detail(port: &PortView) -> Option<String> {
    let known = [
        port.name.as_ref().map(ToString::to_string),
        port.left_s.map(|left| format!("free in {left}s")),
        port.pid.map(|pid| format!("pid {pid}")),
        port.comm.clone(),
        // Its new incarnation may run elsewhere: without a word it looks like a number that was forgotten.
        port.stranded.as_ref().map(|why| format!("({why})")),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(" "))
}

/// For people: what the host offers and how much of it is left.
fn summary(host: &HostPorts) -> String {
    let counts = &host.counts;
    let taken = [
        (counts.held, "held"),
        (counts.releasing, "releasing"),
        (counts.cooling, "cooling"),
        (counts.foreign, "foreign"),
        (counts.reserved, "reserved"),
    ];
    let taken: Vec<String> = taken
        .into_iter()
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    format!(
        "{}: {}\ndynamic:  {} ({} numbers; free: {} tcp, {} udp, {} both)\nfixed:    {}\nreserved: {}\nnot free: {}\n",
        host.host,
        host.state,
        host.ranges.dynamic,
        counts.dynamic,
        counts.free_tcp,
        counts.free_udp,
        counts.free_both,
        or_none(&host.ranges.fixed),
        or_none(&host.ranges.reserved),
        taken.join(", "),
    )
}

/// For programs: a name and its value, tab-separated.
fn figures(host: &HostPorts) -> String {
    let counts = &host.counts;
    let ranges = [
        ("dynamic", &host.ranges.dynamic),
        ("fixed", &host.ranges.fixed),
        ("reserved", &host.ranges.reserved),
    ];
    let counts = [
        ("numbers", counts.dynamic),
        ("free-tcp", counts.free_tcp),
        ("free-udp", counts.free_udp),
        ("free-both", counts.free_both),
        ("held", counts.held),
        ("releasing", counts.releasing),
        ("cooling", counts.cooling),
        ("foreign", counts.foreign),
        ("reserved", counts.reserved),
    ];
    let ranges = ranges
        .iter()
        .map(|(name, range)| format!("{name}-range\t{}\n", or_none(range)));
    let counts = counts
        .iter()
        .map(|(name, count)| format!("{name}\t{count}\n"));
    ranges.chain(counts).collect()
}

fn or_none(range: &PortRanges) -> String {
    if range.is_empty() {
        "-".to_owned()
    } else {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_of_a_lost_host_says_why_it_is_still_held() {
        let port = json!({
            "numbers": 8888, "protocol": "tcp", "state": "held", "service": "web.alice", "replica": 1, "name": "http",
            "stranded": "host lost, last contact 2026-11-30T03:29:12Z",
        });
        let port: PortView = serde_json::from_value(port).unwrap();
        let why = "http (host lost, last contact 2026-11-30T03:29:12Z)";
        assert_eq!(row(&port), ["8888/tcp", "held", "web.alice/1", why]);
    }
}
