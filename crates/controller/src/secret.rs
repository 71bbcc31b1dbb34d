//! The texts of stored tokens: `prt1.` (a person's), `prj1.` (to join), `prh1.` (a host's), then the token's id and its
//! secret.
//!
//! What is stored is what the secret hashes to. A secret is 32 bytes of the system's randomness, so that nothing slower
//! than one hash is needed against guessing.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use portreeve::registry::{SecretHash, Token, TokenBearer, TokenId};
use sha2::{Digest, Sha256};

/// What kind of token a text says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    User,
    Join,
    Host,
}

impl TokenKind {
    const ALL: [Self; 3] = [Self::User, Self::Join, Self::Host];

    /// Begins the text; the number is its form.
    const fn prefix(self) -> &'static str {
        match self {
            Self::User => "prt1.",
            Self::Join => "prj1.",
            Self::Host => "prh1.",
        }
    }

    /// What a stored token's text begins with.
    pub(crate) const fn of(bearer: &TokenBearer) -> Self {
        match bearer {
            TokenBearer::User { .. } => Self::User,
            TokenBearer::Join { .. } => Self::Join,
            TokenBearer::Host { .. } => Self::Host,
        }
    }
}

/// What somebody showed: not known to be any token of ours before [`Shown::proves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) kind: TokenKind,
    pub(crate) id: TokenId,
    pub(crate) hash: SecretHash,
}

impl Shown {
    /// Reads a text; `None`: it is none of these tokens.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut kinds = TokenKind::ALL.into_iter();
        let (kind, rest) =
            kinds.find_map(|kind| Some((kind, text.strip_prefix(kind.prefix())?)))?;
        let (id, secret) = rest.split_once('.')?;
        let is_secret = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
        if secret.len() != 64 || !secret.bytes().all(is_secret) {
            return None;
        }
        Some(Self {
            kind,
            id: id.parse().ok()?,
            hash: hash_of(secret),
        })
    }

    /// Whether it is this token. Takes as long whichever byte differs.
    pub(crate) fn proves(&self, token: &Token) -> bool {
        // Of outputs of a MAC the comparison takes the same time always.
        let marked = |hash: &SecretHash| {
            let mac = Hmac::<Sha256>::new_from_slice(b"portreeve");
            let mut mac = mac.expect("HMAC takes a key of any length");
            mac.update(&hash.0);
            mac.finalize()
        };
        marked(&self.hash) == marked(&token.hash) && self.kind == TokenKind::of(&token.bearer)
    }
}

/// A token that was just drawn. Its text is shown once, and nowhere kept.
pub(crate) struct Drawn {
    pub(crate) id: TokenId,
    secret: String,
}

impl fmt::Debug for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drawn")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drawn {
    /// A new token.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut id = [0; 8];
        getrandom::fill(&mut id)?;
        Self::anew(TokenId(u64::from_ne_bytes(id)))
    }

    /// Another secret for this one.
    pub(crate) fn anew(id: TokenId) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        let secret = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { id, secret })
    }

    pub(crate) fn hash(&self) -> SecretHash {
        hash_of(&self.secret)
    }

    /// What its bearer keeps.
    pub(crate) fn text(&self, kind: TokenKind) -> String {
        format!("{}{}.{}", kind.prefix(), self.id, self.secret)
    }
}

fn hash_of(secret: &str) -> SecretHash {
    SecretHash(Sha256::digest(secret.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::rights::Owner;
    use portreeve::time::WallClock;
    use proptest::prelude::*;

    fn stored(drawn: &Drawn) -> Token {
        Token {
            hash: drawn.hash(),
            bearer: TokenBearer::Join {
                uses_left: 1,
                relay: false,
            },
            by: Owner {
                user: "root".into(),
                uid: Some(0),
                groups: Vec::new(),
                admin: true,
            },
            created: WallClock::default(),
            expires: None,
            parent: None,
            label: None,
        }
    }

    #[test]
    fn a_text_proves_its_own_token_and_no_other() {
        let drawn = Drawn::new().unwrap();
        let text = drawn.text(TokenKind::Join);
        let shown = Shown::read(&text).unwrap();
        assert_eq!(shown.id, drawn.id);
        assert!(shown.proves(&stored(&drawn)));
        assert!(
            !shown.proves(&stored(&Drawn::anew(drawn.id).unwrap())),
            "another secret"
        );
        let as_user = Shown::read(&drawn.text(TokenKind::User)).unwrap();
        assert!(!as_user.proves(&stored(&drawn)), "another kind");
        for bent in [
            text.to_uppercase(),
            text[..text.len() - 1].to_owned(),
            format!("{text}0"),
            text.replacen("prj1", "prj2", 1),
            text.replacen("prj1.", "prj1", 1),
            format!("{text}\n"),
        ] {
            assert_eq!(Shown::read(&bent), None, "{bent}");
        }
        assert!(
            !format!("{drawn:?}").contains(&text[22..]),
            "no log has the secret"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(pr[tjh]1\\.)?[0-9a-f]{0,17}[.é]?[ -~é]{0,70}") {
            let _ = Shown::read(&text);
        }
    }
}
