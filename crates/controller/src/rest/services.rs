//! Services: list, show, submit, and what their owners can do with them.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Request, StatusCode};
use portreeve::identity::ServiceName;
use portreeve::registry::{Answer, Command, ServiceView, Submission, View};
use portreeve::rights::Caller;
use portreeve_api::body::{Checked, Scale, ServiceList};
use portreeve_api::paths;

use crate::app::App;
use crate::clock;

use super::accept::Form;
use super::answer::{json, json_around, stamp, text, wants_text, written};
use super::envelope::{REVISION_HEADER, SYNCED_HEADER};
use super::identity::Asker;
use super::names::Names;
use super::pages::{Cursor, Wanted};
use super::query::{Hold, Query};
use super::refused::Refused;
use super::{body, profile, seen, tag};

/// `GET /services`: in pages that all show the moment of the first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    asker: Asker,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let as_text = wants_text(&headers)?;
    let filters = query.has("prefix") || query.has("label");
    let wanted = Wanted::take(&mut query)?;
    let limit = query.limit(MAX_PAGE)?;
    let cursor = query.parsed::<Cursor<ServiceName>>("cursor")?;
    let polls = query.has("revision") || query.has("wait");
    let hold = query.hold()?;
    query.end()?;
    let caller = asker.caller();
    let Some(cursor) = cursor else {
        let view = changed(&app, caller, &wanted, hold).await;
        let mut page = page(&app, caller, &view, &wanted, None, limit, as_text)?;
        hold.mark(&mut page);
        return Ok(page);
    };
    if filters || polls {
        let reason = "it goes on with the list it came from: give at most limit beside it";
        return Err(Refused::parameter("cursor", reason));
    }
    let (wanted, view) = app.pages.find(&caller.user, &cursor, Instant::now())?;
    page(&app, caller, &view, &wanted, Some(&cursor), limit, as_text)
}

/// The most services of one page.
const MAX_PAGE: usize = 1000;
/// A page ends where its services are this long, though it has one at least.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// The view as it is now, or as soon as the list in it is another one than the asker's.
async fn changed(app: &App, caller: &Caller, wanted: &Wanted, hold: Hold) -> Arc<View> {
    let mut bell = app.shown.view.subscribe();
    let news = || {
        let removed = app.shown.removed.load(Ordering::Acquire);
        let view = app.shown.view.borrow();
        let mut services = view.services.values();
        let new = hold.since.is_none_or(|since| {
            since > view.revision
                || removed > since
                // What is hidden now shows nothing newer: it has left the asker's list all the same.
                || view.rights > since
                || services.any(|service| {
                    service.revision > since && sees(caller, service) && wanted.includes(service)
                })
        });
        new.then(|| Arc::clone(&view))
    };
    let view = app.held(hold, &mut bell, news).await;
    view.unwrap_or_else(|| newest(app))
}

fn sees(caller: &Caller, service: &ServiceView) -> bool {
    caller.may_see(service.holding())
}

