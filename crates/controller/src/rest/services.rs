//! Services: list, show, submit, and what their owners can do with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Request, StatusCode};
use portreeve::identity::ServiceName;
use portreeve::registry::{Answer, Command, ServiceView, Submission, View};
use portreeve::rights::Caller;
use portreeve_api::body::{Checked, EventList, Scale, ServiceList};

use crate::app::App;

use super::answer::{json, text, wants_text};
use super::identity::Asker;
use super::names::Names;
use super::query::Query;
use super::refused::Refused;
use super::{body, profile, seen};

/// `GET /services`.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    asker: Asker,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let prefix = query.text("prefix")?.unwrap_or_default();
    let hold = query.hold()?;
    query.end()?;
    let caller = asker.caller();
    let wanted = |service: &ServiceView| {
        caller.may_see(&service.owner, &service.profile.visibility)
            && service.service.to_string().starts_with(&prefix)
    };
    let mut bell = app.shown.view.subscribe();
    let news = || {
        let removed = app.shown.removed.load(Ordering::Acquire);
        let view = app.shown.view.borrow();
        let mut services = view.services.values();
        let new = hold.since.is_none_or(|since| {
            since > view.revision
                || removed > since
                || services.any(|service| service.revision > since && wanted(service))
        });
        new.then(|| Arc::clone(&view))
    };
    let view = app.held(hold, &mut bell, news).await;
    let view = view.unwrap_or_else(|| newest(&app));
    let services = view.services.values().filter(|service| wanted(service));
    if wants_text(&headers) {
        return Ok(text(services.map(|service| line(service)).collect()));
    }
    let mut response = json(&ServiceList {
        view_scope: caller.view_scope().to_owned(),
        revision: view.revision,
        services: services
            .map(|service| Arc::unwrap_or_clone(seen::service(service, caller)))
            .collect(),
    });
    hold.mark(&mut response);
    Ok(response)
}

/// `GET /services/{service}`.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let hold = query.hold()?;
    let allow_missing = query.flag("allow_missing")?;
    query.end()?;
    let name = asker.service(&names)?;
    let caller = asker.caller();
    let mut bell = app.shown.view.subscribe();
    let news = || match app.visible(caller, &name) {
        Err(missing) => (!allow_missing).then_some(Err(missing)),
        Ok(service) => hold.is_news(service.revision).then_some(Ok(service)),
    };
    let service = match app.held(hold, &mut bell, news).await {
        Some(found) => found?,
        None => app.visible(caller, &name)?,
    };
    if wants_text(&headers) {
        return Ok(text(line(&service)));
    }
    let mut response = json(&seen::service(&service, caller));
    hold.mark(&mut response);
    Ok(response)
}

/// `PUT /services/{service}`.
pub(crate) async fn submit(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    mut query: Query,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let replace = query.flag("replace")?;
    let flags = query.texts("set");
    query.end()?;
    let service = asker.service(&names)?;
    let caller = asker.acting()?;
    let (checked, source) = profile::read(&app, request, flags).await?;
    let written = &checked.profile;
    let namespace_differs = |written| *service.namespace() != written;
    if *service.label() != written.name || written.namespace.clone().is_some_and(namespace_differs)
    {
        let reason = format!(
            "the profile's name is {}, the path's is {service}",
            written.name
        );
        return Err(Refused::new(
            StatusCode::BAD_REQUEST,
            "names_differ",
            reason,
        ));
    }
    let known = app.visible(&caller, &service).is_ok();
    if !known && !caller.may_submit_into(service.namespace()) {
        let reason = format!(
            "{} may not submit into the namespace {}; leave it out for your own",
            caller.user,
            service.namespace(),
        );
        return Err(Refused::forbidden(reason));
    }
    let submission = Submission {
        service,
        profile: checked.profile,
        source: Some(source),
        replace,
    };
    let mut answer = command(&app, caller, Command::Submit(submission)).await?;
    answer
        .notes
        .extend(checked.warnings.iter().map(ToString::to_string));
    Ok(json(&answer))
}

/// `POST /check`.
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    _asker: Asker,
    mut query: Query,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let flags = query.texts("set");
    query.end()?;
    let (checked, _) = profile::read(&app, request, flags).await?;
    let namespace = checked.profile.namespace.as_ref();
    Ok(json(&Checked {
        name: checked.profile.name.to_string(),
        namespace: namespace.map(ToString::to_string),
        warnings: checked.warnings.iter().map(ToString::to_string).collect(),
    }))
}

/// `POST /services/{service}/scale`.
pub(crate) async fn scale(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let service = asker.service(&names)?;
    let caller = asker.acting()?;
    let Scale { replicas } = body::json(request, body::MAX).await?;
    let scale = Command::Scale { service, replicas };
    Ok(json(&command(&app, caller, scale).await?))
}

/// `POST /services/{service}/start`, `stop`, `restart`, and `DELETE /services/{service}`.
pub(crate) async fn act(
    app: Arc<App>,
    asker: Asker,
    names: Names,
    verb: fn(ServiceName) -> Command,
) -> Result<Response, Refused> {
    let service = asker.service(&names)?;
    let caller = asker.acting()?;
    Ok(json(&command(&app, caller, verb(service)).await?))
}

/// `GET /services/{service}/events`.
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
    query: Query,
) -> Result<Response, Refused> {
    query.end()?;
    let name = asker.service(&names)?;
    let service = app.visible(asker.caller(), &name)?;
    seen::readable(&service, asker.caller(), "events")?;
    let events = app.queue.events(name).await;
    let events = events.ok_or_else(Refused::stopping)?;
    Ok(json(&EventList { events }))
}

/// Puts a command to the registry, which checks the right to it.
pub(crate) async fn command(
    app: &App,
    caller: Caller,
    command: Command,
) -> Result<Answer, Refused> {
    let user = caller.user.clone();
    let what = kind(&command);
    let answer = app.queue.command(caller, command).await;
    let answer = answer.ok_or_else(Refused::stopping)?;
    match &answer {
        Ok(done) => {
            tracing::info!(%user, what, service = %done.service, changed = done.changed, "done");
        }
        Err(refusal) => tracing::info!(%user, what, %refusal, "refused"),
    }
    Ok(answer?)
}

const fn kind(command: &Command) -> &'static str {
    match command {
        Command::Submit(_) => "submit",
        Command::Scale { .. } => "scale",
        Command::Start { .. } => "start",
        Command::Stop { .. } => "stop",
        Command::Restart { .. } => "restart",
        Command::Kill { .. } => "kill",
        Command::Attach(_) => "attach",
        Command::Delete { .. } => "delete",
    }
}

/// The view as it is now. The borrow must not outlive the call: it blocks the writer.
pub(crate) fn newest(app: &App) -> Arc<View> {
    Arc::clone(&app.shown.view.borrow())
}

/// `web.alice running 2/3`.
fn line(service: &ServiceView) -> String {
    format!(
        "{} {} {}/{}\n",
        service.service, service.state, service.ready, service.desired
    )
}
