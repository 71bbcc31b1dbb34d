//! Where things are. One function a path, so that server and clients cannot differ.
//!
//! `service` is a full name, or a label alone: the server then takes the caller's own namespace.

use std::fmt::Display;

use portreeve::identity::{HostName, Incarnation};

/// `path` with these parameters, whatever bytes their values have.
#[must_use]
pub fn with_parameters(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut whole = path.to_owned();
    for (nth, (name, value)) in parameters.iter().enumerate() {
        whole.push(if nth == 0 { '?' } else { '&' });
        whole.push_str(name);
        whole.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    whole.push(char::from(byte));
                }
                _ => whole.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    whole
}

/// `path` with those of the parameters that are given.
#[must_use]
pub fn with_given(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter();
    let given = given.filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let given: Vec<_> = given.collect();
    with_parameters(path, &given)
}

/// The root of the native tree.
pub const ROOT: &str = "/api/v1";

/// Everything that is stored, to be restored by `portreeve restore`.
#[must_use]
pub fn backup(with_secrets: bool) -> String {
    format!(
        "{ROOT}/backup{}",
        if with_secrets { "?secrets" } else { "" }
    )
}

/// All visible services.
#[must_use]
pub fn services() -> String {
    format!("{ROOT}/services")
}

/// One service.
#[must_use]
pub fn service(service: &dyn Display) -> String {
    format!("{ROOT}/services/{service}")
}

/// What a service's owner can do: `scale`, `start`, `stop`, `restart`; also `endpoints`, `events`, `explain`.
#[must_use]
pub fn service_part(service: &dyn Display, part: &str) -> String {
    format!("{ROOT}/services/{service}/{part}")
}

/// One replica of a service.
#[must_use]
pub fn replica(service: &dyn Display, index: u32) -> String {
    format!("{ROOT}/services/{service}/replicas/{index}")
}

/// One replica of a service, and what can be asked of it: `kill`, `restart`, `logs`.
#[must_use]
pub fn replica_part(service: &dyn Display, index: u32, part: &str) -> String {
    format!("{ROOT}/services/{service}/replicas/{index}/{part}")
}

/// Changes of several services over one connection: those named, and those whose full name begins with the prefix.
#[must_use]
pub fn watch(services: &[String], prefix: Option<&str>, state: &str) -> String {
    let named = services.iter().map(|name| ("service", name.as_str()));
    let begun = prefix.map(|prefix| ("prefix", prefix));
    let parameters: Vec<_> = named.chain(begun).chain([("state", state)]).collect();
    with_parameters(&format!("{ROOT}/watch"), &parameters)
}

/// `host:port` lines of a service, plain text.
#[must_use]
pub fn resolve(service: &dyn Display, port: Option<&str>) -> String {
    match port {
        Some(port) => format!("{ROOT}/resolve/{service}/{port}"),
        None => format!("{ROOT}/resolve/{service}"),
    }
}

/// All hosts.
#[must_use]
pub fn hosts() -> String {
    format!("{ROOT}/hosts")
}

/// One host.
#[must_use]
pub fn host(host: &HostName) -> String {
    format!("{ROOT}/hosts/{host}")
}

/// What a host's agent says and asks: `report`, `lease`, `desired`; also `ports` for readers, and what operators order:
/// `drain`, `undrain`, `down`, `remove`, `adopt`, `fence`.
#[must_use]
pub fn host_part(host: &HostName, part: &str) -> String {
    format!("{ROOT}/hosts/{host}/{part}")
}

/// Where a worker tells its newest status.
#[must_use]
pub fn status(service: &dyn Display, index: u32, incarnation: Incarnation) -> String {
    format!("{ROOT}/replicas/{service}/{index}/{incarnation}/status")
}

/// Where an agent puts what a reader of logs waits for.
#[must_use]
pub fn log_piece(host: &HostName, read: u64) -> String {
    format!("{ROOT}/hosts/{host}/reads/{read}")
}

/// The tokens of the caller; a new one is posted there.
#[must_use]
pub fn tokens() -> String {
    format!("{ROOT}/tokens")
}

/// One token.
#[must_use]
pub fn token(id: &dyn Display) -> String {
    format!("{ROOT}/tokens/{id}")
}

/// Where a token gets another text.
#[must_use]
pub fn rotate_token(id: &dyn Display) -> String {
    format!("{ROOT}/tokens/{id}/rotate")
}

/// Where a machine trades a token for its host's.
#[must_use]
pub fn join() -> String {
    format!("{ROOT}/join")
}

/// Who the caller is.
#[must_use]
pub fn whoami() -> String {
    format!("{ROOT}/whoami")
}

/// Where one replica of a profile would fit; stores nothing. For a known service: its part `explain`.
#[must_use]
pub fn explain() -> String {
    format!("{ROOT}/explain")
}

/// Checks a profile without storing anything.
#[must_use]
pub fn check() -> String {
    format!("{ROOT}/check")
}
