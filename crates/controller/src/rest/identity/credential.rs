//! What somebody is known by, and who that is now: asked again for as long as a stream or a held question goes on.

use std::sync::Arc;

use portreeve::identity::HostName;
use portreeve::registry::{SecretHash, Through, Token, TokenBearer, TokenId};
use portreeve::rights::{Caller, Rights};
use portreeve::time::{Utc, WallClock};

use crate::app::App;
use crate::clock;
use crate::jwt::Claims;
use crate::rest::refused::Refused;
use crate::secret::{Shown, TokenKind};
use crate::token::{Bearer, ReplicaToken};

/// What somebody is known by.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// The kernel of this machine tells the account.
    Peer { uid: u32, by: By },
    /// The agent of a host tells it, which has this token.
    Relayed {
        uid: u32,
        token: TokenId,
        hash: SecretHash,
    },
    /// A stored token, by this secret.
    Token(TokenId, SecretHash),
    /// A job's, which ends with its incarnation.
    Replica(Box<ReplicaToken>),
    /// A token of the site's issuer.
    Jwt(Arc<Claims>),
    /// Nothing, over the network in the clear, where the site wishes that: it sees what everybody on the cluster may.
    Nobody,
}

/// Where the kernel saw the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Socket,
    Loopback,
}

impl Credential {
    /// What a token shows, whose text this is.
    pub(crate) fn shown(text: &str, relayed: Option<u32>, app: &App) -> Result<Self, Refused> {
        if let Some(shown) = Shown::read(text) {
            known(&shown, app)?;
            return match (shown.kind, relayed) {
                (TokenKind::Host, Some(uid)) => Ok(Self::Relayed {
                    uid,
                    token: shown.id,
                    hash: shown.hash,
                }),
                (_, Some(_)) => Err(no_relay()),
                (TokenKind::Host, None) => Err(Refused::forbidden(
                    "a host's token speaks for its host alone, and is nobody's to read with",
                )),
                (TokenKind::Join, None) => Err(Refused::forbidden(
                    "this token lets a machine join, and nothing else",
                )),
                (TokenKind::User, None) => Ok(Self::Token(shown.id, shown.hash)),
            };
        }
        if relayed.is_some() {
            return Err(no_relay());
        }
        if let Some(jwt) = app.jwt.as_ref().filter(|_| text.starts_with("ey")) {
            let claims = jwt.verify(text, clock::wall());
            return claims
                .map(|claims| Self::Jwt(Arc::new(claims)))
                .ok_or_else(unknown_token);
        }
        match app.key.verify(text).ok_or_else(unknown_token)? {
            (token, Bearer::Job) => Ok(Self::Replica(Box::new(token))),
            (_, Bearer::Worker) => Err(Refused::forbidden(
                "a worker's token tells the state of its replica, and nothing else",
            )),
        }
    }

    /// Who that is now, if it still stands.
    pub(crate) async fn caller(&self, app: &App) -> Result<Arc<Caller>, Refused> {
        match self {
            Self::Peer { uid, .. } => Ok(app.accounts.of_uid(*uid).await),
            Self::Relayed { uid, .. } => {
                let token = self.token(app)?;
                match &token.bearer {
                    TokenBearer::Host { relay: true, .. } => {
                        Ok(app.accounts.of_relayed(*uid).await)
                    }
                    TokenBearer::Host { host, .. } => Err(without_relay(host)),
                    _ => Err(no_relay()),
                }
            }
            Self::Token(..) => of_token(&*self.token(app)?, app).await,
            Self::Nobody => Ok(app.accounts.nobody()),
            Self::Jwt(claims) => {
                let jwt = app.jwt.as_ref().filter(|jwt| jwt.stands(claims));
                jwt.ok_or_else(unknown_token)?;
                let now = clock::wall();
                if claims.is_over(now) {
                    return Err(expired(claims.until, now));
                }
                let caller = app.accounts.of_claim(&claims.user, &claims.groups).await;
                caller.map(Arc::new).ok_or_else(|| {
                    Refused::forbidden(
                        "the issuer's tokens do not speak for root or the controller's account: ask over the socket, or with a token that those made",
                    )
                })
            }
            Self::Replica(token) => {
                let owner = owner_of(token, app).ok_or_else(unknown_token)?;
                // A job of root reads as root's jobs do, but is not root.
                let account = app.accounts.of_name(&owner).await;
                let caller = Caller::new(owner, None, account.groups.clone(), Rights::USER);
                Ok(Arc::new(caller))
            }
        }
    }

    /// When it ends by itself, if it does.
    pub(crate) fn expires(&self, app: &App) -> Option<WallClock> {
        match self {
            Self::Jwt(claims) => Some(claims.until),
            _ => self.token(app).ok()?.expires,
        }
    }

    /// The host whose agent asks for an account of its machine.
    pub(crate) fn host(&self, app: &App) -> Option<HostName> {
        match self {
            Self::Relayed { .. } => self.token(app).ok()?.host().cloned(),
            _ => None,
        }
    }

    /// The stored token that it is, whoever it speaks for.
    pub(crate) const fn id(&self) -> Option<TokenId> {
        match self {
            Self::Token(id, _) => Some(*id),
            _ => None,
        }
    }

