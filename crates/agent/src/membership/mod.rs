//! What this host is known by to its controller: a token of its own, which it got by joining.
//!
//! A token that lets machines join is traded once for the host's, which is on the disk before anything is said under
//! it. An answer that was lost is asked for again: the controller knows the machine. A token that the controller does
//! not know any more ends nothing here; the host tries to join again, if it has what lets it.

mod token_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use portreeve::identity::HostName;
use portreeve::registry::AgentIdentity;
use portreeve_api::body::{JoinAsk, Joined, WhoAmI};
use portreeve_api::{Client, ClientError, paths};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use crate::config::{Config, TokenPlaces};
use token_file::Draft;
pub(crate) use token_file::{TokenFileError, read};

/// How long the controller may take to answer who joins.
const PATIENCE: Duration = Duration::from_secs(20);
/// The rests between tries to reach it: the first, and the longest.
const RESTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The rest after it said no, and between two looks for a token that is not there yet.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How this host stands with its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing is known yet.
    Asking,
    /// It may not speak for itself until somebody does something, which the log says.
    Outside,
    /// It has a token, or needs none.
    Member,
}

/// Keeps the client's token the host's own.
pub(crate) struct Membership {
    places: TokenPlaces,
    host: HostName,
    machine: String,
    client: Client,
    standing: watch::Sender<Standing>,
    refused: Arc<Notify>,
    /// What was said last, so that a rest does not fill the log.
    said: String,
}

/// The word of others that the controller refused the token.
#[derive(Clone, Debug)]
pub(crate) struct Refusals(Arc<Notify>);

impl Refusals {
    /// The controller does not know the token that was borne.
    pub(crate) fn tell(&self) {
        self.0.notify_one();
    }

    /// The same of an answer, if that is what it says.
    pub(crate) fn hear(&self, cause: &ClientError) {
        if matches!(cause, ClientError::Refused(problem) if problem.status == 401) {
            self.tell();
        }
    }
}

/// What tells this machine from every other.
fn machine_of(identity: &AgentIdentity) -> &str {
    // Many containers have no number of their own; two of them must not be taken for one.
    if identity.machine == "-" {
        &identity.folder
    } else {
        &identity.machine
    }
}

impl Membership {
    /// Of this agent; gives too how it stands, and where others tell of refusals.
    pub(crate) fn new(
        config: &Config,
        identity: &AgentIdentity,
        client: Client,
    ) -> (Option<Self>, watch::Receiver<Standing>, Refusals) {
        let refused = Arc::new(Notify::new());
        let (standing, seen) = watch::channel(match config.tokens {
            None => Standing::Member,
            Some(_) => Standing::Asking,
        });
        let membership = config.tokens.clone().map(|places| Self {
            places,
            host: config.host.clone(),
            machine: machine_of(identity).to_owned(),
            client,
            standing,
            refused: refused.clone(),
            said: String::new(),
        });
        (membership, seen, Refusals(refused))
    }

