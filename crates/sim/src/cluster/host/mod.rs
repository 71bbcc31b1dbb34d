//! One virtual host: a machine with its boots, its disk and its ports; an agent, workers and processes on it.
//!
//! What agent and workers decide is production's (`residency`, `attendance`); what happens to them, and what
//! processes do, is scripted. Nothing on a host waits for anything of another host: what it says leaves as
//! [`HostOut`], what it hears comes by [`Host::reply`].
//!
//! * `power` is the machine: boots, power loss, shutdown; what befalls the host is in `befall`.
//! * `agent` and `worker` do what the decisions want done; `observing` is what an agent sees of its host.
//! * `replica` is one incarnation: its `folder`, the part of it that outlives a worker, and its scripted `process`es.
//! * `ports` is who listens where, `strangers` who of them is not ours, `probes` what a look at that finds.
//! * `agenda` is the order in which all of it happens.

mod agenda;
mod agent;
mod befall;
mod folder;
mod happening;
mod observing;
mod passage;
mod ports;
mod power;
mod probes;
mod process;
mod replica;
mod strangers;
mod worker;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portreeve::attendance::{self, Contact, Happened, Order, Output, ProbeEnd, ProcessEvent};
use portreeve::identity::{HostName, Run};
use portreeve::profile::Profile;
use portreeve::residency::household::Answer;
use portreeve::residency::{Pace, ReplicaName, Want};
use portreeve::supervision::Status;
use portreeve::time::{Monotonic, Now};

use super::act::{HostNo, Whom};
use super::sight::{Sight, Subject, What};
use super::spec::Spec;
use super::wire::{Asker, Question, Reply, Who};

use agenda::{Actor, Agenda, Turn};
use agent::Agent;
use happening::Happening;
use ports::Listeners;
use process::{Ground, Processes};
use replica::Replica;
use strangers::Strangers;
use worker::By;

pub(crate) use passage::{EVENTS, Passage};

/// Something that leaves a host.
#[derive(Clone, Debug)]
pub(crate) enum HostOut {
    /// A question to the controller, from an agent or a worker of the host.
    Ask(Asker, Question),
    /// An onlooker saw this.
    Saw(Sight),
    /// A worker had a turn.
    Passed(Passage),
    /// An agent told the worker of this one that it is not wanted.
    Stopped(HostNo, ReplicaName),
}

/// A replica by its place among those that ever were on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) u32);

/// One host.
pub(crate) struct Host {
    no: HostNo,
    spec: Arc<Spec>,
    seed: u64,
    is_up: bool,
    /// Counts the boots.
    boot: u32,
    /// When the power goes though not everything ended; set while it is being shut down.
    off_at: Option<Monotonic>,
    /// What it publishes; `None`: it has no address.
    address: Option<IpAddr>,
    is_disk_full: bool,
    listeners: Listeners,
    strangers: Strangers,
    /// Restarts of all replicas together.
    pace: Pace,
    /// When the controller last heard of this host, as the agent noted it for the workers.
    contact: Option<Contact>,
    pids: u32,
    replicas: BTreeMap<Place, Replica>,
    names: BTreeMap<ReplicaName, Place>,
    next_place: u32,
    agent: Option<Box<Agent>>,
    agent_life: u64,
    agenda: Agenda<Due>,
    /// Kept from turn to turn, so that none of them allocates.
    outputs: Vec<Output<By>>,
}

/// Something that comes to the replica or the agent under whose name it stands in the agenda. What is for a worker or an
/// agent names its life.
#[derive(Debug)]
pub(crate) enum Due {
    /// A worker begins.
    Begins(u64),
    Happens(Happening),
    Heard(u64, ProcessEvent),
    Ordered(u64, Box<Order>, By),
    Probed(u64, Box<ProbeEnd>),
    /// A worker goes on and finds the answer to this question.
    Replied(u64, u64, attendance::Heard),
    /// A worker answers the agent of this life in this conversation, or does not.
    Answered(u64, u64, Option<Box<Answer>>),
    /// A worker of this replica ended.
    WorkerGone(Place, u64),
    /// An agent goes on and finds the answer to this question.
    AgentReplied(u64, u64, Box<Reply>),
    /// The shutdown has taken long enough.
    PowerOff(u32),
}

