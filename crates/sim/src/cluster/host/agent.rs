//! The agent of a virtual host: what [`portreeve::residency`] wants done is done to virtual folders and workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portreeve::attendance::Order;
use portreeve::registry::{AgentIdentity, Desired, HostFacts, ReplicaReport, ReportedAddress};
use portreeve::residency::household::{
    Answer, Errand, Found, Hindrance, Remains, Start, Talk, newer,
};
use portreeve::residency::uplink::{Fitness, News, PATIENCE, POLL_PATIENCE, Renewal, SetHead};
use portreeve::residency::{Household, Life, Outgoing, ReplicaName, Uplink};
use portreeve::supervision::{StartFailure, Status};
use portreeve::time::{Monotonic, Now};

use super::agenda::Actor;
use super::observing::Observed;
use super::replica::Assignment;
use super::worker::By;
use super::{Due, Host, HostOut, Place};
use crate::cluster::sight::{Sight, Subject, What};
use crate::cluster::wire::{Asker, Question, Reply, WantedOfHost, Who};

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

    /// Does what the uplink wants done.
    fn send(
        &mut self,
        now: Now,
        outgoing: Vec<Outgoing<Observed, ReplicaReport>>,
        out: &mut Vec<HostOut>,
    ) {
        let mut outgoing = std::collections::VecDeque::from(outgoing);
        while let Some(one) = outgoing.pop_front() {
            if !matches!(one, Outgoing::News(_)) && self.dies_before_next(now.mono, out) {
                return;
            }
            self.send_one(now, one, out);
        }
    }

    fn send_one(
        &mut self,
        now: Now,
        one: Outgoing<Observed, ReplicaReport>,
        out: &mut Vec<HostOut>,
    ) {
        let host = self.host_name();
        match one {
            Outgoing::Gather => {
                if let Some(agent) = self.agent.as_mut() {
                    agent.household.gather();
                }
            }
            Outgoing::Report {
                no,
                observed,
                replicas,
                full,
            } => {
                let closing = self
                    .agent
                    .as_ref()
                    .is_some_and(|agent| agent.uplink.is_closing());
                let facts = self.facts(observed, replicas, full, closing);
                self.tell(now, no, Question::Report(Box::new(facts)), out);
            }
            Outgoing::Lease { no, skew_ms } => {
                let agent = self.identity();
                let lease = Question::Lease {
                    host,
                    agent,
                    skew_ms,
                };
                self.tell(now, no, lease, out);
            }
            Outgoing::Shutdown { no } => {
                let agent = self.identity();
                self.tell(now, no, Question::Shutdown { host, agent }, out);
            }
            Outgoing::Wanted { no, since } => {
                let wanted = Question::Wanted {
                    host,
                    agent: self.identity(),
                    since,
                };
                if let Some(agent) = self.agent.as_mut() {
                    agent.polling = Some((no, now.mono + POLL_PATIENCE));
                }
                self.ask(no, wanted, out);
            }
            Outgoing::Acknowledged(names) => {
                if let Some(agent) = self.agent.as_mut() {
                    agent.household.reported(names);
                }
            }
            Outgoing::Contact { at, grace } => {
                if let Some(grace) = grace {
                    self.contact = Some(portreeve::attendance::Contact { at, grace });
                }
            }
            Outgoing::News(news) => {
                if let Some(words) = words(news) {
                    self.saw_agent(now.mono, words, out);
                }
            }
        }
    }

    fn tell(&mut self, now: Now, no: u64, question: Question, out: &mut Vec<HostOut>) {
        if let Some(agent) = self.agent.as_mut() {
            agent.telling = Some((no, now.mono + PATIENCE));
        }
        self.ask(no, question, out);
    }

    fn ask(&self, no: u64, question: Question, out: &mut Vec<HostOut>) {
        let asker = Asker {
            host: self.no,
            who: Who::Agent,
            life: self.agent_life,
            question: no,
        };
        out.push(HostOut::Ask(asker, question));
    }

    fn run_errand(&mut self, now: Now, errand: Errand<Assignment>, out: &mut Vec<HostOut>) {
        match errand {
            // Other numbers may be ours now.
            Errand::Turn => self.numbers_changed(now.mono),
            Errand::Talk(talks) => {
                for (name, talk) in talks {
                    self.talk(now.mono, name, talk);
                }
            }
            Errand::Start(start) => self.agent_starts_worker(now, *start),
            Errand::EndByForce(name) => {
                let ended = self.end_by_force(now, &name, out);
                if let Some(agent) = self.agent.as_mut() {
                    agent.household.forced(now, &name, Some(ended));
                }
            }
            Errand::Hopeless(name, times) => {
                let words = format!("its worker ended {times} times before it could say a word");
                if let Some(agent) = self.agent.as_mut() {
                    let why = StartFailure::Prepare(words);
                    agent.household.hopeless(now, &name, why);
                }
            }
            Errand::StoreStatus(name) => {
                let status = self.agent.as_ref();
                let status = status
                    .and_then(|agent| agent.household.status(&name))
                    .cloned();
                let place = self.place_of(&name);
                if let Some(status) = status.filter(|_| !self.is_disk_full)
                    && let Some(replica) = self.replicas.get_mut(&place)
                {
                    replica.folder.conclude(status);
                }
            }
            Errand::WriteAssignment(name) => {
                let assigned = self.agent.as_ref();
                let assigned = assigned.and_then(|agent| agent.household.assignment(&name));
                let assigned = assigned.cloned().filter(|_| !self.is_disk_full);
                if let Some(assigned) = assigned
                    && let Some(replica) = self.replica_mut(&name)
                {
                    replica.assigned = Some(assigned);
                }
            }
            Errand::MarkEnded(name) => {
                let is_disk_full = self.is_disk_full;
                if let Some(replica) = self.replica_mut(&name).filter(|_| !is_disk_full) {
                    replica.folder.end(now.mono);
                }
            }
            Errand::Clear(_) => {}
            Errand::LetGo(assignment) => {
                let desired = &assignment.desired;
                let name = ReplicaName {
                    service: desired.service.clone(),
                    index: desired.index,
                    incarnation: desired.incarnation,
                };
                self.end_by_force(now, &name, out);
            }
            Errand::Remove(name) => self.remove(&name),
            Errand::Report(name, status) => {
                let report = ReplicaReport::of(self.host_name(), &name, *status);
                let mut outgoing = Vec::new();
                if let Some(agent) = self.agent.as_mut() {
                    agent.uplink.ended(now, name, report, &mut outgoing);
                }
                self.send(now, outgoing, out);
            }
            Errand::Gathered(statuses) => self.agent_gathered(now, statuses, out),
            Errand::Word(..) => {}
        }
    }

    fn agent_gathered(
        &mut self,
        now: Now,
        statuses: Vec<(ReplicaName, Status)>,
        out: &mut Vec<HostOut>,
    ) {
        let host = self.host_name();
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        let household = &agent.household;
        let reports = statuses.into_iter().map(|(name, status)| {
            let order = household.assignment(&name).map(|one| &*one.desired);
            let report = ReplicaReport::of(host.clone(), &name, status).with_order(order);
            (name, report)
        });
        let reports = reports.collect();
        let mut outgoing = Vec::new();
        agent.uplink.gathered(now, reports, &mut outgoing);
        self.send(now, outgoing, out);
    }

    /// Says something to a worker. One that has not begun has no ear yet.
    fn talk(&mut self, now: Monotonic, name: ReplicaName, talk: Talk<()>) {
        let place = self.names.get(&name).copied();
        let worker = place.and_then(|place| self.replicas.get(&place)?.worker.as_ref());
        let hears = worker.is_some_and(|worker| worker.attendance.is_some());
        let stands_still = worker.is_some_and(|worker| worker.halted.is_some());
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        agent.talked += 1;
        let (life, number) = (agent.life, agent.talked);
        let order = order_of(&talk);
        agent.talks.insert(number, (place, name, talk));
        if let Some(place) = place.filter(|_| hears) {
            let by = By::Agent { life, talk: number };
            self.order(now, place, order, by);
        }
        if !hears || stands_still {
            let patience = if hears {
                PATIENCE_WITH_WORKERS
            } else {
                Duration::ZERO
            };
            let due = Due::Answered(life, number, None);
            self.agenda.put(now + patience, Actor::Agent, 0, due);
        }
    }

    /// The worker of this place stands still or is gone: it does not answer any more.
    pub(crate) fn talks_fail(&mut self, at: Monotonic, place: Place) {
        let Some(agent) = self.agent.as_ref() else {
            return;
        };
        for (number, _) in agent
            .talks
            .iter()
            .filter(|(_, (of, ..))| *of == Some(place))
        {
            let due = Due::Answered(agent.life, *number, None);
            self.agenda.put(at, Actor::Agent, 0, due);
        }
    }

    fn agent_is_answered(&mut self, now: Now, talk: u64, answer: Option<Answer>) {
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        let Some((place, name, talk)) = agent.talks.remove(&talk) else {
            return;
        };
        let mut answer = answer;
        if talk == Talk::Newest
            && let Some(replica) = place.and_then(|place| self.replicas.get(&place))
        {
            let record = replica.worker.as_ref().and_then(|worker| worker.record());
            let stored = replica.folder.status(record).cloned();
            let told = answer.take().and_then(|answer| answer.status);
            answer = Some(Answer {
                status: newer(stored, told),
                refused: None,
            });
        }
        agent.household.answered(now, &name, talk, answer);
    }

    /// A worker has ended.
    fn agent_buries(&mut self, place: Place, life: u64) {
        let (Some(agent), Some(replica)) = (self.agent.as_mut(), self.replicas.get(&place)) else {
            return;
        };
        let remains = if replica.folder.is_ended() {
            Remains::Ended
        } else {
            let live = replica.worker.as_ref().and_then(|worker| worker.record());
            Remains::Folder(replica.folder.status(live).cloned())
        };
        let name = replica.name.clone();
        agent.household.worker_ended(name, number(life), remains);
    }

    /// Writes the assignment down and starts a worker.
    fn agent_starts_worker(&mut self, now: Now, start: Start<Assignment>) {
        let Start {
            name,
            order,
            host_address,
            ..
        } = start;
        if self.is_disk_full {
            let words = "its folder cannot be prepared: ENOSPC, no space left on device";
            let why = Hindrance::Failed(StartFailure::Prepare(words.to_owned()));
            if let Some(agent) = self.agent.as_mut() {
                agent.household.not_started(now, &name, why);
            }
            return;
        }
        let assignment = Assignment {
            desired: order,
            address: host_address,
            boot: self.boot,
        };
        let place = self.place_of(&name);
        self.assign(place, assignment.clone());
        let life = self.start_worker(now.mono, place);
        if let Some(agent) = self.agent.as_mut() {
            agent
                .household
                .started(now, &name, number(life), assignment);
        }
    }

    fn facts(
        &self,
        observed: Observed,
        replicas: BTreeMap<ReplicaName, ReplicaReport>,
        full: bool,
        shutting_down: bool,
    ) -> HostFacts {
        let spec = &self.spec.hosts[self.no];
        let address = observed.published;
        let addresses = address.map(|address| ReportedAddress {
            interface: "eth0".to_owned(),
            address,
            prefix: 8,
            default_route: true,
        });
        HostFacts {
            host: spec.name.clone(),
            boot_id: self.boot_id(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            agent: Some(self.identity()),
            addresses: addresses.into_iter().collect(),
            unusable: Vec::new(),
            published: address,
            address_rule: "default route".to_owned(),
            dynamic: spec.dynamic.clone(),
            fixed: spec.fixed.clone(),
            reserved: spec.reserved.clone(),
            ephemeral: portreeve::port::PortRanges::default(),
            foreign: observed.foreign.as_ref().clone(),
            labels: spec.labels.clone(),
            owner: portreeve::registry::HostOwner::Controller,
            capabilities: Vec::new(),
            conditions: Vec::new(),
            shutting_down,
            replicas: replicas.into_values().collect(),
            full,
        }
    }

    fn identity(&self) -> AgentIdentity {
        AgentIdentity {
            machine: format!("machine-{}", self.no),
            boot_id: self.boot_id(),
            folder: format!("folder-{}", self.no),
        }
    }

    /// Whatever lives of a replica is killed; whether nothing is left of it.
    fn end_by_force(&mut self, now: Now, name: &ReplicaName, out: &mut Vec<HostOut>) -> bool {
        let Some(place) = self.names.get(name).copied() else {
            return true;
        };
        if self
            .replicas
            .get(&place)
            .is_some_and(|one| one.worker.is_some())
        {
            self.worker_dies(now, place, "killed by the agent", out);
        }
        self.end_processes(now.mono, place)
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

fn order_of(talk: &Talk<()>) -> Order {
    match talk {
        Talk::Want(told) => Order::Want {
            want: told.want,
            restart_no: told.restart_no,
        },
        Talk::Ask | Talk::Newest | Talk::Renew(()) => Order::Tell,
        Talk::Address((address, ports)) => Order::Address {
            address: *address,
            ports: ports.clone(),
        },
        Talk::Leave(why) => Order::Leave { why: *why },
    }
}

/// What an onlooker sees of it.
const fn words(news: News) -> Option<&'static str> {
    match news {
        News::Joined => Some("joined"),
        News::Lost => Some("does not reach the controller"),
        News::Found(_) => Some("reaches the controller again"),
        News::NewController => Some("found another controller"),
        News::LeaseRefused => Some("was refused its lease"),
        News::ChangeRefused => Some("was refused a change"),
        News::ShutdownUntold => Some("could not tell of its shutdown"),
        News::Told | News::ShutdownRefused | News::ReportFirst | News::Skewed(_) => None,
    }
}
