//! Who a request turned out to be of, noted where that is found out.

use std::sync::Arc;

use http::request::Parts;
use parking_lot::Mutex;
use portreeve::identity::HostName;

/// A place beside a request where its asker is written down. Empty: it was refused before anybody was known.
#[derive(Debug, Default)]
pub(crate) struct Noted(Mutex<Option<Who>>);

/// An asker, without anything secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) user: String,
    /// By what that is known: the words of `GET /whoami`.
    pub(crate) method: &'static str,
    /// Which token spoke, by its name.
    pub(crate) token: Option<String>,
    /// The host that spoke for itself or passed somebody's question on.
    pub(crate) host: Option<String>,
}

impl Noted {
    /// Writes the asker beside the request of these parts.
    pub(crate) fn beside(parts: &Parts, user: &str, method: &'static str, token: Option<String>) {
        if let Some(noted) = parts.extensions.get::<Arc<Self>>() {
            *noted.0.lock() = Some(Who {
                user: user.to_owned(),
                method,
                token,
                host: None,
            });
        }
    }

    /// Adds the host that spoke for itself, or passed the asker's question on.
    pub(crate) fn by_host(parts: &Parts, host: &HostName) {
        if let Some(noted) = parts.extensions.get::<Arc<Self>>()
            && let Some(who) = &mut *noted.0.lock()
        {
            who.host = Some(host.to_string());
        }
    }

    pub(crate) fn who(&self) -> Option<Who> {
        self.0.lock().clone()
    }
}
