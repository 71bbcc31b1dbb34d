//! The loop: whoever is next does one thing, and what comes of it goes on its way.

use std::collections::BTreeMap;
mod befall;

use std::sync::Arc;

use portreeve::registry::Batch;
use portreeve::residency::ReplicaName;
use portreeve::time::{Monotonic, Now, WallClock};

use super::act::{Act, HostNo, Whom};
use super::chance::Chance;
use super::controller::{ControllerNode, ControllerOut};
use super::host::{Host, HostOut, Passage};
use super::network::{Connection, Content, Message, Network};
use super::people::{Answered, People};
use super::schedule::{Actor, Schedule};
use super::sight::Sight;
use super::spec::Spec;
use super::trace::{Digest, Trace};
use super::wire::{Asker, Heard, Reply, WantedOfHost, Who};
use super::workload::{Looked, Working};

/// A whole cluster at one moment.
pub(crate) struct Cluster {
    spec: Arc<Spec>,
    now: Monotonic,
    steps: u64,
    schedule: Schedule,
    next_act: usize,
    workloads: Vec<Working>,
    people: People,
    network: Network,
    controller: ControllerNode,
    /// How far the controller's display clock is off, in milliseconds.
    controller_ahead: i64,
    hosts: Vec<Host>,
    hosts_ahead: Vec<i64>,
    /// Where the newest act found its replica: what ends it goes there, wherever the replica is by then.
    begun: BTreeMap<Whom, HostNo>,
    trace: Trace,
    at_once: u64,
    from_controller: Vec<ControllerOut>,
    from_host: Vec<HostOut>,
}

/// One thing that was handed to one actor, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// From 1.
    pub(crate) number: u64,
    pub(crate) at: Monotonic,
    /// Whose turn it was. What the world, people and the network bring is taken by whom [`Handed`] says.
    pub(crate) actor: Actor,
    pub(crate) handed: Handed,
    /// In the order in which it was seen.
    pub(crate) sights: Vec<Sight>,
    /// Turns of workers.
    pub(crate) passed: Vec<Passage>,
    /// Orders of people that were answered.
    pub(crate) answered: Vec<Answered>,
    /// What the store took or refused, and whether it took it.
    pub(crate) wrote: Option<(Batch, bool)>,
    /// What a host is told that is wanted of it.
    pub(crate) wanted: Option<Arc<WantedOfHost>>,
    /// Whose workers are told that they are not wanted, and where.
    pub(crate) stopped: Vec<(HostNo, ReplicaName)>,
    /// What the controller listened to: it was there and did not refuse it.
    pub(crate) heard: Option<Heard>,
    /// What was said to it while it stood still, and is listened to now.
    pub(crate) taken_in: Vec<(HostNo, Heard)>,
    /// Whose words the controller acknowledged, so that they are not told again.
    pub(crate) acknowledged: Vec<Asker>,
}

/// What was handed to whom.
#[derive(Clone, Debug)]
pub(crate) enum Handed {
    /// By the script of the world, or by a workload.
    Act(Act),
    /// A workload found nothing to do.
    Nothing,
    /// A question reached the controller.
    Question(Asker),
    /// An answer reached the host of who asked.
    Reply(Asker),
    /// The actor does what is due.
    Due,
}

impl Cluster {
    /// A cluster before its first step: the controller and all hosts start as time begins.
    pub(crate) fn new(spec: Arc<Spec>) -> Self {
        let chance = Chance::of(spec.seed);
        let now = Now {
            mono: Monotonic::default(),
            wall: spec.wall,
        };
        let host = |no: HostNo| {
            let seed = chance.split_no("host", no as u64).any();
            Host::new(no, &spec, seed, now)
        };
        let hosts: Vec<Host> = (0..spec.hosts.len()).map(host).collect();
        let workloads = spec.workloads.iter().enumerate();
        let workloads = workloads.map(|(no, workload)| {
            Working::new(workload.clone(), chance.split_no("workload", no as u64))
        });
        let mut cluster = Self {
            now: now.mono,
            steps: 0,
            schedule: Schedule::new(hosts.len(), spec.workloads.len()),
            next_act: 0,
            workloads: workloads.collect(),
            people: People::new(&spec),
            network: Network::new(spec.network.clone(), hosts.len(), chance.split("network")),
            controller: ControllerNode::new(&spec, &chance),
            controller_ahead: 0,
            hosts_ahead: vec![0; hosts.len()],
            begun: BTreeMap::new(),
            hosts,
            trace: Trace::default(),
            at_once: 0,
            from_controller: Vec::new(),
            from_host: Vec::new(),
            spec,
        };
        cluster.start();
        cluster
    }

