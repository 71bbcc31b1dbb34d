//! The hosts and people of a scenario beside a controller that is none of ours, on a clock that the caller keeps.
//!
//! What [`super::run`] does between virtual hosts and a virtual controller, a caller does here between virtual hosts and
//! a real one: it carries what is [`Said`], and brings what comes back. Faults of the controller, of its disk and of the
//! network are not played: those parts are real.

use std::collections::VecDeque;
use std::sync::Arc;

use portreeve::registry::{Answer, Command, Config, Refusal, View};
use portreeve::rights::Caller;
use portreeve::time::{Monotonic, Now, WallClock};

use crate::scenario::Scenario;

use super::act::{Act, HostAct, HostNo, Whom};
use super::chance::Chance;
use super::controller::{Outcome, PersonNo};
use super::host::{Host, HostOut};
use super::network::CutOff;
use super::people::People;
use super::schedule::{Actor, Schedule};
use super::sight::What;
use super::spec::Spec;
use super::wire::{Asker, Question, Reply};
use super::workload::{Looked, Working};

/// The virtual hosts of a scenario, and the people who want something of the controller.
pub struct Fleet {
    spec: Arc<Spec>,
    /// The caller's clock when the scenario's began.
    began: Monotonic,
    schedule: Schedule,
    hosts: Vec<Host>,
    hosts_ahead: Vec<i64>,
    cut_off: Vec<CutOff>,
    next_act: usize,
    workloads: Vec<Working>,
    people: People,
    from_host: Vec<HostOut>,
}

/// Something for the controller.
#[derive(Clone, Debug)]
pub enum Said {
    /// An agent or a worker asks; the answer is for [`Fleet::hear`].
    Question {
        /// Who asks.
        from: Asker,
        /// What.
        question: Question,
        /// What its clock showed.
        sent: WallClock,
    },
    /// A person wants something; the answer is for [`Fleet::answer`].
    Order {
        /// Who waits for the answer.
        person: PersonNo,
        /// As whom.
        by: Caller,
        /// What.
        command: Box<Command>,
    },
}

impl Fleet {
    /// All hosts of a scenario, which start at `now`.
    #[must_use]
    pub fn new(scenario: &Scenario, now: Now) -> Self {
        let spec = Arc::clone(&scenario.spec);
        let chance = Chance::of(spec.seed);
        let at_start = Now {
            mono: Monotonic::default(),
            wall: now.wall,
        };
        let host = |no: HostNo| {
            let seed = chance.split_no("host", no as u64).any();
            Host::new(no, &spec, seed, at_start)
        };
        let hosts: Vec<Host> = (0..spec.hosts.len()).map(host).collect();
        let workloads = spec.workloads.iter().enumerate().map(|(no, workload)| {
            Working::new(workload.clone(), chance.split_no("workload", no as u64))
        });
        let mut fleet = Self {
            began: now.mono,
            schedule: Schedule::new(hosts.len(), spec.workloads.len()),
            hosts_ahead: vec![0; hosts.len()],
            cut_off: vec![CutOff::default(); hosts.len()],
            next_act: 0,
            workloads: workloads.collect(),
            people: People::new(&spec),
            from_host: Vec::new(),
            hosts,
            spec,
        };
        for no in 0..fleet.hosts.len() {
            fleet.schedule_host(no);
        }
        for no in 0..fleet.workloads.len() {
            let next = fleet.workloads[no].next();
            fleet.schedule.put(Actor::Workload(no), next);
        }
        fleet.schedule_world();
        fleet
    }