impl Host {
    /// It is up, and its agent starts at `now`.
    pub(crate) fn new(no: HostNo, spec: &Arc<Spec>, seed: u64, now: Now) -> Self {
        let mut host = Self {
            no,
            spec: Arc::clone(spec),
            seed,
            is_up: false,
            boot: 0,
            off_at: None,
            address: Some(power::address_of(no)),
            is_disk_full: false,
            listeners: Listeners::default(),
            strangers: Strangers::default(),
            pace: Pace::default(),
            contact: None,
            pids: 0,
            replicas: BTreeMap::new(),
            names: BTreeMap::new(),
            next_place: 0,
            agent: None,
            agent_life: 0,
            agenda: Agenda::new(),
            outputs: Vec::new(),
        };
        // Its agent has no deadline before it has begun: it does so in the first step.
        host.power_on();
        host.agenda.wake(Actor::Agent, Some(now.mono));
        host
    }

    /// The answer to a question that it asked. One whose asker does not live any more is lost.
    pub(crate) fn reply(&mut self, now: Now, to: &Asker, reply: Reply, out: &mut Vec<HostOut>) {
        match &to.who {
            Who::Agent => {
                let agent = self.agent.as_mut().filter(|agent| agent.life == to.life);
                let Some(agent) = agent else {
                    return;
                };
                let due = Due::AgentReplied(to.life, to.question, Box::new(reply));
                match &mut agent.halted {
                    Some(held) => held.push(due),
                    None => self.agent_event(now, due, out),
                }
            }
            Who::Worker(name) => {
                if let Some(place) = self.names.get(name).copied() {
                    let asked = (to.life, to.question);
                    self.worker_heard(now, place, asked, Some(&reply), out);
                }
            }
        }
    }

    /// One thing that is due by `now`: of what is due at one moment, a turn of one replica with all that happened to it,
    /// or one of the agent.
    pub(crate) fn on_deadline(&mut self, now: Now, out: &mut Vec<HostOut>) {
        match self.agenda.take(now.mono) {
            None => {}
            Some(Turn::Event(Actor::Worker(place), due)) => self.replica_turn(now, place, due, out),
            Some(Turn::Event(Actor::Agent, due)) => self.agent_event(now, due, out),
            Some(Turn::Event(Actor::Machine, due)) => {
                if let Due::PowerOff(boot) = due
                    && boot == self.boot
                    && self.off_at.is_some()
                {
                    self.power_off(now.mono, "is off", out);
                }
            }
            Some(Turn::Deadline(Actor::Worker(place))) => self.worker_is_due(now, place, out),
            Some(Turn::Deadline(Actor::Agent)) if self.agent.is_none() => {
                self.agent_starts(now, out);
            }
            Some(Turn::Deadline(Actor::Agent)) => self.agent_is_due(now, out),
            Some(Turn::Deadline(Actor::Machine)) => {}
        }
        self.look_after_shutdown(now.mono, out);
    }

