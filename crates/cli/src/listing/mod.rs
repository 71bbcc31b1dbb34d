//! Where services answer, as commands write it: lines, variables, URLs, a table, JSON, or a template of the reader's.

mod template;

use std::net::IpAddr;

use clap::ValueEnum;
use portreeve::port::PortName;
use portreeve_api::body::{self, Conditions, Endpoint, EndpointPort};
use portreeve_api::stream::ServiceSet;

use crate::exit::Failure;
use crate::output::{or_dash, plain_rows, table, terminal_width};

pub(crate) use template::Template;

/// The forms of a list of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// host:port lines
    Lines,
    /// One moment of the service, as the REST API answers
    Json,
    /// A table on a terminal, tab-separated lines in a pipe
    Table,
    /// NAME=host:port lines for a shell to read
    Env,
    /// URLs, by the port's app_protocol and path
    Url,
}

/// One service's endpoints, and which of their ports the reader means.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) service: String,
    pub(crate) revision: u64,
    pub(crate) desired: u32,
    pub(crate) ready: u32,
    pub(crate) stale: bool,
    /// The port meant; without: the first published one.
    pub(crate) port: Option<PortName>,
    endpoints: Vec<Endpoint>,
    /// The whole as the REST API answers it.
    json: String,
}

impl Listing {
    /// What the controller answers of a service.
    pub(crate) fn of(answer: body::Endpoints, port: Option<PortName>) -> Result<Self, Failure> {
        Ok(Self {
            json: serde_json::to_string_pretty(&answer).map_err(Failure::plain)?,
            service: answer.service,
            revision: answer.revision,
            desired: answer.desired,
            ready: answer.ready,
            stale: answer.stale,
            port,
            endpoints: answer.endpoints,
        })
    }

    /// What a watcher is told of a service.
    pub(crate) fn of_set(set: ServiceSet, text: String, port: Option<PortName>) -> Self {
        Self {
            json: text,
            service: set.service,
            revision: set.revision,
            desired: set.desired.unwrap_or(set.ready),
            ready: set.ready,
            stale: set.stale,
            port,
            endpoints: set.endpoints,
        }
    }

    /// A service of which nothing is known, or that is not there.
    pub(crate) fn none(service: &str) -> Self {
        let json =
            serde_json::json!({ "service": service, "desired": 0, "ready": 0, "endpoints": [] });
        Self {
            json: json.to_string(),
            service: service.to_owned(),
            revision: 0,
            desired: 0,
            ready: 0,
            stale: false,
            port: None,
            endpoints: Vec::new(),
        }
    }

    /// Says that it is stale.
    pub(crate) fn staleness(&self) -> String {
        let service = &self.service;
        format!(
            "{service} is as it was before the controller started; not all its hosts have reported since"
        )
    }

    /// The whole as JSON, an object.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// Whether the other shows readers the same: their numbers and the age of what they say aside.
    pub(crate) fn shows_the_same(&self, other: &Self) -> bool {
        let shown = |endpoint: &Endpoint| {
            let mut shown = endpoint.clone();
            (shown.revision, shown.restarts) = (0, 0);
            shown
        };
        let (ours, theirs) = (self.endpoints.iter(), other.endpoints.iter());
        (self.desired, self.ready) == (other.desired, other.ready)
            && ours.map(shown).eq(theirs.map(shown))
    }

