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
    // At once: a map that grows with each header copies what it has.
    headers.reserve(HEADERS);
    let content_type = match form {
        Form::Text => "text/plain; charset=utf-8",
        _ => form.media_type(),
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    terms(headers);
    response
}

/// How many headers an answer has, about.
const HEADERS: usize = 12;

/// [`around`] as an answer.
pub(crate) fn json_around(head: &impl Serialize, entries: &[u8]) -> Result<Response, Refused> {
    Ok(written(Form::Json, around(head, entries)?))
}

/// `head` as JSON, with a list that is written already in the place of its last member, which is an empty one.
pub(crate) fn around(head: &impl Serialize, list: &[u8]) -> Result<Bytes, Refused> {
    if list.is_empty() {
        return Err(Refused::broken(&"its list could not be written"));
    }
    // In one piece: most heads are shorter than this.
    let mut whole = Vec::with_capacity(list.len() + 384);
    serde_json::to_writer(&mut whole, head).map_err(|cause| Refused::broken(&cause))?;
    if !whole.ends_with(b"[]}") {
        return Err(Refused::broken(&"its list is not its last member"));
    }
    whole.truncate(whole.len() - b"[]}".len());
    whole.extend_from_slice(list);
    whole.push(b'}');
    Ok(whole.into())
}

/// Who may keep an answer, and what it depends on.
pub(crate) fn terms(headers: &mut HeaderMap) {
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    headers.insert(
        header::VARY,
        HeaderValue::from_static("Accept, Accept-Encoding, Authorization"),
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
