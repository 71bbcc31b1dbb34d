//! What a watcher asks for.

use std::collections::BTreeSet;

use http::{HeaderMap, StatusCode, header};
use portreeve::identity::ServiceName;

use crate::rest::endpoints::view::EndpointsView;
use crate::rest::identity::Asker;
use crate::rest::query::Query;
use crate::rest::refused::Refused;

use super::since::Since;

/// One stream's question.
#[derive(Debug)]
pub(crate) struct Asked {
    /// These services, whether or not they are there yet.
    pub(crate) names: BTreeSet<ServiceName>,
    /// And all that are visible and whose full name begins so.
    pub(crate) prefix: Option<String>,
    pub(crate) view: EndpointsView,
    /// Whether changes alone will do where the peer has what they change.
    pub(crate) delta: bool,
    pub(crate) format: Format,
    pub(crate) since: Option<Since>,
}

/// How a stream is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Server-sent events.
    Events,
    /// One JSON object a line.
    Lines,
}

impl Asked {
    /// The most names in one question; a prefix has no such bound.
    const MAX_NAMES: usize = 256;

    /// A stream over one service.
    pub(crate) fn one(
        service: ServiceName,
        view: EndpointsView,
        format: Format,
        query: &mut Query,
        headers: &HeaderMap,
    ) -> Result<Self, Refused> {
        Ok(Self {
            names: BTreeSet::from([service]),
            prefix: None,
            view,
            delta: query.flag("delta")?,
            format,
            since: Since::take(query, headers)?,
        })
    }

    /// A stream over `service=`, once or more, and `prefix=`; over everything visible where none is given.
    pub(crate) fn many(
        asker: &Asker,
        query: &mut Query,
        headers: &HeaderMap,
    ) -> Result<Self, Refused> {
        let names = query.texts("service");
        if names.len() > Self::MAX_NAMES {
            let most = Self::MAX_NAMES;
            let reason = format!("more than {most}; a prefix follows any number");
            return Err(Refused::parameter("service", reason));
        }
        let names = names.iter().map(|name| asker.named(name));
        let names: BTreeSet<_> = names.collect::<Result<_, _>>()?;
        let mut prefix = query.text("prefix")?;
        if names.is_empty() && prefix.is_none() {
            prefix = Some(String::new());
        }
        Ok(Self {
            names,
            prefix,
            view: EndpointsView::take(query)?,
            delta: query.flag("delta")?,
            format: Format::of_any(headers)?,
            since: Since::take(query, headers)?,
        })
    }

    /// Whether it follows this service, should the watcher see it.
    pub(crate) fn follows(&self, service: &ServiceName) -> bool {
        self.names.contains(service)
            || self
                .prefix
                .as_ref()
                .is_some_and(|prefix| prefix.is_empty() || service.to_string().starts_with(prefix))
    }

    /// The one service, where it is one.
    pub(crate) fn only(&self) -> Option<&ServiceName> {
        match (self.names.len(), &self.prefix) {
            (1, None) => self.names.first(),
            _ => None,
        }
    }
}

impl Format {
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::Lines => "application/x-ndjson",
        }
    }

    /// The stream that the asker names in `Accept`, if it names one: the first.
    pub(crate) fn named(headers: &HeaderMap) -> Option<Self> {
        let accepted = headers.get_all(header::ACCEPT).iter();
        let accepted = accepted.filter_map(|value| value.to_str().ok());
        let mut types = accepted.flat_map(|value| value.split(',')).map(|text| {
            let media_type = text.split(';').next().unwrap_or_default();
            media_type.trim().to_ascii_lowercase()
        });
        types.find_map(|media_type| {
            let formats = [Self::Events, Self::Lines];
            formats
                .into_iter()
                .find(|format| format.media_type() == media_type)
        })
    }

    /// For what is a stream in any case: what the asker names, else server-sent events if it takes them.
    fn of_any(headers: &HeaderMap) -> Result<Self, Refused> {
        if let Some(named) = Self::named(headers) {
            return Ok(named);
        }
        let accepted = headers.get_all(header::ACCEPT).iter();
        let mut accepted = accepted.filter_map(|value| value.to_str().ok()).peekable();
        let takes_any = accepted.peek().is_none()
            || accepted.any(|value| value.contains("*/*") || value.contains("text/*"));
        if takes_any {
            return Ok(Self::Events);
        }
        let reason = "this is a stream: accept text/event-stream or application/x-ndjson";
        Err(Refused::new(
            StatusCode::NOT_ACCEPTABLE,
            "not_acceptable",
            reason,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_stream_is_what_the_asker_names_first() {
        assert_eq!(Format::named(&HeaderMap::new()), None);
        assert_eq!(Format::named(&accept("*/*")), None);
        for (value, format) in [
            ("text/event-stream", Format::Events),
            ("Text/Event-Stream; charset=utf-8", Format::Events),
            ("application/x-ndjson, text/event-stream", Format::Lines),
        ] {
            assert_eq!(Format::named(&accept(value)), Some(format));
        }
        assert_eq!(Format::of_any(&HeaderMap::new()).unwrap(), Format::Events);
        assert_eq!(Format::of_any(&accept("*/*")).unwrap(), Format::Events);
        assert!(Format::of_any(&accept("application/json")).is_err());
    }
}
