//! Tokens: made, listed, renewed, revoked, and traded by machines that join. The registry checks the right to it; here
//! they are drawn, and each text leaves once, in the answer to who asked for it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, Request, header};
use portreeve::registry::{
    Answer, Command, Joining, NewToken, Through, Token, TokenBearer, TokenId, TokenOrder, TokenVerb,
};
use portreeve::rights::{Caller, Rights, Role, Scope};
use portreeve::time::parse_duration;
use portreeve_api::body::{JoinAsk, Joined, TokenAsk, TokenList, TokenMade, TokenView};
use serde::Serialize;

use crate::app::App;
use crate::clock;
use crate::secret::{Drawn, TokenKind};

use super::answer::json;
use super::identity::{Asker, Joiner, unknown_token};
use super::names::Names;
use super::refused::Refused;
use super::{body, services};

/// How long a person's token is good for, where nobody says otherwise: a day's work.
const USUAL: Duration = Duration::from_secs(8 * 3600);
/// How long one to join is.
const USUAL_TO_JOIN: Duration = Duration::from_secs(24 * 3600);
/// One that shall be good for longer has no end.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);
/// The longest label and the longest machine's id, in bytes.
const MAX_TEXT: usize = 128;

/// `POST /tokens`.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    asker: Asker,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let ask: TokenAsk = body::json(request, body::MAX).await?;
    let bound = asker.expires(&app);
    let (caller, through) = asker.about_tokens()?;
    let usual = if ask.kind == "join" {
        USUAL_TO_JOIN
    } else {
        USUAL
    };
    let lasts = match (&ask.ttl, ask.no_expiry) {
        (Some(_), true) => return Err(Refused::body("ttl and no_expiry exclude each other")),
        (None, true) => None,
        (None, false) => Some(usual),
        (Some(text), false) => {
            let span =
                parse_duration(text).map_err(|cause| Refused::body(format!("ttl: {cause}")))?;
            if span > LONGEST || span.is_zero() {
                return Err(Refused::body(
                    "ttl: more than 0s, and at most 3660d; else no_expiry",
                ));
            }
            Some(span)
        }
    };
    if let Some(label) = &ask.label {
        is_short("label", label)?;
    }
    let bearer = bearer(&app, &caller, &ask).await?;
    let kind = TokenKind::of(&bearer);
    let drawn = Drawn::new().map_err(|cause| Refused::broken(&cause))?;
    let mut expires = lasts.map(|span| clock::wall().after(span));
    if ask.ttl.is_none() {
        // Who says nothing of it has as much as the token allows that it came with.
        expires = expires.map(|usual| bound.map_or(usual, |bound| usual.min(bound)));
    }
    let verb = TokenVerb::Create(Box::new(NewToken {
        id: drawn.id,
        hash: drawn.hash(),
        bearer,
        expires,
        label: ask.label,
    }));
    order(&app, caller, through, verb).await?;
    Ok(once(&TokenMade {
        id: drawn.id.to_string(),
        token: drawn.text(kind),
        expires_at: expires,
    }))
}

/// For whom the token shall speak.
async fn bearer(app: &App, caller: &Caller, ask: &TokenAsk) -> Result<TokenBearer, Refused> {
    match ask.kind.as_str() {
        "user" if ask.uses.is_some() || ask.relay => {
            Err(Refused::body("uses and relay are of tokens to join"))
        }
        "user" => {
            let own = |user: &String| *user == caller.user;
            let (user, uid, usual) = match &ask.user {
                Some(user) if !own(user) => {
                    is_short("user", user)?;
                    // Another's is refused by the registry where the asker is no admin.
                    let account = app.accounts.of_name(user).await;
                    (user.clone(), account.uid, account.rights.clone())
                }
                _ => (caller.user.clone(), caller.uid, caller.rights.clone()),
            };
            let rights = rights(ask, usual)?;
            Ok(TokenBearer::User { user, uid, rights })
        }
        "join" => {
            let of_accounts = [&ask.user, &ask.role, &ask.view, &ask.manage];
            if of_accounts.iter().any(|it| it.is_some()) {
                return Err(Refused::body(
                    "user, role, view and manage are of tokens for accounts",
                ));
            }
            Ok(TokenBearer::Join {
                uses_left: ask.uses.unwrap_or(1),
                relay: ask.relay,
            })
        }
        _ => Err(Refused::body("kind: write user or join")),
    }
}

/// What is asked for; what is left out is as the account has it, or, for another role, as that has it.
fn rights(ask: &TokenAsk, usual: Rights) -> Result<Rights, Refused> {
    fn read<T: std::str::FromStr<Err: std::fmt::Display>>(
        name: &str,
        text: Option<&String>,
    ) -> Result<Option<T>, Refused> {
        let read = text.map(|text| text.parse());
        let read = read.transpose();
        read.map_err(|cause| Refused::body(format!("{name}: {cause}")))
    }
    let usual = match read("role", ask.role.as_ref())? {
        Some(role) if role != usual.role => Rights::of_role(role),
        _ => usual,
    };
    let view: Option<Scope> = read("view", ask.view.as_ref())?;
    let manage: Option<Scope> = read("manage", ask.manage.as_ref())?;
    // A scope that the role has no use for would be dropped without a word, and the token be wider or narrower than asked.
    let narrower = |scope: &Option<Scope>| scope.as_ref().is_some_and(|it| *it != Scope::All);
    match usual.role {
        Role::Admin if narrower(&view) || narrower(&manage) => {
            return Err(Refused::body(
                "an admin sees and manages all: with a narrower scope, name another role too, such as user or viewer",
            ));
        }
        Role::Viewer if manage.is_some() => {
            return Err(Refused::body(
                "a viewer manages nothing: leave the scope of manage out, or name another role",
            ));
        }
        _ => {}
    }
    Ok(Rights {
        view: view.unwrap_or_else(|| usual.sees().clone()),
        manage: manage.unwrap_or_else(|| usual.manage.clone()),
        role: usual.role,
    })
}

