//! What of a service's endpoints is asked for: read once from the query, then applied to every snapshot.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::StatusCode;
use portreeve::endpoints::{Endpoint, EndpointState, Handle, Snapshot, Watcher};
use portreeve::identity::HostName;
use portreeve::port::PortName;
use portreeve::registry::ServiceView;
use portreeve::rights::Caller;
use sha2::{Digest, Sha256};

use crate::rest::query::Query;
use crate::rest::refused::Refused;

/// Which endpoints an answer lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Listing {
    /// Clients may be sent there.
    Ready,
    /// Also those that stop but still answer.
    Serving,
    /// Everything, with reasons.
    All,
}

/// The question of one reader or watcher, whatever service it is put to. Equal views of one service have equal
/// answers, but for what the reader may see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EndpointsView {
    /// By state.
    pub(crate) listing: Listing,
    /// Only this port of each.
    pub(crate) port: Option<PortName>,
    /// Only those on this host.
    pub(crate) host: Option<HostName>,
    /// Only those with all of these labels.
    pub(crate) labels: BTreeMap<String, String>,
}

impl EndpointsView {
    /// The most labels that one question may name.
    const MAX_LABELS: usize = 16;

    /// Takes `port`, `state`, `host` and `label` out of the query.
    pub(crate) fn take(query: &mut Query) -> Result<Self, Refused> {
        let states = [
            ("ready", Listing::Ready),
            ("serving", Listing::Serving),
            ("all", Listing::All),
        ];
        Ok(Self {
            port: query.parsed("port")?,
            listing: query.one_of("state", &states)?.unwrap_or(Listing::Ready),
            host: query.parsed("host")?,
            labels: labels(query)?,
        })
    }

    /// The default answer of one port or of all.
    pub(crate) const fn ready(port: Option<PortName>) -> Self {
        Self {
            listing: Listing::Ready,
            port,
            host: None,
            labels: BTreeMap::new(),
        }
    }

    /// Whether it is the default answer, of which nothing is left out: the same entries for every reader.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::ready(None)
    }

    /// Refuses a port that `service` does not publish.
    pub(crate) fn of(&self, service: &ServiceView) -> Result<(), Refused> {
        match &self.port {
            Some(port) => declared(service, port),
            None => Ok(()),
        }
    }

    /// Tells this view from others of one service in an entity tag: what the caller's lists cover, and the filters.
    /// The same after a restart.
    pub(crate) fn mark(&self, caller: &Caller) -> Cow<'static, str> {
        let scope = caller.view_scope();
        if self.is_plain() && scope.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return scope;
        }
        let mut hash = Sha256::new();
        // No part holds a zero byte, so none runs into the next.
        let mut take = |part: &str| hash.update([part.as_bytes(), &[0]].concat());
        take(&scope);
        take(match self.listing {
            Listing::Ready => "ready",
            Listing::Serving => "serving",
            Listing::All => "all",
        });
        take(self.port.as_ref().map_or("", PortName::as_str));
        take(self.host.as_ref().map_or("", HostName::as_str));
        for (name, value) in &self.labels {
            take(name);
            take(value);
        }
        let first = hash.finalize();
        let digits = first[..8].iter().map(|byte| format!("{byte:02x}"));
        Cow::Owned(digits.collect())
    }

    /// Whether an answer lists this endpoint.
    pub(crate) fn lists(&self, endpoint: &Endpoint) -> bool {
        // Of an older profile, it may not have the port at all: there is nothing to send anybody to.
        let has_port = self.listing == Listing::All
            || self.port.as_ref().is_none_or(|name| {
                let mut ports = endpoint.ports.iter();
                ports.any(|port| port.name == *name)
            });
        let on_host = self.host.as_ref().is_none_or(|it| *it == endpoint.host);
        let mut labels = self.labels.iter();
        self.listing.lists(endpoint)
            && has_port
            && on_host
            && labels.all(|(name, value)| endpoint.labels.get(name) == Some(value))
    }
}

impl Listing {
    /// The number of the newest change of what it lists.
    pub(crate) fn revision(self, snapshot: &Snapshot) -> u64 {
        match self {
            Self::Ready => snapshot.ready_revision(),
            Self::Serving | Self::All => snapshot.mod_revision(),
        }
    }

    /// Moves when [`Listing::revision`] does.
    pub(crate) fn subscribe(self, handle: &Handle) -> Watcher {
        match self {
            Self::Ready => handle.subscribe_ready(),
            Self::Serving | Self::All => handle.subscribe(),
        }
    }

    fn lists(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Ready => is_listed(endpoint),
            Self::Serving => {
                is_listed(endpoint)
                    || (endpoint.state == EndpointState::Serving && endpoint.address.is_some())
            }
            Self::All => true,
        }
    }
}

/// Whether clients may be sent there.
pub(crate) fn is_listed(endpoint: &Endpoint) -> bool {
    endpoint.state.is_listed() && endpoint.address.is_some()
}

/// `label=k:v`, once or more; all must hold.
pub(crate) fn labels(query: &mut Query) -> Result<BTreeMap<String, String>, Refused> {
    let mut labels = BTreeMap::new();
    for text in query.texts("label") {
        let pair = text.split_once(':').filter(|_| !text.contains('\0'));
        let Some((name, value)) = pair.filter(|(name, _)| !name.is_empty()) else {
            return Err(Refused::parameter("label", "write NAME:VALUE"));
        };
        let before = labels.insert(name.to_owned(), value.to_owned());
        if before.is_some_and(|before| before != value) {
            return Err(Refused::parameter(
                "label",
                "one label cannot have two values",
            ));
        }
        if labels.len() > EndpointsView::MAX_LABELS {
            let most = EndpointsView::MAX_LABELS;
            return Err(Refused::parameter("label", format!("more than {most}")));
        }
    }
    Ok(labels)
}

/// Whether the profile declares and publishes this port.
fn declared(service: &ServiceView, port: &PortName) -> Result<(), Refused> {
    let published = service.profile.ports.iter().filter(|port| port.publish);
    let names: Vec<_> = published.map(|port| &port.name).collect();
    if names.contains(&port) {
        return Ok(());
    }
    let all: Vec<_> = names.iter().map(ToString::to_string).collect();
    let known = match all.as_slice() {
        [] => "it publishes none".to_owned(),
        all => format!("it publishes {}", all.join(", ")),
    };
    let port = port.as_str();
    let reason = format!("{} publishes no port {port:?}; {known}", service.service);
    Err(
        Refused::new(StatusCode::NOT_FOUND, "port_not_found", reason)
            .with("service", service.service.to_string())
            .with("ports", all),
    )
}
