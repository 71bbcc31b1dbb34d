//! Who speaks for a host, and who for a replica.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use portreeve::identity::HostName;
use portreeve::registry::{AgentIdentity, TokenBearer};
use portreeve::rights::{Caller, Rights};

use crate::app::App;
use crate::audit::Noted;
use crate::secret::{Shown, TokenKind};
use crate::token::{Bearer, ReplicaToken};

use super::bearer::{bearer, on_behalf};
use super::credential::{Credential, known, unknown_token, without_relay};
use super::{Asker, refuse_unsafe_way};
use crate::rest::refused::Refused;

/// An agent: root or the controller's own account on this machine, which speak for every host, or whoever has a host's
/// token, and speaks for that one.
#[derive(Debug)]
pub(crate) struct Agent {
    /// The one host it speaks for; `None`: any.
    host: Option<Joined>,
}

/// A host, as its token says.
#[derive(Debug)]
struct Joined {
    name: HostName,
    /// The machine that has the name.
    machine: String,
    /// Whether it may say which account of its machine asks.
    relay: bool,
}

impl Agent {
    /// Refuses who speaks for another host than this one.
    pub(crate) fn of(&self, host: &HostName) -> Result<(), Refused> {
        match &self.host {
            Some(own) if own.name != *host => Err(Refused::forbidden(format!(
                "the token speaks for host {} and for no other",
                own.name
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a machine that has the token of another, as a copy of its disk has.
    pub(crate) fn on(&self, identity: Option<&AgentIdentity>) -> Result<(), Refused> {
        let (Some(host), Some(identity)) = (&self.host, identity) else {
            return Ok(());
        };
        // A machine without a number of its own joined as its state folder.
        if host.machine == identity.machine || host.machine == identity.folder {
            return Ok(());
        }
        Err(Refused::forbidden(format!(
            "the token of {} was given to another machine; `portreeve agent --replace` has this one join in its place",
            host.name
        )))
    }

    /// The account of the agent's machine for which it asks: no admin in any case, for root of a host is nobody in
    /// particular here.
    pub(crate) async fn relays(&self, app: &App, uid: u32) -> Result<Caller, Refused> {
        match &self.host {
            Some(host) if !host.relay => return Err(without_relay(&host.name)),
            Some(_) => return Ok(Caller::clone(&*app.accounts.of_relayed(uid).await)),
            None => {}
        }
        let account = Caller::clone(&*app.accounts.of_uid(uid).await);
        Ok(if account.is_admin() {
            account.with_rights(Rights::USER)
        } else {
            account
        })
    }
}

impl FromRequestParts<Arc<App>> for Agent {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        refuse_unsafe_way(parts)?;
        let shown = bearer(&parts.headers)?.and_then(Shown::read);
        let is_own_word = on_behalf(&parts.headers)?.is_none();
        if let Some(shown) = shown.filter(|it| it.kind == TokenKind::Host && is_own_word) {
            let token = known(&shown, app)?;
            let host = match &token.bearer {
                TokenBearer::Host {
                    host,
                    machine,
                    relay,
                } => Joined {
                    name: host.clone(),
                    machine: machine.clone(),
                    relay: *relay,
                },
                // Only a host's is of this kind; another would speak for no host at all.
                _ => return Err(unknown_token()),
            };
            let id = Some(shown.id.to_string());
            let named = format!("host {}", host.name);
            Noted::beside(parts, &named, "host token", id);
            Noted::by_host(parts, &host.name);
            super::note(parts, Credential::Token(shown.id, shown.hash), None);
            return Ok(Self { host: Some(host) });
        }
        let asker = Asker::from_request_parts(parts, app).await?;
        if asker.caller.is_admin() && matches!(asker.credential, Credential::Peer { .. }) {
            return Ok(Self { host: None });
        }
        Err(Refused::forbidden(format!(
            "{} may not speak for a host: run the agent as root or as the controller's account there, or have it join \
             with a token",
            asker.caller.user
        )))
    }
}

/// A worker that speaks for its incarnation, whether or not that is still the newest one.
#[derive(Debug)]
pub(crate) struct Speaker(pub(crate) ReplicaToken);

impl FromRequestParts<Arc<App>> for Speaker {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        refuse_unsafe_way(parts)?;
        let text = bearer(&parts.headers)?;
        let token = text.and_then(|text| app.key.verify(text));
        match token.ok_or_else(unknown_token)? {
            (token, Bearer::Worker) => Ok(Self(token)),
            (_, Bearer::Job) => Err(Refused::forbidden(
                "a job does not tell its own state: its worker does",
            )),
        }
    }
}

/// A machine that wants to join, by the token that lets it.
#[derive(Debug)]
pub(crate) struct Joiner(pub(crate) Shown);

impl FromRequestParts<Arc<App>> for Joiner {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        refuse_unsafe_way(parts)?;
        let Some(text) = bearer(&parts.headers)? else {
            return Err(Refused::unauthenticated(
                "a machine joins with a token: `portreeve token create --kind join` makes one",
            ));
        };
        let shown = Shown::read(text).ok_or_else(unknown_token)?;
        let token = known(&shown, app)?;
        let id = Some(shown.id.to_string());
        Noted::beside(parts, "(a machine)", "join token", id);
        if matches!(token.bearer, TokenBearer::Join { .. }) {
            return Ok(Self(shown));
        }
        Err(Refused::forbidden(
            "this token lets no machine join: `portreeve token create --kind join` makes one that does",
        ))
    }
}
