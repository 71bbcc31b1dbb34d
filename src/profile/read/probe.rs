//! `[startup]`, `[liveness]` and `[readiness]`: what a probe does, when, and how many results decide.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::port::excerpt;
use crate::profile::template::{Segment, Template};
use crate::profile::{HttpProbe, Probe};
use crate::supervision::{ProbeKind, ProbeTiming};
use crate::time::Spelled;

use super::command::{named_or_only, speaks_tcp};
use super::ports::Ports;
use super::value::{MAX_TEXT, secs};
use super::{Field, Reader, Table, Value};

const FORMS: [&str; 4] = ["http", "tcp", "command", "listening"];
const ONE_FORM: &str = "write one of http = {…}, tcp = {…}, command = […], listening = true";
pub(super) const KEYS: &[&str] = &[
    "http",
    "tcp",
    "command",
    "listening",
    "initial_delay",
    "interval",
    "timeout",
    "failure_threshold",
    "success_threshold",
];
pub(super) const STARTUP_KEYS: &[&str] = &[
    "http",
    "tcp",
    "command",
    "listening",
    "initial_delay",
    "interval",
    "timeout",
    "failure_threshold",
    "success_threshold",
    "within",
];
pub(super) const HTTP_KEYS: &[&str] =
    &["port", "host", "path", "expect", "headers", "require_body"];
pub(super) const TCP_KEYS: &[&str] = &["port", "host"];

const DAY: Duration = secs(86_400);
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=DAY;
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=secs(3600);
const WITHIN: RangeInclusive<Duration> = secs(1)..=DAY;
const THRESHOLD: RangeInclusive<u32> = 1..=1_000_000;
/// A service that was killed sooner had no time to start.
const SHORTEST_START: Duration = secs(30);
const SHORTEST_COMMAND_INTERVAL: Duration = secs(5);

/// The three probes; a form and its timing stand together.
#[derive(Default)]
pub(super) struct Probes {
    pub(super) startup: Option<(Probe, ProbeTiming)>,
    pub(super) liveness: Option<(Probe, ProbeTiming)>,
    pub(super) readiness: Option<(Probe, ProbeTiming)>,
}

impl<'d> Reader<'d> {
    /// Every probe, with the defaults that depend on the others.
    pub(super) fn probes(
        &mut self,
        root: &Table<'d>,
        ports: &Ports<'d>,
        env_secret: &[String],
    ) -> Probes {
        let readiness = self.probe(root.field("readiness"), ProbeKind::Readiness, ports);
        let liveness = self.probe(root.field("liveness"), ProbeKind::Liveness, ports);
        let startup = self.probe(root.field("startup"), ProbeKind::Startup, ports);
        let written = [
            ("startup", &startup),
            ("liveness", &liveness),
            ("readiness", &readiness),
        ];
        for (name, probe) in written {
            if let (Some(field), Some((Some(Probe::Command(command)), _))) =
                (root.field(name), probe)
            {
                self.warn_of_secrets(&field, command, env_secret);
            }
        }
        let has_ports = !ports.names.is_empty();
        let readiness = match readiness {
            Some((form, timing)) => Some((form.unwrap_or(Probe::Listening), timing)),
            None if has_ports => Some((Probe::Listening, default_timing(ProbeKind::Readiness))),
            None => None,
        };
        // A probe without a form was refused above.
        let liveness = liveness.and_then(|(form, timing)| Some((form?, timing)));
        let startup = startup.map(|(form, timing)| {
            let other = readiness.as_ref().or(liveness.as_ref());
            let form = form.or_else(|| other.map(|(form, _)| form.clone()));
            (form, timing)
        });
        if let (Some(field), Some((None, _)), false) = (root.field("startup"), &startup, has_ports)
        {
            let problem = "what the probe does is not said";
            self.miss(&field.path, &field.path, field.at(), problem, ONE_FORM);
        }
        let startup = startup.map(|(form, timing)| (form.unwrap_or(Probe::Listening), timing));
        if let (Some(field), Some((_, timing)), None) =
            (root.field("liveness"), &liveness, &startup)
        {
            let killed_after = timing.interval.saturating_mul(timing.failure_threshold);
            let killed_after = timing.initial_delay.saturating_add(killed_after);
            if killed_after < SHORTEST_START {
                let text = format_args!(
                    "without a startup probe a service that is not up within {} is restarted; write [startup] with within = \"…\"",
                    Spelled(killed_after)
                );
                self.warn(&field, text);
            }
        }
        if let (Some(field), Some((Probe::Tcp { .. }, _))) = (root.field("liveness"), &liveness) {
            self.warn(
                &field,
                "a stopped process goes on accepting connections until its backlog is full, so a tcp probe notices a hang late; use http or command",
            );
        }
        Probes {
            startup,
            liveness,
            readiness,
        }
    }

