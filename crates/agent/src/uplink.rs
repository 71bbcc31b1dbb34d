//! The line to the controller: what [`portreeve::residency::Uplink`] says is sent, and it is told what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use portreeve::registry::{HostFacts, ReplicaReport};
use portreeve::residency::uplink::{Fitness, News, PATIENCE, Renewal, SetHead};
use portreeve::residency::{self, Outgoing, ReplicaName};
use portreeve_api::body::{AgentIdentity, DesiredSet, Lease, LeaseAsk};
use portreeve_api::{Client, ClientError, paths};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, info, warn};

use crate::Config;
use crate::attached;
use crate::clock;
use crate::contact::ContactPage;
use crate::facts::Observed;
use crate::household::Message;
use crate::membership::Refusals;
use crate::orders::{Orders, Reads};

/// Reports, keeps the lease and hears of orders.
pub(crate) struct Uplink {
    config: Arc<Config>,
    identity: AgentIdentity,
    capabilities: Vec<String>,
    client: Client,
    rules: Rules,
    contact: ContactPage,
    observed: watch::Receiver<Observed>,
    household: mpsc::Sender<Message>,
    moorage: mpsc::Sender<attached::Message>,
    /// Ends that no worker tells.
    ends: mpsc::UnboundedReceiver<ReplicaReport>,
    /// Whether the host is being shut down.
    closing: watch::Receiver<bool>,
    refusals: Refusals,
    orders: Orders,
    reads: Reads,
    /// What is to be acted on, handed over before the next set is asked for.
    news: Option<DesiredSet>,
    calls: JoinSet<Came>,
    poll: Option<AbortHandle>,
}

type Rules = residency::Uplink<Arc<Observed>, ReplicaReport>;
type Out = Outgoing<Arc<Observed>, ReplicaReport>;

/// What it is connected to.
pub(crate) struct Channels {
    pub(crate) contact: ContactPage,
    pub(crate) observed: watch::Receiver<Observed>,
    pub(crate) household: mpsc::Sender<Message>,
    pub(crate) moorage: mpsc::Sender<attached::Message>,
    pub(crate) ends: mpsc::UnboundedReceiver<ReplicaReport>,
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) refusals: Refusals,
}

/// What came of a call.
enum Came {
    Gathered(BTreeMap<ReplicaName, ReplicaReport>),
    Told(u64, Result<Option<Lease>, ClientError>),
    Wanted(u64, Result<Option<Box<DesiredSet>>, ClientError>),
}

impl Uplink {
    pub(crate) fn new(
        config: Arc<Config>,
        identity: AgentIdentity,
        capabilities: Vec<String>,
        client: Client,
        mut channels: Channels,
    ) -> Self {
        let observed = channels.observed.borrow_and_update().clone();
        let orders = Orders {
            config: config.clone(),
            identity: identity.clone(),
            client: client.clone(),
            household: channels.household.clone(),
            moorage: channels.moorage.clone(),
        };
        Self {
            config,
            identity,
            capabilities,
            client,
            rules: Rules::new(Arc::new(observed)),
            contact: channels.contact,
            observed: channels.observed,
            household: channels.household,
            moorage: channels.moorage,
            ends: channels.ends,
            closing: channels.closing,
            refusals: channels.refusals,
            orders,
            reads: Reads::default(),
            news: None,
            calls: JoinSet::new(),
            poll: None,
        }
    }

