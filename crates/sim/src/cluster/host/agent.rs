//! The agent of a virtual host: what [`portreeve::residency`] wants done is done to virtual folders and workers.

mod errand;
mod send;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portreeve::registry::{AgentIdentity, Desired, ReplicaReport};
use portreeve::residency::household::{Errand, Found, Talk};
use portreeve::residency::uplink::{Fitness, Renewal, SetHead};
use portreeve::residency::{Household, Life, ReplicaName, Uplink};
use portreeve::time::{Monotonic, Now};

use super::agenda::Actor;
use super::observing::Observed;
use super::replica::Assignment;
use super::{Due, Host, HostOut, Place};
use crate::cluster::sight::{Sight, Subject, What};
use crate::cluster::wire::{Reply, WantedOfHost};

/// An agent process.
pub(crate) struct Agent {
    /// Counts the agents of the host, over all boots.
    pub(crate) life: u64,
    household: Household<Assignment>,
    uplink: Uplink<Observed, ReplicaReport>,
    /// What came while it stood still; `None`: it does not.
    pub(crate) halted: Option<Vec<Due>>,
    /// It dies in its next turn, after it did so many things.
    pub(crate) dies_after: Option<u32>,
    /// The question that tells, and the one for the wanted set, each with when it is given up.
    telling: Option<(u64, Monotonic)>,
    polling: Option<(u64, Monotonic)>,
    /// What it says to workers, and to whom, until they answer.
    talks: BTreeMap<u64, (Option<Place>, ReplicaName, Talk<()>)>,
    talked: u64,
    /// When it looks at the host again, if there may be something new.
    look: Option<Monotonic>,
    began: Monotonic,
}

/// How long a worker may take to answer.
pub(crate) const PATIENCE_WITH_WORKERS: Duration = Duration::from_secs(2);
/// How often listeners are looked at. What did not change is not looked at here.
const LOOKS_EVERY: Duration = Duration::from_secs(2);
/// A changed address is looked at after this.
const SETTLED_AFTER: Duration = Duration::from_millis(50);
/// How long logs are kept.
const KEEP_LOGS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long a host that is shut down waits for what runs there.
pub(crate) const CLOSING_PATIENCE: Duration = Duration::from_secs(90);

impl Agent {
    fn next_deadline(&self) -> Option<Monotonic> {
        if self.halted.is_some() {
            return None;
        }
        let given_up = [self.telling, self.polling].into_iter().flatten();
        let given_up = given_up.map(|(_, until)| until);
        self.household
            .next_deadline()
            .into_iter()
            .chain(self.uplink.next_deadline())
            .chain(given_up)
            .chain(self.look)
            .min()
    }

    /// The orders whose numbers are ours.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Desired> {
        self.household.held().map(|order| &**order)
    }
}

impl Host {
    /// An agent starts, if none runs: it reads the folders back and adopts the workers that live.
    pub(crate) fn agent_starts(&mut self, now: Now, out: &mut Vec<HostOut>) {
        if !self.is_up || self.agent.is_some() {
            return;
        }
        self.agent_life += 1;
        let mut household = Household::new(KEEP_LOGS);
        for replica in self.replicas.values() {
            let live = replica.worker.as_ref();
            let life = match &replica.assigned {
                _ if replica.folder.is_ended() => Life::Ended,
                Some(assigned) if assigned.boot != self.boot => Life::Rebooted,
                _ => Life::Orphaned,
            };
            let record = live.and_then(|worker| worker.record());
            let found = Found {
                name: replica.name.clone(),
                life,
                assignment: replica.assigned.clone().filter(|_| life != Life::Ended),
                status: replica.folder.status(record).cloned(),
                worker: live.map(|worker| number(worker.life)),
                had_worker: replica.life > 0,
                ended_ago: now.mono.since(replica.folder.ended_at()),
            };
            household.take_in(now, found);
        }
        let held = household.held().map(|order: &Arc<Desired>| &**order);
        let observed = self.observe(held);
        household.published(self.address);
        self.agent = Some(Box::new(Agent {
            life: self.agent_life,
            household,
            uplink: Uplink::new(observed),
            halted: None,
            dies_after: None,
            telling: None,
            polling: None,
            talks: BTreeMap::new(),
            talked: 0,
            look: None,
            began: now.mono,
        }));
        self.saw_agent(now.mono, "started", out);
        self.agent_goes_on(now, out);
    }

