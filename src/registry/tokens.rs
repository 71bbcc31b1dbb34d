//! Making, renewing, revoking and trading tokens. Their texts are drawn and checked outside; here is who may, and what
//! is written down.
//!
//! Invariant: no token may more than who made it, and none that was made through another outlives that one, or its
//! secret; so who finds a token cannot make it last. What a host's agent has made for its people goes with the host.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::HostName;
use crate::rights::Caller;
use crate::time::WallClock;

use super::host_verbs::host_answer;
use super::machine::Registry;
use super::{Answer, Command, Refusal, SecretHash, Token, TokenBearer, TokenId};

/// How many tokens there may be.
const MOST: usize = 10_000;

/// How many one account may have.
const MOST_OF_ONE: usize = 100;

/// How long one that is over is still listed.
const KEPT_FOR: Duration = Duration::from_secs(30 * 86_400);

/// How long a machine may ask again for the answer to its joining, without that being another use.
const ANSWERED_AGAIN_FOR: Duration = Duration::from_secs(3600);

/// The most machines that one token lets join.
pub(super) const MOST_USES: u32 = 10_000;

impl Command {
    /// Whether somebody may ask for it who changes nothing else: to end what speaks for oneself, and to join, which a
    /// token allows.
    pub(super) fn is_for_viewers(&self) -> bool {
        let Self::Token(order) = self else {
            return false;
        };
        matches!(order.verb, TokenVerb::Revoke { .. } | TokenVerb::Join(_))
    }
}

/// Something about tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOrder {
    /// What its asker came with, if that is lost or ends one day.
    pub through: Option<Through>,
    /// What.
    pub verb: TokenVerb,
}

/// What somebody came with who is known by a token, its own or that of the host that speaks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// A stored one.
    Token {
        /// Which.
        id: TokenId,
        /// Of the secret that was shown; it may have another by now.
        hash: SecretHash,
    },
    /// One of the site's issuer.
    Issued {
        /// When it ends.
        until: WallClock,
    },
}

/// What can be asked about tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenVerb {
    /// Make one.
    Create(Box<NewToken>),
    /// Give it another secret: the one before is worth nothing from then on.
    Rotate {
        /// Which.
        id: TokenId,
        /// Of the new secret.
        hash: SecretHash,
    },
    /// End it, and all that were made through it.
    Revoke {
        /// Which.
        id: TokenId,
    },
    /// Trade one to join for a host's.
    Join(Box<Joining>),
}

/// A token to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Its name, which nobody had before.
    pub id: TokenId,
    /// Of its secret.
    pub hash: SecretHash,
    /// For whom; not for a host, which joins.
    pub bearer: TokenBearer,
    /// When it ends.
    pub expires: Option<WallClock>,
    /// What it is for.
    pub label: Option<String>,
}

/// A machine that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// The token it came with.
    pub join: TokenId,
    /// Of the secret it came with.
    pub join_hash: SecretHash,
    /// The name of the host's token, which nobody had before.
    pub id: TokenId,
    /// Of its secret.
    pub hash: SecretHash,
    /// The host's name.
    pub host: HostName,
    /// The machine.
    pub machine: String,
    /// Whether it takes the name from another machine.
    pub replace: bool,
}

impl Registry {
    /// Does it, or says why not; then nothing changed.
    pub(super) fn token_command(
        &mut self,
        by: &Caller,
        order: TokenOrder,
    ) -> Result<Answer, Refusal> {
        let through = order.through;
        match order.verb {
            TokenVerb::Create(token) => self.create_token(by, through, *token),
            TokenVerb::Rotate { id, hash } => self.rotate_token(by, through, id, hash),
            TokenVerb::Revoke { id } => self.revoke_token(by, through, id),
            TokenVerb::Join(joining) => self.join(*joining),
        }
    }

