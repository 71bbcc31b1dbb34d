//! Who is who: services, replicas, their incarnations and runs, hosts, users and groups.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::port::excerpt;

/// Makes an owned, cheaply cloned text type whose constructor is its parser.
macro_rules! parsed_text {
    ($(#[$doc:meta])* $name:ident, $error:ident, $rule:path, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0.as_ref().to_owned()
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                if $rule(text) {
                    Ok(Self(text.into()))
                } else {
                    Err($error { text: excerpt(text) })
                }
            }
        }

        #[doc = concat!("Not the text of a [`", stringify!($name), "`].")]
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("{text:?} is not {}", $what)]
        pub struct $error {
            text: String,
        }
    };
}

parsed_text!(
    /// The name of a service inside its namespace: an RFC 1123 label, 1 to 63 of `a-z`, `0-9`
    /// and `-`, neither first nor last a `-`.
    Label,
    ParseLabelError,
    is_label,
    "a service name: write 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
);

parsed_text!(
    /// Whose services these are: the account that submitted them, or a group. 1 to 64 of
    /// `A-Z a-z 0-9 . _ @ + -`; a backslash of a Windows domain is written `+`.
    Namespace,
    ParseNamespaceError,
    is_namespace,
    "a namespace: write 1 to 64 of A-Z, a-z, 0-9 and . _ @ + -"
);

parsed_text!(
    /// The name of a host: 1 to 253 of `A-Z a-z 0-9 . _ -`, a letter or digit first.
    HostName,
    ParseHostNameError,
    is_host_name,
    "a host name: write 1 to 253 of A-Z, a-z, 0-9 and . _ -, a letter or digit first"
);

parsed_text!(
    /// The name of a network of the site: a label as of a service.
    NetworkName,
    ParseNetworkNameError,
    is_label,
    "a network name: write 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
);

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_namespace(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte);
    // `.` and `..` would be folders in a path.
    (1..=64).contains(&text.len()) && text.bytes().all(allowed) && text.bytes().any(|b| b != b'.')
}

fn is_host_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=253).contains(&text.len())
        && text.bytes().all(allowed)
        && text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// A service in its namespace, written `web.alice`: split at the first dot, since a [`Label`] has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceName {
    namespace: Namespace,
    label: Label,
}

impl ServiceName {
    /// The service `label` of `namespace`.
    #[must_use]
    pub const fn new(label: Label, namespace: Namespace) -> Self {
        Self { namespace, label }
    }

    /// Its name inside the namespace.
    #[must_use]
    pub const fn label(&self) -> &Label {
        &self.label
    }

    /// Whose it is.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Reads `web.alice`, or `web` alone as the service of `own`.
    ///
    /// # Errors
    ///
    /// [`ParseServiceNameError`] with the part that is malformed.
    pub fn parse_in(text: &str, own: &Namespace) -> Result<Self, ParseServiceNameError> {
        if text.contains('.') {
            return text.parse();
        }
        Ok(Self::new(text.parse()?, own.clone()))
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.label, self.namespace)
    }
}

impl From<ServiceName> for String {
    fn from(name: ServiceName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for ServiceName {
    type Error = ParseServiceNameError;

    fn try_from(text: String) -> Result<Self, ParseServiceNameError> {
        text.parse()
    }
}

impl FromStr for ServiceName {
    type Err = ParseServiceNameError;

    fn from_str(text: &str) -> Result<Self, ParseServiceNameError> {
        let (label, namespace) =
            text.split_once('.')
                .ok_or_else(|| ParseServiceNameError::NoNamespace {
                    text: excerpt(text),
                })?;
        Ok(Self::new(label.parse()?, namespace.parse()?))
    }
}

/// Not the name of a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseServiceNameError {
    /// The part before the dot.
    #[error(transparent)]
    Label(#[from] ParseLabelError),
    /// The part after the dot.
    #[error(transparent)]
    Namespace(#[from] ParseNamespaceError),
    /// There is no dot where a full name is needed.
    #[error("{text:?} has no namespace: write NAME.NAMESPACE, for example \"web.alice\"")]
    NoNamespace {
        /// What was written.
        text: String,
    },
}

/// A host's dense number, for bitmaps. Its name is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostId(pub u32);

/// A service's number, never used again for another service of the same owner of the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServiceId(pub u64);

/// Which placement of a replica: 0 for the first, one more at each.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub u32);

/// One placement of one replica: what holds ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    /// The service it is a copy of.
    pub service: ServiceId,
    /// Which copy, from 0.
    pub index: u32,
    /// Which placement of it.
    pub incarnation: Incarnation,
}

/// Which start of a replica's process within one incarnation: 0 before the first, then from 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Run(pub u32);

impl Run {
    /// The run after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Who sees a service's endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// The owner, and who may see the owner's jobs.
    #[default]
    Private,
    /// Every authenticated user.
    Cluster,
    /// These beside the owner.
    Listed(Vec<Audience>),
}

/// A group or a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Audience {
    /// `group:NAME`.
    Group(String),
    /// `user:NAME`.
    User(String),
}

macro_rules! shown_as_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
shown_as_number!(HostId, ServiceId, Incarnation, Run);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_name_is_split_at_its_first_dot() {
        let name: ServiceName = "web.alice.b@site".parse().unwrap();
        assert_eq!(name.label().as_str(), "web");
        assert_eq!(name.namespace().as_str(), "alice.b@site");
        assert_eq!(name.to_string(), "web.alice.b@site");
    }

    #[test]
    fn a_name_without_namespace_is_ones_own() {
        let alice: Namespace = "alice".parse().unwrap();
        assert_eq!(
            ServiceName::parse_in("web", &alice).unwrap().to_string(),
            "web.alice"
        );
        assert_eq!(
            ServiceName::parse_in("web.bob", &alice)
                .unwrap()
                .to_string(),
            "web.bob"
        );
        assert!("web".parse::<ServiceName>().is_err());
    }

    #[test]
    fn malformed_names_are_refused() {
        for bad in ["", "-a", "a-", "A", "a_b", "a b", &"a".repeat(64)] {
            assert!(
                bad.parse::<Label>().is_err(),
                "{bad:?} was accepted as a label"
            );
        }
        for bad in ["", ".", "..", "a/b", "a b", "a\\b", "ä", &"a".repeat(65)] {
            assert!(
                bad.parse::<Namespace>().is_err(),
                "{bad:?} was accepted as a namespace"
            );
        }
        for bad in ["", "-n1", "n 1", "n/1", "n1\n"] {
            assert!(
                bad.parse::<HostName>().is_err(),
                "{bad:?} was accepted as a host name"
            );
        }
    }
}
