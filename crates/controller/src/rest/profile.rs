//! Profiles in request bodies: JSON or TOML, checked by the one parser.

use axum::body::Body;
use http::{Request, StatusCode};
use portreeve::profile::{
    Body as ProfileBody, Checked, Profile, ProfileError, ProfileErrors, Source, Written,
};

use crate::app::App;
use crate::vital;

use super::body::{self, MediaType};
use super::refused::Refused;

/// Reads and checks the profile in the body, over the site's profiles and under the flags.
pub(crate) async fn read(
    app: &App,
    request: Request<Body>,
    flags: Vec<String>,
) -> Result<(Checked, Source), Refused> {
    let media_type = MediaType::of(request.headers());
    if matches!(media_type, MediaType::Other | MediaType::Unsaid) {
        return Err(body::unsupported("application/json or application/toml"));
    }
    let body = body::whole(request, body::MAX).await?;
    of_bytes(app, body.to_vec(), media_type, flags).await
}

/// The same of bytes that came another way: TOML, else JSON.
pub(super) async fn of_bytes(
    app: &App,
    body: Vec<u8>,
    media_type: MediaType,
    flags: Vec<String>,
) -> Result<(Checked, Source), Refused> {
    let site = app.site_profiles.clone();
    // Reads the files of the layers.
    let read = vital::blocking("profile", move || {
        let body_of = |bytes| match media_type {
            MediaType::Toml => ProfileBody::Toml(bytes),
            _ => ProfileBody::Json(bytes),
        };
        let written = Written {
            body: body_of(&body),
            flags: &flags,
        };
        let checked = Profile::from_layers(written, &site)?;
        let source = Source {
            text: String::from_utf8_lossy(&body).into_owned(),
            flags,
            extends: checked.extends.clone(),
        };
        Ok((checked, source))
    });
    read.await.map_err(|errors: ProfileErrors| invalid(&errors))
}

/// Everything that is wrong, each with its place, field and what is allowed.
fn invalid(errors: &ProfileErrors) -> Refused {
    let one = |error: &ProfileError| {
        serde_json::json!({
            "layer": error.layer,
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
