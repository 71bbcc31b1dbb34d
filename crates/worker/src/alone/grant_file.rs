//! The grant as a file: who the replica is, where it stands and which numbers it got.
//!
//! ```json
//! { "service": "web.alice", "replica": 0, "incarnation": 1,
//!   "host": "n01", "host_address": "10.1.0.17",
//!   "ports": { "http": 20007, "workers": { "first": 20010, "last": 20013 } } }
//! ```
//!
//! Everything but `ports` may be left out. `ports` may also be a plain list, as the `reserve` call of
//! `portreeve.h` gives it: every number in the order of the profile, a block as its numbers ascending.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use portreeve::identity::{HostName, Incarnation, ServiceName};
use portreeve::port::{Port, PortName, PortRange};
use portreeve::port_pool::{GrantedPort, PortGrant, WantedPort};
use portreeve::profile::{DeclaredPort, Profile};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A replica's place and ports, as a scheduler tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantFile {
    /// Whose copy; `None`: the profile's name and namespace.
    pub service: Option<ServiceName>,
    /// Which copy.
    pub replica: u32,
    /// Which placement; a new one is a new replica to the worker.
    pub incarnation: Incarnation,
    /// The host's name; `None`: the system's.
    pub host: Option<HostName>,
    /// The address clients use.
    pub host_address: IpAddr,
    /// The addresses of ports that have one of their own, such as in a network that they name.
    pub addresses: BTreeMap<PortName, IpAddr>,
    /// Whether clients are on this host only, so that loopback listeners are as good.
    pub single_host: bool,
    /// The numbers, in the profile's order.
    pub ports: PortGrant,
}

/// What is wrong with a grant file: all of it, by place. Never empty; nothing was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantErrors(Vec<GrantError>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct GrantError {
    line: usize,
    column: usize,
    problem: String,
}

impl GrantFile {
    /// The largest file, in bytes: far beyond what 256 numbers take.
    pub const MAX: usize = 64 << 10;

    /// Reads the bytes of a file and holds them against the profile.
    ///
    /// # Errors
    ///
    /// [`GrantErrors`]; a syntax error alone, else everything that does not fit the profile.
    pub fn read(bytes: &[u8], profile: &Profile) -> Result<Self, GrantErrors> {
        let whole = |problem: String| GrantErrors(vec![GrantError::at((1, 1), problem)]);
        if bytes.len() > Self::MAX {
            return Err(whole(format!("it has more than {} bytes", Self::MAX)));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|cause| whole(format!("byte {} is not UTF-8", cause.valid_up_to() + 1)))?;
        let form: Form = serde_json::from_str(text).map_err(|cause| {
            let place = (cause.line().max(1), cause.column().max(1));
            // The place stands in front already.
            let words = cause.to_string();
            let words = words.split(" at line ").next().unwrap_or_default();
            let named = words.strip_prefix("ports.");
            let named = named.and_then(|rest| rest.split([':', ' ']).next());
            GrantErrors(vec![match named {
                // Where the key stands, as for everything else about a port; not where the reader stopped.
                Some(name) => GrantError::about(name, text, words.to_owned()),
                None => GrantError::at(place, words.to_owned()),
            }])
        })?;
        let ports = match form.ports {
            Numbers::ByName(ports) => by_name(ports, profile, text),
            Numbers::InOrder(numbers) => in_order(&numbers, profile, text),
        };
        let ports = ports?;
        let mut foreign = form.addresses.keys();
        if let Some(name) = foreign.find(|name| ports.port(name).is_none()) {
            let problem = format!("addresses.{name}: the profile has no such port");
            return Err(GrantErrors(vec![GrantError::about(
                name.as_str(),
                text,
                problem,
            )]));
        }
        let twice = numbers_twice(&ports, text);
        if !twice.is_empty() {
            return Err(GrantErrors(twice));
        }
        Ok(Self {
            service: form.service,
            replica: form.replica,
            incarnation: form.incarnation,
            host: form.host,
            host_address: form.host_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            addresses: form.addresses,
            // Without an address there is nobody else to tell.
            single_host: form.single_host.unwrap_or(form.host_address.is_none()),
            ports,
        })
    }
}

impl GrantErrors {
    /// As lines `file:line:column: problem`.
    pub fn in_file<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            for (nth, error) in self.0.iter().enumerate() {
                let end = if nth > 0 { "\n" } else { "" };
                let (line, column) = (error.line, error.column);
                write!(f, "{end}{file}:{line}:{column}: {}", error.problem)?;
            }
            Ok(())
        })
    }
}

impl GrantError {
    const fn at((line, column): (usize, usize), problem: String) -> Self {
        Self {
            line,
            column,
            problem,
        }
    }

    /// About the key of this name inside `ports`; about `ports` where it does not stand there.
    fn about(name: &str, text: &str, problem: String) -> Self {
        let ports = text.find("\"ports\"").unwrap_or_default();
        let key = format!("\"{name}\"");
        let inside = text[ports..].find(&key).map(|offset| ports + offset);
        Self::at(place(text, inside.unwrap_or(ports)), problem)
    }
}

