//! What was seen, and when.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use portreeve::identity::{HostName, Incarnation, Run, ServiceName};
use portreeve::time::Monotonic;
use serde::Serialize;

use crate::cluster::sight::{Sight, Subject};
use crate::cluster::spec::{ServiceSpec, Spec};

pub use crate::cluster::sight::What;

/// One thing that was seen of a replica, a service, a host or the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Milliseconds of virtual time.
    #[serde(rename = "at_ms")]
    pub at: Monotonic,
    /// Of which service, or of whose replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The service as people read it: without its namespace, where no other has that name.
    #[serde(skip)]
    pub(crate) shown: Option<Arc<str>>,
    /// Of which replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<u32>,
    /// Of which placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    /// Its newest start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The host, or where the replica is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// What it was. In JSON its words stand beside it.
    #[serde(flatten, serialize_with = "with_words")]
    pub what: What,
}

/// One line of a timeline: seconds, who, run, words.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run.map_or_else(String::new, |run| run.0.to_string());
        write!(
            f,
            "{:>11}  {:<12}  {run:>3}  {}",
            Seconds(self.at),
            self.who(),
            self.what
        )
    }
}

impl Entry {
    /// The heading over lines of a timeline.
    pub const HEADING: &str = "    SECONDS  WHO           RUN  WHAT";

    /// Of whom it is, in a word: `web/0`, `web`, `n1`, `controller`.
    #[must_use]
    pub fn who(&self) -> String {
        match (&self.shown, self.replica, &self.host) {
            (Some(service), Some(replica), _) => format!("{service}/{replica}"),
            (Some(service), None, _) => service.to_string(),
            (None, Some(replica), _) => replica.to_string(),
            (None, None, Some(host)) => host.to_string(),
            (None, None, None) => "controller".to_owned(),
        }
    }

    /// Whether it is of somebody who is called so, with or without the namespace.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        let Some(service) = &self.service else {
            return self.who() == name;
        };
        let (of, replica) = match name.split_once('/') {
            Some((of, replica)) => (of, Some(replica)),
            None => (name, None),
        };
        let replica_fits = match (replica, self.replica) {
            // Of the service is what is of its replicas, too.
            (None, _) => true,
            (Some(named), Some(own)) => named.parse() == Ok(own),
            (Some(_), None) => false,
        };
        replica_fits && (self.shown.as_deref() == Some(of) || service.to_string() == of)
    }
}

/// What services and hosts are called in a timeline.
pub(crate) struct Names {
    services: BTreeMap<ServiceName, Arc<str>>,
    hosts: Vec<HostName>,
}

impl Names {
    pub(crate) fn new(spec: &Spec) -> Self {
        let names: Vec<_> = spec.services.iter().map(ServiceSpec::name).collect();
        let mut labels = BTreeMap::<_, u32>::new();
        for name in &names {
            *labels.entry(name.label().clone()).or_default() += 1;
        }
        let shown = |name: ServiceName| {
            let shown = match labels.get(name.label()) {
                Some(1) => Arc::from(name.label().as_str()),
                _ => Arc::from(name.to_string()),
            };
            (name, shown)
        };
        Self {
            services: names.into_iter().map(shown).collect(),
            hosts: spec.hosts.iter().map(|host| host.name.clone()).collect(),
        }
    }

    /// The same sight, in words for people.
    pub(crate) fn entry(&self, sight: &Sight) -> Entry {
        let mut entry = Entry {
            at: sight.at,
            service: None,
            shown: None,
            replica: None,
            incarnation: None,
            run: None,
            host: None,
            what: sight.what.clone(),
        };
        match &sight.of {
            Subject::Replica {
                service,
                index,
                incarnation,
                run,
                host,
            } => {
                entry.service = Some(service.clone());
                entry.replica = Some(*index);
                entry.incarnation = Some(*incarnation);
                entry.run = (*run != Run::default()).then_some(*run);
                entry.host = self.hosts.get(*host).cloned();
            }
            Subject::Service(service) => entry.service = Some(service.clone()),
            Subject::Host(host) => entry.host = self.hosts.get(*host).cloned(),
            Subject::Controller => {}
        }
        entry.shown = entry.service.as_ref().map(|name| self.shown(name));
        entry
    }

    fn shown(&self, name: &ServiceName) -> Arc<str> {
        let known = self.services.get(name).cloned();
        known.unwrap_or_else(|| name.to_string().into())
    }
}

/// Seconds with milliseconds behind the point.
pub(crate) struct Seconds(pub(crate) Monotonic);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        f.pad(&format!("{}.{:03}", ms / 1000, ms % 1000))
    }
}

fn with_words<S: serde::Serializer>(what: &What, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Both<'a> {
        what: String,
        detail: &'a What,
    }
    let what_words = what.to_string();
    Both {
        what: what_words,
        detail: what,
    }
    .serialize(serializer)
}
