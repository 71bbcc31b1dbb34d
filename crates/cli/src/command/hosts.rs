//! `hosts` and `whoami`.

use std::str::FromStr;

use clap::Args;
use portreeve::registry::HostOwner;
use portreeve_api::body::{HostList, HostView, WhoAmI};
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::output::{Format, moment, or_dash, print, print_json, rows, tell};

use super::every_page::every_page;
use super::services::PATIENCE;

/// List hosts: their state, their address, and what is special about each.
///
/// In a pipe: one line per host with name, state, address, dynamic ports, held ports, last seen, notes.
#[derive(Args, Debug)]
pub(crate) struct Hosts {
    /// Only hosts with this label; several: with all of them
    #[arg(short, long, value_name = "NAME=VALUE")]
    label: Vec<LabelArg>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Hosts {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let labels: Vec<String> = self.label.iter().map(LabelArg::written).collect();
        let filters: Vec<(&str, &str)> = labels.iter().map(|it| ("label", it.as_str())).collect();
        let list: HostList = every_page(&connect.client()?, &paths::hosts(), &filters).await?;
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
                or_dash(notes(host)),
            ]
        });
        if list.hosts.is_empty() {
            tell!("{}", nobody(&self.label));
            return Ok(());
        }
        let heading = [
            "HOST",
            "STATE",
            "ADDRESS",
            "DYNAMIC",
            "HELD",
            "LAST SEEN",
            "NOTES",
        ];
        print(&rows(&heading, lines.collect()))
    }
}

fn nobody(labels: &[LabelArg]) -> &'static str {
    if labels.is_empty() {
        "no host has reported; `portreeve agent` on a host makes it one"
    } else {
        "no host has these labels; `portreeve host NAME` shows those that one has"
    }
}

/// What is special about a host, in a few words.
fn notes(host: &HostView) -> Option<String> {
    let mut notes = Vec::new();
    if let Some(drain) = &host.drain {
        if drain.left > 0 {
            notes.push(format!("{} of {} left", drain.left, drain.replicas));
        }
        if drain.attached > 0 {
            notes.push(format!("{} attached", drain.attached));
        }
    }
    if host.owner == HostOwner::Plugin {
        notes.push("of a plugin".to_owned());
    }
    match host.warnings.len() {
        0 => {}
        1 => notes.push("1 warning".to_owned()),
        many => notes.push(format!("{many} warnings")),
    }
    (!notes.is_empty()).then(|| notes.join(", "))
}

/// A label of a host: `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelArg {
    name: String,
    value: String,
}

impl LabelArg {
    /// As the query has it.
    fn written(&self) -> String {
        format!("{}:{}", self.name, self.value)
    }
}

impl FromStr for LabelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("write NAME=VALUE".to_owned()),
        }
    }
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
        let ends = who
            .expires_at
            .map_or_else(String::new, |at| format!(", until {}", moment(at)));
        let by = match &who.host {
            Some(host) if who.method == "agent" => format!("relayed by host {host}"),
            _ => format!("by {}", who.method),
        };
        print(&format!(
            "{} ({}, {by}, sees {}, manages {}{ends})\n",
            who.user, who.role, who.view_scope, who.manage_scope
        ))
    }
}
