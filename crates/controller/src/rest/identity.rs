//! Who asks: proved by the kernel or by a token, never by what the request says of itself.
//!
//! What somebody is known by is a [`Credential`]; who that is, and what it may, is asked anew for each request, and
//! again while one is held. Agents, workers and machines that join are their own kinds (`speaker`).

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use http::header;
use http::request::Parts;
use parking_lot::Mutex;
use portreeve::identity::ServiceName;
use portreeve::registry::{Through, TokenBearer, TokenId};
use portreeve::rights::{Caller, Scope};
use portreeve::time::WallClock;
use portreeve_api::body::WhoAmI;

use crate::account::NOBODY;
use crate::app::App;
use crate::audit::Noted;
use crate::clock;
use crate::peer::Peer;
use crate::room::Holder;
use crate::secret::{Shown, TokenKind};

use super::answer::json;
use super::names::Names;
use super::refused::Refused;

mod bearer;
mod browser;
mod credential;
mod speaker;

use bearer::{bearer, on_behalf};
use browser::refuse_foreign_pages;
use credential::By;
pub(crate) use credential::{Credential, expired, unknown_token};
pub(crate) use speaker::{Agent, Joiner, Speaker};

/// Somebody with a name.
#[derive(Debug)]
pub(crate) struct Asker {
    caller: Arc<Caller>,
    credential: Credential,
}

/// Who asks a question that may be held, for whoever holds it to ask again whether that still stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing(Arc<Mutex<Option<Answered>>>);

/// Who is answered.
#[derive(Clone, Debug)]
struct Answered {
    credential: Credential,
    /// None: a host, which is nobody's.
    caller: Option<Arc<Caller>>,
}

impl Standing {
    /// Whether it is another now than who asked, or stands no more.
    pub(crate) async fn has_changed(&self, app: &App) -> bool {
        let noted = self.0.lock().clone();
        let Some(Answered { credential, caller }) = noted else {
            return false;
        };
        match (credential.caller(app).await, caller) {
            (Ok(now), Some(caller)) => now != caller,
            // A host's is nobody's: only whether it stands counts.
            (Err(refused), None) => refused.is_unauthenticated(),
            (Ok(_), None) => false,
            (Err(_), Some(_)) => true,
        }
    }
}

impl Standing {
    /// Refuses who is not who it was when it asked.
    pub(crate) async fn holds(&self, app: &App) -> Result<(), Refused> {
        let noted = self.0.lock().clone();
        let Some(Answered { credential, caller }) = noted else {
            return Ok(());
        };
        match (credential.caller(app).await, caller) {
            (Ok(now), Some(caller)) if now != caller => Err(Refused::forbidden(
                "what you may do changed while the request arrived, and nothing was done; ask again",
            )),
            (Err(refused), None) if !refused.is_unauthenticated() => Ok(()),
            (Err(refused), _) => Err(refused),
            (Ok(_), _) => Ok(()),
        }
    }

    /// Whose room it takes, where somebody is known by more than the connection.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let noted = self.0.lock();
        let Answered { credential, caller } = noted.as_ref()?;
        match (credential, caller) {
            (Credential::Token(id, _), None) => Some(Holder::Host(*id)),
            (Credential::Relayed { uid, token, .. }, _) => Some(Holder::Person {
                host: *token,
                uid: *uid,
            }),
            (Credential::Peer { .. } | Credential::Nobody, _) => None,
            (_, Some(caller)) => Some(Holder::User(caller.user.clone())),
            (_, None) => None,
        }
    }
}

/// Notes who asks, where the question may be held.
fn note(parts: &Parts, credential: Credential, caller: Option<Arc<Caller>>) {
    if let Some(standing) = parts.extensions.get::<Standing>() {
        *standing.0.lock() = Some(Answered { credential, caller });
    }
}

impl Asker {
    /// Who it is, for reading.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// When what it is known by ends.
    pub(crate) fn expires(&self, app: &App) -> Option<WallClock> {
        self.credential.expires(app)
    }

