//! What an agent here would be known by, and what the controller makes of it.

use std::path::PathBuf;

use portreeve::time::Utc;
use portreeve_api::Problem;
use portreeve_api::body::WhoAmI;

use super::Finding;
use crate::config::Config;
use crate::membership::{JoinError, read};

const WHAT: &str = "token";

/// What it would show.
pub(super) enum Credential {
    /// None: the controller sees who asks.
    None,
    /// The host's own token, from this file.
    Own(PathBuf, String),
    /// One that lets it join.
    Join(PathBuf, String),
}

/// The first of them that is there, as an agent that starts takes it.
///
/// # Errors
///
/// Why there is none, or why it cannot be read.
pub(super) fn of(config: &Config) -> Result<Credential, JoinError> {
    let Some(places) = &config.tokens else {
        return Ok(Credential::None);
    };
    if let Some(token) = read(&places.host)? {
        return Ok(Credential::Own(places.host.clone(), token));
    }
    let path = places.join.clone().ok_or(JoinError::Unnamed)?;
    match read(&path)? {
        Some(token) => Ok(Credential::Join(path, token)),
        None => Err(JoinError::Missing { path }),
    }
}

impl Credential {
    /// Its text.
    pub(super) fn token(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Own(_, token) | Self::Join(_, token) => Some(token.clone()),
        }
    }

    /// What the controller's answer says of it; `None`: it is no token.
    pub(super) fn known(&self, config: &Config, who: &WhoAmI) -> Option<Finding> {
        let ends = who.expires_at.map_or_else(
            || "it does not expire".to_owned(),
            |at| format!("until {}", Utc(at)),
        );
        Some(match self {
            Self::None => return None,
            Self::Own(path, _) if who.host.as_ref() == Some(&config.host) => Finding::ok(
                WHAT,
                format!("{} is that of host {}; {ends}", path.display(), config.host),
            ),
            Self::Own(path, _) => Finding::not_ready(
                WHAT,
                format!(
                    "{} is that of {}, and this host is {}; name it with --host, or remove the file and join anew",
                    path.display(),
                    who.user,
                    config.host
                ),
            ),
            Self::Join(path, _) if who.role == "join" => Finding::ok(
                WHAT,
                format!("{} lets this host join, {ends}", path.display()),
            ),
            Self::Join(path, _) => Finding::not_ready(
                WHAT,
                format!(
                    "{} lets no host join: it is that of {}; `portreeve token create --kind join` makes one that does",
                    path.display(),
                    who.user
                ),
            ),
        })
    }

    /// What it means that the controller does not know it.
    pub(super) fn refused(&self, config: &Config, problem: &Problem) -> Finding {
        let words = match self {
            Self::None => format!(
                "{}; have this host join with --join-token-file",
                problem.detail
            ),
            Self::Join(path, _) => format!("{}: {}", path.display(), problem.detail),
            Self::Own(path, _) => {
                let join = config.tokens.as_ref().and_then(|it| it.join.as_ref());
                let next = match join {
                    Some(join) if join.exists() => {
                        format!("an agent here would join again, with {}", join.display())
                    }
                    _ => "have it join again with --join-token-file".to_owned(),
                };
                let words = format!("{}: {}; {next}", path.display(), problem.detail);
                return if join.is_some_and(|it| it.exists()) {
                    Finding::warning(WHAT, words)
                } else {
                    Finding::not_ready(WHAT, words)
                };
            }
        };
        Finding::not_ready(WHAT, words)
    }
}