    fn create_token(
        &mut self,
        by: &Caller,
        through: Option<Through>,
        token: NewToken,
    ) -> Result<Answer, Refusal> {
        let not_allowed = |reason: &str| Refusal::TokenNotAllowed {
            user: by.user.clone(),
            reason: reason.to_owned(),
        };
        match &token.bearer {
            TokenBearer::User { user, rights, .. } => {
                if *user != by.user && !by.is_admin() {
                    return Err(not_allowed(
                        "make a token for another account: that is for admins",
                    ));
                }
                if !rights.is_within(&by.rights, &by.sharing) {
                    return Err(not_allowed(
                        "make a token that may more than they may themselves; `portreeve whoami` shows role and scopes",
                    ));
                }
            }
            TokenBearer::Join { .. } if !by.is_admin() => {
                return Err(not_allowed("let machines join: that is for admins"));
            }
            TokenBearer::Join { uses_left, .. } if !(1..=MOST_USES).contains(uses_left) => {
                return Err(not_allowed("let so many machines join: 1 to 10000 can"));
            }
            TokenBearer::Join { .. } => {}
            TokenBearer::Host { .. } => {
                return Err(not_allowed(
                    "make a host's token: a machine gets it when it joins",
                ));
            }
        }
        let (parent, bound) = match through {
            None => (None, None),
            Some(Through::Issued { until }) => (None, Some(until)),
            Some(Through::Token { id, hash }) => {
                let parent = self.shown_token(by, id, hash)?;
                (Some(id), parent.expires)
            }
        };
        if bound.is_some_and(|bound| token.expires.is_none_or(|own| own > bound)) {
            return Err(not_allowed(
                "make a token that outlives the one they came with; ask for a shorter time, or over the socket",
            ));
        }
        if self.truth.tokens.find(&token.id).is_some() {
            return Err(not_allowed(
                "have this id, which another token has; ask again",
            ));
        }
        self.make_room(token.bearer_user())?;
        let now = self.now;
        let id = token.id;
        let kind = token.bearer.kind();
        let record = Token {
            hash: token.hash,
            bearer: token.bearer,
            by: by.owner(),
            created: now.wall,
            expires: token.expires,
            parent,
            label: token.label,
        };
        if record.expires.is_some() {
            self.retention.arm(now.mono);
        }
        self.put_token(id, record);
        Ok(told(format!("made {kind} token {id}")))
    }

    /// Forgets tokens that are over where there are too many, and refuses one more where that does not help.
    fn make_room(&mut self, user: Option<&str>) -> Result<(), Refusal> {
        let now = self.now.wall;
        let all = self.truth.tokens.len();
        let own = |registry: &Self| {
            let tokens = registry.truth.tokens.iter();
            tokens
                .filter(|(_, it)| user.is_some() && it.user() == user)
                .count()
        };
        if all < MOST && own(self) < MOST_OF_ONE {
            return Ok(());
        }
        let of_this = |it: &Token| all >= MOST || it.user() == user;
        let tokens = self.truth.tokens.iter();
        let over: Vec<TokenId> = tokens
            .filter(|(_, it)| it.is_over(now) && of_this(it))
            .map(|(id, _)| *id)
            .collect();
        over.into_iter().for_each(|id| self.drop_token(id));
        if own(self) >= MOST_OF_ONE {
            return Err(Refusal::TooManyTokens {
                whose: user.unwrap_or_default().to_owned(),
                most: MOST_OF_ONE,
            });
        }
        if self.truth.tokens.len() >= MOST {
            return Err(Refusal::TooManyTokens {
                whose: "the cluster".to_owned(),
                most: MOST,
            });
        }
        Ok(())
    }

    fn rotate_token(
        &mut self,
        by: &Caller,
        through: Option<Through>,
        id: TokenId,
        hash: SecretHash,
    ) -> Result<Answer, Refusal> {
        let token = self.token_of(by, id)?;
        let not_allowed = |reason: &str| Refusal::TokenNotAllowed {
            user: by.user.clone(),
            reason: reason.to_owned(),
        };
        if let TokenBearer::User { rights, .. } = &token.bearer
            && !rights.is_within(&by.rights, &by.sharing)
        {
            return Err(not_allowed("renew a token that may more than they may now"));
        }
        if token.is_over(self.now.wall) {
            return Err(not_allowed("renew a token that is over: make another"));
        }
        let may = match through {
            None => true,
            Some(Through::Issued { until }) => token.expires.is_some_and(|own| own <= until),
            Some(Through::Token { id: with, hash }) => {
                self.shown_token(by, with, hash)?;
                self.goes_with(id, with)
            }
        };
        if !may {
            return Err(not_allowed(
                "renew another token with the one they came with; ask over the socket",
            ));
        }
        // Whoever had the secret before may have made some with it.
        let more = self.drop_made_through(id);
        if let Some(token) = self.truth.tokens.change(&id) {
            token.hash = hash;
        }
        self.shown.tokens.insert(id);
        let note = format!("token {id} has another secret; the one before is worth nothing now");
        Ok(told(match more {
            0 => note,
            more => format!("{note}, nor are {more} more that were made through it"),
        }))
    }

