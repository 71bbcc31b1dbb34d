//! What the controller wants of this host: one long poll, the whole set each time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use portreeve_api::body::{AgentIdentity, DesiredSet};
use portreeve_api::{Client, ClientError, paths};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tracing::debug;

use crate::Config;
use crate::attached;
use crate::household::Message;
use crate::log_read;
use crate::uplink::Joined;

/// The controller holds the poll up to 30 s; a poll without an answer after this is given up.
const PATIENCE: Duration = Duration::from_secs(45);
/// The wait after an answer that again cannot be acted on, so that no misunderstanding becomes a busy loop.
const PAUSE: Duration = Duration::from_secs(1);
/// The wait before a set is asked for again that holds nothing new.
const BREATH: Duration = Duration::from_millis(200);

/// Holds the long poll.
pub(crate) struct Orders {
    pub(crate) config: Arc<Config>,
    pub(crate) identity: AgentIdentity,
    pub(crate) client: Client,
    pub(crate) joined: watch::Receiver<Joined>,
    pub(crate) rejoin: Arc<Notify>,
    pub(crate) household: mpsc::Sender<Message>,
    pub(crate) moorage: mpsc::Sender<attached::Message>,
    pub(crate) reads: Reads,
    /// Answers in a row that could not be acted on.
    pub(crate) unfit: u32,
}

/// Pieces of logs that are being read.
#[derive(Default)]
pub(crate) struct Reads {
    known: BTreeSet<u64>,
    running: JoinSet<()>,
}

impl Orders {
    /// Polls for ever.
    pub(crate) async fn run(mut self) {
        let mut joins = self.joined.clone();
        loop {
            let joined = joins.borrow_and_update().clone();
            let polled = async {
                match joined.instance {
                    Some(instance) => self.poll(&instance).await,
                    None => std::future::pending().await,
                }
            };
            // A new controller counts anew: the poll at the old one is given up.
            let news = tokio::select! {
                news = joins.changed() => news,
                () = polled => joins.changed().await,
            };
            if news.is_err() {
                return;
            }
        }
    }

    /// Polls one controller until it wants a full report.
    async fn poll(&mut self, instance: &str) {
        let mut since = None;
        // Another controller counts its readers anew.
        self.reads.known.clear();
        loop {
            match self.ask(since).await {
                Ok(None) => {}
                Ok(Some(set)) if set.instance != instance || set.report_first => {
                    debug!("the controller wants a full report first");
                    return self.ask_for_rejoin().await;
                }
                Ok(Some(mut set)) => {
                    self.unfit = 0;
                    let news = since != Some(set.revision);
                    since = Some(set.revision);
                    let read = self.reads.begin(&set, &self.config, &self.client);
                    if news {
                        let (attached, own) = set
                            .replicas
                            .into_iter()
                            .partition(|one| one.desired.attached);
                        set.replicas = own;
                        // Both fail only while the agent is being stopped.
                        _ = self.moorage.send(attached::Message::Wanted(attached)).await;
                        _ = self.household.send(Message::Wanted(Box::new(set))).await;
                    } else if !read {
                        tokio::time::sleep(BREATH).await;
                    }
                }
                Err(ClientError::Refused(problem)) => {
                    debug!("the controller refuses the wanted set: {}", problem.detail);
                    return self.ask_for_rejoin().await;
                }
                // The lease says it to people.
                Err(cause) => {
                    debug!("no wanted set: {cause}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// At once the first time; after that a full report seems not to be what it takes.
    async fn ask_for_rejoin(&mut self) {
        if self.unfit > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        self.unfit = self.unfit.saturating_add(1);
        self.rejoin.notify_one();
    }

    async fn ask(&self, since: Option<u64>) -> Result<Option<DesiredSet>, ClientError> {
        // What is wanted of another agent of this name must not be acted on here.
        let agent = self.identity.to_string();
        let since = since.map(|since: u64| since.to_string());
        let since = since.as_deref().map(|since| ("since", since));
        let parameters: Vec<_> = since
            .into_iter()
            .chain([("agent", agent.as_str())])
            .collect();
        let path = paths::host_part(&self.config.host, "desired");
        let path = paths::with_parameters(&path, &parameters);
        let reply = self
            .client
            .send(Method::GET, &path, None, "application/json", PATIENCE)
            .await?;
        if reply.status == StatusCode::NOT_MODIFIED || reply.body.is_empty() {
            return Ok(None);
        }
        let set = serde_json::from_slice(&reply.body);
        set.map(Some).map_err(|cause| ClientError::Garbled {
            target: self.config.controller.clone(),
            reason: cause.to_string(),
        })
    }
}

impl Reads {
    /// Begins the reads of this set that were not begun before; whether there are any.
    fn begin(&mut self, set: &DesiredSet, config: &Arc<Config>, client: &Client) -> bool {
        while self.running.try_join_next().is_some() {}
        let wanted: BTreeSet<u64> = set.reads.iter().map(|read| read.read).collect();
        self.known.retain(|read| wanted.contains(read));
        let mut begun = false;
        for read in &set.reads {
            if self.known.insert(read.read) {
                begun = true;
                let answer = log_read::answer(read.clone(), config.clone(), client.clone());
                self.running.spawn(answer);
            }
        }
        begun
    }
}
