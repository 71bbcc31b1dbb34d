//! What befalls a cluster: each act reaches whom it is about.

use std::time::Duration;

use portreeve::time::Monotonic;

use super::super::act::{Act, ControllerAct, HostAct, HostNo, PersonAct, Whom};
use super::super::network::CutOff;
use super::super::sight::{Sight, Subject, What};
use super::{Cluster, Step};

impl Cluster {
    pub(super) fn do_act(&mut self, act: &Act, step: &mut Step) {
        match act {
            Act::Person(act) => self.order(act),
            Act::Host(no, act) => self.befall(*no, act, step),
            Act::HostOf(whom, act) => {
                let begun = self.begun.get(whom).filter(|_| act.is_an_end());
                if let Some(no) = begun.copied().or_else(|| self.host_of(*whom)) {
                    if !act.is_an_end() {
                        self.begun.insert(*whom, no);
                    }
                    self.befall(no, act, step);
                }
            }
            Act::Controller(act) => {
                if let ControllerAct::ClockJumps(by) = act {
                    self.controller_ahead = self.controller_ahead.saturating_add(*by);
                    step.sights
                        .push(befell(step.at, Subject::Controller, clock_words(*by)));
                }
                let now = self.controller_now();
                self.controller.act(now, act, &mut self.from_controller);
            }
            Act::Network(spec) => {
                self.network.become_like(spec.clone());
                let words = "the network is another one".to_owned();
                step.sights
                    .push(befell(step.at, Subject::Controller, words));
            }
            Act::Disk(spec) => {
                self.controller.disk_becomes(spec.clone());
                let words = "its disk is another one".to_owned();
                step.sights
                    .push(befell(step.at, Subject::Controller, words));
            }
            Act::Heal => self.heal(step),
        }
    }

    /// Where a replica is placed, or else lives.
    fn host_of(&self, whom: Whom) -> Option<HostNo> {
        let name = self.people.service(whom.service);
        let view = self.controller.view();
        let service = view.and_then(|view| view.services.get(name));
        let replica = service.and_then(|it| it.replicas.of(whom.index));
        let placed = replica.and_then(|it| self.controller.telling().host_no(it.host.as_ref()?));
        placed.or_else(|| {
            self.hosts.iter().position(|host| {
                let mut attended = host.attended();
                attended.any(|it| it.copy() == (name, whom.index))
            })
        })
    }

    fn order(&mut self, act: &PersonAct) {
        let (person, by, command) = self.people.order(&self.spec, act);
        let now = self.controller_now();
        let out = &mut self.from_controller;
        self.controller.person(now, person, by, command, out);
    }

    fn befall(&mut self, no: HostNo, act: &HostAct, step: &mut Step) {
        let of = Subject::Host(no);
        match act {
            HostAct::CutOff { from_host, to_host } => {
                let directions = CutOff {
                    from_host: *from_host,
                    to_host: *to_host,
                };
                self.network.cut_off(no, directions);
                let words = match (from_host, to_host) {
                    (true, true) => "cut off",
                    (true, false) => "not heard any more",
                    (false, true) => "hears nothing any more",
                    (false, false) => "back on the network",
                };
                step.sights.push(befell(step.at, of, words.to_owned()));
            }
            HostAct::Rejoin => {
                self.network.cut_off(no, CutOff::default());
                let words = "back on the network".to_owned();
                step.sights.push(befell(step.at, of, words));
            }
            HostAct::ClockJumps(by) => {
                self.hosts_ahead[no] = self.hosts_ahead[no].saturating_add(*by);
                step.sights.push(befell(step.at, of, clock_words(*by)));
            }
            other => {
                let now = self.host_now(no);
                self.hosts[no].act(now, other, &mut self.from_host);
                self.schedule_host(no);
            }
        }
    }

    fn heal(&mut self, step: &mut Step) {
        step.sights.push(befell(
            step.at,
            Subject::Controller,
            "everything is right again".to_owned(),
        ));
        self.network.heal();
        self.controller_ahead = 0;
        self.hosts_ahead.fill(0);
        let now = self.controller_now();
        self.controller.heal(now, &mut self.from_controller);
        for no in 0..self.hosts.len() {
            let now = self.host_now(no);
            self.hosts[no].act(now, &HostAct::Heals, &mut self.from_host);
            self.schedule_host(no);
        }
    }
}

fn befell(at: Monotonic, of: Subject, words: String) -> Sight {
    Sight {
        at,
        of,
        what: What::Befell(words),
    }
}

fn clock_words(by_ms: i64) -> String {
    let by = portreeve::time::Spelled(Duration::from_millis(by_ms.unsigned_abs()));
    let way = if by_ms < 0 { "back" } else { "ahead" };
    format!("its clock jumps {by} {way}")
}
