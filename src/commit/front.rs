//! What agents and workers say to the controller: who is listened to, what of it is taken, and when they may forget it.

use std::net::IpAddr;
use std::time::Duration;

use crate::identity::{HostName, ServiceId};
use crate::registry::{
    AgentIdentity, HostFacts, Input, ReplicaReport, SeatTaken, Seats, Silence, View,
};
use crate::residency::{ReplicaName, lease};
use crate::supervision::{State, Status};
use crate::time::{Monotonic, Now, WallClock};

/// Listens to the agents and workers of all hosts.
#[derive(Debug)]
pub struct Front {
    terms: Terms,
    seats: Seats,
}

/// What holds for every host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// All on one machine: hosts may publish loopback addresses.
    pub single_host: bool,
    /// How often hosts are to give a sign of life.
    pub lease_period: Duration,
    /// How long the silence of a host is forgiven, as its agent is told.
    pub host_grace: Duration,
}

/// Something for [`super::Rounds::tell`].
#[derive(Clone, Debug)]
pub struct Told {
    /// What is told.
    pub input: Input,
    /// Whether who tells it may forget it only once what it changes is durable.
    pub is_truth: bool,
}

/// The incarnation that a worker speaks for, as its token proves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speaker {
    /// Which one.
    pub name: ReplicaName,
    /// The number of its service: a token dies with its service and not only with its name.
    pub service_id: ServiceId,
}

impl Terms {
    /// The terms of a site where silence counts so.
    ///
    /// # Errors
    ///
    /// [`GraceTooShort`] if a host could be given up whose agent was only started anew.
    pub fn new(silence: &Silence, single_host: bool) -> Result<Self, GraceTooShort> {
        let lease_period = lease::period_for(silence.suspect_after());
        let parts = lease::restart_and_rejoin(lease_period);
        let host_grace = silence.host_grace();
        if host_grace <= parts.iter().map(|(_, part)| *part).sum() {
            return Err(GraceTooShort {
                host_grace,
                parts: parts.into(),
            });
        }
        Ok(Self {
            single_host,
            lease_period,
            host_grace,
        })
    }

    /// Takes out what no host may publish.
    fn correct(&self, facts: &mut HostFacts) {
        if facts.published.is_some_and(|ip| ip.is_loopback()) && !self.single_host {
            facts.published = None;
            facts.address_rule += "; loopback is published only where single_host is set";
        }
        // No client could reach it, whatever rule an agent went by.
        if facts
            .published
            .is_some_and(|ip| ip.is_unspecified() || ip.is_multicast())
        {
            facts.published = None;
            facts.address_rule += "; a wildcard or multicast address is never published";
        }
    }
}

impl Front {
    /// Of a controller that starts now and whose readers see `view`: who was there before comes back before anybody
    /// else has the name.
    #[must_use]
    pub fn new(terms: Terms, view: &View, now: Monotonic) -> Self {
        let mut seats = Seats::default();
        for host in view.hosts.values() {
            if let Some(agent) = &host.agent {
                seats.expect(host.host.clone(), agent.clone(), now);
            }
        }
        Self { terms, seats }
    }

    /// What holds for every host.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The agent of `host` tells about it; `sent` is what its clock showed then.
    ///
    /// # Errors
    ///
    /// [`Unheard`]: nothing of it is taken.
    pub fn report(
        &mut self,
        now: Now,
        host: &HostName,
        mut facts: HostFacts,
        sent: Option<WallClock>,
        view: &View,
    ) -> Result<Told, Unheard> {
        let hosts = facts.replicas.iter().map(|replica| &replica.host);
        if let Some(told) = hosts.chain([&facts.host]).find(|told| *told != host) {
            let told = told.clone();
            let asked = host.clone();
            return Err(Unheard::OtherHost { asked, told });
        }
        if let Some(ahead_ms) = sent.and_then(|sent| ahead(now.wall, sent)) {
            for replica in &mut facts.replicas {
                replica.status = replica.status.clone().by_a_clock_behind(ahead_ms);
            }
        }
        self.terms.correct(&mut facts);
        if let Some(agent) = &facts.agent {
            self.seat(now, host, agent, view)?;
        }
        let mut statuses = facts.replicas.iter().map(|replica| &replica.status);
        Ok(Told {
            is_truth: statuses.any(is_end),
            input: Input::HostReport(facts),
        })
    }

    /// The agent of `host` gives a sign of life.
    ///
    /// # Errors
    ///
    /// [`Unheard`]: it is none.
    pub fn lease(
        &mut self,
        now: Now,
        host: HostName,
        agent: Option<&AgentIdentity>,
        skew_ms: Option<i64>,
        view: &View,
    ) -> Result<Told, Unheard> {
        self.asks(now, &host, agent, view)?;
        Ok(Told::news(Input::Lease { host, skew_ms }))
    }

    /// The machine of `host` goes down in order. Acknowledged once that is decided, so that what the agent ends then is
    /// told as what it is.
    ///
    /// # Errors
    ///
    /// [`Unheard`]: nothing of it is taken.
    pub fn shutdown(
        &mut self,
        now: Now,
        host: HostName,
        agent: Option<&AgentIdentity>,
        view: &View,
    ) -> Result<Told, Unheard> {
        self.asks(now, &host, agent, view)?;
        Ok(Told::news(Input::HostShutdown { host }))
    }

