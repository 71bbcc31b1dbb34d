//! Where a replica would fit now, and why not elsewhere: of a profile that nobody submitted, or of what waits.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Request};
use portreeve::profile::EffectiveValue;
use portreeve::registry::{Explain, FitView, ReasonView};
use portreeve_api::body::Explained;

use crate::app::App;

use super::answer::{json, text, wants_text};
use super::identity::Asker;
use super::names::Names;
use super::query::Query;
use super::refused::Refused;
use super::seen::HIDDEN;
use super::{profile, seen};

/// `POST /explain`: a profile; nothing is stored.
pub(crate) async fn profile(
    State(app): State<Arc<App>>,
    asker: Asker,
    mut query: Query,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let flags = query.texts("set");
    query.end()?;
    let headers = request.headers().clone();
    let (checked, _) = profile::read(&app, request, flags).await?;
    let written = checked.profile;
    let forecast = Some(written.forecast());
    let name = match &written.namespace {
        Some(namespace) => format!("{}.{namespace}", written.name),
        None => written.name.to_string(),
    };
    let service = asker.named(&name)?;
    let what = Explain::Profile {
        service,
        profile: Box::new(written),
    };
    let mut fit = ask(&app, &asker, what).await?;
    fit.notes
        .extend(checked.warnings.iter().map(ToString::to_string));
    let mut effective = checked.values;
    // A layer of the site may bring a header along.
    let headers_of = |it: &&mut EffectiveValue| it.field.contains(".http.headers.");
    for header in effective.iter_mut().filter(headers_of) {
        header.value = HIDDEN.into();
    }
    let explained = Explained {
        fit,
        effective,
        forecast,
    };
    told(&explained, &headers)
}

/// `GET /services/{service}/explain?replica=N`.
pub(crate) async fn service(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let replica = query.read("replica", "the index of a replica")?;
    query.end()?;
    let service = asker.service(&names)?;
    let seen = app.visible(asker.caller(), &service)?;
    seen::readable(&seen, asker.caller(), "reasons")?;
    let forecast = Some(seen.profile.forecast());
    let what = Explain::Service { service, replica };
    let explained = Explained {
        fit: ask(&app, &asker, what).await?,
        effective: Vec::new(),
        forecast,
    };
    told(&explained, &headers)
}

async fn ask(app: &App, asker: &Asker, what: Explain) -> Result<FitView, Refused> {
    let fit = app.queue.explain(asker.caller().clone(), what).await;
    Ok(fit.ok_or_else(Refused::stopping)??)
}

fn told(explained: &Explained, headers: &HeaderMap) -> Result<Response, Refused> {
    if !wants_text(headers)? {
        return Ok(json(explained));
    }
    let fit = &explained.fit;
    let mut lines = format!("{}\n", fit.sentence);
    for reason in fit.hosts.iter().flat_map(|host| &host.reasons) {
        lines.push_str(&line(reason));
    }
    Ok(text(lines))
}

/// `HELD port 8888/tcp on host n1 is held by nb.alice replica 0`.
fn line(reason: &ReasonView) -> String {
    format!("{} {}\n", reason.code, reason.sentence)
}