    /// The controller is there first, as far as its disk is quick enough; what is seen of that comes with the first step.
    fn start(&mut self) {
        let now = self.controller_now();
        while self
            .controller
            .next_deadline()
            .is_some_and(|due| due <= now.mono)
        {
            self.controller.on_deadline(now, &mut self.from_controller);
        }
        for no in 0..self.hosts.len() {
            self.schedule_host(no);
        }
        for no in 0..self.workloads.len() {
            self.put(Actor::Workload(no), self.workloads[no].next());
        }
        self.schedule_world();
        self.put(Actor::Controller, self.controller.next_deadline());
    }

    /// What is due is called now and not earlier: after whoever is before it in this instant.
    fn put(&mut self, actor: Actor, next: Option<Monotonic>) {
        let next = next.map(|next| next.max(self.now));
        self.schedule.put(actor, next);
    }

    /// The same, and its trace keeps every word: for short runs.
    pub(crate) fn in_words(spec: Arc<Spec>) -> Self {
        Self {
            trace: Trace::in_words(),
            ..Self::new(spec)
        }
    }

    /// The next thing happens; `None`: the run is over, since time or everything is.
    pub(crate) fn step(&mut self) -> Option<Step> {
        let first = self.schedule.first();
        let Some((due, actor)) = first.filter(|(due, _)| *due <= self.spec.until) else {
            self.now = self.spec.until;
            return None;
        };
        self.at_once = if due > self.now { 0 } else { self.at_once + 1 };
        if self.stands_still() {
            return None;
        }
        self.now = self.now.max(due);
        self.steps += 1;
        let mut step = Step {
            number: self.steps,
            at: self.now,
            actor,
            handed: Handed::Due,
            sights: Vec::new(),
            passed: Vec::new(),
            answered: Vec::new(),
            wrote: None,
            wanted: None,
            stopped: Vec::new(),
            heard: None,
            taken_in: Vec::new(),
            acknowledged: Vec::new(),
        };
        match actor {
            Actor::World => {
                let act = self.spec.acts[self.next_act].act.clone();
                self.next_act += 1;
                self.head(&step, format_args!("{act:?}"));
                self.do_act(&act, &mut step);
                step.handed = Handed::Act(act);
                self.schedule_world();
            }
            Actor::Workload(no) => self.work(no, &mut step),
            Actor::Network => self.deliver(&mut step),
            Actor::Controller => {
                self.head(&step, format_args!("due"));
                let now = self.controller_now();
                self.controller.on_deadline(now, &mut self.from_controller);
            }
            Actor::Host(no) => {
                self.head(&step, format_args!("due"));
                let now = self.host_now(no);
                self.hosts[no].on_deadline(now, &mut self.from_host);
                self.schedule_host(no);
            }
        }
        self.carry(&mut step);
        Some(step)
    }

    /// Whether time stands still: a script has something happen again and again in one instant.
    pub(crate) fn stands_still(&self) -> bool {
        /// What a host, or the controller for it, may have to do in one instant.
        const OF_A_HOST: u64 = 10_000;
        self.at_once > OF_A_HOST * (100 + self.hosts.len() as u64)
    }

    pub(crate) const fn now(&self) -> Monotonic {
        self.now
    }

