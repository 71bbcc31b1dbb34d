//! What the controller wants of this host: one long poll, the whole set each time.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{Method, StatusCode};
use portreeve::residency::uplink::POLL_PATIENCE;
use portreeve_api::body::{AgentIdentity, DesiredSet, LogRead};
use portreeve_api::{Client, ClientError, paths};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Config;
use crate::attached;
use crate::household::Message;
use crate::log_read;

/// Asks for sets and hands them over.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) config: Arc<Config>,
    pub(crate) identity: AgentIdentity,
    pub(crate) client: Client,
    pub(crate) household: mpsc::Sender<Message>,
    pub(crate) moorage: mpsc::Sender<attached::Message>,
}

/// Pieces of logs that are being read.
#[derive(Default)]
pub(crate) struct Reads {
    known: BTreeSet<u64>,
    running: JoinSet<()>,
}

impl Orders {
    /// Hands over what is to be acted on, then asks for what differs from `since`; `None`: nothing did for as long as the
    /// controller holds the question.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub(crate) async fn ask(
        self,
        news: Option<DesiredSet>,
        since: Option<u64>,
    ) -> Result<Option<Box<DesiredSet>>, ClientError> {
        if let Some(news) = news {
            self.hand_over(news).await;
        }
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
            .send(Method::GET, &path, None, "application/json", POLL_PATIENCE)
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

    async fn hand_over(&self, mut set: DesiredSet) {
        let (attached, own) = set
            .replicas
            .into_iter()
            .partition(|one| one.desired.attached);
        set.replicas = own;
        // Both fail only while the agent is being stopped.
        _ = self.moorage.send(attached::Message::Wanted(attached)).await;
        _ = self.household.send(Message::Wanted(Box::new(set))).await;
    }
}

impl Reads {
    /// Whether some of these were not begun before.
    pub(crate) fn are_news(&self, reads: &[LogRead]) -> bool {
        reads.iter().any(|read| !self.known.contains(&read.read))
    }

    /// Begins those of these that were not begun before.
    pub(crate) fn begin(&mut self, reads: &[LogRead], config: &Arc<Config>, client: &Client) {
        while self.running.try_join_next().is_some() {}
        let wanted: BTreeSet<u64> = reads.iter().map(|read| read.read).collect();
        self.known.retain(|read| wanted.contains(read));
        for read in reads {
            if self.known.insert(read.read) {
                let answer = log_read::answer(read.clone(), config.clone(), client.clone());
                self.running.spawn(answer);
            }
        }
    }

    /// Numbers count anew; what is being read goes on.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}
