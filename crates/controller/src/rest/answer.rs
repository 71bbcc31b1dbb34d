//! Answers: JSON, or lines of text for those who ask for text.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;

use super::accept::{self, Form};
use super::refused::Refused;

/// A JSON answer that only its asker may keep, and only to ask again whether it is still true.
pub(crate) fn json(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => written(Form::Json, bytes.into()),
        Err(cause) => Refused::broken(&cause).into_response(),
    }
}

/// A text answer under the same terms.
pub(crate) fn text(body: String) -> Response {
    written(Form::Text, body.into())
}

/// An answer that is written already, under the same terms.
pub(crate) fn written(form: Form, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    let content_type = match form {
        Form::Text => "text/plain; charset=utf-8",
        _ => form.media_type(),
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    terms(headers);
    response
}

/// [`around`] as an answer.
pub(crate) fn json_around(head: &impl Serialize, entries: &[u8]) -> Result<Response, Refused> {
    Ok(written(Form::Json, around(head, entries)?))
}

/// `head` as JSON, with a list that is written already in the place of its last member, which is an empty one.
pub(crate) fn around(head: &impl Serialize, list: &[u8]) -> Result<Bytes, Refused> {
    let head = serde_json::to_vec(head).map_err(|cause| Refused::broken(&cause))?;
    let head = head
        .strip_suffix(b"[]}")
        .ok_or_else(|| Refused::broken(&"its list is not its last member"))?;
    if list.is_empty() {
        return Err(Refused::broken(&"its list could not be written"));
    }
    Ok([head, list, b"}"].concat().into())
}

/// Who may keep an answer, and what it depends on.
pub(crate) fn terms(headers: &mut HeaderMap) {
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    headers.insert(
        header::VARY,
        HeaderValue::from_static("Accept, Authorization"),
    );
}

/// Whether the asker likes text better than JSON; refuses who takes neither.
pub(crate) fn wants_text(headers: &HeaderMap) -> Result<bool, Refused> {
    let form = accept::choose(headers, &[Form::Json, Form::Text])?;
    Ok(form == Form::Text)
}

/// Sets a header of our own words and numbers.
pub(crate) fn stamp(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // An epoch that is no header text would only be left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