    /// How many steps there were.
    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) const fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub(crate) const fn controller(&self) -> &ControllerNode {
        &self.controller
    }

    pub(crate) const fn network(&self) -> &Network {
        &self.network
    }

    #[cfg(test)]
    pub(crate) const fn people(&self) -> &People {
        &self.people
    }

    pub(crate) const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Both clocks of the controller.
    pub(crate) fn controller_now(&self) -> Now {
        self.clocks(self.controller_ahead)
    }

    /// Both clocks of a host.
    pub(crate) fn host_now(&self, no: HostNo) -> Now {
        self.clocks(self.hosts_ahead[no])
    }

    fn clocks(&self, ahead_ms: i64) -> Now {
        let since = self.now.since(Monotonic::default());
        let wall = self.spec.wall.after(since);
        Now {
            mono: self.now,
            wall: WallClock::from_unix_millis(
                wall.as_unix_millis().saturating_add_signed(ahead_ms),
            ),
        }
    }

    fn head(&mut self, step: &Step, what: std::fmt::Arguments<'_>) {
        let at = step.at.as_millis();
        self.trace.line(format_args!(
            "{} {}.{:03} {:?} {what}",
            step.number,
            at / 1000,
            at % 1000,
            step.actor
        ));
    }

    fn work(&mut self, no: usize, step: &mut Step) {
        let view = self.controller.is_up().then(|| self.controller.view());
        let looked = Looked {
            view: view.flatten().map(Arc::as_ref),
            services: &|no| self.people.service(no),
            host: &|name| self.controller.telling().host_no(name),
        };
        let act = self.workloads[no].act(&looked);
        self.put(Actor::Workload(no), self.workloads[no].next());
        match act {
            None => {
                self.head(step, format_args!("nothing"));
                step.handed = Handed::Nothing;
            }
            Some(act) => {
                self.head(step, format_args!("{act:?}"));
                self.do_act(&act, step);
                step.handed = Handed::Act(act);
            }
        }
    }

    fn deliver(&mut self, step: &mut Step) {
        let arrived = self.network.arrive(self.now);
        self.put(Actor::Network, self.network.next());
        // The word of a worker may come over another one: it tells it again until it is heard.
        let arrived = arrived.filter(|it| match &it.content {
            Content::Question { over, .. } if it.asker.who == Who::Agent => {
                !over.is_broken(self.connection(it.asker.host))
            }
            _ => true,
        });
        let Some(message) = arrived else {
            self.head(step, format_args!("nothing arrives"));
            step.handed = Handed::Nothing;
            return;
        };
        self.head(step, format_args!("{message}"));
        let Message { asker, content } = message;
        match content {
            Content::Question { question, sent, .. } => {
                step.handed = Handed::Question(asker.clone());
                step.heard = self.controller.is_up().then(|| question.heard());
                let now = self.controller_now();
                let out = &mut self.from_controller;
                self.controller.ask(now, asker, question, sent, out);
            }
            Content::Reply(reply) => {
                if let Reply::Wanted(wanted) = &reply {
                    step.wanted = Some(Arc::clone(wanted));
                }
                let no = asker.host;
                let now = self.host_now(no);
                self.hosts[no].reply(now, &asker, reply, &mut self.from_host);
                self.schedule_host(no);
                step.handed = Handed::Reply(asker);
            }
        }
    }

    /// What a question of this host would be sent over now.
    fn connection(&self, no: HostNo) -> Connection {
        Connection {
            since: self.now,
            controller: self.controller.starts(),
            boot: self.hosts[no].boots(),
        }
    }

    /// Sends on what came out, tells what was seen, and says when everybody touched is next.
    fn carry(&mut self, step: &mut Step) {
        // Kept from step to step, so that a step asks for no memory of its own.
        let mut from_host = std::mem::take(&mut self.from_host);
        for out in from_host.drain(..) {
            match out {
                HostOut::Ask(asker, question) => {
                    let sent = self.host_now(asker.host).wall;
                    let over = self.connection(asker.host);
                    let content = Content::Question {
                        question,
                        sent,
                        over,
                    };
                    self.network.send(self.now, Message { asker, content });
                }
                HostOut::Saw(sight) => step.sights.push(sight),
                HostOut::Passed(passage) => step.passed.push(passage),
                HostOut::Stopped(no, name) => step.stopped.push((no, name)),
            }
        }
        self.from_host = from_host;
        let mut from_controller = std::mem::take(&mut self.from_controller);
        for out in from_controller.drain(..) {
            match out {
                ControllerOut::Reply(asker, reply) => {
                    if matches!(reply, Reply::Refused { .. }) {
                        step.heard = None;
                    }
                    if matches!(reply, Reply::Lease(_)) {
                        step.acknowledged.push(asker.clone());
                    }
                    let content = Content::Reply(reply);
                    self.network.send(self.now, Message { asker, content });
                }
                ControllerOut::Answered(person, outcome) => {
                    let answered = self.people.answer(self.now, person, outcome);
                    if let Some((answered, sight)) = answered {
                        step.answered.push(answered);
                        step.sights.push(sight);
                    }
                }
                ControllerOut::Saw(sight) => step.sights.push(sight),
                ControllerOut::TookIn(host, heard) => step.taken_in.push((host, heard)),
                ControllerOut::Wrote { batch, accepted } => {
                    let mut digest = Digest::default();
                    for write in &batch.writes {
                        digest.eat(write.table.as_bytes());
                        digest.eat(write.key.as_bytes());
                        digest.eat(write.value.as_deref().unwrap_or_default());
                    }
                    self.trace.line(format_args!(
                        "  {} batch {} of {}: {:016x}",
                        if accepted { "took" } else { "refused" },
                        batch.number.0,
                        batch.writes.len(),
                        digest.value()
                    ));
                    step.wrote = Some((batch, accepted));
                }
            }
        }
        self.from_controller = from_controller;
        for sight in &step.sights {
            self.trace.line(format_args!("  {sight}"));
        }
        self.put(Actor::Network, self.network.next());
        self.put(Actor::Controller, self.controller.next_deadline());
    }

    fn schedule_world(&mut self) {
        let next = self.spec.acts.get(self.next_act);
        self.put(Actor::World, next.map(|next| next.at));
    }

    fn schedule_host(&mut self, no: HostNo) {
        self.put(Actor::Host(no), self.hosts[no].next_deadline());
    }
}

#[cfg(test)]
#[path = "acts_test.rs"]
mod acts_test;
#[cfg(test)]
#[path = "run_test.rs"]
mod tests;
