//! Request bodies: bounded in size and time, and of a type the route takes.
//!
//! Long ones are also bounded in number: whoever begins a thousand of them and never ends one keeps a few places busy,
//! and no memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::peer::Peer;
use crate::room::{Holder, Place, Room};

use super::identity::Standing;
use super::refused::Refused;

/// The most bytes of a body that anybody may send.
pub(crate) const MAX: usize = 1 << 20;
/// The most bytes of a host's report: it holds the newest status of every replica there.
pub(crate) const MAX_REPORT: usize = 16 << 20;
/// A body has to arrive within this time, what it waits for its place included.
const WITHIN: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// What every request may have in memory; what is longer needs a place first.
const USUAL: usize = 16 << 10;

/// The whole body. Who sends it has to be who it was still, once it is here: a token that is revoked while a body comes
/// slowly changes nothing any more.
pub(crate) async fn whole(request: Request<Body>, max: usize) -> Result<Bytes, Refused> {
    let too_large = || {
        Refused::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("the body is longer than {max} bytes"),
        )
    };
    // One that says so is not read first.
    if request.body().size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let app = request.extensions().get::<Arc<App>>().cloned();
    let standing = request.extensions().get::<Standing>().cloned();
    let Ok(read) = tokio::time::timeout(WITHIN, arrived(request, max)).await else {
        let detail = format!("the body did not arrive within {} s", WITHIN.as_secs());
        return Err(Refused::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_too_slow",
            detail,
        ));
    };
    match read {
        Ok(body) => {
            if let (Some(app), Some(standing)) = (app, standing) {
                standing.holds(&app).await?;
            }
            Ok(body)
        }
        Err(cause) if cause.is::<LengthLimitError>() => Err(too_large()),
        Err(cause) => Err(Refused::body(cause)),
    }
}

/// The body as it arrives.
async fn arrived(request: Request<Body>, max: usize) -> Result<Bytes, axum::BoxError> {
    let (parts, body) = request.into_parts();
    let mut body = Limited::new(body, max);
    let mut whole: Vec<u8> = Vec::new();
    let mut place: Option<Place> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if place.is_none() && whole.len() + data.len() > USUAL {
            place = long(&parts.extensions).await;
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

/// A place for a long body; none is needed where nobody counts them.
async fn long(extensions: &http::Extensions) -> Option<Place> {
    let room = extensions.get::<Arc<Room>>()?;
    let known = extensions.get::<Standing>().and_then(Standing::holder);
    let holder = match known {
        Some(holder) => holder,
        None => Holder::Peer(extensions.get::<Arc<Peer>>()?.whose().await),
    };
    room.place(holder).await
}

/// The body read as JSON.
pub(crate) async fn json<T: DeserializeOwned>(
    request: Request<Body>,
    max: usize,
) -> Result<T, Refused> {
    match MediaType::of(request.headers()) {
        MediaType::Json | MediaType::Unsaid => {}
        _ => return Err(unsupported("application/json")),
    }
    let body = whole(request, max).await?;
    serde_json::from_slice(&body).map_err(Refused::body)
}

/// The same, where no body, and `null`, say what leaving every member out does.
pub(crate) async fn json_or_nothing<T: DeserializeOwned + Default>(
    request: Request<Body>,
    max: usize,
) -> Result<T, Refused> {
    let kind = MediaType::of(request.headers());
    let body = whole(request, max).await?;
    if body.is_empty() {
        return Ok(T::default());
    }
    match kind {
        MediaType::Json | MediaType::Unsaid => {}
        _ => return Err(unsupported("application/json")),
    }
    let read: Option<T> = serde_json::from_slice(&body).map_err(Refused::body)?;
    Ok(read.unwrap_or_default())
}

/// What a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Toml,
    Unsaid,
    Other,
}

impl MediaType {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(header::CONTENT_TYPE) else {
            return Self::Unsaid;
        };
        let text = value.to_str().unwrap_or_default();
        let media_type = text.split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "application/json" => Self::Json,
            "application/toml" => Self::Toml,
            _ => Self::Other,
        }
    }
}

/// A body of a type the route does not take.
pub(crate) fn unsupported(allowed: &str) -> Refused {
    Refused::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        format!("write Content-Type: {allowed}"),
    )
}
