//! The values behind `${...}`.

use crate::port::PortName;
use crate::profile::{Segment, Template};

use super::{Setting, address};

/// The text of a template for one run. `env` answers for `${env.NAME}`: the user's own variables, those of
/// the file and the secrets, which are known on the host only.
///
/// # Errors
///
/// [`FillError`] names what has no value; the run cannot start with half a text.
pub fn fill(
    template: &Template,
    setting: &Setting<'_>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<String, FillError> {
    let mut text = String::new();
    for segment in &template.0 {
        match segment {
            Segment::Text(plain) => text.push_str(plain),
            Segment::Port(name) => text.push_str(&first(name, setting)?.to_string()),
            Segment::Addr(name) => {
                text.push_str(&address(setting.address_of(name), first(name, setting)?));
            }
            Segment::HostAddress => text.push_str(&setting.host_address.to_string()),
            Segment::HostName => text.push_str(setting.host.as_str()),
            Segment::ReplicaIndex => text.push_str(&setting.index.to_string()),
            Segment::ServiceName => text.push_str(setting.service.label().as_str()),
            Segment::Env(name) => {
                let value =
                    env(name).ok_or_else(|| FillError::NoVariable { name: name.clone() })?;
                text.push_str(&value);
            }
        }
    }
    Ok(text)
}

fn first(name: &PortName, setting: &Setting<'_>) -> Result<crate::port::Port, FillError> {
    let granted = setting.grant.port(name);
    let granted = granted.ok_or_else(|| FillError::NoPort { name: name.clone() })?;
    Ok(granted.numbers.first())
}

/// A reference without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// The grant has no such port; the profile was checked, so the grant is of another one.
    #[error("the grant has no port called {name}")]
    NoPort {
        /// The name.
        name: PortName,
    },
    /// No such variable on the host.
    #[error("${{env.{name}}} has no value: set {name} in env, env_file or env_secret")]
    NoVariable {
        /// The name.
        name: String,
    },
}
