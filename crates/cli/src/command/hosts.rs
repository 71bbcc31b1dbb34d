//! `hosts` and `whoami`.

use std::str::FromStr;

use clap::Args;
use portreeve_api::body::{HostList, HostView, WhoAmI};
use portreeve_api::{Client, ClientError, Problem, paths};

use crate::connect::Connect;
use crate::exit::Failure;
use crate::output::{Format, moment, or_dash, print, print_json, rows, tell};

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
        let list = all(&connect.client()?, &self.label).await?;
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
    match host.warnings.len() {
        0 => {}
        1 => notes.push("1 warning".to_owned()),
        many => notes.push(format!("{many} warnings")),
    }
    (!notes.is_empty()).then(|| notes.join(", "))
}

/// How often a list is begun anew whose pages were forgotten meanwhile.
const BEGUN_AGAIN: u32 = 3;

/// Every page of the list.
async fn all(client: &Client, labels: &[LabelArg]) -> Result<HostList, Failure> {
    let written: Vec<String> = labels.iter().map(LabelArg::written).collect();
    let filters: Vec<(&str, &str)> = written.iter().map(|it| ("label", it.as_str())).collect();
    let first = paths::with_parameters(&paths::hosts(), &filters);
    let mut begun = 0;
    loop {
        let mut list: HostList = client.get(&first, PATIENCE).await?;
        let whole = loop {
            let Some(cursor) = list.next_cursor.take() else {
                break true;
            };
            let path = paths::with_parameters(&paths::hosts(), &[("cursor", &cursor)]);
            match client.get::<HostList>(&path, PATIENCE).await {
                Ok(page) => {
                    list.hosts.extend(page.hosts);
                    list.next_cursor = page.next_cursor;
                }
                Err(ClientError::Refused(problem))
                    if problem.code == Problem::CURSOR_EXPIRED && begun < BEGUN_AGAIN =>
                {
                    break false;
                }
                Err(other) => return Err(other.into()),
            }
        };
        if whole {
            return Ok(list);
        }
        begun += 1;
    }
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
        let role = if who.admin { "admin" } else { "user" };
        print(&format!(
            "{} ({role}, by {}, sees {})\n",
            who.user, who.method, who.view_scope
        ))
    }
}
