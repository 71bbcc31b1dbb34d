//! Tokens of a site's issuer (JWT): whose they are by a signature that the controller checks and never makes.
//!
//! Algorithm, key, issuer and audience are fixed by who runs the controller; what a token's head says of them only has to
//! agree. Keys are public ones: with a shared secret whoever checks a token could make one.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use parking_lot::RwLock;
use portreeve::time::WallClock;
use serde_json::{Map, Value};

use crate::app::App;
use crate::site_file::{Follow, SiteFile, SiteFileError};

/// Whose tokens are believed.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// Who has to have made them.
    pub issuer: String,
    /// For whom they have to be.
    pub audience: String,
    /// How they have to be signed.
    pub algorithm: JwtAlgorithm,
    /// The file with the public key, PEM; read again when it changes.
    pub key: PathBuf,
    /// Which claim names the account.
    pub user_claim: String,
    /// Which claim names its groups.
    pub groups_claim: String,
}

/// A way of signing in which who checks cannot sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JwtAlgorithm(Algorithm);

impl FromStr for JwtAlgorithm {
    type Err = ParseJwtAlgorithmError;

    fn from_str(text: &str) -> Result<Self, ParseJwtAlgorithmError> {
        let found = match text {
            "RS256" => Algorithm::RS256,
            "RS384" => Algorithm::RS384,
            "RS512" => Algorithm::RS512,
            "PS256" => Algorithm::PS256,
            "PS384" => Algorithm::PS384,
            "PS512" => Algorithm::PS512,
            "ES256" => Algorithm::ES256,
            "ES384" => Algorithm::ES384,
            "EdDSA" => Algorithm::EdDSA,
            _ => {
                return Err(ParseJwtAlgorithmError {
                    text: text.to_owned(),
                });
            }
        };
        Ok(Self(found))
    }
}

/// A word that names no such way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA")]
pub struct ParseJwtAlgorithmError {
    /// What was written.
    pub text: String,
}

/// Whom a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) until: WallClock,
    /// By which key; with another one it has to be shown again.
    key: u64,
}

impl Claims {
    /// How far clocks may differ before it counts that a token is over, or not yet good.
    pub(crate) const LEEWAY: Duration = Duration::from_secs(60);

    pub(crate) fn is_over(&self, now: WallClock) -> bool {
        now.since(self.until) > Self::LEEWAY
    }
}

/// Checks tokens of the issuer.
pub(crate) struct Jwt {
    config: JwtConfig,
    key: RwLock<(u64, Arc<DecodingKey>)>,
}

impl std::fmt::Debug for Jwt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jwt")
            .field("issuer", &self.config.issuer)
            .finish_non_exhaustive()
    }
}

/// A longer text is none of these tokens.
const MOST_BYTES: usize = 16 << 10;
/// The most groups of one account that count.
const MOST_GROUPS: usize = 1_000;
/// The longest name, in bytes.
const LONGEST_NAME: usize = 256;

impl Jwt {
    /// Reads the key.
    pub(crate) fn open(config: JwtConfig) -> Result<(Self, KeyFile), SiteFileError> {
        let algorithm = config.algorithm;
        let read = |text: &str| key_of(text, algorithm);
        let (file, key) = SiteFile::open(&config.key, "keys of the issuer", read)?;
        let key = RwLock::new((0, Arc::new(key)));
        Ok((Self { config, key }, KeyFile { file, algorithm }))
    }

    /// Whom the token names, if the issuer made it for this controller; whether it is over is not asked here.
    pub(crate) fn verify(&self, text: &str, now: WallClock) -> Option<Claims> {
        if text.len() > MOST_BYTES {
            return None;
        }
        let mut validation = Validation::new(self.config.algorithm.0);
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&[&self.config.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // By the controller's clock, and told with both times.
        validation.validate_exp = false;
        let (number, key) = self.key.read().clone();
        let claims = decode::<Map<String, Value>>(text, &key, &validation)
            .ok()?
            .claims;
        let moment = |name: &str| {
            let seconds = claims.get(name)?.as_f64()?;
            let span = Duration::try_from_secs_f64(seconds).ok()?;
            Some(WallClock::default().after(span))
        };
        if claims.contains_key("nbf") && moment("nbf")?.since(now) > Claims::LEEWAY {
            return None;
        }
        let is_name = |name: &str| {
            (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
        };
        let user = claims.get(&self.config.user_claim)?.as_str()?;
        let groups = match claims.get(&self.config.groups_claim) {
            Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(group)) => vec![group.as_str()],
            _ => Vec::new(),
        };
        let groups = groups.into_iter().filter(|group| is_name(group));
        Some(Claims {
            user: is_name(user).then(|| user.to_owned())?,
            groups: groups.take(MOST_GROUPS).map(str::to_owned).collect(),
            until: moment("exp")?,
            key: number,
        })
    }

    /// Whether the key is still the one by which it was checked.
    pub(crate) fn stands(&self, claims: &Claims) -> bool {
        self.key.read().0 == claims.key
    }
}

fn key_of(text: &str, algorithm: JwtAlgorithm) -> Result<DecodingKey, Vec<String>> {
    let bytes = text.as_bytes();
    let key = match algorithm.0 {
        Algorithm::ES256 | Algorithm::ES384 => DecodingKey::from_ec_pem(bytes),
        Algorithm::EdDSA => DecodingKey::from_ed_pem(bytes),
        _ => DecodingKey::from_rsa_pem(bytes),
    };
    key.map_err(|cause| {
        vec![format!(
            " it has no public key in PEM for {:?}: {cause}",
            algorithm.0
        )]
    })
}

/// The file of the key.
#[derive(Debug)]
pub(crate) struct KeyFile {
    file: SiteFile,
    algorithm: JwtAlgorithm,
}

impl KeyFile {
    /// Has tokens be checked by what the file holds as it is changed; what was checked by another key ends.
    pub(crate) async fn follow(mut self, app: Arc<App>, mut follow: Follow) {
        let algorithm = self.algorithm;
        let read = move |text: &str| key_of(text, algorithm);
        while let Some(key) = self.file.next(read, &mut follow).await {
            if let Some(jwt) = &app.jwt {
                let mut place = jwt.key.write();
                *place = (place.0 + 1, Arc::new(key));
            }
            app.shown.access.send_modify(|number| *number += 1);
        }
    }
}

impl JwtConfig {
    /// The claim that names the account, where nobody says otherwise.
    pub const USER_CLAIM: &str = "sub";
    /// The claim that names its groups.
    pub const GROUPS_CLAIM: &str = "groups";
}

#[cfg(test)]
#[path = "jwt_test.rs"]
mod tests;
