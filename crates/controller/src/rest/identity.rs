//! Who asks: proved by the kernel or by a signed token, never by what the request says of itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, Uri, header};
use portreeve::identity::ServiceName;
use portreeve::rights::Caller;
use portreeve_api::body::WhoAmI;

use crate::account::groups_of_user;
use crate::app::App;
use crate::audit::Noted;
use crate::clock;
use crate::peer::Peer;
use crate::token::{Bearer, ReplicaToken};

use super::answer::json;
use super::names::Names;
use super::refused::Refused;

/// Somebody with a name.
#[derive(Debug)]
pub(crate) struct Asker {
    caller: Arc<Caller>,
    means: Means,
    /// The token that spoke for it.
    token: Option<ReplicaToken>,
}

/// How the name was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Socket,
    Loopback,
    Token,
    /// Over the network in the clear: nobody.
    Nobody,
}

impl Means {
    const fn word(self) -> &'static str {
        match self {
            Self::Socket => "unix socket",
            Self::Loopback => "loopback peer",
            Self::Token => "token",
            Self::Nobody => "none",
        }
    }
}

impl Asker {
    /// Who asks over the network in the clear, where the site wishes that: it sees what everybody on the cluster may.
    fn nameless() -> Self {
        let nobody = Caller {
            // No account and no token has such a name, and so it owns nothing.
            user: "(nobody)".to_owned(),
            uid: None,
            groups: Vec::new(),
            admin: false,
        };
        Self {
            caller: Arc::new(nobody),
            means: Means::Nobody,
            token: None,
        }
    }

    /// Who it is, for reading.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Who it is, for watching: for as long as the token is good that spoke for it, if one did.
    pub(crate) fn watching(self) -> (Caller, Option<ReplicaToken>) {
        (Arc::unwrap_or_clone(self.caller), self.token)
    }

    /// Who it is, for changing something: a replica's token only reads.
    pub(crate) fn acting(self) -> Result<Caller, Refused> {
        match self.means {
            Means::Socket | Means::Loopback => Ok(Arc::unwrap_or_clone(self.caller)),
            Means::Token => Err(Refused::forbidden(
                "a replica's token reads what its owner sees, and changes nothing",
            )),
            Means::Nobody => Err(Refused::unauthenticated(
                "over http:// to another machine nobody is known, and nothing is changed; ask at an https:// address with a token",
            )),
        }
    }

    /// Only an agent, which runs as root or as the controller's own account, may go on.
    pub(crate) fn agent(self) -> Result<(), Refused> {
        let caller = self.acting()?;
        if caller.admin {
            return Ok(());
        }
        Err(Refused::forbidden(format!(
            "{} may not speak for a host: run the agent as root or as the controller's account",
            caller.user
        )))
    }