    fn probe(
        &mut self,
        field: Option<Field<'d>>,
        kind: ProbeKind,
        ports: &Ports<'d>,
    ) -> Option<(Option<Probe>, ProbeTiming)> {
        let field = field?;
        let keys = match kind {
            ProbeKind::Startup => STARTUP_KEYS,
            ProbeKind::Liveness | ProbeKind::Readiness => KEYS,
        };
        let table = self.table(&field, keys)?;
        let form = self.form(&table, kind, ports);
        let timing = self.timing(&table, kind);
        if let Some(Probe::Command(_)) = form
            && timing.interval < SHORTEST_COMMAND_INTERVAL
        {
            let field = table.field("interval").unwrap_or(field);
            let text = format_args!(
                "a command every {} starts a process each time; {} or more is kind to the host",
                Spelled(timing.interval),
                Spelled(SHORTEST_COMMAND_INTERVAL)
            );
            self.warn(&field, text);
        }
        Some((form, timing))
    }

    fn form(&mut self, table: &Table<'d>, kind: ProbeKind, ports: &Ports<'d>) -> Option<Probe> {
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
    ) -> Option<crate::port::PortName> {
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
        if parts.is_empty() {
            self.refuse(field, "no code would ever be a success", CODES);
        }
        ranges.sort_unstable();
        ranges.dedup();
        ranges
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

    fn timing(&mut self, table: &Table<'d>, kind: ProbeKind) -> ProbeTiming {
        let default = default_timing(kind);
        let ((interval, timeout, initial_delay), sound) = self.sound(|reader| {
            let interval = reader.span_or(table.field("interval"), &INTERVAL, default.interval);
            let timeout = default.timeout.min(interval);
            let timeout = reader.span_or(table.field("timeout"), &TIMEOUT, timeout);
            let delay = table.field("initial_delay");
            let delay = reader.span_or(delay, &(Duration::ZERO..=DAY), Duration::ZERO);
            (interval, timeout, delay)
        });
        let overlong = sound && timeout > interval;
        if overlong && let Some(field) = table.field("timeout") {
            let text = format_args!(
                "{} is longer than the interval of {}: the next probe starts when the one before has ended",
                Spelled(timeout),
                Spelled(interval)
            );
            self.warn(&field, text);
        }
        let threshold = table.field("failure_threshold");
        let mut failure_threshold =
            self.number_or(threshold.clone(), &THRESHOLD, default.failure_threshold);
        if let Some(field) = table.field("within").filter(|_| kind == ProbeKind::Startup)
            && let Some(within) = self.span(&field, &WITHIN)
        {
            if let Some(field) = threshold {
                let problem = "within says it already";
                self.refuse(&field, problem, "write within or failure_threshold");
            }
            if overlong {
                let problem = "within needs probes that end before the next one starts";
                self.refuse(&field, problem, "write a timeout of at most the interval");
            }
            if sound && within <= initial_delay {
                let delay = Spelled(initial_delay);
                let problem = format_args!("it is over before the first probe at {delay}");
                self.refuse(&field, problem, "write more than initial_delay");
            }
            // One more probe than fits, so that the deciding one never starts before `within`.
            let span = within.saturating_sub(initial_delay).as_millis();
            let probes = span.div_ceil(interval.as_millis().max(1)) + 1;
            failure_threshold = u32::try_from(probes).unwrap_or(u32::MAX);
        }
        let field = table.field("success_threshold");
        let success_threshold = self.number_or(field.clone(), &THRESHOLD, 1);
        if success_threshold > 1
            && kind != ProbeKind::Readiness
            && let Some(field) = field
        {
            let problem = format_args!("one success decides a {kind} probe");
            self.refuse(
                &field,
                problem,
                "write 1 or leave it out; readiness may ask for more",
            );
        }
        ProbeTiming {
            initial_delay,
            interval,
            timeout,
            failure_threshold,
            success_threshold,
        }
    }
}

fn default_timing(kind: ProbeKind) -> ProbeTiming {
    let interval = match kind {
        ProbeKind::Readiness => secs(5),
        ProbeKind::Startup | ProbeKind::Liveness => secs(10),
    };
    ProbeTiming {
        initial_delay: Duration::ZERO,
        interval,
        timeout: secs(3),
        failure_threshold: 3,
        success_threshold: 1,
    }
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

/// Whether a `listening` probe has anything to look at.
pub(super) fn listens(ports: &Ports<'_>) -> bool {
    let mut declared = ports.declared.iter();
    declared.any(|port| port.publish && port.protocol.has_tcp())
}
