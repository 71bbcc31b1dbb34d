//! What this host tells the controller: one full report at join and after each new controller, changes as
//! they happen, and a lease. In the steady state only the lease is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use portreeve::registry::{HostFacts, ReplicaReport};
use portreeve::residency::{ReplicaName, lease};
use portreeve_api::body::{AgentIdentity, Lease, LeaseAsk};
use portreeve_api::{Client, ClientError, paths};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::Config;
use crate::attached;
use crate::clock;
use crate::contact::{self, ContactPage};
use crate::facts::Observed;
use crate::household::Message;

/// How long the controller may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reports and keeps the lease.
pub(crate) struct Uplink {
    pub(crate) config: Arc<Config>,
    pub(crate) identity: AgentIdentity,
    /// How far the clock here was ahead of the controller's at the last lease.
    pub(crate) skew_ms: Option<i64>,
    pub(crate) contact: ContactPage,
    /// How often the controller wants a sign of life.
    pub(crate) period: Duration,
    pub(crate) capabilities: Vec<String>,
    pub(crate) client: Client,
    pub(crate) observed: watch::Receiver<Observed>,
    pub(crate) household: mpsc::Sender<Message>,
    pub(crate) moorage: mpsc::Sender<attached::Message>,
    /// Ends that no worker tells.
    pub(crate) ends: mpsc::UnboundedReceiver<ReplicaReport>,
    /// Somebody found that the controller misses our full report.
    pub(crate) rejoin: Arc<Notify>,
    /// Whether the host is being shut down.
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) joined: watch::Sender<Joined>,
}

/// The controller that has our full report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Random per start of the controller; `None` before the first join.
    pub(crate) instance: Option<String>,
    /// Counts the joins, since one controller may want a second.
    pub(crate) count: u64,
}

impl Uplink {
    /// Tells for ever.
    pub(crate) async fn run(mut self) {
        let mut contact = Contact::default();
        loop {
            let (instance, told) = self.join(&mut contact).await;
            self.joined.send_modify(|joined| {
                joined.instance = Some(instance.clone());
                joined.count += 1;
            });
            self.keep(&instance, told, &mut contact).await;
        }
    }

    /// Tells everything, as often as it takes; returns the controller's instance and what it was told.
    async fn join(&mut self, contact: &mut Contact) -> (String, Observed) {
        loop {
            match self.try_join().await {
                Ok(joined) => {
                    if contact.heard(&self.config) {
                        info!("{} has joined {}", self.config.host, self.config.controller);
                    }
                    return joined;
                }
                Err(cause) => tokio::time::sleep(contact.failed(&cause, self.period)).await,
            }
        }
    }

    async fn try_join(&mut self) -> Result<(String, Observed), ClientError> {
        let observed = self.observed.borrow_and_update().clone();
        let (ask, answer) = oneshot::channel();
        // All fail only while the agent is being stopped.
        _ = self.household.send(Message::Newest(ask)).await;
        let mut replicas = answer.await.unwrap_or_default();
        let (ask, answer) = oneshot::channel();
        _ = self.moorage.send(attached::Message::Newest(ask)).await;
        replicas.extend(answer.await.unwrap_or_default());
        self.report(&observed, replicas, Completeness::Full).await?;
        if *self.closing.borrow_and_update() {
            // A full report alone reads as a host that is there for good.
            self.tell_shutdown().await?;
        }
        Ok((self.lease().await?, observed))
    }

    /// Keeps the lease and tells changes until a full report is due again.
    async fn keep(&mut self, instance: &str, mut told: Observed, contact: &mut Contact) {
        let mut untold: BTreeMap<ReplicaName, ReplicaReport> = BTreeMap::new();
        let mut next_lease = Instant::now() + self.period;
        loop {
            let now = self.observed.borrow_and_update().clone();
            if (now != told || !untold.is_empty()) && contact.is_fine() {
                let reports = untold.values().cloned().collect();
                match self.report(&now, reports, Completeness::Change).await {
                    Ok(()) => {
                        told = now;
                        untold.clear();
                    }
                    // Told again once the lease says that somebody listens.
                    Err(cause) => next_lease = Instant::now() + contact.failed(&cause, self.period),
                }
            }
            tokio::select! {
                () = tokio::time::sleep_until(next_lease) => match self.lease().await {
                    Ok(heard) if heard == instance => {
                        contact.heard(&self.config);
                        next_lease = Instant::now() + self.period;
                    }
                    Ok(_) => {
                        info!("the controller is a new one; it is told everything");
                        return;
                    }
                    Err(ClientError::Refused(problem)) => {
                        warn!("the controller refuses the lease: {}; it is told everything", problem.detail);
                        tokio::time::sleep(contact.failed(&ClientError::Refused(problem), self.period)).await;
                        return;
                    }
                    Err(cause) => next_lease = Instant::now() + contact.failed(&cause, self.period),
                },
                changed = self.observed.changed() => if changed.is_err() { return },
                end = self.ends.recv() => match end {
                    Some(end) => { untold.insert(end.name(), end); }
                    None => return,
                },
                Ok(()) = self.closing.changed() => {
                    if *self.closing.borrow_and_update()
                        && let Err(cause) = self.tell_shutdown().await
                    {
                        warn!("the controller is not told that this host is being shut down: {cause}");
                        tokio::time::sleep(contact.failed(&cause, self.period)).await;
                        // Joined anew, it is told again.
                        return;
                    }
                }
                () = self.contact.is_read() => self.contact.note(),
                () = self.rejoin.notified() => return,
            }
        }
    }