    fn revoke_token(
        &mut self,
        by: &Caller,
        through: Option<Through>,
        id: TokenId,
    ) -> Result<Answer, Refusal> {
        self.token_of(by, id)?;
        if let Some(Through::Token { id: with, hash }) = through {
            let token = self.shown_token(by, with, hash)?;
            // Who is known by a host or an issuer has no token of its own to be held to; ending one gains nobody anything.
            let is_own_word = token.host().is_none();
            if is_own_word && !by.is_admin() && !self.goes_with(id, with) {
                return Err(Refusal::TokenNotAllowed {
                    user: by.user.clone(),
                    reason: "revoke another token with the one they came with; ask over the socket"
                        .to_owned(),
                });
            }
        }
        let more = self.drop_made_through(id);
        self.drop_token(id);
        Ok(told(match more {
            0 => format!("revoked token {id}"),
            more => format!("revoked token {id}, and {more} more that were made through it"),
        }))
    }

    /// The token, if it is the asker's own or the asker an admin; another's is as one that is not there.
    fn token_of(&self, by: &Caller, id: TokenId) -> Result<&Token, Refusal> {
        let token = self.truth.tokens.find(&id);
        token
            .filter(|it| by.is_admin() || it.user() == Some(&by.user))
            .ok_or(Refusal::NoSuchToken { id })
    }

    /// The token that somebody came with, unless it was revoked or renewed since.
    fn shown_token(&self, by: &Caller, id: TokenId, hash: SecretHash) -> Result<&Token, Refusal> {
        let token = self.truth.tokens.find(&id).filter(|it| it.hash == hash);
        token.ok_or_else(|| Refusal::TokenNotAllowed {
            user: by.user.clone(),
            reason: "go on: the token they came with is revoked".to_owned(),
        })
    }

    /// Ends those that were made through the token, and tells how many.
    fn drop_made_through(&mut self, id: TokenId) -> usize {
        let tokens = self.truth.tokens.iter();
        let made: Vec<TokenId> = tokens
            .map(|(other, _)| *other)
            .filter(|other| *other != id && self.goes_with(*other, id))
            .collect();
        let count = made.len();
        made.into_iter().for_each(|id| self.drop_token(id));
        count
    }

    /// Whether the token is this one, or was made through it.
    fn goes_with(&self, mut token: TokenId, root: TokenId) -> bool {
        // A parent is older than its child, so this ends; bounded all the same against records that say otherwise.
        for _ in 0..MOST {
            if token == root {
                return true;
            }
            match self.truth.tokens.find(&token).and_then(|it| it.parent) {
                Some(parent) => token = parent,
                None => return false,
            }
        }
        false
    }

    fn join(&mut self, joining: Joining) -> Result<Answer, Refusal> {
        let Joining {
            join,
            join_hash,
            id,
            hash,
            host,
            machine,
            replace,
        } = joining;
        let now = self.now.wall;
        let no_such = || Refusal::NoSuchToken { id: join };
        let token = self.truth.tokens.find(&join);
        let token = token
            .filter(|it| it.hash == join_hash)
            .ok_or_else(no_such)?;
        let TokenBearer::Join { uses_left, relay } = token.bearer else {
            return Err(no_such());
        };
        if let Some(at) = token.expires.filter(|_| token.is_over(now)) {
            return Err(Refusal::TokenOver { at, now });
        }
        let by = token.by.clone();
        let known = self.host_token(&host);
        // One that asks again, because the answer was lost, is no other machine.
        let is_same = known.as_ref().is_some_and(|(_, token)| {
            matches!(&token.bearer, TokenBearer::Host { machine: before, .. } if *before == machine)
        });
        // Later it is a use like others: the number of a machine is no secret on it.
        let is_again = is_same
            && known
                .as_ref()
                .is_some_and(|(_, token)| now.since(token.created) < ANSWERED_AGAIN_FOR);
        if known.is_some() && !is_same && !replace {
            return Err(Refusal::HostJoined { host });
        }
        if !is_again && uses_left == 0 {
            return Err(Refusal::TokenUsedUp { id: join });
        }
        if self.truth.tokens.find(&id).is_some() {
            return Err(Refusal::TokenNotAllowed {
                user: host.to_string(),
                reason: "have this id, which another token has; ask again".to_owned(),
            });
        }
        if known.is_none() {
            self.make_room(None)?;
        }
        if let Some((before, _)) = known {
            if is_same {
                self.hand_on(before, id);
            } else {
                self.drop_made_through(before);
            }
            self.drop_token(before);
        }
        if !is_again
            && let Some(token) = self.truth.tokens.change(&join)
            && let TokenBearer::Join { uses_left, .. } = &mut token.bearer
        {
            *uses_left -= 1;
            self.shown.tokens.insert(join);
        }
        let record = Token {
            hash,
            bearer: TokenBearer::Host {
                host: host.clone(),
                machine,
                relay,
            },
            by,
            created: now,
            expires: None,
            parent: None,
            label: None,
        };
        self.put_token(id, record);
        let note = format!("{host} joined with token {join}; its own is {id}");
        Ok(host_answer(host, true, vec![note]))
    }