/// One page of the list in `view`: what comes after the cursor.
fn page(
    app: &App,
    caller: &Caller,
    view: &Arc<View>,
    wanted: &Wanted,
    cursor: Option<&Cursor<ServiceName>>,
    limit: usize,
    as_text: bool,
) -> Result<Response, Refused> {
    let begin = cursor.map_or(Bound::Unbounded, |cursor| {
        Bound::Excluded(cursor.after.clone())
    });
    let now = newest(app);
    // A right that was lost since the first page ends with the page.
    let still = |service: &ServiceView| {
        let newer = now.services.get(&service.service);
        newer.is_none_or(|newer| sees(caller, newer))
    };
    let services = view.services.range((begin, Bound::Unbounded));
    let services = services.map(|(_, service)| service);
    let mut services = services
        .filter(|it| sees(caller, it) && wanted.includes(it) && still(it))
        .peekable();
    let mut told = Vec::new();
    let mut count = 0;
    let mut last = None;
    while count < limit && told.len() < MAX_PAGE_BYTES {
        let Some(service) = services.next() else {
            break;
        };
        if as_text {
            told.extend_from_slice(line(service).as_bytes());
        } else {
            told.push(if count == 0 { b'[' } else { b',' });
            let seen = seen::service(service, caller);
            serde_json::to_writer(&mut told, &*seen).map_err(|cause| Refused::broken(&cause))?;
        }
        count += 1;
        last = Some(&service.service);
    }
    let more = last.filter(|_| services.peek().is_some());
    let next = more.map(|last| {
        let number = match cursor {
            Some(cursor) => cursor.number,
            None => {
                let view = Arc::clone(view);
                let pages = &app.pages;
                pages.keep(&caller.user, wanted.clone(), view, Instant::now())
            }
        };
        let after = last.clone();
        Cursor { number, after }.to_string()
    });
    let link = next.as_ref().map(|next| {
        let limit = limit.to_string();
        let parameters = [("limit", limit.as_str()), ("cursor", next)];
        let path = paths::with_parameters(&paths::services(), &parameters);
        format!("<{path}>; rel=\"next\"")
    });
    let mut response = if as_text {
        written(Form::Text, told.into())
    } else {
        told.extend_from_slice(if count == 0 { b"[]" } else { b"]" });
        let head = ServiceList {
            view_scope: caller.view_scope().into_owned(),
            revision: view.revision,
            next_cursor: next,
            services: Vec::new(),
        };
        json_around(&head, &told)?
    };
    let headers = response.headers_mut();
    headers.insert(&REVISION_HEADER, view.revision.into());
    if let Some(link) = link {
        stamp(headers, "link", &link);
    }
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
    let as_text = wants_text(&headers)?;
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
    let mut response = if as_text {
        text(line(&service))
    } else {
        json(&seen::service(&service, caller))
    };
    let age = service.age(clock::now().mono).as_millis();
    let age = u64::try_from(age).unwrap_or(u64::MAX);
    response.headers_mut().insert(&SYNCED_HEADER, age.into());
    stamp(response.headers_mut(), "etag", &tag::of_service(&service));
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
    let headers = request.headers().clone();
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
    let order = tag::conditional(&headers, Command::Submit(submission))?;
    let mut answer = command(&app, caller, order).await?;
    answer
        .notes
        .extend(checked.warnings.iter().map(ToString::to_string));
    Ok(answered(&app, &answer))
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
    let headers = request.headers().clone();
    let Scale { replicas } = body::json(request, body::MAX).await?;
    let scale = tag::conditional(&headers, Command::Scale { service, replicas })?;
    let answer = command(&app, caller, scale).await?;
    Ok(answered(&app, &answer))
}

/// `POST /services/{service}/start`, `stop`, `restart`, and `DELETE /services/{service}`.
pub(crate) async fn act(
    app: Arc<App>,
    asker: Asker,
    names: Names,
    headers: &HeaderMap,
    verb: fn(ServiceName) -> Command,
) -> Result<Response, Refused> {
    let service = asker.service(&names)?;
    let caller = asker.acting()?;
    let order = tag::conditional(headers, verb(service))?;
    let answer = command(&app, caller, order).await?;
    Ok(answered(&app, &answer))
}

/// The answer, with the tag that the service has after it.
fn answered(app: &App, answer: &Answer) -> Response {
    let mut response = json(answer);
    let view = newest(app);
    let service = answer.service.as_ref();
    if let Some(service) = service.and_then(|name| view.services.get(name)) {
        stamp(response.headers_mut(), "etag", &tag::of_service(service));
    }
    response
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
            let service = done.service.as_ref().map(tracing::field::display);
            let host = done.host.as_ref().map(tracing::field::display);
            tracing::info!(%user, what, service, host, changed = done.changed, "done");
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
        Command::OnlyIf { command, .. } => kind(command),
        Command::Host { verb, .. } => verb.word(),
        Command::Token(_) => "tokens",
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