    /// Refuses who asks faster than one user may. Agents and the operator are not bound: they speak for others.
    fn within_rate(&self, app: &App) -> Result<(), Refused> {
        let caller = self.caller();
        if caller.admin {
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

/// `GET /whoami`.
pub(crate) async fn whoami(asker: Asker) -> Response {
    json(&WhoAmI {
        method: asker.means.word().to_owned(),
        view_scope: asker.caller.view_scope().to_owned(),
        admin: asker.caller.admin,
        user: asker.caller.user.clone(),
        now: Some(clock::wall()),
    })
}

impl FromRequestParts<Arc<App>> for Asker {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        refuse_token_in_clear(parts)?;
        let asker = match bearer(&parts.headers)? {
            Some(text) => by_token(&text, app).await?,
            None => by_peer(parts, app).await?,
        };
        let token = asker.token.as_ref().map(ToString::to_string);
        Noted::beside(parts, &asker.caller.user, asker.means.word(), token);
        asker.within_rate(app)?;
        Ok(asker)
    }
}

async fn by_peer(parts: &Parts, app: &App) -> Result<Asker, Refused> {
    let peer = parts.extensions.get::<Arc<Peer>>().map(Arc::clone);
    let peer = peer.expect("the listener puts the peer on every request");
    let means = match *peer {
        Peer::Unix { .. } => Means::Socket,
        Peer::Loopback { .. } => {
            refuse_foreign_pages(&parts.uri, &parts.headers)?;
            Means::Loopback
        }
        Peer::Remote { tls: true, .. } => {
            return Err(Refused::unauthenticated(
                "over the network nobody is known without a token; send one as \"Authorization: Bearer TOKEN\"",
            ));
        }
        Peer::Remote { tls: false, .. } => {
            refuse_foreign_pages(&parts.uri, &parts.headers)?;
            return Ok(Asker::nameless());
        }
    };
    let Some(uid) = peer.uid().await else {
        return Err(Refused::unauthenticated(
            "the socket you ask from cannot be found on this machine; ask over the Unix socket, or with a token",
        ));
    };
    Ok(Asker {
        caller: app.accounts.of_uid(uid).await,
        means,
        token: None,
    })
}

/// A worker that speaks for its incarnation, whether or not that is still the newest one.
#[derive(Debug)]
pub(crate) struct Speaker(pub(crate) ReplicaToken);

impl FromRequestParts<Arc<App>> for Speaker {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        let State(app) = State::<Arc<App>>::from_request_parts(parts, app)
            .await
            .unwrap_or_else(|never| match never {});
        refuse_token_in_clear(parts)?;
        let text = bearer(&parts.headers)?;
        let token = text.as_deref().and_then(|text| app.key.verify(text));
        match token.ok_or_else(unknown_token)? {
            (token, Bearer::Worker) => Ok(Self(token)),
            (_, Bearer::Job) => Err(Refused::forbidden(
                "a job does not tell its own state: its worker does",
            )),
        }
    }
}

async fn by_token(text: &str, app: &App) -> Result<Asker, Refused> {
    let token = match app.key.verify(text).ok_or_else(unknown_token)? {
        (token, Bearer::Job) => token,
        (_, Bearer::Worker) => {
            return Err(Refused::forbidden(
                "a worker's token tells the state of its replica, and nothing else",
            ));
        }
    };
    let owner = owner_of(&token, app).ok_or_else(unknown_token)?;
    Ok(Asker {
        caller: Arc::new(Caller {
            groups: groups_of_user(owner.clone()).await,
            user: owner,
            uid: None,
            // A job of root reads as root's jobs do, but is not root.
            admin: false,
        }),
        means: Means::Token,
        token: Some(token),
    })
}

/// Whose job carries this token; `None` once its incarnation is not the newest: with it a token's right to
/// read ends.
pub(crate) fn owner_of(token: &ReplicaToken, app: &App) -> Option<String> {
    let view = app.shown.view.borrow();
    let service = view.services.get(&token.service)?;
    let replica = service.replicas.of(token.index)?;
    let stands = service.id == token.service_id && replica.incarnation == token.incarnation;
    stands.then(|| service.owner.clone())
}

fn unknown_token() -> Refused {
    Refused::unauthenticated(
        "the token is not known here, or its replica is not the newest; a job finds its own in the file that PORTREEVE_TOKEN_FILE names",
    )
}

/// A token that came over the network in the clear is everybody's: it is taken from nobody there.
fn refuse_token_in_clear(parts: &Parts) -> Result<(), Refused> {
    let peer = parts.extensions.get::<Arc<Peer>>().map(Arc::as_ref);
    let clear = matches!(peer, Some(Peer::Remote { tls: false, .. }));
    if clear && parts.headers.contains_key(header::AUTHORIZATION) {
        return Err(Refused::unauthenticated(
            "no token is taken over http:// from another machine: everybody on the way could read it. It counts as known to others now: revoke it, and use an https:// address",
        ));
    }
    Ok(())
}

/// The bearer token, if there is one.
fn bearer(headers: &HeaderMap) -> Result<Option<String>, Refused> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            Ok(Some(token.trim().to_owned()))
        }
        _ => Err(Refused::unauthenticated(
            "write the credential as \"Authorization: Bearer TOKEN\"",
        )),
    }
}

/// A web page in the user's browser reaches loopback addresses too, with the user's uid: it must not act
/// for the user. Browsers name the page's origin; a page that made its own name point here gives itself
/// away by that name.
fn refuse_foreign_pages(uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    let from_a_page = headers.contains_key(header::ORIGIN)
        || headers
            .get("sec-fetch-site")
            .is_some_and(|site| site != "none");
    // Whichever of several names a server believes, none may be another's.
    let mut hosts = headers.get_all(header::HOST).iter();
    let ours = hosts.all(|host| host.to_str().is_ok_and(is_local))
        && uri.authority().is_none_or(|it| is_local(it.as_str()));
    if ours && !from_a_page {
        return Ok(());
    }
    Err(Refused::forbidden(
        "web pages may not speak for the user who looks at them",
    ))
}

fn is_local(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => authority,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    matches!(host, "" | "localhost" | "portreeve") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_a_browser_is_not_its_user() {
        let with = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            refuse_foreign_pages(&Uri::from_static("/x"), &headers).is_ok()
        };
        for host in [
            "127.0.0.1:7373",
            "[::1]:7373",
            "localhost:7373",
            "portreeve",
            "",
        ] {
            assert!(with("host", host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7373",
            "127.0.0.1.evil.example:1",
        ] {
            assert!(!with("host", host), "{host}");
        }
        assert!(!with("origin", "http://evil.example"));
        assert!(!with("origin", "null"));
        assert!(!with("sec-fetch-site", "cross-site"));
        assert!(with("sec-fetch-site", "none"));
        assert!(refuse_foreign_pages(&Uri::from_static("/x"), &HeaderMap::new()).is_ok());
    }

    #[test]
    fn a_foreign_name_is_seen_wherever_it_stands() {
        let mut headers = HeaderMap::new();
        headers.append("host", "127.0.0.1:7373".parse().unwrap());
        let whole = |uri| refuse_foreign_pages(&Uri::from_static(uri), &headers).is_ok();
        assert!(whole("http://localhost:7373/x"));
        assert!(!whole("http://evil.example/x"), "the whole address counts");
        headers.append("host", "evil.example".parse().unwrap());
        assert!(refuse_foreign_pages(&Uri::from_static("/x"), &headers).is_err());
    }

    #[test]
    fn a_credential_without_its_scheme_is_explained() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers).unwrap(), None);
        headers.insert("authorization", "bearer abc".parse().unwrap());
        assert_eq!(bearer(&headers).unwrap().as_deref(), Some("abc"));
        for bad in ["abc", "Basic abc", ""] {
            headers.insert("authorization", bad.parse().unwrap());
            assert!(bearer(&headers).is_err(), "{bad:?}");
        }
    }
}
