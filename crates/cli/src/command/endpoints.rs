//! `endpoints`: where a service's ready replicas answer.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use portreeve_api::body::{self, Endpoint, EndpointPort};
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::names::PortArg;
use crate::output::{or_dash, print, print_json, rows};

use super::services::PATIENCE;

/// Print where a service's ready replicas answer: one host:port a line.
///
/// Without :PORT the first published port is meant. Exit code 3 if none is ready, 4 if the service is
/// unknown or publishes no port: then nothing is printed on standard output.
#[derive(Args, Debug)]
pub(crate) struct Endpoints {
    /// The service, and which of its ports: NAME[.NAMESPACE][:PORT]
    name: PortArg,
    /// Only one, the ready replica of the lowest index
    #[arg(long, conflicts_with = "all")]
    one: bool,
    /// Also what is not ready, with state and reason, as a table or JSON
    #[arg(long)]
    all: bool,
    /// How to print it; by default lines, with --all a table
    #[arg(short, long, value_enum)]
    output: Option<Form>,
}

/// The forms of a list of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// host:port lines
    Lines,
    /// One atomic snapshot, as the REST API answers
    Json,
    /// A table on a terminal, tab-separated lines in a pipe
    Table,
    /// NAME=host:port lines for a shell to read
    Env,
    /// URLs, by the port's app_protocol and path
    Url,
}

impl Endpoints {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let form = match (self.output, self.all) {
            (None, true) => Form::Table,
            (None, false) => Form::Lines,
            (Some(Form::Lines | Form::Env | Form::Url), true) => {
                let message = "--all lists what has no state in this form; add -o table or -o json";
                return Err(Failure::new(Code::Usage, message));
            }
            (Some(form), _) => form,
        };
        let mut path = paths::service_part(&self.name.service, "endpoints");
        path.push_str(if self.all {
            "?state=all"
        } else {
            "?state=ready"
        });
        if let Some(port) = &self.name.port {
            path.push_str(&format!("&port={port}"));
        }
        let mut answer: body::Endpoints = connect.client()?.get(&path, PATIENCE).await?;
        if self.one {
            answer.endpoints.truncate(1);
        }
        let outcome = if answer.ready == 0 {
            Err(Failure::new(Code::NoneReady, none_is_ready(&answer)))
        } else if self.listed(&answer).next().is_none() {
            let message = format!("{} is ready, but publishes no port", answer.service);
            Err(Failure::new(Code::NoSuchService, message))
        } else {
            Ok(())
        };
        match form {
            Form::Json => print_json(&answer)?,
            Form::Table => print(&as_table(&answer))?,
            // A script never takes a failure for an empty list.
            _ if outcome.is_err() => {}
            Form::Lines => print(&self.lines(&answer, authority))?,
            Form::Url => print(&self.lines(&answer, url))?,
            Form::Env => print(&self.as_variables(&answer))?,
        }
        outcome
    }

    /// The endpoints that default forms show: listed, with an address, one port each.
    fn listed<'a>(
        &self,
        answer: &'a body::Endpoints,
    ) -> impl Iterator<Item = (&'a Endpoint, IpAddr, &'a EndpointPort)> {
        let name = self.name.port.clone();
        answer
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.conditions.ready)
            .filter_map(move |endpoint| {
                let port = endpoint
                    .ports
                    .iter()
                    .find(|port| name.as_ref().is_none_or(|name| port.name == name.as_str()))?;
                Some((endpoint, endpoint.address_of(port)?, port))
            })
    }

    fn lines(&self, answer: &body::Endpoints, line: fn(IpAddr, &EndpointPort) -> String) -> String {
        self.listed(answer)
            .map(|(_, address, port)| format!("{}\n", line(address, port)))
            .collect()
    }

    fn as_variables(&self, answer: &body::Endpoints) -> String {
        let label = answer.service.split('.').next().unwrap_or_default();
        let prefix = label.to_ascii_uppercase().replace('-', "_");
        let all: Vec<_> = self
            .listed(answer)
            .map(|(_, ip, port)| authority(ip, port))
            .collect();
        let mut text = format!("{prefix}_ENDPOINTS={}\n", all.join(","));
        for (place, line) in all.iter().enumerate() {
            text.push_str(&format!("{prefix}_ENDPOINT_{place}={line}\n"));
        }
        text
    }
}

fn none_is_ready(answer: &body::Endpoints) -> String {
    let service = &answer.service;
    match answer.desired {
        0 => format!("{service} has no replica; `portreeve scale {service} N` gives it some"),
        1 => format!(
            "{service} is known, but its replica is not ready; `portreeve service {service}` says why"
        ),
        many => format!(
            "{service} is known, but none of its {many} replicas is ready; `portreeve service {service}` says why"
        ),
    }
}

fn authority(address: IpAddr, port: &EndpointPort) -> String {
    std::net::SocketAddr::new(address, port.port).to_string()
}

fn url(address: IpAddr, port: &EndpointPort) -> String {
    let scheme = port.app_protocol.as_deref().unwrap_or("http");
    let path = port.path.as_deref().unwrap_or("/");
    format!("{scheme}://{}{path}", authority(address, port))
}

fn as_table(answer: &body::Endpoints) -> String {
    let mut lines = Vec::new();
    for endpoint in &answer.endpoints {
        let state = match endpoint.conditions {
            body::Conditions { ready: true, .. } => "ready",
            body::Conditions { serving: true, .. } => "serving",
            body::Conditions {
                terminating: true, ..
            } => "terminating",
            _ => "not ready",
        };
        for port in &endpoint.ports {
            lines.push(vec![
                endpoint.replica.to_string(),
                endpoint.host.clone(),
                port.name.clone(),
                or_dash(
                    endpoint
                        .address_of(port)
                        .map(|address| authority(address, port)),
                ),
                state.to_owned(),
                or_dash(endpoint.reason.as_ref()),
            ]);
        }
    }
    rows(
        &["REPLICA", "HOST", "PORT", "ADDRESS", "STATE", "REASON"],
        lines,
    )
}