    /// Who it is, for watching: for as long as what it is known by stands.
    pub(crate) fn watching(self) -> (Caller, Credential) {
        (Arc::unwrap_or_clone(self.caller), self.credential)
    }

    /// Who it is, for changing something: a replica's token only reads, and so does a viewer.
    pub(crate) fn acting(self) -> Result<Caller, Refused> {
        self.refuse_nobody()?;
        if matches!(self.credential, Credential::Replica(_)) {
            return Err(Refused::forbidden(
                "a replica's token reads what its owner sees, and changes nothing",
            ));
        }
        if !self.caller.may_change() {
            let refusal = portreeve::registry::Refusal::ViewersChangeNothing {
                user: self.caller.user.clone(),
            };
            return Err(refusal.into());
        }
        Ok(Arc::unwrap_or_clone(self.caller))
    }

    /// Who it is, for doing something about tokens, and the token it came with, if it did.
    pub(crate) fn about_tokens(self) -> Result<(Caller, Option<Through>), Refused> {
        self.refuse_nobody()?;
        if matches!(self.credential, Credential::Replica(_)) {
            return Err(Refused::forbidden(
                "a replica's token reads what its owner sees, and knows nothing of tokens",
            ));
        }
        if self.caller.user == NOBODY {
            // All roots of all machines would have them together.
            return Err(Refused::forbidden(
                "root of another machine is nobody here, and has no tokens: ask as an account of the site",
            ));
        }
        let through = self.credential.through();
        Ok((Arc::unwrap_or_clone(self.caller), through))
    }

    fn refuse_nobody(&self) -> Result<(), Refused> {
        if matches!(self.credential, Credential::Nobody) {
            return Err(Refused::unauthenticated(
                "over http:// to another machine nobody is known, and nothing is changed; ask at an https:// address with a token",
            ));
        }
        Ok(())
    }

    /// Refuses who asks faster than one user may. Agents and admins are not bound: they speak for others.
    fn within_rate(&self, app: &App) -> Result<(), Refused> {
        let caller = self.caller();
        if caller.is_admin() {
            return Ok(());
        }
        app.rates.take(&caller.user, Instant::now()).map_err(|_| {
            let reason = format!(
                "{} asks more than {} times a second; ask again in a second, or hold one question with wait or a stream",
                caller.user,
                app.rates.per_second()
            );
            Refused::too_many("too_many_requests", reason)
        })
    }

    /// The service of the path; a label alone is the asker's own.
    pub(crate) fn service(&self, names: &Names) -> Result<ServiceName, Refused> {
        self.named(names.text("service"))
    }

    /// The service of this name; a label alone is the asker's own.
    pub(crate) fn named(&self, text: &str) -> Result<ServiceName, Refused> {
        if text.contains('.') {
            return text.parse().map_err(Refused::name);
        }
        let own = self.caller.namespace().map_err(Refused::name)?;
        ServiceName::parse_in(text, &own).map_err(Refused::name)
    }
}

impl FromRequestParts<Arc<App>> for Asker {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        refuse_unsafe_way(parts)?;
        let relayed = on_behalf(&parts.headers)?;
        let credential = match bearer(&parts.headers)? {
            Some(text) => Credential::shown(text, relayed, app)?,
            None if relayed.is_some() => return Err(credential::no_relay()),
            None => by_peer(parts).await?,
        };
        let caller = credential.caller(app).await?;
        Noted::beside(parts, &caller.user, credential.method(), credential.named());
        if let Some(host) = credential.relay(app) {
            Noted::by_host(parts, &host);
        }
        note(parts, credential.clone(), Some(Arc::clone(&caller)));
        let asker = Self { caller, credential };
        asker.within_rate(app)?;
        Ok(asker)
    }
}

