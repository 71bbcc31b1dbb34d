//! Profiles in request bodies: JSON or TOML, checked by the one parser.

use axum::body::Body;
use http::{Request, StatusCode};
use portreeve::profile::{Checked, Profile, ProfileError, ProfileErrors};

use super::body::{self, MediaType};
use super::refused::Refused;

/// Reads and checks the profile in the body.
pub(crate) async fn read(request: Request<Body>) -> Result<Checked, Refused> {
    let media_type = MediaType::of(request.headers());
    if matches!(media_type, MediaType::Other | MediaType::Unsaid) {
        return Err(body::unsupported("application/json or application/toml"));
    }
    let body = body::whole(request, body::MAX).await?;
    let checked = match media_type {
        MediaType::Toml => Profile::from_toml_bytes(&body),
        _ => Profile::from_json_bytes(&body),
    };
    checked.map_err(|errors| invalid(&errors))
}

/// Everything that is wrong, each with its place, field and what is allowed.
fn invalid(errors: &ProfileErrors) -> Refused {
    let one = |error: &ProfileError| {
        serde_json::json!({
            "line": error.place.map(|place| place.line),
            "column": error.place.map(|place| place.column),
            "field": error.field,
            "message": error.problem,
            "allowed": error.allowed,
        })
    };
    let all: Vec<_> = errors.as_slice().iter().map(one).collect();
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    Refused::new(status, "profile_invalid", errors.to_string()).with("errors", all)
}