/// `GET /tokens`: the asker's own; to an admin all.
pub(crate) async fn list(State(app): State<Arc<App>>, asker: Asker) -> Result<Response, Refused> {
    let (caller, _) = asker.about_tokens()?;
    let tokens = Arc::clone(&app.shown.view.borrow().tokens);
    let own = tokens
        .iter()
        .filter(|(_, token)| caller.is_admin() || token.user() == Some(&caller.user));
    let mut tokens: Vec<TokenView> = own.map(|(id, token)| view(*id, token)).collect();
    tokens.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    Ok(json(&TokenList { tokens }))
}

fn view(id: TokenId, token: &Token) -> TokenView {
    let mut view = TokenView {
        id: id.to_string(),
        kind: token.bearer.kind().to_owned(),
        user: None,
        role: None,
        view_scope: None,
        manage_scope: None,
        host: None,
        machine_id: None,
        relay: false,
        uses_left: None,
        by: token.by.user.clone(),
        created_at: token.created,
        expires_at: token.expires,
        expired: token.is_over(clock::wall()),
        label: token.label.clone(),
    };
    match &token.bearer {
        TokenBearer::User { user, rights, .. } => {
            let manages = rights.manages().map(ToString::to_string);
            view.user = Some(user.clone());
            view.role = Some(rights.role.to_string());
            view.view_scope = Some(rights.sees().to_string());
            view.manage_scope = Some(manages.unwrap_or_else(|| "none".to_owned()));
        }
        TokenBearer::Join { uses_left, relay } => {
            (view.uses_left, view.relay) = (Some(*uses_left), *relay);
        }
        TokenBearer::Host {
            host,
            machine,
            relay,
        } => {
            view.host = Some(host.clone());
            view.machine_id = Some(machine.clone());
            view.relay = *relay;
        }
    }
    view
}

/// `POST /tokens/{id}/rotate`.
pub(crate) async fn rotate(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    let id = id_of(&names)?;
    let (caller, through) = asker.about_tokens()?;
    let drawn = Drawn::anew(id).map_err(|cause| Refused::broken(&cause))?;
    let hash = drawn.hash();
    order(&app, caller, through, TokenVerb::Rotate { id, hash }).await?;
    let token = app.shown.view.borrow().tokens.get(&id).map(Arc::clone);
    // Another may have revoked it since.
    let token = token.ok_or_else(unknown_token)?;
    Ok(once(&TokenMade {
        id: id.to_string(),
        token: drawn.text(TokenKind::of(&token.bearer)),
        expires_at: token.expires,
    }))
}

/// `DELETE /tokens/{id}`.
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    asker: Asker,
    names: Names,
) -> Result<Response, Refused> {
    let id = id_of(&names)?;
    let (caller, through) = asker.about_tokens()?;
    let answer = order(&app, caller, through, TokenVerb::Revoke { id }).await?;
    Ok(json(&answer))
}

/// `POST /join`: a machine trades a token for its host's.
pub(crate) async fn join(
    State(app): State<Arc<App>>,
    Joiner(shown): Joiner,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let JoinAsk {
        host,
        machine_id,
        replace,
    } = body::json(request, body::MAX).await?;
    is_short("machine_id", &machine_id)?;
    let drawn = Drawn::new().map_err(|cause| Refused::broken(&cause))?;
    let verb = TokenVerb::Join(Box::new(Joining {
        join: shown.id,
        join_hash: shown.hash,
        id: drawn.id,
        hash: drawn.hash(),
        host: host.clone(),
        machine: machine_id,
        replace,
    }));
    let machine = Caller::new(format!("host {host}"), None, Vec::new(), Rights::VIEWER);
    let joined = order(&app, machine, None, verb).await;
    joined.map_err(|refused| {
        // It was good a moment ago.
        if refused.code() == "token_not_found" {
            unknown_token()
        } else {
            refused
        }
    })?;
    Ok(once(&Joined {
        token: drawn.text(TokenKind::Host),
        host,
    }))
}

async fn order(
    app: &Arc<App>,
    caller: Caller,
    through: Option<Through>,
    verb: TokenVerb,
) -> Result<Answer, Refused> {
    let by = caller.user.clone();
    let order = TokenOrder { through, verb };
    let answer = services::command(app, caller, Command::Token(Box::new(order))).await?;
    // What was changed is said by id: no log has a token's text.
    let what = answer.notes.first().map(String::as_str);
    tracing::info!(%by, what, "tokens changed");
    Ok(answer)
}

fn id_of(names: &Names) -> Result<TokenId, Refused> {
    names.text("id").parse().map_err(Refused::name)
}

/// An answer that nobody on the way keeps.
fn once(body: &impl Serialize) -> Response {
    let mut response = json(body);
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

/// It is stored and shown: short, and one line.
fn is_short(what: &str, text: &str) -> Result<(), Refused> {
    let is_line = !text.chars().any(char::is_control);
    if (1..=MAX_TEXT).contains(&text.len()) && is_line && text.trim() == text {
        return Ok(());
    }
    Err(Refused::body(format!(
        "{what}: one line of 1 to {MAX_TEXT} bytes"
    )))
}
