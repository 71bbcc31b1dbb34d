//! A reader's own form: a template in the syntax of Jinja.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use portreeve_api::body::{Endpoint, EndpointPort};
use serde::Serialize;

use crate::exit::{Code, Failure};

use super::{Listing, authority, state, url};

/// A template that was read without an error.
#[derive(Debug)]
pub(crate) struct Template {
    /// What errors call it.
    name: String,
    source: String,
    /// Whether the end of the last line is written even if the template has none.
    closed: bool,
}

impl Template {
    /// The longest template.
    const MAX: u64 = 1 << 20;

    /// A template given on the command line. What it writes ends with a line's end.
    pub(crate) fn given(source: &str) -> Result<Self, Failure> {
        Self::parsed("--template".to_owned(), source.to_owned(), true)
    }

    /// The template in a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = format!("template {}", path.display());
        let refused =
            |cause: &dyn std::fmt::Display| Failure::new(Code::Usage, format!("{name}: {cause}"));
        // Not by its length: a pipe has none, and a device no end.
        let mut source = String::new();
        File::open(path)
            .and_then(|file| file.take(Self::MAX + 1).read_to_string(&mut source))
            .map_err(|cause| refused(&cause))?;
        if source.len() as u64 > Self::MAX {
            let most = Self::MAX >> 20;
            return Err(refused(&format!("it has more than {most} MiB")));
        }
        Self::parsed(name, source, false)
    }

    fn parsed(name: String, source: String, closed: bool) -> Result<Self, Failure> {
        environment()?
            .template_from_named_str(&name, &source)
            .map_err(|cause| told(&name, &source, &cause))?;
        Ok(Self {
            name,
            source,
            closed,
        })
    }

    /// What it makes of these services; of a single one the fields are there without `services` too.
    ///
    /// # Errors
    ///
    /// [`Code::Usage`] with the line, where it asks for what is not there.
    pub(crate) fn render(&self, listings: &[&Listing]) -> Result<String, Failure> {
        let services: Vec<_> = listings
            .iter()
            .map(|listing| Service::of(listing))
            .collect();
        let told = |cause| told(&self.name, &self.source, &cause);
        let environment = environment()?;
        let template = environment
            .template_from_named_str(&self.name, &self.source)
            .map_err(told)?;
        let whole = match services.as_slice() {
            [only] => Value::from(Serde(Alone {
                only,
                services: [only],
            })),
            several => Value::from(Serde(Several { services: several })),
        };
        let mut text = template.render(whole).map_err(|cause| {
            let alone = services.len() == 1 || cause.kind() != ErrorKind::UndefinedError;
            let refused = told(cause);
            match alone {
                true => refused,
                false => refused.with_hint("several services are the list `services`"),
            }
        })?;
        if self.closed && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }
}

/// Strict: what is misspelled is an error, not an empty word in a configuration file.
fn environment() -> Result<Environment<'static>, Failure> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.map_err(Failure::plain)?);
    Ok(environment)
}

/// What is wrong, with the line that it is in: the number alone says little of a template on a command line.
fn told(name: &str, source: &str, cause: &minijinja::Error) -> Failure {
    let words = match (cause.kind(), cause.detail()) {
        (ErrorKind::UndefinedError, None) => "it asks for what is not there".to_owned(),
        (kind, None) => kind.to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
    };
    let number = cause.line().unwrap_or_default();
    let line = source.lines().nth(number.saturating_sub(1));
    let line: String = line.unwrap_or_default().trim().chars().take(120).collect();
    Failure::new(
        Code::Usage,
        format!("{name} line {number}: {words}, in {line}"),
    )
}

#[derive(Serialize)]
struct Several<'a> {
    services: &'a [Service<'a>],
}

#[derive(Serialize)]
struct Alone<'a> {
    #[serde(flatten)]
    only: &'a Service<'a>,
    services: [&'a Service<'a>; 1],
}

/// What a template finds of one service.
#[derive(Serialize)]
struct Service<'a> {
    /// The full name, and its two halves.
    service: &'a str,
    name: &'a str,
    namespace: &'a str,
    revision: u64,
    desired: u32,
    ready: u32,
    stale: bool,
    endpoints: Vec<Entry<'a>>,
}

/// One endpoint: the port that is meant, and all ports by name.
#[derive(Serialize)]
struct Entry<'a> {
    replica: u32,
    job: Option<&'a str>,
    host: &'a str,
    weight: u32,
    state: &'static str,
    ready: bool,
    reason: Option<&'a str>,
    restarts: u32,
    ready_since: Option<&'a str>,
    labels: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    port: PortEntry<'a>,
    ports: BTreeMap<&'a str, PortEntry<'a>>,
}

#[derive(Serialize)]
struct PortEntry<'a> {
    port_name: &'a str,
    address: Option<IpAddr>,
    port: u16,
    last_port: u16,
    /// `host:port`.
    authority: Option<String>,
    url: Option<String>,
    protocol: &'a str,
    app_protocol: Option<&'a str>,
    path: Option<&'a str>,
}