    /// How the controller is to be set.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.spec.config
    }

    /// How many hosts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// When [`Fleet::on_deadline`] is due, by the caller's clock; `None`: only if something comes back.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        let (due, _) = self.schedule.first()?;
        Some(self.began + due.since(Monotonic::default()))
    }

    /// Lets one of those who are due do what they have to; `view` is what readers of the controller see.
    pub fn on_deadline(&mut self, now: Now, view: &View, out: &mut VecDeque<Said>) {
        let now = self.since_the_beginning(now);
        let due = self.schedule.first().filter(|(due, _)| *due <= now.mono);
        let Some((_, actor)) = due else { return };
        match actor {
            Actor::World => {
                let act = self.spec.acts[self.next_act].act.clone();
                self.next_act += 1;
                self.schedule_world();
                self.do_act(now, &act, view, out);
            }
            Actor::Workload(no) => {
                let hosts = &self.spec.hosts;
                let looked = Looked {
                    view: Some(view),
                    services: &|no| self.people.service(no),
                    host: &|name| hosts.iter().position(|host| host.name == *name),
                };
                let act = self.workloads[no].act(&looked);
                let next = self.workloads[no].next();
                self.schedule.put(actor, next);
                if let Some(act) = act {
                    self.do_act(now, &act, view, out);
                }
            }
            Actor::Host(no) => {
                let now = self.host_now(now, no);
                self.hosts[no].on_deadline(now, &mut self.from_host);
                self.send(now, no, out);
            }
            // Both are the caller's.
            Actor::Network | Actor::Controller => self.schedule.put(actor, None),
        }
    }

    /// The answer to a question comes back.
    pub fn hear(&mut self, now: Now, to: &Asker, reply: Reply, out: &mut VecDeque<Said>) {
        let no = to.host;
        if self.cut_off[no].to_host {
            return;
        }
        let now = self.since_the_beginning(now);
        let now = self.host_now(now, no);
        self.hosts[no].reply(now, to, reply, &mut self.from_host);
        self.send(now, no, out);
    }

    /// A person is answered: what that was about and what became of it, in words. `None`: nobody answered.
    pub fn answer(
        &mut self,
        now: Now,
        person: PersonNo,
        answer: Option<Result<Answer, Refusal>>,
    ) -> Option<String> {
        let outcome = match answer {
            Some(Ok(answer)) => Outcome::Done(answer),
            Some(Err(refusal)) => Outcome::Refused(refusal),
            None => Outcome::Lost,
        };
        let at = self.since_the_beginning(now).mono;
        let (_, sight) = self.people.answer(at, person, outcome)?;
        match sight.what {
            What::User(words) => Some(format!("{}: {words}", sight.of)),
            _ => None,
        }
    }

    fn since_the_beginning(&self, now: Now) -> Now {
        Now {
            mono: Monotonic::default() + now.mono.since(self.began),
            wall: now.wall,
        }
    }

    fn host_now(&self, now: Now, no: HostNo) -> Now {
        let wall = now.wall.as_unix_millis();
        let wall = wall.saturating_add_signed(self.hosts_ahead[no]);
        Now {
            wall: WallClock::from_unix_millis(wall),
            ..now
        }
    }

    fn do_act(&mut self, now: Now, act: &Act, view: &View, out: &mut VecDeque<Said>) {
        match act {
            Act::Person(act) => {
                let (person, by, command) = self.people.order(&self.spec, act);
                let command = Box::new(command);
                out.push_back(Said::Order {
                    person,
                    by,
                    command,
                });
            }
            Act::Host(no, act) => self.befall(now, *no, act, out),
            Act::HostOf(whom, act) => {
                if let Some(no) = self.host_of(*whom, view) {
                    self.befall(now, no, act, out);
                }
            }
            Act::Heal => {
                for no in 0..self.hosts.len() {
                    self.hosts_ahead[no] = 0;
                    self.cut_off[no] = CutOff::default();
                    self.befall(now, no, &HostAct::Heals, out);
                }
            }
            // The real ones are what is tried.
            Act::Controller(_) | Act::Network(_) | Act::Disk(_) => {}
        }
    }

    fn host_of(&self, whom: Whom, view: &View) -> Option<HostNo> {
        let service = view.services.get(self.people.service(whom.service))?;
        let host = service.replicas.of(whom.index)?.host.as_ref()?;
        self.spec.hosts.iter().position(|it| it.name == *host)
    }

    fn befall(&mut self, now: Now, no: HostNo, act: &HostAct, out: &mut VecDeque<Said>) {
        match act {
            HostAct::CutOff { from_host, to_host } => {
                self.cut_off[no] = CutOff {
                    from_host: *from_host,
                    to_host: *to_host,
                };
            }
            HostAct::Rejoin => self.cut_off[no] = CutOff::default(),
            HostAct::ClockJumps(by) => {
                self.hosts_ahead[no] = self.hosts_ahead[no].saturating_add(*by);
            }
            other => {
                let now = self.host_now(now, no);
                self.hosts[no].act(now, other, &mut self.from_host);
                self.send(now, no, out);
            }
        }
    }

    /// Hands out what a host said.
    fn send(&mut self, now: Now, no: HostNo, out: &mut VecDeque<Said>) {
        for said in self.from_host.drain(..) {
            if let HostOut::Ask(from, question) = said
                && !self.cut_off[no].from_host
            {
                out.push_back(Said::Question {
                    from,
                    question,
                    sent: now.wall,
                });
            }
        }
        self.schedule_host(no);
    }

    fn schedule_host(&mut self, no: HostNo) {
        let next = self.hosts[no].next_deadline();
        self.schedule.put(Actor::Host(no), next);
    }

    fn schedule_world(&mut self) {
        let next = self.spec.acts.get(self.next_act).map(|planned| planned.at);
        self.schedule.put(Actor::World, next);
    }
}
