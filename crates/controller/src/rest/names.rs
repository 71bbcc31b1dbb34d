//! The named parts of a path.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use portreeve::identity::HostName;

use super::refused::Refused;

/// What the route's `{name}` places hold, percent-decoded.
#[derive(Debug)]
pub(crate) struct Names(RawPathParams);

impl Names {
    /// The part of this name; the empty text if the route has none.
    pub(crate) fn text(&self, name: &str) -> &str {
        let mut all = self.0.iter();
        let found = all.find(|(known, _)| *known == name);
        found.map_or("", |(_, text)| text)
    }

    /// The part read as a number.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, Refused> {
        let text = self.text(name);
        text.parse().map_err(|_| {
            let text: String = text.chars().take(64).collect();
            Refused::name(format!("{text:?} is no {name}: write it as a number"))
        })
    }

    /// The part read as a host's name.
    pub(crate) fn host(&self) -> Result<HostName, Refused> {
        self.text("host").parse().map_err(Refused::name)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let names = RawPathParams::from_request_parts(parts, state).await;
        names
            .map(Self)
            .map_err(|cause| Refused::name(cause.body_text()))
    }
}