    /// What is made with it goes with this.
    pub(crate) fn through(&self) -> Option<Through> {
        match self {
            Self::Token(id, hash)
            | Self::Relayed {
                token: id, hash, ..
            } => Some(Through::Token {
                id: *id,
                hash: *hash,
            }),
            Self::Jwt(claims) => Some(Through::Issued {
                until: claims.until,
            }),
            Self::Peer { .. } | Self::Replica(_) | Self::Nobody => None,
        }
    }

    /// What names the token in a log, if it is one: never what proves it.
    pub(crate) fn named(&self) -> Option<String> {
        match self {
            Self::Token(id, _) | Self::Relayed { token: id, .. } => Some(id.to_string()),
            Self::Replica(token) => Some(token.to_string()),
            Self::Peer { .. } | Self::Jwt(_) | Self::Nobody => None,
        }
    }

    /// The host whose agent tells of it.
    pub(crate) fn relay(&self, app: &App) -> Option<HostName> {
        match self {
            Self::Relayed { .. } => self.token(app).ok()?.host().cloned(),
            _ => None,
        }
    }

    /// Its words in `whoami`.
    pub(crate) const fn method(&self) -> &'static str {
        match self {
            Self::Peer { by: By::Socket, .. } => "unix socket",
            Self::Peer {
                by: By::Loopback, ..
            } => "loopback peer",
            Self::Relayed { .. } => "agent",
            Self::Token(..) => "token",
            Self::Replica(_) => "replica token",
            Self::Jwt(_) => "jwt",
            Self::Nobody => "none",
        }
    }

    fn token(&self, app: &App) -> Result<Arc<Token>, Refused> {
        let (id, hash) = match self {
            Self::Relayed { token, hash, .. } | Self::Token(token, hash) => (*token, *hash),
            _ => return Err(unknown_token()),
        };
        let token = app.shown.view.borrow().tokens.get(&id).map(Arc::clone);
        // Proved before; it may have another secret by now.
        let token = token.filter(|token| token.hash == hash);
        stands(token.ok_or_else(unknown_token)?)
    }
}

/// The stored token that was shown. Unknown, revoked and with another secret are one and the same.
pub(crate) fn known(shown: &Shown, app: &App) -> Result<Arc<Token>, Refused> {
    let token = app
        .shown
        .view
        .borrow()
        .tokens
        .get(&shown.id)
        .map(Arc::clone);
    let token = token.filter(|token| shown.proves(token));
    stands(token.ok_or_else(unknown_token)?)
}

fn stands(token: Arc<Token>) -> Result<Arc<Token>, Refused> {
    let now = clock::wall();
    match token.expires {
        Some(at) if token.is_over(now) => Err(expired(at, now)),
        _ => Ok(token),
    }
}

/// A token that is over, told with both clocks: who of the two is wrong is not known here.
pub(crate) fn expired(at: WallClock, now: WallClock) -> Refused {
    Refused::unauthenticated_as(
        "token_expired",
        format!(
            "the token expired at {}, and the controller's clock says {}; `portreeve login` gets another, and where the \
             clock is wrong it is to be mended first",
            Utc(at),
            Utc(now)
        ),
    )
    .with("expired_at", Utc(at).to_string())
    .with("now", Utc(now).to_string())
}

/// The account of a token: as its groups are now, with no more than the token has and its maker may now.
async fn of_token(token: &Token, app: &App) -> Result<Arc<Caller>, Refused> {
    let TokenBearer::User { user, uid, rights } = &token.bearer else {
        return Err(Refused::forbidden("this token speaks for no account"));
    };
    let maker = app.accounts.of_maker(&token.by).await;
    let account = app.accounts.of_name(user).await;
    let rights = rights.within(&maker.rights, &maker.sharing);
    let caller = Caller::clone(&account).with_rights(rights);
    Ok(Arc::new(Caller {
        uid: *uid,
        ..caller
    }))
}

/// Whose job carries this token; `None` once its incarnation is not the newest: with it a token's right to
/// read ends.
fn owner_of(token: &ReplicaToken, app: &App) -> Option<String> {
    let view = app.shown.view.borrow();
    let service = view.services.get(&token.service)?;
    let replica = service.replicas.of(token.index)?;
    let stands = service.id == token.service_id && replica.incarnation == token.incarnation;
    stands.then(|| service.owner.clone())
}

pub(crate) fn unknown_token() -> Refused {
    Refused::unauthenticated(
        "the token is not known here: it was revoked, or renewed, or its replica is not the newest; a job finds its own \
         in the file that PORTREEVE_TOKEN_FILE names, and people get one by `portreeve login`",
    )
}

/// A host whose word of its people is not taken.
pub(crate) fn without_relay(host: &HostName) -> Refused {
    Refused::forbidden(format!(
        "host {host} joined without --relay and speaks for nobody: use a token of your own (`portreeve login`, --token-file), or \
         have it join again with one that was made with --relay"
    ))
}

pub(crate) fn no_relay() -> Refused {
    Refused::forbidden(
        "only an agent whose host's token may relay says who asks: leave the header portreeve-on-behalf out",
    )
}