/// Line and column of an offset, in characters from 1.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[begin..].chars().count() + 1)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    service: Option<ServiceName>,
    #[serde(default)]
    replica: u32,
    #[serde(default = "first_incarnation")]
    incarnation: Incarnation,
    host: Option<HostName>,
    host_address: Option<IpAddr>,
    #[serde(default)]
    addresses: BTreeMap<PortName, IpAddr>,
    single_host: Option<bool>,
    #[serde(default)]
    ports: Numbers,
}

const fn first_incarnation() -> Incarnation {
    Incarnation(0)
}

/// The two ways to write the numbers.
enum Numbers {
    ByName(BTreeMap<String, PortRange>),
    InOrder(Vec<Port>),
}

impl Default for Numbers {
    fn default() -> Self {
        Self::ByName(BTreeMap::new())
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand, for an untagged enum would lose the place of what is wrong.
        deserializer.deserialize_any(NumbersVisitor)
    }
}

struct NumbersVisitor;

impl<'de> Visitor<'de> for NumbersVisitor {
    type Value = Numbers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ports by name, or a list of numbers in the order of the profile")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Numbers, A::Error> {
        let mut ports = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let number: Number = map
                .next_value()
                .map_err(|cause| A::Error::custom(format!("ports.{name}: {cause}")))?;
            if ports.insert(name.clone(), number.0).is_some() {
                return Err(A::Error::custom(format!("ports.{name} stands there twice")));
            }
        }
        Ok(Numbers::ByName(ports))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Numbers, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element::<Number>()? {
            if number.0.count() > 1 {
                return Err(A::Error::custom("a block stands in a list as its numbers"));
            }
            numbers.push(number.0.first());
        }
        Ok(Numbers::InOrder(numbers))
    }
}

/// One number or one block.
struct Number(PortRange);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PortRange::deserialize(deserializer).map(Self).map_err(|_| {
            D::Error::custom("write a port, 1 to 65535, or {\"first\": …, \"last\": …}")
        })
    }
}

fn by_name(
    mut ports: BTreeMap<String, PortRange>,
    profile: &Profile,
    text: &str,
) -> Result<PortGrant, GrantErrors> {
    let mut errors = Vec::new();
    let mut granted = Vec::new();
    for declared in &profile.ports {
        let name = declared.name.as_str();
        match ports.remove(name) {
            Some(numbers) => match answer(declared, numbers) {
                Ok(port) => granted.push(port),
                Err(problem) => errors.push(GrantError::about(name, text, problem)),
            },
            None => errors.push(GrantError::about(
                "ports",
                text,
                format!("ports.{name} is missing, which the profile declares"),
            )),
        }
    }
    for name in ports.keys() {
        let known: Vec<&str> = profile
            .ports
            .iter()
            .map(|port| port.name.as_str())
            .collect();
        let known = match known.is_empty() {
            true => "it declares none".to_owned(),
            false => format!("it declares {}", known.join(", ")),
        };
        let problem = format!("ports.{name}: the profile has no such port; {known}");
        errors.push(GrantError::about(name, text, problem));
    }
    match errors.is_empty() {
        true => Ok(PortGrant { ports: granted }),
        false => Err(GrantErrors(errors)),
    }
}

fn in_order(numbers: &[Port], profile: &Profile, text: &str) -> Result<PortGrant, GrantErrors> {
    let about = |problem: String| GrantErrors(vec![GrantError::about("ports", text, problem)]);
    let counts = profile
        .ports
        .iter()
        .map(|port| usize::from(port.wanted().count().get()));
    let wanted: usize = counts.sum();
    if numbers.len() != wanted {
        return Err(about(format!(
            "ports: the list has {} numbers and the profile declares {wanted}",
            numbers.len()
        )));
    }
    let mut left = numbers;
    let mut granted = Vec::new();
    for declared in &profile.ports {
        let (own, rest) = left.split_at(usize::from(declared.wanted().count().get()));
        left = rest;
        let consecutive = own
            .windows(2)
            .all(|pair| pair[0].number().checked_add(1) == Some(pair[1].number()));
        let range = match own {
            [first, .., last] => PortRange::new(*first, *last),
            [only] => Some(PortRange::single(*only)),
            [] => None,
        };
        let port = range
            .filter(|_| consecutive)
            .ok_or_else(|| format!("ports: those of {} are not consecutive", declared.name))
            .and_then(|numbers| answer(declared, numbers));
        granted.push(port.map_err(about)?);
    }
    Ok(PortGrant { ports: granted })
}

/// The numbers as the port's own, if they could be.
fn answer(declared: &DeclaredPort, numbers: PortRange) -> Result<GrantedPort, String> {
    let wanted: WantedPort = declared.wanted();
    let name = &declared.name;
    if wanted.count().get() != 1 && numbers.count() != u32::from(wanted.count().get()) {
        return Err(format!(
            "ports.{name}: {numbers} is not the block of {} that the profile asks for",
            wanted.count()
        ));
    }
    if !wanted.is_answered(declared.protocol, numbers) {
        return Err(format!(
            "ports.{name}: {numbers} is not what the profile asks for"
        ));
    }
    Ok(GrantedPort {
        name: name.clone(),
        protocol: declared.protocol,
        numbers,
    })
}