    /// Reads the host's token or joins, and again whenever the token is refused, for ever.
    pub(crate) async fn run(mut self) {
        let mut borne: Option<String> = None;
        let mut rest = RESTS.0;
        loop {
            match self.find(borne.as_deref()).await {
                Ok(token) => {
                    self.client.bear(Some(token.clone()));
                    borne = Some(token);
                    self.standing.send_replace(Standing::Member);
                    self.said.clear();
                    rest = RESTS.0;
                    self.until_unknown().await;
                }
                Err(cause) => {
                    let is_of_the_way = cause.is_of_the_way();
                    if borne.is_none() && !is_of_the_way {
                        self.standing.send_replace(Standing::Outside);
                    }
                    self.say(&cause, borne.is_some());
                    if is_of_the_way {
                        tokio::time::sleep(rest).await;
                        rest = (rest * 2).min(RESTS.1);
                    } else {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                    // The one that was refused stays borne: a controller that was restored may know it again.
                    if borne.is_some() && self.is_known().await {
                        info!("the controller knows the token of this host again");
                        self.said.clear();
                        self.until_unknown().await;
                    }
                }
            }
        }
    }

    /// Returns once the controller refused the token and does so when it is asked.
    async fn until_unknown(&self) {
        loop {
            self.refused.notified().await;
            // The word may be of the token before.
            let asked = self.client.get::<WhoAmI>(&paths::whoami(), PATIENCE).await;
            if matches!(asked, Err(ClientError::Refused(problem)) if problem.status == 401) {
                return;
            }
        }
    }

    async fn is_known(&self) -> bool {
        let asked = self.client.get::<WhoAmI>(&paths::whoami(), PATIENCE).await;
        asked.is_ok()
    }

    fn say(&mut self, cause: &JoinError, was_member: bool) {
        let words = if was_member {
            format!(
                "the controller does not know the token of this host any more (it was revoked, or the host removed); \
                 services go on, and nobody hears of them: {cause}"
            )
        } else {
            format!("this host has not joined: {cause}")
        };
        if self.said != words {
            warn!("{words}");
            self.said = words;
        }
    }

    /// Another token than the one that was refused: from the file, else by joining.
    async fn find(&self, refused: Option<&str>) -> Result<String, JoinError> {
        if let Some(token) = read(&self.places.host)?
            && Some(token.as_str()) != refused
        {
            return Ok(token);
        }
        let Some(path) = &self.places.join else {
            return Err(JoinError::Unnamed);
        };
        trade(
            path,
            &self.places.host,
            &self.host,
            &self.machine,
            &self.client,
            false,
        )
        .await
    }
}

/// Joins in place of another machine that has this host's name, and has the token on the disk; starts nothing.
///
/// # Errors
///
/// [`JoinError`].
pub async fn replace(config: &Config) -> Result<PathBuf, JoinError> {
    let places = config.tokens.as_ref().ok_or(JoinError::Unneeded)?;
    let join = places.join.as_ref().ok_or(JoinError::Unnamed)?;
    let opened = crate::agent::identity_of(config).map_err(|cause| JoinError::State {
        state: config.state.clone(),
        cause,
    })?;
    let machine = machine_of(&opened);
    let client = config.client();
    trade(join, &places.host, &config.host, machine, &client, true).await?;
    Ok(places.host.clone())
}

/// Trades the token in `join` for this host's own, which is on the disk when this returns it.
async fn trade(
    join: &Path,
    own: &Path,
    host: &HostName,
    machine: &str,
    client: &Client,
    replace: bool,
) -> Result<String, JoinError> {
    let token = read(join)?.ok_or_else(|| JoinError::Missing {
        path: join.to_owned(),
    })?;
    let draft = Draft::beside(own)?;
    let ask = JoinAsk {
        host: host.clone(),
        machine_id: machine.to_owned(),
        replace,
    };
    let client = client.clone().with_token(Some(token));
    let joined: Joined = client
        .call(Method::POST, &paths::join(), &ask, PATIENCE)
        .await?;
    let kept = joined.token.clone();
    // On the disk, which may take its time.
    let written = tokio::task::spawn_blocking(move || draft.keep(&kept));
    written.await.expect("writing a file does not panic")?;
    info!("{host} has a token of its own now, in {}", own.display());
    Ok(joined.token)
}

/// Why this host has no token of its own. Nothing that runs here is touched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Nothing lets it join.
    #[error(
        "no token lets it join; `portreeve token create --kind join` makes one, and --join-token-file names its file"
    )]
    Unnamed,
    /// The file that lets it join is not there.
    #[error(
        "{} is not there, which would let it join; `portreeve token create --kind join` makes one",
        path.display()
    )]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The controller sees who asks.
    #[error(
        "the controller is on this machine and sees who asks: no token is needed, and none is replaced"
    )]
    Unneeded,
    /// The file of a token.
    #[error(transparent)]
    File(#[from] TokenFileError),
    /// The state folder cannot be used.
    #[error("the state folder {} cannot be used: {cause}; name another with --data", state.display())]
    State {
        /// The folder.
        state: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// The controller is away, or says no.
    #[error(transparent)]
    Controller(#[from] ClientError),
}

impl JoinError {
    /// Whether the controller was not asked, or did not answer.
    const fn is_of_the_way(&self) -> bool {
        matches!(
            self,
            Self::Controller(ClientError::Unreachable { .. } | ClientError::Timeout { .. })
        )
    }
}
