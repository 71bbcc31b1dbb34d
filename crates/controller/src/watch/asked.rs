//! What a watcher asks for.

use std::collections::BTreeSet;

use http::HeaderMap;
use portreeve::identity::ServiceName;

use crate::rest::accept::{self, Form};
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
        let form = accept::choose(headers, &[Form::Events, Form::Lines])?;
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
            format: Format::of(form).unwrap_or(Format::Events),
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
            Self::Events => Form::Events.media_type(),
            Self::Lines => Form::Lines.media_type(),
        }
    }

    /// The stream that this form of an answer is, if it is one.
    pub(crate) const fn of(form: Form) -> Option<Self> {
        match form {
            Form::Events => Some(Self::Events),
            Form::Lines => Some(Self::Lines),
            Form::Json | Form::Text | Form::OpenMetrics => None,
        }
    }
}
