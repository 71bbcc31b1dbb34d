//! Errors on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One refusal, as RFC 9457 writes it. Unknown and hidden things give the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `urn:portreeve:problem:` and the code with dashes.
    #[serde(rename = "type")]
    pub kind: String,
    /// A few words that never vary with the code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, to which service and host, and what to do next.
    pub detail: String,
    /// The request's number in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Stable, for programs: `service_not_found`.
    pub code: String,
    /// Further members, such as `service` or `errors`.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

impl Problem {
    /// The media type of its body.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A list is not kept any more that a cursor goes on with: begin again without it.
    pub const CURSOR_EXPIRED: &str = "cursor_expired";

    /// Who asks the controller for others does not reach it.
    pub const CONTROLLER_UNREACHABLE: &str = "controller_unreachable";

    /// A problem of this code; the title is the code in words.
    #[must_use]
    pub fn new(status: http::StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let words = code.replace('_', " ");
        let mut title = words.clone();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        Self {
            kind: format!("urn:portreeve:problem:{}", words.replace(' ', "-")),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            instance: None,
            code: code.to_owned(),
            more: BTreeMap::new(),
        }
    }

    /// The same with one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}