    /// An agent asks for what is wanted of `host`: it may take it from the host's [`super::Desk`].
    ///
    /// # Errors
    ///
    /// [`Unheard`]: it may not.
    pub fn asks(
        &mut self,
        now: Now,
        host: &HostName,
        agent: Option<&AgentIdentity>,
        view: &View,
    ) -> Result<(), Unheard> {
        match agent {
            Some(agent) => self.seat(now, host, agent, view),
            // One that is older than its having an identity.
            None => Ok(()),
        }
    }

    fn seat(
        &mut self,
        now: Now,
        host: &HostName,
        agent: &AgentIdentity,
        view: &View,
    ) -> Result<(), Unheard> {
        let claimed = self.seats.claim(host, agent, now.mono);
        claimed.map_err(|taken| {
            // Where people find it: a machine's number says little to them.
            let address = view.hosts.get(host).and_then(|host| host.address);
            Unheard::SeatTaken { taken, address }
        })
    }
}

impl Told {
    /// What may be forgotten by who tells it once readers see it.
    #[must_use]
    pub const fn news(input: Input) -> Self {
        Self {
            input,
            is_truth: false,
        }
    }

    /// A worker tells the newest status of the incarnation that it speaks for, which is on `host`: see
    /// [`Speaker::place`]. `sent` is what its clock showed then.
    #[must_use]
    pub fn status(
        now: WallClock,
        host: HostName,
        speaker: Speaker,
        status: Status,
        sent: Option<WallClock>,
    ) -> Self {
        let status = match sent.and_then(|sent| ahead(now, sent)) {
            Some(ahead_ms) => status.by_a_clock_behind(ahead_ms),
            None => status,
        };
        let is_truth = is_end(&status);
        let ReplicaName {
            service,
            index,
            incarnation,
        } = speaker.name;
        let input = Input::Status(ReplicaReport {
            host,
            service,
            index,
            incarnation,
            service_id: None,
            grant: None,
            status,
        });
        Self { input, is_truth }
    }
}

impl Speaker {
    /// Where the incarnation is: a worker does not say where it runs, we do. `told_of` finds the host of which
    /// [`super::Desk::was_told_of`] is true; it is asked where the view does not tell, as of an incarnation that is on
    /// its way out after another took its place: its end frees its numbers.
    ///
    /// # Errors
    ///
    /// [`Unheard::UnknownReplica`]
    pub fn place(
        &self,
        view: &View,
        told_of: impl FnOnce(&Self) -> Option<HostName>,
    ) -> Result<HostName, Unheard> {
        let place = self.placed_at(view).or_else(|| told_of(self));
        place.ok_or_else(|| Unheard::UnknownReplica(self.name.clone()))
    }

    fn placed_at(&self, view: &View) -> Option<HostName> {
        let service = view.services.get(&self.name.service)?;
        let replica = service.replicas.of(self.name.index)?;
        let is_it = service.id == self.service_id && replica.incarnation == self.name.incarnation;
        is_it.then(|| replica.host.clone())?
    }
}

/// How far the sender's clock is ahead of ours, if it is far off: what it tells of moments is then shifted by it.
fn ahead(now: WallClock, sent: WallClock) -> Option<i64> {
    /// Nearer ones are left as told: the way here takes some of it, and a moment told twice stays the same.
    const NEAR_MS: u64 = 2000;
    let sent = i64::try_from(sent.as_unix_millis()).ok()?;
    let now = i64::try_from(now.as_unix_millis()).ok()?;
    let ahead = sent.saturating_sub(now);
    (ahead.unsigned_abs() > NEAR_MS).then_some(ahead)
}

/// An end frees ports: who tells it may forget it only once that is on disk.
const fn is_end(status: &Status) -> bool {
    matches!(status.state, State::Final(_))
}

/// Why somebody is not listened to. Nothing of what was said is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unheard {
    /// It speaks of another host than the one it asks for.
    #[error("the path speaks of host {asked}, the body of {told}")]
    OtherHost {
        /// Whom it asks for.
        asked: HostName,
        /// Whom it speaks of.
        told: HostName,
    },
    /// Another agent speaks for the host.
    #[error("{taken}{}", at(*address))]
    SeatTaken {
        /// Which one.
        taken: Box<SeatTaken>,
        /// Where the host is.
        address: Option<IpAddr>,
    },
    /// The incarnation is not known, any more or yet.
    #[error(
        "incarnation {} of {}/{} is not known here, any more or yet",
        .0.incarnation, .0.service, .0.index
    )]
    UnknownReplica(ReplicaName),
}

impl Unheard {
    /// The HTTP status that says so: who is refused acts by it.
    #[must_use]
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::OtherHost { .. } => 400,
            Self::SeatTaken { .. } => 409,
            Self::UnknownReplica(_) => 404,
        }
    }
}

fn at(address: Option<IpAddr>) -> String {
    address.map_or_else(String::new, |address| format!("; it is at {address}"))
}

/// A host could be given up whose agent was only started anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraceTooShort {
    /// After how long a host is given up.
    pub host_grace: Duration,
    /// What may pass until such a host is heard of again.
    pub parts: Box<[(&'static str, Duration)]>,
}

#[cfg(test)]
#[path = "front_test.rs"]
mod tests;
