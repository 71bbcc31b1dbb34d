//! A service in a few words: `--port`, `--ready` and a command become a profile like any other.

use std::path::Path;
use std::str::FromStr;

use portreeve::identity::Label;
use portreeve::port::{Port, PortName};
use serde_json::{Map, Value, json};

/// `NAME`, `NAME:any` or `NAME:NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortSpec {
    name: PortName,
    number: Option<Port>,
}

impl FromStr for PortSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').unwrap_or((text, "any"));
        let allowed = "write NAME, NAME:any or NAME:NUMBER, such as http or http:8080";
        Ok(Self {
            name: name
                .parse()
                .map_err(|cause| format!("{cause}; {allowed}"))?,
            number: match number {
                "any" => None,
                number => {
                    let number = number.parse::<u16>().ok().and_then(Port::new);
                    Some(number.ok_or_else(|| allowed.to_owned())?)
                }
            },
        })
    }
}

/// The first name that stands twice among these ports.
pub(super) fn named_twice(ports: &[PortSpec]) -> Option<&PortName> {
    let mut names = std::collections::BTreeSet::new();
    let mut named = ports.iter().map(|port| &port.name);
    named.find(|name| !names.insert(*name))
}

/// When clients may be sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadySpec {
    /// Its own process listens on every published port.
    Listening,
    /// A connection succeeds; `None`: to the only port.
    Tcp(Option<PortName>),
    /// `GET` is answered with 200 to 399.
    Http(PortName, String),
    /// A shell command succeeds.
    Command(String),
}

impl FromStr for ReadySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = "write listening, tcp, tcp:PORT, PORT:/path or command:WORDS, with a --port's name as PORT";
        let name = |name: &str| name.parse().map_err(|cause| format!("{cause}; {allowed}"));
        match text.split_once(':') {
            None if text == "listening" => Ok(Self::Listening),
            None if text == "tcp" => Ok(Self::Tcp(None)),
            Some(("command", words)) if !words.trim().is_empty() => {
                Ok(Self::Command(words.to_owned()))
            }
            Some(("tcp", port)) => Ok(Self::Tcp(Some(name(port)?))),
            Some((port, path)) if path.starts_with('/') => {
                Ok(Self::Http(name(port)?, path.to_owned()))
            }
            _ => Err(allowed.to_owned()),
        }
    }
}

/// What to do when the service exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RestartSpec {
    Always,
    #[default]
    OnFailure,
    Never,
}

/// The profile of a service in a few words, as JSON.
pub(crate) fn profile(
    name: &str,
    ports: &[PortSpec],
    ready: Option<&ReadySpec>,
    restart: RestartSpec,
    command: &[String],
) -> String {
    let numbers: Map<String, Value> = ports
        .iter()
        .map(|port| {
            let number = port.number.map_or(json!("any"), |it| json!(u16::from(it)));
            (port.name.to_string(), number)
        })
        .collect();
    let restart = match restart {
        RestartSpec::Always => "always",
        RestartSpec::OnFailure => "on-failure",
        RestartSpec::Never => "never",
    };
    let mut profile = json!({
        "kind": "service",
        "name": name,
        "command": command,
        "restart": { "policy": restart },
    });
    if !numbers.is_empty() {
        profile["ports"] = Value::Object(numbers);
    }
    if let Some(ready) = ready {
        profile["readiness"] = match ready {
            ReadySpec::Listening => json!({ "listening": true }),
            ReadySpec::Tcp(None) => json!({ "tcp": {} }),
            ReadySpec::Tcp(Some(port)) => json!({ "tcp": { "port": port.to_string() } }),
            ReadySpec::Http(port, path) => {
                json!({ "http": { "port": port.to_string(), "path": path } })
            }
            ReadySpec::Command(words) => json!({ "command": words }),
        };
    }
    profile.to_string()
}

/// A service's name from its command: `./bin/My_Server.py` is `my-server-py`.
pub(crate) fn name_of(command: &[String]) -> Option<Label> {
    let program = Path::new(command.first()?).file_name()?.to_str()?;
    let spelled: String = program
        .chars()
        .map(|c| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => c,
            _ => '-',
        })
        .take(63)
        .collect();
    spelled.trim_matches('-').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::profile::{Body, Profile, Written};
    use portreeve_api::site_profiles::SiteFolder;

    #[test]
    fn every_way_to_write_it_is_a_profile_that_is_accepted() {
        let command = ["./serve".to_owned(), "${port.http}".to_owned()];
        for (port, ready) in [
            ("http", None),
            ("http:any", Some("listening")),
            ("http:8080", Some("tcp")),
            ("http", Some("tcp:http")),
            ("http", Some("http:/health?full=1")),
            ("http", Some("command:test -e ready")),
        ] {
            let ready = ready.map(|it| it.parse().unwrap());
            let ports = [port.parse().unwrap()];
            let text = profile(
                "web",
                &ports,
                ready.as_ref(),
                RestartSpec::default(),
                &command,
            );
            let written = Written {
                body: Body::Json(text.as_bytes()),
                flags: &[],
            };
            let checked = Profile::from_layers(written, &SiteFolder::at(None));
            let checked = checked.unwrap_or_else(|errors| panic!("{errors}: {text}"));
            assert_eq!(checked.profile.ports.len(), 1);
        }
    }

    #[test]
    fn what_is_none_of_them_is_refused_with_what_is_allowed() {
        for text in [
            "",
            "HTTP",
            "http:",
            "http:0",
            "http:70000",
            "http:x",
            "a:1:2",
        ] {
            let refused = text.parse::<PortSpec>().unwrap_err();
            assert!(refused.contains("NAME:NUMBER"), "{text}: {refused}");
        }
        for text in [
            "",
            "http",
            "listen",
            "tcp:",
            "http:health",
            "command:",
            ":/x",
        ] {
            let refused = text.parse::<ReadySpec>().unwrap_err();
            assert!(refused.contains("PORT:/path"), "{text}: {refused}");
        }
    }

    #[test]
    fn a_port_named_twice_is_found() {
        let ports = |names: &[&str]| {
            let ports = names.iter().map(|name| name.parse().unwrap());
            ports.collect::<Vec<PortSpec>>()
        };
        assert_eq!(named_twice(&ports(&["http", "grpc"])), None);
        let twice = ports(&["http", "grpc", "http:80"]);
        assert_eq!(named_twice(&twice).unwrap().to_string(), "http");
    }

    #[test]
    fn a_command_names_its_service() {
        let name = |program: &str| name_of(&[program.to_owned()]).map(|name| name.to_string());
        assert_eq!(name("./bin/My_Server.py").as_deref(), Some("my-server-py"));
        assert_eq!(name("/usr/bin/nginx").as_deref(), Some("nginx"));
        assert_eq!(name("__"), None);
        assert_eq!(name_of(&[]), None);
    }
}
