//! Text with `${...}` in it, parsed at submit and filled in on the host.

use std::fmt::{self, Write as _};

use crate::port::{PortName, excerpt};

/// Text whose references are known to be well formed. `$$` is a dollar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(pub Vec<Segment>);

/// A piece of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Plain text.
    Text(String),
    /// `${port.NAME}`: the first number of a port.
    Port(PortName),
    /// `${addr.NAME}`: `host:port`, IPv6 in brackets.
    Addr(PortName),
    /// `${host.address}`: the published address.
    HostAddress,
    /// `${host.name}`.
    HostName,
    /// `${replica.index}`.
    ReplicaIndex,
    /// `${service.name}`: without the namespace.
    ServiceName,
    /// `${env.NAME}`: filled in by the worker, never stored.
    Env(String),
}

impl Template {
    /// Reads a text; references to ports are checked against the profile by its parser.
    ///
    /// # Errors
    ///
    /// [`ParseTemplateError`] with the reference that is unknown or not closed.
    pub fn parse(text: &str) -> Result<Self, ParseTemplateError> {
        let mut segments = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                plain.push('$');
                rest = after;
            } else if let Some(body) = rest.strip_prefix('{') {
                let end = body
                    .find('}')
                    .ok_or_else(|| ParseTemplateError::NotClosed {
                        text: excerpt(body),
                    })?;
                if !plain.is_empty() {
                    segments.push(Segment::Text(std::mem::take(&mut plain)));
                }
                segments.push(reference(&body[..end])?);
                rest = &body[end + 1..];
            } else {
                // A lone dollar is the shell's own, as in `$HOME`.
                plain.push('$');
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            segments.push(Segment::Text(plain));
        }
        Ok(Self(segments))
    }

    /// The ports it refers to.
    pub fn ports(&self) -> impl Iterator<Item = &PortName> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Port(name) | Segment::Addr(name) => Some(name),
            _ => None,
        })
    }
}

fn reference(name: &str) -> Result<Segment, ParseTemplateError> {
    let unknown = || ParseTemplateError::Unknown {
        name: excerpt(name),
    };
    match name.split_once('.') {
        Some(("port", port)) => port.parse().map(Segment::Port).map_err(|_| unknown()),
        Some(("addr", port)) => port.parse().map(Segment::Addr).map_err(|_| unknown()),
        Some(("env", variable)) if !variable.is_empty() => Ok(Segment::Env(variable.to_owned())),
        Some(("host", "address")) => Ok(Segment::HostAddress),
        Some(("host", "name")) => Ok(Segment::HostName),
        Some(("replica", "index")) => Ok(Segment::ReplicaIndex),
        Some(("service", "name")) => Ok(Segment::ServiceName),
        _ => Err(unknown()),
    }
}

impl fmt::Display for Template {
    /// The text that reads back as this; dollars are doubled only where a single one would mean
    /// something, so that it is never longer than what was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Text(text) => {
                    // What follows is another reference, which begins with a dollar.
                    let at_end = (place + 1 < self.0.len()).then_some('$');
                    let mut rest = text.chars().peekable();
                    while let Some(char) = rest.next() {
                        let next = rest.peek().copied().or(at_end);
                        if char == '$' && matches!(next, Some('$' | '{')) {
                            f.write_char('$')?;
                        }
                        f.write_char(char)?;
                    }
                }
                Segment::Port(name) => write!(f, "${{port.{name}}}")?,
                Segment::Addr(name) => write!(f, "${{addr.{name}}}")?,
                Segment::HostAddress => f.write_str("${host.address}")?,
                Segment::HostName => f.write_str("${host.name}")?,
                Segment::ReplicaIndex => f.write_str("${replica.index}")?,
                Segment::ServiceName => f.write_str("${service.name}")?,
                Segment::Env(name) => write!(f, "${{env.{name}}}")?,
            }
        }
        Ok(())
    }
}

/// A reference that cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTemplateError {
    /// Nothing of this name exists.
    #[error(
        "${{{name}}} is unknown: write ${{port.NAME}}, ${{addr.NAME}}, ${{host.address}}, ${{host.name}}, ${{replica.index}}, ${{service.name}} or ${{env.NAME}}; a dollar is $$"
    )]
    Unknown {
        /// What stands between the braces.
        name: String,
    },
    /// The closing brace is missing.
    #[error("${{{text} has no closing brace; a dollar is $$")]
    NotClosed {
        /// What follows the opening brace.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn references_and_dollars_are_told_apart() {
        let text = "a $$ $HOME ${port.http} ${env.X}";
        let template = Template::parse(text).unwrap();
        assert_eq!(template.0[0], Segment::Text("a $ $HOME ".into()));
        assert_eq!(template.0.len(), 4);
        assert_eq!(Template::parse(&template.to_string()).unwrap(), template);
    }

    proptest! {
        // A stored profile is read again under the same bounds, so its texts must not grow.
        #[test]
        fn what_is_written_out_reads_back_equal_and_no_longer(text in r"([${}]|\$\{port\.a\}|\$\{host\.name\}|x){0,24}") {
            if let Ok(template) = Template::parse(&text) {
                let again = template.to_string();
                prop_assert!(again.len() <= text.len(), "{again:?} is longer than {text:?}");
                prop_assert_eq!(Template::parse(&again), Ok(template));
            }
        }
    }

    #[test]
    fn unknown_and_open_references_are_refused() {
        for bad in [
            "${port}",
            "${port.HTTP}",
            "${nothing.x}",
            "${",
            "${port.http",
            "${}",
            "${env.}",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