async fn by_peer(parts: &Parts) -> Result<Credential, Refused> {
    let peer = peer_of(parts);
    let by = match *peer {
        Peer::Unix { .. } => By::Socket,
        Peer::Loopback { .. } => {
            refuse_foreign_pages(&parts.uri, &parts.headers)?;
            By::Loopback
        }
        Peer::Remote { tls: true, .. } => {
            return Err(Refused::unauthenticated(
                "over the network nobody is known without a token; send one as \"Authorization: Bearer TOKEN\"; people get one by `portreeve login` on a machine that knows them",
            ));
        }
        Peer::Remote { tls: false, .. } => {
            refuse_foreign_pages(&parts.uri, &parts.headers)?;
            return Ok(Credential::Nobody);
        }
    };
    match peer.uid().await {
        Some(uid) => Ok(Credential::Peer { uid, by }),
        None => Err(Refused::unauthenticated(
            "the socket you ask from cannot be found on this machine; ask over the Unix socket, or with a token",
        )),
    }
}

fn peer_of(parts: &Parts) -> Arc<Peer> {
    let peer = parts.extensions.get::<Arc<Peer>>().map(Arc::clone);
    peer.expect("the listener puts the peer on every request")
}

/// Refuses a token that came over a way on which others could read it.
fn refuse_unsafe_way(parts: &Parts) -> Result<(), Refused> {
    let clear = matches!(*peer_of(parts), Peer::Remote { tls: false, .. });
    if clear && parts.headers.contains_key(header::AUTHORIZATION) {
        return Err(Refused::unauthenticated(
            "no token is taken over http:// from another machine: everybody on the way could read it. It counts as known to others now: revoke it, and use an https:// address",
        ));
    }
    Ok(())
}

/// `GET /whoami`.
pub(crate) async fn whoami(State(app): State<Arc<App>>, who: Who) -> Response {
    json(&match who {
        Who::Asker(asker) => {
            let Asker { caller, credential } = &*asker;
            WhoAmI {
                user: caller.user.clone(),
                method: credential.method().to_owned(),
                role: caller.rights.role.to_string(),
                view_scope: caller.view_scope().into_owned(),
                manage_scope: match caller.rights.manages() {
                    Some(scope) if !matches!(credential, Credential::Replica(_)) => {
                        scope.to_string()
                    }
                    _ => "none".to_owned(),
                },
                admin: caller.is_admin(),
                expires_at: credential.expires(&app),
                token: credential.id().map(|id| id.to_string()),
                host: credential.host(&app),
                now: Some(clock::wall()),
            }
        }
        Who::Host(host) => WhoAmI {
            user: format!("host {host}"),
            method: "host token".to_owned(),
            role: "host".to_owned(),
            view_scope: Scope::Own.to_string(),
            manage_scope: "none".to_owned(),
            admin: false,
            expires_at: None,
            token: None,
            host: Some(host),
            now: Some(clock::wall()),
        },
        Who::Joiner(id) => WhoAmI {
            user: "nobody yet".to_owned(),
            method: "join token".to_owned(),
            role: "join".to_owned(),
            view_scope: Scope::Own.to_string(),
            manage_scope: "none".to_owned(),
            admin: false,
            expires_at: app
                .shown
                .view
                .borrow()
                .tokens
                .get(&id)
                .and_then(|it| it.expires),
            token: Some(id.to_string()),
            host: None,
            now: Some(clock::wall()),
        },
    })
}

/// Anybody who can be named.
#[derive(Debug)]
pub(crate) enum Who {
    Asker(Box<Asker>),
    Host(portreeve::identity::HostName),
    /// A machine that may join by this token.
    Joiner(TokenId),
}

impl FromRequestParts<Arc<App>> for Who {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        refuse_unsafe_way(parts)?;
        let shown = bearer(&parts.headers)?.and_then(Shown::read);
        if let Some(shown) = shown.filter(|it| it.kind != TokenKind::User)
            && on_behalf(&parts.headers)?.is_none()
        {
            match &credential::known(&shown, app)?.bearer {
                TokenBearer::Host { host, .. } => return Ok(Self::Host(host.clone())),
                TokenBearer::Join { .. } => return Ok(Self::Joiner(shown.id)),
                TokenBearer::User { .. } => {}
            }
        }
        let asker = Asker::from_request_parts(parts, app).await?;
        Ok(Self::Asker(Box::new(asker)))
    }
}
