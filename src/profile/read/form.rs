//! What a probe does: one of http, tcp, command, listening.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::port::{PortName, excerpt};
use crate::profile::template::{Segment, Template};
use crate::profile::{DeclaredPort, HttpProbe, Probe};
use crate::supervision::ProbeKind;

use super::command::Names;
use super::ports::Ports;
use super::value::{MAX_TEXT, choice};
use super::{Field, Reader, Table, Value};

pub(super) const HTTP_KEYS: &[&str] =
    &["port", "host", "path", "expect", "headers", "require_body"];
pub(super) const TCP_KEYS: &[&str] = &["port", "host"];

const FORMS: [&str; 4] = ["http", "tcp", "command", "listening"];
pub(super) const ONE_FORM: &str =
    "write one of http = {…}, tcp = {…}, command = […], listening = true";

impl<'d> Reader<'d> {
    /// The one form that is written; none where another probe's or the default may stand for it.
    pub(super) fn form(
        &mut self,
        table: &Table<'d>,
        kind: ProbeKind,
        ports: &Ports<'d>,
    ) -> Option<Probe> {
        let mut written = FORMS
            .iter()
            .filter_map(|name| Some((*name, table.field(name)?)));
        let first = written.next();
        for (name, field) in written {
            let problem = format_args!("{name} stands beside another form");
            self.refuse(&field, problem, ONE_FORM);
        }
        let Some((name, field)) = first else {
            let needed = kind == ProbeKind::Liveness || ports.names.is_empty();
            // A startup probe may take over another probe's form, which need not touch a port.
            if needed && kind != ProbeKind::Startup {
                let problem = "what the probe does is not said";
                self.miss(&table.path, &table.path, table.at, problem, ONE_FORM);
            }
            return None;
        };
        match name {
            "http" => self.http(&field, ports),
            "tcp" => self.tcp(&field, ports),
            "command" => self.command(&field, &ports.names).map(Probe::Command),
            _ => {
                if field.node.value != Value::Flag(true) {
                    self.refuse(
                        &field,
                        "listening is a form or none",
                        "write listening = true",
                    );
                } else if ports.names.is_empty() {
                    let problem = "the profile declares no port to listen on";
                    self.miss("ports", &field.path, field.at(), problem, ONE_FORM);
                }
                Some(Probe::Listening)
            }
        }
    }

    fn tcp(&mut self, field: &Field<'d>, ports: &Ports<'d>) -> Option<Probe> {
        const FORM: &str = "write a table such as { port = \"http\" }; with one port { } is enough";
        if !matches!(field.node.value, Value::Table(_)) {
            self.refuse_kind(field, FORM);
            return None;
        }
        let table = self.table(field, TCP_KEYS)?;
        let host = self.literal_host(&table);
        let port = self.tcp_port(&table, field, ports)?;
        Some(Probe::Tcp { port, host })
    }

    fn http(&mut self, field: &Field<'d>, ports: &Ports<'d>) -> Option<Probe> {
        const FORM: &str = "write a table such as { port = \"http\", path = \"/health\" }";
        if !matches!(field.node.value, Value::Table(_)) {
            self.refuse_kind(field, FORM);
            return None;
        }
        let table = self.table(field, HTTP_KEYS)?;
        let host = self.literal_host(&table);
        let path = match table.field("path") {
            Some(field) => self.request_path(&field, ports),
            None => Template(vec![Segment::Text("/".to_owned())]),
        };
        let expect = match table.field("expect") {
            Some(field) => self.expect(&field),
            None => vec![(200, 399)],
        };
        let headers = table
            .field("headers")
            .map(|field| self.headers(&field, ports));
        let require_body = table.field("require_body").and_then(|field| {
            let allowed = "write a text that the body must contain";
            let text = self.text(&field, 4096, allowed)?;
            if text.is_empty() {
                self.refuse(&field, "an empty text is in every body", allowed);
            }
            Some(text.to_owned())
        });
        let port = self.tcp_port(&table, field, ports)?;
        Some(Probe::Http(HttpProbe {
            port,
            host,
            path,
            expect,
            headers: headers.unwrap_or_default(),
            require_body,
        }))
    }

    fn tcp_port(
        &mut self,
        table: &Table<'d>,
        form: &Field<'d>,
        ports: &Ports<'d>,
    ) -> Option<PortName> {
        let field = table.field("port");
        let at = field.clone().unwrap_or_else(|| form.clone());
        let name = named_or_only(self, field, form, &ports.names)?;
        if !speaks_tcp(&ports.declared, &name) {
            let problem = format_args!("port {name} is udp only");
            self.refuse(&at, problem, "name a tcp port, or use a command");
        }
        Some(name)
    }

    fn literal_host(&mut self, table: &Table<'d>) -> Option<IpAddr> {
        let field = table.field("host")?;
        let allowed = "write an address such as \"127.0.0.1\" or \"::1\": a name may resolve to another one at each probe";
        self.parsed(&field, "an address", allowed)
    }

