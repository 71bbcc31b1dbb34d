//! What hosts and their workers say and ask, however it comes in: over REST, or from hosts that live in this process.

use std::sync::Arc;

use bytes::Bytes;
use portreeve::commit::{Desk, Front, Handout, Speaker, Told, Unheard};
use portreeve::identity::HostName;
use portreeve::registry::{
    AgentIdentity, Answer, Command, HostFacts, Input, Limits, Refusal, View,
};
use portreeve::rights::Caller;
use portreeve::supervision::Status;
use portreeve::time::{Now, WallClock};
use portreeve_api::Problem;
use portreeve_api::body::{Lease, LogRead};

use crate::app::App;
use crate::clock;
use crate::reads::Piece;
use crate::rest::counters;
use crate::rest::query::Hold;
use crate::rest::refused::Refused;

/// A way in for hosts and people that live in the controller's process: what is said here is heard as over REST, but
/// for who says it, which nobody checks. Clones lead to the same controller; each keeps its store open.
///
/// A refusal is the [`Problem`] that REST would tell.
#[derive(Clone, Debug)]
pub struct Door(Arc<App>);

impl Door {
    pub(crate) const fn of(app: Arc<App>) -> Self {
        Self(app)
    }

    /// The agent of `host` tells about it; `sent` is what its clock showed then. Returns once readers see it, and once
    /// it is durable if an end is in it.
    ///
    /// # Errors
    ///
    /// [`Problem`]: it is not taken; the host keeps it.
    pub async fn report(
        &self,
        host: &HostName,
        facts: HostFacts,
        sent: Option<WallClock>,
    ) -> Result<Lease, Box<Problem>> {
        counters::count(&self.0.heard.reports);
        Ok(self.0.report(host, facts, sent).await?)
    }

    /// The agent of `host` gives a sign of life.
    ///
    /// # Errors
    ///
    /// [`Problem`]: it is none.
    pub async fn lease(
        &self,
        host: HostName,
        agent: Option<&AgentIdentity>,
        skew_ms: Option<i64>,
    ) -> Result<Lease, Box<Problem>> {
        counters::count(&self.0.heard.leases);
        Ok(self.0.lease(host, agent, skew_ms).await?)
    }

    /// The machine of `host` goes down in order.
    ///
    /// # Errors
    ///
    /// [`Problem`]: that is not known here.
    pub async fn shutdown(
        &self,
        host: HostName,
        agent: Option<&AgentIdentity>,
    ) -> Result<Lease, Box<Problem>> {
        Ok(self.0.shutdown(host, agent).await?)
    }

    /// What is wanted of `host`, once it is another set than that of revision `since`; after at most 30 s in any case.
    /// Who reads a log there is told that it is empty: such a host has none.
    ///
    /// # Errors
    ///
    /// [`Problem`]: the host may not know.
    pub async fn desired(
        &self,
        host: &HostName,
        agent: Option<&AgentIdentity>,
        since: Option<u64>,
    ) -> Result<Wanted, Box<Problem>> {
        let handout = self.0.desired(host, agent, since).await?;
        for read in &handout.errands {
            let piece = Piece {
                offset: 0,
                incarnation: read.incarnation,
                bytes: Bytes::new(),
            };
            self.0.reads.answer(host, read.read, piece);
        }
        Ok(Wanted {
            instance: self.0.instance.clone(),
            handout,
        })
    }

    /// The worker of a replica tells its newest status. Returns as [`Door::report`] does.
    ///
    /// # Errors
    ///
    /// [`Problem`]: it is not taken; the worker keeps it.
    pub async fn status(
        &self,
        speaker: Speaker,
        status: Status,
        sent: Option<WallClock>,
    ) -> Result<Lease, Box<Problem>> {
        counters::count(&self.0.heard.statuses);
        let host = self.0.place_of(&speaker)?;
        Ok(self.0.status(host, speaker, status, sent).await?)
    }