    /// Has what was made through one token go with another of the same machine.
    fn hand_on(&mut self, before: TokenId, to: TokenId) {
        let tokens = self.truth.tokens.iter();
        let made: Vec<TokenId> = tokens
            .filter(|(_, it)| it.parent == Some(before))
            .map(|(id, _)| *id)
            .collect();
        for id in made {
            if let Some(token) = self.truth.tokens.change(&id) {
                token.parent = Some(to);
            }
            self.shown.tokens.insert(id);
        }
    }

    /// What speaks for the host.
    fn host_token(&self, host: &HostName) -> Option<(TokenId, Token)> {
        let mut tokens = self.truth.tokens.iter();
        let (id, token) = tokens.find(|(_, it)| it.host() == Some(host))?;
        Some((*id, token.clone()))
    }

    /// Ends what speaks for a host that is gone for good.
    pub(super) fn revoke_tokens_of(&mut self, host: &HostName) {
        let tokens = self.truth.tokens.iter();
        let gone: Vec<TokenId> = tokens
            .filter(|(_, it)| it.host() == Some(host))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.drop_made_through(id);
            self.drop_token(id);
        }
    }

    /// Forgets tokens that were over long ago.
    pub(super) fn expire_tokens(&mut self, now: WallClock) {
        let before = now.before(KEPT_FOR);
        let tokens = self.truth.tokens.iter();
        let old: Vec<TokenId> = tokens
            .filter(|(_, it)| it.expires.is_some_and(|at| at < before))
            .map(|(id, _)| *id)
            .collect();
        old.into_iter().for_each(|id| self.drop_token(id));
    }

    pub(super) fn has_aging_tokens(&self) -> bool {
        let mut tokens = self.truth.tokens.iter();
        tokens.any(|(_, it)| it.expires.is_some())
    }

    fn put_token(&mut self, id: TokenId, token: Token) {
        self.truth.tokens.insert(id, token);
        self.shown.tokens.insert(id);
    }

    fn drop_token(&mut self, id: TokenId) {
        self.truth.tokens.remove(&id);
        self.shown.tokens.insert(id);
    }

    /// Has all that are stored be shown with the first batch.
    pub(super) fn take_up_tokens(&mut self) {
        let stored: BTreeSet<TokenId> = self.truth.tokens.iter().map(|(id, _)| *id).collect();
        self.shown.tokens.extend(stored);
    }

    /// Shows those that just became durable. No revision moves with them: they are not among what is listed.
    pub(super) fn show_tokens(&mut self) {
        if self.shown.tokens.is_empty() {
            return;
        }
        let view = Arc::make_mut(&mut self.shown.view);
        let tokens = Arc::make_mut(&mut view.tokens);
        for id in std::mem::take(&mut self.shown.tokens) {
            match self.truth.tokens.durable(&id) {
                Some(token) => tokens.insert(id, Arc::new(token.clone())),
                None => tokens.remove(&id),
            };
        }
        view.access += 1;
    }
}

impl NewToken {
    fn bearer_user(&self) -> Option<&str> {
        match &self.bearer {
            TokenBearer::User { user, .. } => Some(user),
            _ => None,
        }
    }
}

fn told(note: String) -> Answer {
    Answer {
        service: None,
        host: None,
        changed: true,
        notes: vec![note],
        granted: None,
    }
}