    /// It is killed.
    pub(crate) fn agent_dies(&mut self, now: Monotonic, how: &'static str, out: &mut Vec<HostOut>) {
        if self.agent.take().is_some() {
            self.agenda.wake(Actor::Agent, None);
            self.saw_agent(now, how, out);
        }
    }

    pub(crate) fn agent_halts(&mut self, now: Monotonic, out: &mut Vec<HostOut>) {
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.halted.is_none()) {
            agent.halted = Some(Vec::new());
            self.agenda.wake(Actor::Agent, None);
            self.saw_agent(now, "stopped", out);
        }
    }

    pub(crate) fn agent_continues(&mut self, now: Now, out: &mut Vec<HostOut>) {
        let held = self.agent.as_mut().and_then(|agent| agent.halted.take());
        let Some(held) = held else {
            return;
        };
        self.saw_agent(now.mono, "continued", out);
        for due in held {
            self.agent_event(now, due, out);
        }
        self.agent_is_due(now, out);
    }

    /// The host is being shut down. Without an agent nobody ends what runs there before the power goes.
    pub(crate) fn agent_closes(&mut self, now: Now, out: &mut Vec<HostOut>) {
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        let mut outgoing = Vec::new();
        agent.uplink.close(now, &mut outgoing);
        agent.household.close();
        self.send(now, outgoing, out);
        self.agent_goes_on(now, out);
    }

    /// How much of what runs here has not ended, or is not told, while the host is being shut down.
    pub(crate) fn is_closed(&self) -> bool {
        let agent = self.agent.as_ref();
        agent.is_none_or(|agent| agent.household.closing() == Some((0, 0)))
    }

    /// Something that the agent hears on its host.
    pub(crate) fn agent_event(&mut self, now: Now, due: Due, out: &mut Vec<HostOut>) {
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        if let Some(held) = &mut agent.halted {
            return held.push(due);
        }
        match due {
            Due::Answered(life, talk, answer) if life == agent.life => {
                self.agent_is_answered(now, talk, answer.map(|answer| *answer));
            }
            Due::WorkerGone(place, life) => self.agent_buries(place, life),
            Due::AgentReplied(life, no, reply) if life == agent.life => {
                self.agent_hears(now, no, *reply, out);
            }
            _ => {}
        }
        self.agent_goes_on(now, out);
    }

    /// What came back from the controller.
    pub(crate) fn agent_hears(&mut self, now: Now, no: u64, reply: Reply, out: &mut Vec<HostOut>) {
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        for asked in [&mut agent.telling, &mut agent.polling] {
            asked.take_if(|(asked, _)| *asked == no);
        }
        let mut outgoing = Vec::new();
        let uplink = &mut agent.uplink;
        match reply {
            Reply::Lease(lease) => {
                let renewal = Renewal {
                    instance: &lease.instance,
                    period: Some(lease.period),
                    grace: Some(lease.host_grace),
                    now: Some(lease.now),
                };
                uplink.taken(now, no, Some(&renewal), &mut outgoing);
            }
            Reply::Wanted(set) => {
                let head = SetHead {
                    instance: &set.instance,
                    revision: set.revision,
                    report_first: set.report_first,
                };
                let fitness = uplink.wanted(now, no, Some(&head), false, &mut outgoing);
                if fitness == Fitness::News {
                    agent.household.wanted(orders(&set));
                }
            }
            Reply::Refused { .. } => uplink.refused(now, no, &mut outgoing),
            Reply::Unreachable => uplink.unanswered(now, no, &mut outgoing),
        }
        self.send(now, outgoing, out);
    }

    /// Its deadline has come.
    pub(crate) fn agent_is_due(&mut self, now: Now, out: &mut Vec<HostOut>) {
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        let mut outgoing = Vec::new();
        for asked in [&mut agent.telling, &mut agent.polling] {
            if let Some((no, _)) = asked.take_if(|(_, until)| *until <= now.mono) {
                agent.uplink.unanswered(now, no, &mut outgoing);
            }
        }
        if agent.look.take_if(|at| *at <= now.mono).is_some() {
            let held = self.agent.iter().flat_map(|agent| agent.held());
            let observed = self.observe(held);
            if let Some(agent) = self.agent.as_mut() {
                agent.household.published(observed.published);
                agent.uplink.observed(now, observed, &mut outgoing);
            }
        }
        if let Some(agent) = self.agent.as_mut() {
            agent.uplink.on_deadline(now, &mut outgoing);
        }
        self.send(now, outgoing, out);
        self.agent_goes_on(now, out);
    }

    /// There may be other listeners than at the last look.
    pub(crate) fn look_soon(&mut self, now: Monotonic) {
        if let Some(agent) = self.agent.as_mut() {
            let every = LOOKS_EVERY.as_millis();
            let into = now.since(agent.began).as_millis() % every;
            let rest = u64::try_from(every - into).unwrap_or(0);
            let at = now + Duration::from_millis(rest);
            agent.look = Some(agent.look.map_or(at, |look| look.min(at)));
            self.wake_agent();
        }
    }

    /// The kernel tells of another address.
    pub(crate) fn look_at_addresses(&mut self, now: Monotonic) {
        if let Some(agent) = self.agent.as_mut() {
            let at = now + SETTLED_AFTER;
            agent.look = Some(agent.look.map_or(at, |look| look.min(at)));
            self.wake_agent();
        }
    }

    fn wake_agent(&mut self) {
        let at = self.agent.as_ref().and_then(|agent| agent.next_deadline());
        self.agenda.wake(Actor::Agent, at);
    }

    /// Does what the household wants done, until an answer is due or nothing is left.
    fn agent_goes_on(&mut self, now: Now, out: &mut Vec<HostOut>) {
        loop {
            let Some(agent) = self.agent.as_mut() else {
                return;
            };
            let Some(errand) = agent.household.next(now) else {
                break;
            };
            if let Errand::Word(..) | Errand::Turn = errand {
                self.run_errand(now, errand, out);
                continue;
            }
            if self.dies_before_next(now.mono, out) {
                return;
            }
            self.run_errand(now, errand, out);
        }
        self.wake_agent();
    }

    /// Counts a thing that the agent is about to do, and lets it die there if that is what befalls it.
    fn dies_before_next(&mut self, now: Monotonic, out: &mut Vec<HostOut>) -> bool {
        let Some(agent) = self.agent.as_mut() else {
            return true;
        };
        match &mut agent.dies_after {
            Some(0) => {
                self.agent_dies(now, "killed in a turn", out);
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn identity(&self) -> AgentIdentity {
        AgentIdentity {
            machine: format!("machine-{}", self.no),
            boot_id: self.boot_id(),
            folder: format!("folder-{}", self.no),
        }
    }

    fn saw_agent(&self, at: Monotonic, what: &'static str, out: &mut Vec<HostOut>) {
        out.push(HostOut::Saw(Sight {
            at,
            of: Subject::Host(self.no),
            what: What::Agent(what),
        }));
    }
}

/// The number by which an agent knows a worker of a replica.
fn number(life: u64) -> u32 {
    u32::try_from(life).unwrap_or(u32::MAX)
}

fn orders(set: &WantedOfHost) -> BTreeMap<ReplicaName, (Arc<Desired>, ())> {
    let own = set.replicas.iter().filter(|one| !one.attached);
    let named = own.map(|one| {
        let name = ReplicaName {
            service: one.service.clone(),
            index: one.index,
            incarnation: one.incarnation,
        };
        (name, (Arc::new(one.clone()), ()))
    });
    named.collect()
}