    async fn report(
        &self,
        observed: &Observed,
        replicas: Vec<ReplicaReport>,
        completeness: Completeness,
    ) -> Result<(), ClientError> {
        let names: Vec<_> = replicas.iter().map(ReplicaReport::name).collect();
        let facts = HostFacts {
            host: self.config.host.clone(),
            boot_id: self.identity.boot_id.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            agent: Some(self.identity.clone()),
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
            shutting_down: *self.closing.borrow(),
            conditions: observed.conditions.clone(),
            replicas,
            full: completeness == Completeness::Full,
        };
        let body = serde_json::to_vec(&facts).expect("plain data is written as JSON");
        let path = paths::host_part(&self.config.host, "report");
        self.client
            .send(
                Method::PUT,
                &path,
                Some(body.into()),
                "application/json",
                PATIENCE,
            )
            .await?;
        if !names.is_empty() {
            // Fails only while the agent is being stopped.
            _ = self.household.send(Message::Reported(names)).await;
        }
        Ok(())
    }

    /// Says that nothing is to be placed here any more, and that what is here ends.
    async fn tell_shutdown(&self) -> Result<(), ClientError> {
        let path = paths::host_part(&self.config.host, "shutdown");
        let ask = LeaseAsk {
            agent: Some(self.identity.clone()),
            skew_ms: None,
        };
        let told = self.client.call(Method::POST, &path, &ask, PATIENCE);
        let told: Result<Lease, _> = told.await;
        match told {
            // One that does not know the word: what ends here is told all the same.
            Err(ClientError::Refused(problem)) => {
                warn!(
                    "the controller refuses the word that this host is being shut down: {}",
                    problem.detail
                );
                Ok(())
            }
            told => told.map(drop),
        }
    }

    async fn lease(&mut self) -> Result<String, ClientError> {
        let path = paths::host_part(&self.config.host, "lease");
        let ask = LeaseAsk {
            agent: Some(self.identity.clone()),
            skew_ms: self.skew_ms,
        };
        let asked = clock::Moment::now();
        // The controller counts from when it hears, which is later.
        let sent = contact::now();
        let answered = self.client.call(Method::POST, &path, &ask, PATIENCE);
        let lease: Lease = answered.await?;
        self.contact.heard(sent, lease.host_grace_ms);
        let period = lease.period_ms.map_or(lease::PERIOD, Duration::from_millis);
        self.period = period.clamp(lease::SHORTEST_PERIOD, lease::PERIOD);
        if let Some(skew) = lease.now.and_then(|theirs| asked.skew_ms(theirs)) {
            let is_off = |skew: i64| skew.unsigned_abs() > clock::WARNED_MS;
            if is_off(skew) && !self.skew_ms.is_some_and(is_off) {
                warn!("the clock here is {skew} ms ahead of the controller's; keep both by NTP");
            }
            self.skew_ms = Some(skew);
        }
        Ok(lease.instance)
    }
}

/// Whether a report names every replica that lives here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completeness {
    Full,
    Change,
}

/// Whether the controller answers; its silence and its return are told once each.
#[derive(Debug, Default)]
struct Contact {
    lost: Option<Instant>,
    failures: u32,
    joined: bool,
}

impl Contact {
    /// The first wait after a failure; doubled each time.
    const FIRST: Duration = Duration::from_millis(200);

    const fn is_fine(&self) -> bool {
        self.failures == 0
    }

    /// Notes a failure; how long to wait before the next try, at most as long as between two leases.
    fn failed(&mut self, cause: &ClientError, period: Duration) -> Duration {
        if self.lost.is_none() {
            self.lost = Some(Instant::now());
            warn!("{cause}; services go on, and the controller is tried again");
        }
        self.failures = self.failures.saturating_add(1);
        let doubled = Self::FIRST.saturating_mul(1 << self.failures.min(8));
        doubled.min(period)
    }

    /// Notes an answer; whether it is the first one of all.
    fn heard(&mut self, config: &Config) -> bool {
        self.failures = 0;
        if let Some(lost) = self.lost.take()
            && self.joined
        {
            let silence = lost.elapsed().as_secs();
            info!(
                "the controller at {} answers again after {silence} s",
                config.controller
            );
        }
        !std::mem::replace(&mut self.joined, true)
    }
}