    /// The endpoints that clients may be sent to, with an address, one port each.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (&Endpoint, IpAddr, &EndpointPort)> {
        let ready = self.endpoints.iter().filter(|it| it.conditions.ready);
        ready.filter_map(|endpoint| {
            let (address, port) = self.of_port(endpoint)?;
            Some((endpoint, address?, port))
        })
    }

    /// The port of the endpoint that the reader means, and where it is.
    fn of_port<'a>(&self, endpoint: &'a Endpoint) -> Option<(Option<IpAddr>, &'a EndpointPort)> {
        let mut ports = endpoint.ports.iter();
        let meant =
            |port: &EndpointPort| self.port.as_ref().is_none_or(|it| port.name == it.as_str());
        let port = ports.find(|port| meant(port))?;
        Some((endpoint.address_of(port), port))
    }

    /// `host:port` of each that is listed.
    pub(crate) fn authorities(&self) -> Vec<String> {
        let listed = self.listed();
        listed.map(|(_, ip, port)| authority(ip, port)).collect()
    }

    /// What the ports of its endpoints are called, each once, in the order of the profile.
    pub(crate) fn port_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for port in self.endpoints.iter().flat_map(|it| &it.ports) {
            if !names.contains(&port.name.as_str()) {
                names.push(&port.name);
            }
        }
        names
    }

    fn urls(&self) -> impl Iterator<Item = String> {
        self.listed().map(|(_, address, port)| url(address, port))
    }

    fn variables(&self) -> Vec<String> {
        let label = self.service.split('.').next().unwrap_or_default();
        let mut prefix = label.to_ascii_uppercase().replace('-', "_");
        // No shell takes a variable that begins with a digit.
        if prefix.starts_with(|first: char| first.is_ascii_digit()) {
            prefix.insert(0, '_');
        }
        let all = self.authorities();
        let mut lines = vec![format!("{prefix}_ENDPOINTS={}", all.join(","))];
        for (place, line) in all.iter().enumerate() {
            lines.push(format!("{prefix}_ENDPOINT_{place}={line}"));
        }
        lines
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let ports = |endpoint: &Endpoint| {
            let row = |port: &EndpointPort| {
                let address = endpoint.address_of(port);
                vec![
                    endpoint.replica.to_string(),
                    endpoint.host.clone(),
                    port.name.clone(),
                    or_dash(address.map(|address| authority(address, port))),
                    state(endpoint.conditions).to_owned(),
                    or_dash(endpoint.reason.as_ref()),
                ]
            };
            endpoint.ports.iter().map(row).collect::<Vec<_>>()
        };
        self.endpoints.iter().flat_map(ports).collect()
    }
}

/// How to write listings.
#[derive(Debug)]
pub(crate) enum Writing {
    /// In one of the usual forms.
    Form(Form),
    /// By a template of the reader's.
    Template(Template),
}

/// Where a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Before a person's eyes: tables are aligned.
    Terminal,
    /// Into a pipe or a file.
    Plain,
}

impl Writing {
    /// The text of one service.
    pub(crate) fn one(&self, listing: &Listing, surface: Surface) -> Result<String, Failure> {
        match self {
            Self::Form(Form::Json) => Ok(format!("{}\n", listing.json)),
            Self::Form(Form::Table) => Ok(aligned(&TABLE, listing.rows(), surface)),
            Self::Form(form) => Ok(of_lines(*form, &[listing])),
            Self::Template(template) => template.render(&[listing]),
        }
    }

    /// The text of several services: of each in turn; tables then name the service, and JSON is an object with a list.
    pub(crate) fn several(
        &self,
        listings: &[&Listing],
        surface: Surface,
    ) -> Result<String, Failure> {
        match self {
            Self::Form(Form::Json) => {
                let all: Vec<_> = listings.iter().map(|it| it.json.as_str()).collect();
                Ok(format!("{{\"services\":[{}]}}\n", all.join(",")))
            }
            Self::Form(Form::Table) => {
                let heading = [&["SERVICE"], TABLE.as_slice()].concat();
                let named = |listing: &&Listing| {
                    let named = |row| [vec![listing.service.clone()], row].concat();
                    listing.rows().into_iter().map(named).collect::<Vec<_>>()
                };
                let rows = listings.iter().flat_map(named).collect();
                Ok(aligned(&heading, rows, surface))
            }
            Self::Form(form) => Ok(of_lines(*form, listings)),
            Self::Template(template) => template.render(listings),
        }
    }
}

const TABLE: [&str; 6] = ["REPLICA", "HOST", "PORT", "ADDRESS", "STATE", "REASON"];

fn aligned(heading: &[&str], rows: Vec<Vec<String>>, surface: Surface) -> String {
    match surface {
        Surface::Terminal => table(heading, rows, terminal_width()),
        Surface::Plain => plain_rows(&rows),
    }
}