    /// Tells and asks for ever.
    pub(crate) async fn run(mut self) {
        let mut out = Vec::new();
        loop {
            self.rules.on_deadline(clock::now(), &mut out);
            self.act(&mut out, None).await;
            let deadline = self.rules.next_deadline();
            tokio::select! {
                Some(came) = self.calls.join_next() => match came {
                    Ok(came) => self.hear(came).await,
                    // A poll that was given up.
                    Err(cause) if cause.is_cancelled() => {}
                    Err(cause) => std::panic::resume_unwind(cause.into_panic()),
                },
                () = clock::reached(deadline) => {}
                changed = self.observed.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let observed = Arc::new(self.observed.borrow_and_update().clone());
                    self.rules.observed(clock::now(), observed, &mut out);
                }
                end = self.ends.recv() => match end {
                    Some(end) => self.rules.ended(clock::now(), end.name(), end, &mut out),
                    None => return,
                },
                Ok(()) = self.closing.changed() => {
                    if *self.closing.borrow_and_update() {
                        self.rules.close(clock::now(), &mut out);
                    }
                }
                () = self.contact.is_read() => self.contact.note(),
            }
            self.act(&mut out, None).await;
        }
    }

    async fn hear(&mut self, came: Came) {
        let mut out = Vec::new();
        let now = clock::now();
        let failed = match came {
            Came::Gathered(replicas) => {
                self.rules.gathered(now, replicas, &mut out);
                None
            }
            Came::Told(no, Ok(lease)) => {
                let renewal = lease.as_ref().map(renewal_of);
                self.rules.taken(now, no, renewal.as_ref(), &mut out);
                None
            }
            Came::Wanted(no, Ok(set)) => {
                self.hear_set(no, set, &mut out);
                None
            }
            Came::Told(no, Err(cause)) | Came::Wanted(no, Err(cause)) => {
                debug!("the controller does not do as it is asked: {cause}");
                self.refusals.hear(&cause);
                match &cause {
                    ClientError::Refused(_) => self.rules.refused(now, no, &mut out),
                    _ => self.rules.unanswered(now, no, &mut out),
                }
                Some(cause)
            }
        };
        self.act(&mut out, failed.as_ref()).await;
    }

    fn hear_set(&mut self, no: u64, set: Option<Box<DesiredSet>>, out: &mut Vec<Out>) {
        let head = set.as_ref().map(|set| SetHead {
            instance: &set.instance,
            revision: set.revision,
            report_first: set.report_first,
        });
        let reads = set
            .as_ref()
            .is_some_and(|set| self.reads.are_news(&set.reads));
        let fitness = self
            .rules
            .wanted(clock::now(), no, head.as_ref(), reads, out);
        let Some(set) = set else { return };
        if matches!(fitness, Fitness::News | Fitness::Known) {
            self.reads.begin(&set.reads, &self.config, &self.client);
        }
        if fitness == Fitness::News {
            self.news = Some(*set);
        }
    }

    /// Does what the rules say; `cause`: why the controller did not do as it was asked, if it did not.
    async fn act(&mut self, out: &mut Vec<Out>, cause: Option<&ClientError>) {
        for out in out.drain(..) {
            match out {
                Outgoing::Gather => self.gather(),
                Outgoing::Report {
                    no,
                    seq,
                    observed,
                    replicas,
                    full,
                } => {
                    let replicas = replicas.into_values().collect();
                    let mut facts = self.facts(&observed, replicas, full);
                    facts.seq = Some(seq);
                    self.report(no, &facts);
                }
                Outgoing::Lease { no, skew_ms } => self.call(no, "lease", skew_ms),
                Outgoing::Shutdown { no } => self.call(no, "shutdown", None),
                Outgoing::Wanted { no, since } => {
                    let ask = self.orders.clone().ask(self.news.take(), since);
                    let poll = async move { Came::Wanted(no, ask.await) };
                    if let Some(earlier) = self.poll.replace(self.calls.spawn(poll)) {
                        earlier.abort();
                    }
                }
                Outgoing::Acknowledged(names) => {
                    // Fails only while the agent is being stopped.
                    _ = self.household.send(Message::Reported(names)).await;
                }
                Outgoing::Contact { at, grace } => self.contact.heard(at, grace),
                Outgoing::News(news) => self.say(news, cause),
            }
        }
    }

    /// Everything that lives here, as those know it who keep it.
    fn gather(&mut self) {
        let (household, moorage) = (self.household.clone(), self.moorage.clone());
        self.calls.spawn(async move {
            // All fail only while the agent is being stopped.
            let (ask, answer) = oneshot::channel();
            _ = household.send(Message::Newest(ask)).await;
            let mut replicas = answer.await.unwrap_or_default();
            let (ask, answer) = oneshot::channel();
            _ = moorage.send(attached::Message::Newest(ask)).await;
            replicas.extend(answer.await.unwrap_or_default());
            let named = replicas.into_iter().map(|one| (one.name(), one));
            Came::Gathered(named.collect())
        });
    }

    fn facts(&self, observed: &Observed, replicas: Vec<ReplicaReport>, full: bool) -> HostFacts {
        HostFacts {
            host: self.config.host.clone(),
            boot_id: self.identity.boot_id.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            agent: Some(self.identity.clone()),
            seq: None,
            addresses: observed.addresses.clone(),
            unusable: observed.unusable.clone(),
            published: observed.published,
            address_rule: observed.address_rule.clone(),
            dynamic: self.config.drawn(&observed.ephemeral),
            fixed: self.config.fixed.clone(),
            reserved: self.config.reserved.clone(),
            ephemeral: observed.ephemeral.clone(),
            foreign: observed.foreign.clone(),
            labels: self.config.labels.clone(),
            owner: self.config.owner,
            capabilities: self.capabilities.clone(),
            shutting_down: self.rules.is_closing(),
            conditions: observed.conditions.clone(),
            replicas,
            full,
        }
    }

    fn report(&mut self, no: u64, facts: &HostFacts) {
        let body = serde_json::to_vec(facts).expect("plain data is written as JSON");
        let path = paths::host_part(&self.config.host, "report");
        let client = self.client.clone();
        self.calls.spawn(async move {
            let json = "application/json";
            let sent = client.send(Method::PUT, &path, Some(body.into()), json, PATIENCE);
            Came::Told(no, sent.await.map(|_| None))
        });
    }

    /// What is answered by a lease.
    fn call(&mut self, no: u64, what: &str, skew_ms: Option<i64>) {
        let path = paths::host_part(&self.config.host, what);
        let ask = LeaseAsk {
            agent: Some(self.identity.clone()),
            skew_ms,
        };
        let client = self.client.clone();
        self.calls.spawn(async move {
            let answer = client.call(Method::POST, &path, &ask, PATIENCE);
            Came::Told(no, answer.await.map(Some))
        });
    }

    fn say(&mut self, news: News, cause: Option<&ClientError>) {
        let (host, controller) = (&self.config.host, &self.config.controller);
        let cause = cause.map(ToString::to_string).unwrap_or_default();
        match news {
            News::Joined => info!("{host} has joined {controller}"),
            // Another controller counts its readers anew.
            News::Told => self.reads.forget(),
            News::Lost => warn!("{cause}; services go on, and the controller is tried again"),
            News::Found(silence) => {
                let silence = silence.as_secs();
                info!("the controller at {controller} answers again after {silence} s");
            }
            News::NewController => info!("the controller is a new one; it is told everything"),
            News::ChangeRefused => {
                warn!("the controller refuses what changed here: {cause}; it is told again");
            }
            News::LeaseRefused => {
                warn!("the controller refuses the lease: {cause}; it is told everything");
            }
            News::ShutdownUntold => {
                warn!("the controller is not told that this host is being shut down: {cause}");
            }
            News::ShutdownRefused => {
                warn!("the controller refuses the word that this host is being shut down: {cause}");
            }
            News::ReportFirst => debug!("the controller wants a full report first"),
            News::Skewed(skew) => {
                warn!("the clock here is {skew} ms ahead of the controller's; keep both by NTP");
            }
        }
    }
}

fn renewal_of(lease: &Lease) -> Renewal<'_> {
    Renewal {
        instance: &lease.instance,
        period: lease.period_ms.map(Duration::from_millis),
        grace: lease.host_grace_ms.map(Duration::from_millis),
        now: lease.now,
    }
}