/// Numbers that two ports hold on one side.
fn numbers_twice(grant: &PortGrant, text: &str) -> Vec<GrantError> {
    let mut errors = Vec::new();
    for (nth, port) in grant.ports.iter().enumerate() {
        let same = grant.ports[..nth].iter().find(|other| {
            let sides = other.protocol.has_tcp() && port.protocol.has_tcp()
                || other.protocol.has_udp() && port.protocol.has_udp();
            sides
                && other.numbers.first() <= port.numbers.last()
                && port.numbers.first() <= other.numbers.last()
        });
        if let Some(other) = same {
            let (one, two) = (&other.name, &port.name);
            let problem = format!("ports.{two}: {} is that of {one} too", port.numbers);
            errors.push(GrantError::about(two.as_str(), text, problem));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(ports: &str) -> Profile {
        let text = format!("name = \"web\"\ncommand = [\"web\"]\n[ports]\n{ports}");
        Profile::from_toml(&text).unwrap().profile
    }

    fn refused(ports: &str, text: &str) -> String {
        let errors = GrantFile::read(text.as_bytes(), &profile(ports)).unwrap_err();
        errors.in_file("g.json").to_string()
    }

    const TWO: &str = "http = \"any\"\nworkers = { any = 3 }\n";

    #[test]
    fn the_numbers_are_written_by_name_or_as_the_c_call_gives_them() {
        let by_name = br#"{"ports": {"workers": {"first": 20010, "last": 20012}, "http": 20007}}"#;
        let in_order = br#"{"ports": [20007, 20010, 20011, 20012]}"#;
        let read = |text: &[u8]| GrantFile::read(text, &profile(TWO)).unwrap();
        let grant = read(by_name);
        assert_eq!(grant, read(in_order));
        assert_eq!(grant.ports.count(), 4);
        assert_eq!(grant.ports.ports[0].name.as_str(), "http");
        assert!(grant.single_host && grant.host_address.is_loopback());
        let none = GrantFile::read(b"{}", &profile("")).unwrap();
        assert_eq!(none.ports, PortGrant::default());
    }

    #[test]
    fn what_does_not_fit_the_profile_is_told_with_its_place() {
        let text = "{\n  \"ports\": {\n    \"http\": 20007,\n    \"htpt\": 20008\n  }\n}";
        assert_eq!(
            refused(TWO, text),
            "g.json:2:3: ports.workers is missing, which the profile declares\n\
             g.json:4:5: ports.htpt: the profile has no such port; it declares http, workers"
        );
        let text = r#"{"ports": {"http": 20007, "workers": {"first": 20010, "last": 20011}}}"#;
        assert_eq!(
            refused(TWO, text),
            "g.json:1:27: ports.workers: 20010-20011 is not the block of 3 that the profile asks for"
        );
        let text = r#"{"ports": {"http": 8080}}"#;
        assert!(refused("http = 80\n", text).contains("8080 is not what the profile asks for"));
        let text = r#"{"ports": [20010, 20010, 20011, 20012]}"#;
        assert!(refused(TWO, text).contains("ports.workers: 20010-20012 is that of http too"));
        let text = r#"{"ports": [20007, 20010, 20012, 20013]}"#;
        assert!(refused(TWO, text).contains("those of workers are not consecutive"));
        let text = r#"{"ports": [20007]}"#;
        assert!(refused(TWO, text).contains("the list has 1 numbers and the profile declares 4"));
    }

    #[test]
    fn what_is_no_grant_at_all_is_told_with_its_place() {
        for (text, place, words) in [
            (
                "{\"ports\": {\"http\": 0}}",
                "g.json:1:12: ",
                "ports.http: write a port",
            ),
            ("{\n\"portz\": {}}", "g.json:2:7: ", "unknown field `portz`"),
            ("", "g.json:1:1: ", "EOF"),
            ("[1", "g.json:1:", ""),
            ("{\"replica\": -1}", "g.json:1:14: ", "invalid value"),
            (
                "{\"service\": \"A B\"}",
                "g.json:1:18: ",
                "has no namespace",
            ),
            (
                "{\"host_address\": \"localhost\"}",
                "g.json:1:28: ",
                "IP address",
            ),
            (
                "{\"ports\": {\"http\": 1, \"http\": 2}}",
                "g.json:1:",
                "twice",
            ),
        ] {
            let said = refused("http = \"any\"\n", text);
            assert!(
                said.starts_with(place) && said.contains(words),
                "{text}: {said}"
            );
        }
        assert!(refused("", &" ".repeat(70_000)).contains("more than 65536 bytes"));
        let errors = GrantFile::read(&[0xff, 0xfe], &profile("")).unwrap_err();
        assert_eq!(
            errors.in_file("g").to_string(),
            "g:1:1: byte 1 is not UTF-8"
        );
    }
}