    /// Somebody wants something. Returns once it is durable; `None`: the controller is going down and nothing changed.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: nothing changed.
    pub async fn command(&self, by: Caller, command: Command) -> Option<Result<Answer, Refusal>> {
        self.0.queue.command(by, command).await
    }

    /// Other limits hold from now on.
    pub async fn limit(&self, limits: Limits) {
        let told = Told::news(Input::Limits(Box::new(limits)));
        // One that is going down needs none.
        _ = self.0.queue.tell(told).await;
    }

    /// What readers see now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.0.shown.view.borrow())
    }
}

/// What is wanted of a host.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Random per start of the controller.
    pub instance: String,
    /// The set.
    pub handout: Handout<LogRead>,
}

impl App {
    pub(crate) async fn report(
        &self,
        host: &HostName,
        facts: HostFacts,
        sent: Option<WallClock>,
    ) -> Result<Lease, Refused> {
        let told = self.hear(|front, now, view| front.report(now, host, facts, sent, view))?;
        self.tell(told).await
    }

    pub(crate) async fn lease(
        &self,
        host: HostName,
        agent: Option<&AgentIdentity>,
        skew_ms: Option<i64>,
    ) -> Result<Lease, Refused> {
        let told = self.hear(|front, now, view| front.lease(now, host, agent, skew_ms, view))?;
        self.tell(told).await
    }

    pub(crate) async fn shutdown(
        &self,
        host: HostName,
        agent: Option<&AgentIdentity>,
    ) -> Result<Lease, Refused> {
        let told = self.hear(|front, now, view| front.shutdown(now, host, agent, view))?;
        self.tell(told).await
    }

    pub(crate) async fn desired(
        &self,
        host: &HostName,
        agent: Option<&AgentIdentity>,
        since: Option<u64>,
    ) -> Result<Handout<LogRead>, Refused> {
        self.hear(|front, now, view| front.asks(now, host, agent, view))?;
        let desk = self.shown.desks.of(host);
        let mut bell = desk.subscribe();
        let hold = Hold {
            since,
            wait: Desk::<LogRead>::HOLD,
        };
        let handout = self.held(hold, &mut bell, || desk.take(since)).await;
        Ok(handout.unwrap_or_else(|| desk.take_all()))
    }

    /// Where the incarnation that a worker speaks for is.
    pub(crate) fn place_of(&self, speaker: &Speaker) -> Result<HostName, Refused> {
        let view = Arc::clone(&self.shown.view.borrow());
        let place = speaker.place(&view, |speaker| self.shown.desks.told_of(speaker));
        place.map_err(Refused::from)
    }

    pub(crate) async fn status(
        &self,
        host: HostName,
        speaker: Speaker,
        status: Status,
        sent: Option<WallClock>,
    ) -> Result<Lease, Refused> {
        let told = Told::status(clock::wall(), host, speaker, status, sent);
        self.tell(told).await
    }

    /// Every acknowledgement names the controller's instance, so that a change of it is seen soon.
    pub(crate) fn acknowledged(&self) -> Lease {
        Lease {
            instance: self.instance.clone(),
            now: Some(clock::wall()),
            host_grace_ms: u64::try_from(self.terms.host_grace.as_millis()).ok(),
            period_ms: u64::try_from(self.terms.lease_period.as_millis()).ok(),
        }
    }

    async fn tell(&self, told: Told) -> Result<Lease, Refused> {
        self.queue.tell(told).await?;
        Ok(self.acknowledged())
    }

    /// Has the front listen to somebody.
    fn hear<T>(
        &self,
        listen: impl FnOnce(&mut Front, Now, &View) -> Result<T, Unheard>,
    ) -> Result<T, Refused> {
        let view = Arc::clone(&self.shown.view.borrow());
        let heard = listen(&mut self.front.lock(), clock::now(), &view);
        heard.map_err(Refused::from)
    }
}
