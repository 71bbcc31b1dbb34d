//! `/metrics`: what there is and what was done, as Prometheus reads it.
//!
//! Every figure is found at the moment of the question, from the view that all readers share; nothing is gathered
//! beforehand. One asker is served at a time.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::vital;

use super::accept::{self, Form};
use super::answer::terms;
use super::identity::Asker;
use super::query::Query;
use super::refused::Refused;

mod family;
mod figures;
mod process;
mod sums;

/// `GET /metrics`: in the text format of Prometheus, or as OpenMetrics for who asks for that.
///
/// Who sees all services is told everything; others are told of hosts and of the process, and of services those that
/// they may see.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    asker: Asker,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let form = accept::choose(&headers, &[Form::Text, Form::OpenMetrics])?;
    let caller = asker.caller().clone();
    // It is never closed.
    let _turn = app.meters.turn.acquire().await;
    let asked = Arc::clone(&app);
    let told = vital::blocking("metrics", move || {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(figures::of(&asked, &caller)));
        let mut told = String::new();
        let written = match form {
            Form::OpenMetrics => text::encode(&mut told, &registry),
            _ => prometheus_text::encode(&mut told, &registry),
        };
        written.map(|()| told)
    });
    let told = told.await.map_err(|cause| Refused::broken(&cause))?;
    let mut response = Response::new(Body::from(told));
    let headers = response.headers_mut();
    terms(headers);
    let kind = match form {
        Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; version=0.0.4; charset=utf-8",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}