impl<'a> Service<'a> {
    fn of(listing: &'a Listing) -> Self {
        let (name, namespace) = listing
            .service
            .split_once('.')
            .unwrap_or((&listing.service, ""));
        let entry = |endpoint: &'a Endpoint| {
            let (_, port) = listing.of_port(endpoint)?;
            let named =
                |port: &'a EndpointPort| (port.name.as_str(), PortEntry::of(endpoint, port));
            Some(Entry {
                replica: endpoint.replica,
                job: endpoint.job.as_deref(),
                host: &endpoint.host,
                weight: endpoint.weight,
                state: state(endpoint.conditions),
                ready: endpoint.conditions.ready,
                reason: endpoint.reason.as_deref(),
                restarts: endpoint.restarts,
                ready_since: endpoint.ready_since.as_deref(),
                labels: &endpoint.labels,
                port: PortEntry::of(endpoint, port),
                ports: endpoint.ports.iter().map(named).collect(),
            })
        };
        Self {
            service: &listing.service,
            name,
            namespace,
            revision: listing.revision,
            desired: listing.desired,
            ready: listing.ready,
            stale: listing.stale,
            endpoints: listing.endpoints.iter().filter_map(entry).collect(),
        }
    }
}

impl<'a> PortEntry<'a> {
    fn of(endpoint: &Endpoint, port: &'a EndpointPort) -> Self {
        let address = endpoint.address_of(port);
        Self {
            port_name: &port.name,
            address,
            port: port.port,
            last_port: port.port.saturating_add(port.count.saturating_sub(1)),
            authority: address.map(|address| authority(address, port)),
            url: address.map(|address| url(address, port)),
            protocol: &port.protocol,
            app_protocol: port.app_protocol.as_deref(),
            path: port.path.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn rendered(source: &str, listings: &[&Listing]) -> Result<String, String> {
        let template = Template::given(source).map_err(|refused| refused.to_string())?;
        let text = template.render(listings);
        text.map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_template_writes_what_a_proxy_reads() {
        let web = example("web.bio", &[(0, "10.1.0.17", 31007), (2, "::1", 80)]);
        let source = "upstream {{ name }} {\n  {% for e in endpoints %}\n  server {{ e.authority }};  # {{ e.host }} {{ e.labels.model }}\n  {% endfor %}\n}";
        assert_eq!(
            rendered(source, &[&web]).unwrap(),
            "upstream web {\n  server 10.1.0.17:31007;  # n0 m1\n  server [::1]:80;  # n2 m1\n}\n"
        );
        let ports = "{{ endpoints|map(attribute='ports.metrics.port')|join(',') }}";
        assert_eq!(rendered(ports, &[&web]).unwrap(), "31008,81\n");
        assert_eq!(
            rendered("{{ endpoints[0].url }}", &[&web]).unwrap(),
            "https://10.1.0.17:31007/v1\n"
        );
    }

    // What Prometheus reads as `file_sd_configs`.
    #[test]
    fn a_template_writes_json() {
        let web = example("web.bio", &[(0, "10.1.0.17", 31007), (2, "::1", 80)]);
        let source = r#"[{"targets": {{ endpoints|map(attribute="authority")|list|tojson }}, "labels": {"service": {{ service|tojson }}}}]"#;
        let text = rendered(source, &[&web]).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read[0]["targets"][1], "[::1]:80");
        assert_eq!(read[0]["labels"]["service"], "web.bio");
    }

    #[test]
    fn several_services_are_a_list() {
        let (web, db) = (
            example("web.bio", &[(0, "10.1.0.17", 31007)]),
            example("db.bio", &[]),
        );
        let source = "{% for s in services %}{{ s.service }}={{ s.ready }} {% endfor %}";
        assert_eq!(
            rendered(source, &[&web, &db]).unwrap(),
            "web.bio=1 db.bio=0 \n"
        );
        assert_eq!(rendered(source, &[&web]).unwrap(), "web.bio=1 \n");
        let refused = rendered("{{ service }}", &[&web, &db]).unwrap_err();
        assert!(
            refused.ends_with("; several services are the list `services`"),
            "{refused}"
        );
    }

    #[test]
    fn a_file_without_an_end_is_no_template() {
        let refused = Template::read(Path::new("/dev/zero")).unwrap_err();
        assert!(refused.to_string().contains("more than 1 MiB"), "{refused}");
    }

    #[test]
    fn what_is_misspelled_is_told_with_its_line() {
        let web = example("web.bio", &[(0, "10.1.0.17", 31007)]);
        let refused = rendered("a\n{{ endpoint }}", &[&web]).unwrap_err();
        assert!(
            refused == "--template line 2: it asks for what is not there, in {{ endpoint }}",
            "{refused}"
        );
        let refused = rendered("a\nb\n{% for e in endpoints %}", &[&web]).unwrap_err();
        assert!(refused.starts_with("--template line "), "{refused}");
        assert!(refused.contains("syntax error"), "{refused}");
    }
}
