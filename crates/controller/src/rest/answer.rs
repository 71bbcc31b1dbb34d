//! Answers: JSON, or lines of text for those who ask for text.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use serde::Serialize;

/// A JSON answer that only its asker may keep, and only to ask again whether it is still true.
pub(crate) fn json(body: &impl Serialize) -> Response {
    let headers = [
        (header::CACHE_CONTROL, "private, no-cache"),
        (header::VARY, "Accept, Authorization"),
    ];
    (headers, axum::Json(body)).into_response()
}

/// A text answer under the same terms.
pub(crate) fn text(body: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "private, no-cache"),
        (header::VARY, "Accept, Authorization"),
    ];
    (headers, body).into_response()
}

/// Whether the asker wants text: it names it, and not JSON.
pub(crate) fn wants_text(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted: Vec<_> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let names = |media_type: &str| accepted.iter().any(|value| value.contains(media_type));
    names("text/plain") && !names("application/json")
}
