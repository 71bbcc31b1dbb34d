//! What `make fuzz` calls of this crate that nobody else may: readers of bytes that others wrote, and a whole controller
//! without a connection.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use jsonwebtoken::crypto::sign;
use jsonwebtoken::{Algorithm, EncodingKey};
use portreeve::time::Utc;
use portreeve_api::site_profiles::SiteFolder;

use crate::backup::Backup;
use crate::jwt::Jwt;
use crate::peer::Peer;
use crate::rest::Api;
use crate::secret::Shown;
use crate::token::TokenKey;
use crate::{Config, Controller, JwtConfig, bindings, clock, limits_file};

/// What `text` speaks for, where `key` signs it; signed anew if it is no token but what one claims.
#[must_use]
pub fn token(text: &str) -> Option<String> {
    TokenKey::read_and_signed(text)
}

/// Reads a file of limits; how many problems it has.
#[must_use]
pub fn limits(text: &str) -> usize {
    limits_file::problems(text)
}

/// Reads a file of rights; how many problems it has.
#[must_use]
pub fn rights(text: &str) -> usize {
    bindings::problems(text)
}

/// The id of the stored token that the text says it is.
#[must_use]
pub fn stored_token(text: &str) -> Option<String> {
    Shown::read(text).map(|shown| shown.id.to_string())
}

/// An issuer of tokens, and who checks them.
#[expect(missing_debug_implementations, reason = "it holds a key")]
pub struct Issuer {
    jwt: Jwt,
    key: EncodingKey,
}

// Made for this with `openssl genpkey`; they protect nothing.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIGrRMHXwEV/TRBdY/bsqnGcY5t0oX8SRHuUTHJ7ztbMJ\n-----END PRIVATE KEY-----\n";
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAF1jNyNDVUFJsESYoBRT6d+BXft16lldP+ZNnZQ8jCQE=\n-----END PUBLIC KEY-----\n";

impl Issuer {
    /// Writes its public key into the folder.
    ///
    /// # Panics
    ///
    /// If that fails.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        let path = folder.join("issuer.pem");
        std::fs::write(&path, PUBLIC_KEY).expect("the folder can be written");
        let config = JwtConfig {
            issuer: "i".to_owned(),
            audience: "a".to_owned(),
            algorithm: "EdDSA".parse().expect("a known way"),
            key: path,
            user_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
        };
        Self {
            jwt: Jwt::open(config).expect("the key is one").0,
            key: EncodingKey::from_ed_pem(KEY.as_bytes()).expect("the key is one"),
        }
    }

    /// Whom the text names, with groups, and when it ends.
    #[must_use]
    pub fn named(&self, text: &str) -> Option<(String, Vec<String>, String)> {
        let claims = self.jwt.verify(text, clock::wall())?;
        Some((claims.user, claims.groups, Utc(claims.until).to_string()))
    }

    /// A token with this head and these claims, whatever they are, rightly signed.
    #[must_use]
    pub fn signed(&self, head: &[u8], claims: &[u8]) -> Option<String> {
        let text = format!("{}.{}", in_base64(head), in_base64(claims));
        let signature = sign(text.as_bytes(), &self.key, Algorithm::EdDSA).ok()?;
        Some(format!("{text}.{signature}"))
    }
}

/// In the letters of URLs, without padding.
fn in_base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let at = |nth: usize| u32::from(three.get(nth).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for nth in 0..=three.len() as u32 {
            let letter = bits >> (18 - 6 * nth) & 63;
            text.push(char::from(LETTERS[letter as usize]));
        }
    }
    text
}

/// Reads a backup: the bytes, and the same as its packed lines with the right end.
pub fn backup(bytes: &[u8]) {
    let _ = Backup::read(bytes);
    Backup::read_lines(bytes);
}

/// A whole controller in a folder, which is asked without a connection.
#[derive(Debug)]
pub struct Rest {
    controller: Controller,
    api: Api,
}

/// What came back; of what takes longer, or has no end, nothing.
#[derive(Debug)]
pub struct Answered {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl Rest {
    /// Begins anew in the folder, which is empty.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn start(folder: &Path) -> Self {
        let config = Config {
            networks: portreeve::host_addr::Networks::default(),
            data: folder.join("data"),
            socket: folder.join("run/controller.sock"),
            listen: Vec::new(),
            single_host: true,
            cooling: Duration::from_secs(60),
            coalesce: Duration::ZERO,
            silence: portreeve::registry::Silence::default(),
            new_epoch: false,
            site_profiles: SiteFolder::at(None),
            max_connections: None,
            max_streams: None,
            requests_per_second: Some(u32::MAX / 16),
            limits: None,
            tls: None,
            insecure: false,
            rights: None,
            jwt: None,
            audit: None,
        };
        let controller = Controller::start(config).await.expect("it starts");
        let api = Api::new(Arc::clone(&controller.app));
        Self { controller, api }
    }

    /// Asks as the user of this number.
    pub async fn ask(
        &self,
        uid: u32,
        mut request: Request<Vec<u8>>,
        patience: Duration,
    ) -> Option<Answered> {
        let peer = Arc::new(Peer::Unix { uid });
        request.extensions_mut().insert(peer);
        let answered = async {
            let response = self.api.answer(request.map(Body::from)).await;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.ok()?.to_bytes().to_vec();
            Some(Answered {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        tokio::time::timeout(patience, answered).await.ok()?
    }

    /// Ends it.
    pub async fn stop(self) {
        drop(self.api);
        self.controller.stop().await;
    }
}
