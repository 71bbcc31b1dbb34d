//! `GET /watch`: one stream over many services.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use crate::app::App;
use crate::watch::{self, Asked};

use super::identity::Asker;
use super::query::Query;
use super::refused::Refused;

/// `GET /watch?service=a&service=b&prefix=`.
pub(crate) async fn watch(
    State(app): State<Arc<App>>,
    asker: Asker,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let asked = Asked::many(&asker, &mut query, &headers)?;
    query.end()?;
    Ok(watch::answer(&app, asked, asker))
}