    fn request_path(&mut self, field: &Field<'d>, ports: &Ports<'d>) -> Template {
        const PATH: &str = "write a path that begins with /, without blanks, such as \"/health\"";
        let text = self.text(field, MAX_TEXT, PATH);
        let path = text.and_then(|_| self.template(field, &ports.names));
        // A blank or a line break would end the request line early.
        let broken = |c: char| c.is_whitespace() || c.is_control();
        if let Some(text) = text
            && (!text.starts_with('/') || text.contains(broken))
        {
            let problem = format_args!("{:?} is not a path", excerpt(text));
            self.refuse(field, problem, PATH);
        }
        path.unwrap_or_default()
    }

    /// Accepted status codes: `"200-299,404"`, or a list of codes and ranges.
    fn expect(&mut self, field: &Field<'d>) -> Vec<(u16, u16)> {
        const CODES: &str =
            "write codes from 200 to 599 and ranges, such as \"200-299,404\" or [200, 404]";
        let parts = match &field.node.value {
            Value::Text(_) => vec![field.clone()],
            _ => self.list(field, 400, CODES).unwrap_or_default(),
        };
        let mut ranges = Vec::new();
        for part in &parts {
            let read = match &part.node.value {
                Value::Integer(code) => u16::try_from(*code).ok().map(|code| vec![(code, code)]),
                Value::Text(text) if text.len() <= 4096 => text
                    .split(',')
                    .map(|range| code_range(range.trim()))
                    .collect(),
                _ => None,
            };
            let sound = |read: &Vec<(u16, u16)>| {
                read.iter()
                    .all(|(low, high)| 200 <= *low && low <= high && *high <= 599)
            };
            match read.filter(sound) {
                Some(read) => ranges.extend(read),
                None => self.refuse(part, "it names no final status codes", CODES),
            }
        }
        if matches!(&field.node.value, Value::List(items) if items.is_empty()) {
            self.refuse(field, "no code would ever be a success", CODES);
        }
        merged(ranges)
    }

    fn headers(&mut self, field: &Field<'d>, ports: &Ports<'d>) -> BTreeMap<String, Template> {
        const NAME: &str = "write a header's name: letters, digits and -";
        let mut headers = BTreeMap::new();
        let allowed = "write a table such as { Authorization = \"Bearer ${env.TOKEN}\" }";
        let Some(table) = self.map(field, allowed) else {
            return headers;
        };
        self.at_most(&table, 64);
        for (name, field) in table.fields().take(64) {
            let token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || name.len() > 256 || !name.bytes().all(token) {
                let problem = format_args!("{:?} is no header's name", excerpt(name));
                self.note(&field.path, field.key_at(), problem, NAME);
            }
            let value = self.template(&field, &ports.names).unwrap_or_default();
            let broken = |segment: &Segment| matches!(segment, Segment::Text(text) if text.contains(char::is_control));
            if value.0.iter().any(broken) {
                let problem = "a header's value has a control character";
                self.refuse(&field, problem, "write it in one line");
            }
            if headers.insert(name.to_owned(), value).is_some() {
                self.refuse(&field, "written twice", "write it once");
            }
        }
        headers
    }
}

/// The same codes in as few ranges as possible, ascending.
fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (low, high) in ranges {
        match merged.last_mut() {
            Some((_, last)) if low <= last.saturating_add(1) => *last = high.max(*last),
            _ => merged.push((low, high)),
        }
    }
    merged
}

fn code_range(text: &str) -> Option<(u16, u16)> {
    let code = |text: &str| {
        let plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten()
    };
    match text.split_once('-') {
        Some((low, high)) => Some((code(low.trim())?, code(high.trim())?)),
        None => code(text).map(|code| (code, code)),
    }
}

/// The port that a probe speaks to: the one named, else the only one.
pub(super) fn named_or_only<'d>(
    reader: &mut Reader<'d>,
    field: Option<Field<'d>>,
    form: &Field<'d>,
    ports: Names<'_>,
) -> Option<PortName> {
    let Some(field) = field else {
        let [only] = ports else {
            let path = format!("{}.port", form.path);
            if ports.is_empty() {
                let problem = "the profile declares no port";
                reader.miss(
                    "ports",
                    &path,
                    form.at(),
                    problem,
                    "declare one under [ports]",
                );
            } else {
                let names: Vec<_> = ports.iter().map(|port| port.as_str()).collect();
                let allowed = format!("write port = {}", choice(&names));
                let problem = "the profile has several ports";
                reader.miss("port", &path, form.at(), problem, &allowed);
            }
            return None;
        };
        return Some(only.clone());
    };
    let allowed =
        "write the name of one of the profile's ports; a number is not known before placement";
    let name = reader.text(&field, MAX_TEXT, allowed)?;
    let port = ports.iter().find(|port| port.as_str() == name);
    if port.is_none() {
        reader.unknown_port(&field, name, ports);
    }
    port.cloned()
}

/// Whether a probe that connects can use this port.
pub(super) fn speaks_tcp(ports: &[DeclaredPort], name: &PortName) -> bool {
    let port = ports.iter().find(|port| port.name == *name);
    port.is_none_or(|port| port.protocol.has_tcp())
}