fn of_lines(form: Form, listings: &[&Listing]) -> String {
    let lines = listings.iter().flat_map(|listing| match form {
        Form::Env => listing.variables(),
        Form::Url => listing.urls().collect(),
        _ => listing.authorities(),
    });
    lines.map(|line| format!("{line}\n")).collect()
}

const fn state(conditions: Conditions) -> &'static str {
    match conditions {
        Conditions { ready: true, .. } => "ready",
        Conditions { serving: true, .. } => "serving",
        Conditions {
            terminating: true, ..
        } => "terminating",
        _ => "not ready",
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

/// The listing of a service with these ready replicas, each `replica address port`.
#[cfg(test)]
pub(crate) fn example(service: &str, replicas: &[(u32, &str, u16)]) -> Listing {
    let endpoints: Vec<_> = replicas
        .iter()
        .map(|(replica, address, port)| {
            serde_json::json!({
                "replica": replica, "host": format!("n{replica}"), "address": address,
                "ports": [
                    { "name": "http", "port": port, "protocol": "TCP", "app_protocol": "https", "path": "/v1" },
                    { "name": "metrics", "port": port + 1, "protocol": "TCP" },
                ],
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "restarts": 0, "labels": { "model": "m1" }, "job": "4711", "weight": 100, "revision": 7,
            })
        })
        .collect();
    let text = serde_json::json!({
        "service": service, "revision": 7, "desired": replicas.len(), "ready": replicas.len(), "endpoints": endpoints,
    });
    let text = text.to_string();
    let set = serde_json::from_str(&text).expect("it has every field of a set");
    Listing::of_set(set, text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, listings: &[&Listing]) -> String {
        let writing = Writing::Form(form);
        match listings {
            [one] => writing.one(one, Surface::Plain).unwrap(),
            several => writing.several(several, Surface::Plain).unwrap(),
        }
    }

    #[test]
    fn every_form_writes_one_service_and_several() {
        let web = example("web-gw.bio", &[(0, "10.1.0.17", 31007), (2, "::1", 80)]);
        let db = example("db.bio", &[]);
        assert_eq!(written(Form::Lines, &[&web]), "10.1.0.17:31007\n[::1]:80\n");
        assert_eq!(
            written(Form::Url, &[&web]),
            "https://10.1.0.17:31007/v1\nhttps://[::1]:80/v1\n"
        );
        assert_eq!(
            written(Form::Env, &[&db, &web]),
            "DB_ENDPOINTS=\nWEB_GW_ENDPOINTS=10.1.0.17:31007,[::1]:80\n\
             WEB_GW_ENDPOINT_0=10.1.0.17:31007\nWEB_GW_ENDPOINT_1=[::1]:80\n"
        );
        let table = written(Form::Table, &[&web, &db]);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert_eq!(
            table.lines().next(),
            Some("web-gw.bio\t0\tn0\thttp\t10.1.0.17:31007\tready\t-")
        );
        let json: serde_json::Value =
            serde_json::from_str(&written(Form::Json, &[&web, &db])).unwrap();
        assert_eq!(json["services"][0]["endpoints"][1]["replica"], 2);
        assert_eq!(written(Form::Lines, &[&db]), "");
    }

    #[test]
    fn a_variable_never_begins_with_a_digit() {
        let listing = example("3d-web.bio", &[(0, "10.1.0.17", 31007)]);
        let text = written(Form::Env, &[&listing]);
        assert!(text.starts_with("_3D_WEB_ENDPOINTS=10."), "{text}");
    }

    #[test]
    fn the_port_that_is_meant_is_the_one_that_is_written() {
        let mut web = example("web.bio", &[(0, "10.1.0.17", 31007)]);
        web.port = Some("metrics".parse().unwrap());
        assert_eq!(web.authorities(), ["10.1.0.17:31008"]);
        web.port = Some("other".parse().unwrap());
        assert_eq!(web.listed().count(), 0);
    }
}
