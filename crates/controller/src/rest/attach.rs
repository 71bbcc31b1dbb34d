//! Jobs of other schedulers, relayed by the agent of their host.
//!
//! The agent says who asks, as its kernel told it; a job cannot. What it relays is one ask for ports on its own host
//! and nothing else, under the asker's account without any right beyond it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use portreeve::identity::ServiceName;
use portreeve::registry::{Attachment, Command};
use portreeve_api::attach::{Ask, Attached, ProfileForm, Relayed};
use portreeve_api::body::DesiredReplica;

use crate::app::App;

use super::agents::tokens;
use super::answer::json;
use super::body::{self, MediaType};
use super::identity::Agent;
use super::names::Names;
use super::refused::Refused;
use super::{profile, services};

/// The longest key of an ask, and the longest name of a job, in bytes.
const MAX_TEXT: usize = 64;
/// The most bytes of an ask: a profile, quoted.
const MAX_ASK: usize = 4 << 20;

/// `POST /hosts/{host}/attach`.
pub(crate) async fn attach(
    State(app): State<Arc<App>>,
    agent: Agent,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let host = names.host()?;
    agent.of(&host)?;
    let Relayed { uid, ask } = body::json(request, MAX_ASK).await?;
    is_short("key", &ask.key)?;
    ask.job.iter().try_for_each(|job| is_short("job", job))?;
    let caller = agent.relays(&app, uid).await?;
    let Ask {
        profile: text,
        form,
        set,
        name,
        index,
        key,
        job,
        // The agent's affair.
        folder: _,
    } = ask;
    if text.len() > body::MAX {
        let most = body::MAX >> 20;
        let reason = format!("the profile has more than {most} MiB");
        return Err(Refused::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            reason,
        ));
    }
    let form = match form {
        ProfileForm::Toml => MediaType::Toml,
        ProfileForm::Json => MediaType::Json,
    };
    let (checked, source) = profile::of_bytes(&app, text.into_bytes(), form, set).await?;
    let mut profile = checked.profile;
    let own = match profile.namespace.clone() {
        Some(namespace) => namespace,
        None => caller.namespace().map_err(Refused::name)?,
    };
    let service = match name {
        Some(text) if text.contains('.') => text.parse().map_err(Refused::name)?,
        Some(text) => ServiceName::parse_in(&text, &own).map_err(Refused::name)?,
        None => ServiceName::new(profile.name.clone(), own),
    };
    profile.name = service.label().clone();
    profile.namespace = None;
    let attachment = Attachment {
        service,
        profile,
        source: Some(source),
        host,
        index,
        key,
        job,
    };
    let answer = services::command(&app, caller, Command::Attach(Box::new(attachment))).await?;
    let desired = answer.granted.ok_or_else(Refused::stopping)?;
    let mut notes = answer.notes;
    notes.extend(checked.warnings.iter().map(ToString::to_string));
    Ok(json(&Attached {
        replica: DesiredReplica {
            tokens: tokens(&app, &desired),
            desired: *desired,
        },
        notes,
    }))
}

/// Both are stored and shown: short, and one line.
fn is_short(what: &str, text: &str) -> Result<(), Refused> {
    if text.len() <= MAX_TEXT && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Refused::body(format!(
        "{what}: one line of at most {MAX_TEXT} bytes"
    )))
}
