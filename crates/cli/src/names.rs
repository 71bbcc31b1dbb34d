//! Names as people type them: `web`, `web.alice`, `web:http`, `web/0`.

use std::fmt;
use std::str::FromStr;

use portreeve::identity::{Label, Namespace, ParseLabelError, ParseNamespaceError};
use portreeve::port::PortName;

/// A service, with or without its namespace; without: the caller's own, which the controller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceArg {
    label: Label,
    namespace: Option<Namespace>,
}

impl fmt::Display for ServiceArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}.{namespace}", self.label),
            None => self.label.fmt(f),
        }
    }
}

impl FromStr for ServiceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((service, _)) = text.split_once('/') {
            return Err(format!("the whole service is meant here: write {service}"));
        }
        let (label, namespace) = match text.split_once('.') {
            Some((label, namespace)) => {
                let namespace: Result<_, ParseNamespaceError> = namespace.parse();
                (label, Some(namespace.map_err(|cause| cause.to_string())?))
            }
            None => (text, None),
        };
        let label: Result<_, ParseLabelError> = label.parse();
        Ok(Self {
            label: label.map_err(|cause| cause.to_string())?,
            namespace,
        })
    }
}

/// `NAME[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortArg {
    pub service: ServiceArg,
    pub port: Option<PortName>,
}

impl FromStr for PortArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (service, port) = match text.split_once(':') {
            Some((service, port)) => (
                service,
                Some(port.parse().map_err(|cause| format!("{cause}"))?),
            ),
            None => (text, None),
        };
        Ok(Self {
            service: service.parse()?,
            port,
        })
    }
}

/// `NAME[/N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaArg {
    pub service: ServiceArg,
    pub index: Option<u32>,
}

impl FromStr for ReplicaArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (service, index) = match text.split_once('/') {
            Some((service, index)) => {
                let refused = || format!("{index:?} is no replica: write NAME/N with N from 0");
                (service, Some(index.parse().map_err(|_| refused())?))
            }
            None => (text, None),
        };
        Ok(Self {
            service: service.parse()?,
            index,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_carry_a_namespace_a_port_or_a_replica() {
        let port: PortArg = "web.alice:http".parse().unwrap();
        assert_eq!(port.service.to_string(), "web.alice");
        assert_eq!(port.port.unwrap().as_str(), "http");
        let replica: ReplicaArg = "web/3".parse().unwrap();
        assert_eq!(
            (replica.service.to_string().as_str(), replica.index),
            ("web", Some(3))
        );
    }

    #[test]
    fn malformed_names_are_refused_with_the_reason() {
        for bad in ["", "WEB", "web/x", "web/-1", "web/", "a/b/c"] {
            assert!(bad.parse::<ReplicaArg>().is_err(), "{bad:?} was accepted");
        }
        assert!("web:HTTP".parse::<PortArg>().is_err());
    }
}
