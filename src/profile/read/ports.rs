//! `[ports]`: named numbers, blocks and wishes.

use std::num::NonZeroU16;

use crate::port::{Port, PortName, PortRanges, Protocol, excerpt};
use crate::port_pool::{PortRequest, PortRequestError, Want, WantedPort};
use crate::profile::{DeclaredPort, ListenerOwner};

use super::value::MAX_TEXT;
use super::{Field, Reader, Table, Value};

pub(super) const KEYS: &[&str] = &[
    "any",
    "fixed",
    "protocol",
    "range",
    "publish",
    "env",
    "app_protocol",
    "path",
    "network",
    "owner",
];

const FORM: &str = "write \"any\", a number from 1 to 65535, or a table such as { any = 4 }";
const NAME: &str = "write 1 to 32 of a-z, 0-9 and -, a letter first, not ending in -last or -count";

/// What `[ports]` declares.
#[derive(Default)]
pub(super) struct Ports<'d> {
    /// Every port whose own declaration is sound.
    pub(super) declared: Vec<DeclaredPort>,
    /// Every well-formed name, so that a wrong number makes no second error where the name is used.
    pub(super) names: Vec<PortName>,
    /// The aliases and where they stand.
    pub(super) aliases: Vec<(Field<'d>, String)>,
}

