//! Making, renewing, revoking and trading tokens. Their texts are drawn and checked outside; here is who may, and what
//! is written down.
//!
//! Invariant: no token may more than who made it, and none that was made through another outlives that one; so who
//! finds a token cannot make it last.

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
    /// The token that its asker came with, if it was one.
    pub through: Option<TokenId>,
    /// What.
    pub verb: TokenVerb,
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
        through: Option<TokenId>,
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
        if let Some(parent) = through {
            let parent = self.truth.tokens.find(&parent);
            let parent =
                parent.ok_or_else(|| not_allowed("go on: the token they came with is revoked"))?;
            let outlives = match (token.expires, parent.expires) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(own), Some(bound)) => own > bound,
            };
            if outlives {
                return Err(not_allowed(
                    "make a token that outlives the one they came with; ask for a shorter time, or over the socket",
                ));
            }
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
            parent: through,
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
        through: Option<TokenId>,
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
        if !through.is_none_or(|through| self.goes_with(id, through)) {
            return Err(not_allowed(
                "renew another token with the one they came with; ask over the socket",
            ));
        }
        if let Some(token) = self.truth.tokens.change(&id) {
            token.hash = hash;
        }
        self.shown.tokens.insert(id);
        Ok(told(format!(
            "token {id} has another secret; the one before is worth nothing now"
        )))
    }

    fn revoke_token(
        &mut self,
        by: &Caller,
        through: Option<TokenId>,
        id: TokenId,
    ) -> Result<Answer, Refusal> {
        self.token_of(by, id)?;
        if !by.is_admin() && !through.is_none_or(|through| self.goes_with(id, through)) {
            return Err(Refusal::TokenNotAllowed {
                user: by.user.clone(),
                reason: "revoke another token with the one they came with; ask over the socket"
                    .to_owned(),
            });
        }
        let tokens = self.truth.tokens.iter();
        let with_it: Vec<TokenId> = tokens
            .map(|(other, _)| *other)
            .filter(|other| self.goes_with(*other, id))
            .collect();
        let more = with_it.len().saturating_sub(1);
        with_it.into_iter().for_each(|id| self.drop_token(id));
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
        let is_same = known.as_ref().is_some_and(|(_, bearer)| {
            matches!(bearer, TokenBearer::Host { machine: before, .. } if *before == machine)
        });
        if known.is_some() && !is_same && !replace {
            return Err(Refusal::HostJoined { host });
        }
        if !is_same && uses_left == 0 {
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
            self.drop_token(before);
        }
        if !is_same
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

    /// What speaks for the host.
    fn host_token(&self, host: &HostName) -> Option<(TokenId, TokenBearer)> {
        let mut tokens = self.truth.tokens.iter();
        let (id, token) = tokens.find(|(_, it)| it.host() == Some(host))?;
        Some((*id, token.bearer.clone()))
    }

    /// Ends what speaks for a host that is gone for good.
    pub(super) fn revoke_tokens_of(&mut self, host: &HostName) {
        let tokens = self.truth.tokens.iter();
        let gone: Vec<TokenId> = tokens
            .filter(|(_, it)| it.host() == Some(host))
            .map(|(id, _)| *id)
            .collect();
        gone.into_iter().for_each(|id| self.drop_token(id));
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