    /// When [`Host::on_deadline`] is due. Cost: constant.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.agenda.next()
    }

    /// Everything that happens to one replica in this instant, as one turn of its worker.
    fn replica_turn(&mut self, now: Now, place: Place, first: Due, out: &mut Vec<HostOut>) {
        let mut happened = Happened::default();
        let mut due = Some(first);
        while let Some(one) = due {
            match one {
                Due::Begins(life) => self.worker_begins(now, place, life, out),
                Due::Replied(life, question, heard) => {
                    self.worker_hears(now, place, (life, question), heard, out);
                }
                one => self.happens(now, place, one, &mut happened),
            }
            due = self.agenda.take_of(now.mono, Actor::Worker(place));
        }
        let is_something = !happened.orders.is_empty()
            || !happened.processes.is_empty()
            || !happened.probes.is_empty();
        let stop = Want::Stop;
        let is_stop = |order: &Order| matches!(order, Order::Want { want, .. } if *want == stop);
        if happened.orders.iter().any(|(order, _)| is_stop(order))
            && let Some(replica) = self.replicas.get(&place)
        {
            out.push(HostOut::Stopped(self.no, replica.name.clone()));
        }
        if is_something {
            self.worker_turn(now, place, &mut happened, out);
        }
    }

    fn happens(&mut self, now: Now, place: Place, due: Due, happened: &mut Happened<By>) {
        let life = self.replicas.get(&place);
        let life = life.and_then(|replica| Some(replica.worker.as_ref()?.life));
        match due {
            Due::Happens(happening) => {
                let heard = self.process_happens(now.mono, place, happening);
                // What it does is known to whoever takes over later.
                if let (Some(heard), Some(_)) = (heard, life) {
                    happened.processes.push(self.process_event(heard));
                }
            }
            Due::Heard(of, event) if Some(of) == life => happened.processes.push(event),
            Due::Ordered(of, order, by) if Some(of) == life => happened.orders.push((*order, by)),
            Due::Probed(of, end) if Some(of) == life => happened.probes.push(*end),
            _ => {}
        }
    }

    /// A worker that has begun to hear answers the agent.
    fn worker_answers(
        &mut self,
        now: Monotonic,
        life: u64,
        talk: u64,
        status: Option<Status>,
        refused: Option<String>,
    ) {
        let answer = Some(Box::new(Answer { status, refused }));
        let due = Due::Answered(life, talk, answer);
        self.agenda.put(now, Actor::Agent, 0, due);
    }

    /// The process of a worker is no more; an agent that lives sees that at once.
    fn worker_is_gone(&mut self, now: Monotonic, place: Place, life: u64) {
        self.talks_fail(now, place);
        if self.agent.is_some() {
            let due = Due::WorkerGone(place, life);
            self.agenda.put(now, Actor::Agent, 0, due);
        }
    }

    /// Whether nothing can be written there.
    pub(crate) const fn is_disk_full(&self) -> bool {
        self.is_disk_full
    }

    /// Whether it is powered.
    pub(crate) const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Every living process of ours, by place.
    pub(crate) fn living(&self, now: Monotonic) -> impl Iterator<Item = Living<'_>> {
        self.replicas.values().filter_map(move |replica| {
            let processes = &replica.processes;
            let part = if processes.main_lives() {
                Part::Main
            } else if processes.leftover_lives(now) {
                Part::Leftover
            } else {
                return None;
            };
            Some(Living {
                name: &replica.name,
                run: processes.run(),
                part,
            })
        })
    }

    /// The replicas with a living worker that has begun, by place.
    pub(crate) fn attended(&self) -> impl Iterator<Item = &ReplicaName> {
        let attended = self.replicas.values().filter(|replica| {
            let worker = replica.worker.as_ref();
            worker.is_some_and(|worker| worker.attendance.is_some())
        });
        attended.map(|replica| &replica.name)
    }

    /// The profile that this incarnation was begun with here, or was last told.
    pub(crate) fn profile_of(&self, name: &ReplicaName) -> Option<&Profile> {
        let replica = self.replicas.get(self.names.get(name)?)?;
        Some(&*replica.assigned.as_ref()?.desired.profile)
    }

    /// Lets something happen to the processes of a replica, and puts down what they do later by themselves. `None`: nothing
    /// was ever started there.
    fn with_processes<T>(
        &mut self,
        place: Place,
        what: impl FnOnce(&mut Processes, &mut Ground<'_>) -> T,
    ) -> Option<T> {
        let replica = self.replicas.get_mut(&place)?;
        let assigned = replica.assigned.as_ref()?;
        let mut later = Vec::new();
        let mut ground = Ground {
            place,
            grant: &assigned.desired.grant,
            listeners: &mut self.listeners,
            later: &mut later,
        };
        let came = what(&mut replica.processes, &mut ground);
        for (at, happening) in later {
            let actor = Actor::Worker(place);
            self.agenda
                .put(at, actor, happening.rank(), Due::Happens(happening));
        }
        Some(came)
    }

    fn host_name(&self) -> HostName {
        self.spec.hosts[self.no].name.clone()
    }

    fn saw(&self, at: Monotonic, place: Place, run: Run, what: What, out: &mut Vec<HostOut>) {
        if let Some(replica) = self.replicas.get(&place) {
            let of = subject(self.no, &replica.name, run);
            out.push(HostOut::Saw(Sight { at, of, what }));
        }
    }

    fn saw_host(&self, at: Monotonic, what: &str, out: &mut Vec<HostOut>) {
        out.push(HostOut::Saw(Sight {
            at,
            of: Subject::Host(self.no),
            what: What::Befell(what.to_owned()),
        }));
    }

    /// Where the newest living incarnation of a replica is, if any is here.
    fn place_of_whom(&self, whom: Whom) -> Option<Place> {
        let mut newest = self.replicas.iter().rev();
        let found = newest.find(|(_, replica)| {
            let lives = replica.worker.is_some() || replica.processes.main_lives();
            replica.whom == Some(whom) && lives
        });
        found.map(|(place, _)| *place)
    }
}

/// A run of a replica, as an onlooker names it.
fn subject(host: HostNo, name: &ReplicaName, run: Run) -> Subject {
    Subject::Replica {
        service: name.service.clone(),
        index: name.index,
        incarnation: name.incarnation,
        run,
        host,
    }
}

/// The name of a boot of a host.
fn boot_id_of(no: HostNo, boot: u32) -> String {
    format!("boot-{no}-{boot}")
}

/// A living process of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Living<'a> {
    pub(crate) name: &'a ReplicaName,
    pub(crate) run: Run,
    pub(crate) part: Part,
}

/// Which of the processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    /// Others of its group, after the end of the main process.
    Leftover,
}

#[cfg(test)]
mod host_test;