impl<'d> Reader<'d> {
    /// Every port, and whether they can stand together.
    pub(super) fn ports(&mut self, field: Option<Field<'d>>) -> Ports<'d> {
        let mut ports = Ports::default();
        let allowed = "write a table of names, such as { http = \"any\" }";
        let Some(table) = field.as_ref().and_then(|field| self.map(field, allowed)) else {
            return ports;
        };
        let most = PortRequest::MAX_NUMBERS as usize;
        self.at_most(&table, most);
        for (text, field) in table.fields().take(most) {
            let Ok(name) = text.parse::<PortName>() else {
                let problem = format_args!("{:?} is not a port name", excerpt(text));
                self.note(&field.path, field.key_at(), problem, NAME);
                continue;
            };
            if ports.names.contains(&name) {
                let problem = format_args!("two ports are called {name}");
                self.note(&field.path, field.key_at(), problem, "choose another name");
                continue;
            }
            ports.names.push(name.clone());
            if let Some(port) = self.port(name, &field, &mut ports.aliases) {
                let blank = |port: &DeclaredPort| port.wanted();
                let mut wanted: Vec<WantedPort> = ports.declared.iter().map(blank).collect();
                wanted.push(port.wanted());
                match PortRequest::new(wanted) {
                    Ok(_) => ports.declared.push(port),
                    Err(PortRequestError::TooMany { numbers }) => {
                        let problem =
                            format_args!("with this port the replica asks for {numbers} numbers");
                        let allowed = format!("a replica holds at most {most}, blocks included");
                        self.refuse(&field, problem, &allowed);
                        // The rest would repeat it.
                        break;
                    }
                    Err(error) => {
                        let allowed = "fix a number once per protocol";
                        self.refuse(&field, error, allowed);
                    }
                }
            }
        }
        ports
    }

    fn port(
        &mut self,
        name: PortName,
        field: &Field<'d>,
        aliases: &mut Vec<(Field<'d>, String)>,
    ) -> Option<DeclaredPort> {
        let mut port = DeclaredPort {
            name,
            protocol: Protocol::Tcp,
            want: Want::Any {
                count: NonZeroU16::MIN,
            },
            within: None,
            env: None,
            publish: true,
            app_protocol: None,
            path: None,
            network: None,
            owner: ListenerOwner::Run,
        };
        match &field.node.value {
            Value::Text(text) if text == "any" => {}
            Value::Text(text) => {
                let problem = format_args!("{:?} is not a port", excerpt(text));
                self.refuse(field, problem, FORM);
                return None;
            }
            Value::Integer(_) => port.want = Want::Fixed(self.fixed(field)?),
            Value::Table(_) => {
                let table = self.table(field, KEYS)?;
                let (read, sound) = self.sound(|reader| {
                    reader.port_table(&table, &mut port, aliases);
                });
                let () = read;
                return sound.then_some(port);
            }
            _ => {
                self.refuse_kind(field, FORM);
                return None;
            }
        }
        Some(port)
    }

    fn port_table(
        &mut self,
        table: &Table<'d>,
        port: &mut DeclaredPort,
        aliases: &mut Vec<(Field<'d>, String)>,
    ) {
        match (table.field("any"), table.field("fixed")) {
            (Some(any), None) => {
                let count = self.number(&any, &(1..=PortRequest::MAX_NUMBERS), "");
                let count = count.and_then(|n| NonZeroU16::new(u16::try_from(n).ok()?));
                let count = count.unwrap_or(NonZeroU16::MIN);
                port.want = Want::Any { count };
            }
            (None, Some(fixed)) => {
                if let Some(number) = self.fixed(&fixed) {
                    port.want = Want::Fixed(number);
                }
            }
            (any, _) => {
                let problem = match any {
                    Some(_) => "any and fixed exclude each other",
                    None => "which number is not said",
                };
                let allowed = "write any = 1, any = N for a block of N, or fixed = N";
                self.miss("any", &table.path, table.at, problem, allowed);
            }
        }
        let words = [
            ("tcp", Protocol::Tcp),
            ("udp", Protocol::Udp),
            ("tcp+udp", Protocol::TcpUdp),
        ];
        port.protocol = self.word_or(table.field("protocol"), &words, Protocol::Tcp);
        if let Some(field) = table.field("range") {
            port.within = self.range(&field, port.want);
        }
        port.publish = self.flag_or(table.field("publish"), true);
        let words = [
            ("run", ListenerOwner::Run),
            ("user", ListenerOwner::User),
            ("any", ListenerOwner::Any),
        ];
        port.owner = self.word_or(table.field("owner"), &words, ListenerOwner::Run);
        if let Some(field) = table.field("env")
            && let Some(name) = self.text(&field, MAX_TEXT, "write the name of a variable")
        {
            port.env = Some(name.to_owned());
            aliases.push((field, name.to_owned()));
        }
        let short = "write a short word, such as \"https\"";
        port.app_protocol = (table.field("app_protocol"))
            .and_then(|field| self.line(&field, 64, short))
            .map(str::to_owned);
        port.network = table.field("network").and_then(|field| {
            const NAME: &str = "write 1 to 63 of a-z, 0-9 and -, as the site calls it";
            self.parsed(&field, "the name of a network", NAME)
        });
        if let Some(field) = table.field("path") {
            const PATH: &str = "write a path that begins with /";
            let path = self.line(&field, 1024, PATH);
            if path.is_some_and(|path| !path.starts_with('/')) {
                self.refuse(&field, "the path does not begin with /", PATH);
            }
            port.path = path.map(str::to_owned);
        }
    }

    fn fixed(&mut self, field: &Field<'d>) -> Option<Port> {
        let else_allowed = ", or \"any\"";
        let number = self.number(field, &(1..=65_535), else_allowed)?;
        Port::new(u16::try_from(number).ok()?)
    }

    fn range(&mut self, field: &Field<'d>, want: Want) -> Option<PortRanges> {
        let allowed =
            "write ports and ranges, such as \"20000-20999\", \"80,100-120\" or \"below 32768\"";
        let ranges: PortRanges = self.parsed(field, "a range of ports", allowed)?;
        match want {
            Want::Fixed(_) => {
                let problem = "a fixed number needs no range";
                self.refuse(field, problem, "leave range out, or write any");
            }
            Want::Any { count } => {
                let runs = ranges.as_slice().iter().map(|range| range.count());
                let longest = runs.max().unwrap_or(0);
                if u32::from(count.get()) > longest {
                    let problem = format_args!(
                        "a block of {count} does not fit: the longest run has {longest} numbers"
                    );
                    self.refuse(field, problem, "widen the range");
                }
            }
        }
        Some(ranges)
    }
}
