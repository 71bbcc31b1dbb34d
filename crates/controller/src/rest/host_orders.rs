//! What operators order about hosts. The registry checks the right to it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use portreeve::identity::Incarnation;
use portreeve::registry::{Command, DrainPace, HostReplica, HostVerb};
use portreeve::time::parse_duration;
use portreeve_api::body::{DownAsk, DrainAsk, UnknownReplica};

use crate::app::App;

use super::answer::json;
use super::identity::Asker;
use super::names::Names;
use super::refused::Refused;
use super::{body, services};

/// No drain is given longer: what shall stay for a year is not drained.
const LONGEST_DRAIN: Duration = Duration::from_secs(366 * 86_400);

/// `POST /hosts/{host}/drain`.
pub(crate) async fn drain(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let DrainAsk { deadline, now } = body::json_or_nothing(request, body::MAX).await?;
    let pace = match (deadline, now) {
        (None, false) => DrainPace::OneByOne,
        (None, true) => DrainPace::AtOnce,
        (Some(text), false) => {
            let cause = |cause| Refused::body(format!("deadline: {cause}"));
            let span = parse_duration(&text).map_err(cause)?;
            if span > LONGEST_DRAIN {
                return Err(Refused::body("deadline: at most 366d"));
            }
            DrainPace::Within(span)
        }
        (Some(_), true) => {
            return Err(Refused::body("deadline and now exclude each other"));
        }
    };
    order(&app, asker, &names, HostVerb::Drain { pace }).await
}

/// `POST /hosts/{host}/undrain`.
pub(crate) async fn undrain(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    order(&app, asker, &names, HostVerb::Undrain).await
}

/// `POST /hosts/{host}/down`.
pub(crate) async fn down(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let DownAsk { fenced } = body::json_or_nothing(request, body::MAX).await?;
    order(&app, asker, &names, HostVerb::Down { fenced }).await
}

/// `POST /hosts/{host}/remove`.
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    order(&app, asker, &names, HostVerb::Remove).await
}

/// `POST /hosts/{host}/adopt`.
pub(crate) async fn adopt(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let told: UnknownReplica = body::json(request, body::MAX).await?;
    let replica = meant(&asker, told)?;
    order(&app, asker, &names, HostVerb::Adopt { replica }).await
}

/// `POST /hosts/{host}/fence`: without a body, everything there that is not known here.
pub(crate) async fn fence(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let told: OneOrAll = body::json_or_nothing(request, body::MAX).await?;
    let replica = told.0.map(|told| meant(&asker, told)).transpose()?;
    order(&app, asker, &names, HostVerb::Fence { replica }).await
}

/// One replica, or all.
#[derive(Default, serde::Deserialize)]
#[serde(transparent)]
struct OneOrAll(Option<UnknownReplica>);

fn meant(asker: &Asker, told: UnknownReplica) -> Result<HostReplica, Refused> {
    Ok(HostReplica {
        service: asker.named(&told.service)?,
        index: told.replica,
        incarnation: told.incarnation.map(Incarnation),
    })
}

async fn order(
    app: &App,
    asker: Asker,
    names: &Names,
    verb: HostVerb,
) -> Result<Response, Refused> {
    let host = names.host()?;
    let order = Command::Host { host, verb };
    Ok(json(&services::command(app, asker.acting()?, order).await?))
}
