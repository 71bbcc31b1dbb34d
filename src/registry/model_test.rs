//! Random lives of a small cluster against plain promises, and against a plain account of what is wanted.
//!
//! The hosts are real as far as the registry can tell: each keeps what it was told to run, acts by
//! `residency::difference`, tells what it can, and runs on when it is cut off. The store fails, is slow, or has the
//! batch while the controller dies. In the end there is peace: everything is mended, time passes, and what runs must
//! be what the acknowledged commands mean.

mod checks;
mod machine;
mod op;
mod peace;
mod plain;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use crate::identity::ServiceName;
use crate::residency::ReplicaName;
use crate::supervision::{Final, State};

use super::rig::{Rig, alice, caller, exit, name};
use super::{Answer, Command, Input, Refusal, ReplicaReport};
use machine::Machine;
use op::{HOSTS, Op, Order, SERVICES, Wish, is_rerun};
use plain::Plain;

struct World {
    rig: Rig,
    machines: Vec<Machine>,
    told: Vec<ReplicaReport>,
    last_revision: u64,
    plain: Plain,
    /// Asked and not answered, in order.
    asked: Vec<Asked>,
    /// Services that may once have had a profile by which the loss of a host ends their copies for good.
    fragile: BTreeSet<usize>,
    /// Orders by which hosts are declared lost and that are not answered.
    declared: Vec<(u64, usize)>,
}

/// A command that waits for its answer.
struct Asked {
    ticket: u64,
    service: usize,
    wish: Wish,
    /// Whether every end was heard of when it was asked, and so decided.
    settled: bool,
    /// What ended since: the command says nothing about these ends.
    ended: Vec<ReplicaName>,
}

impl World {
    fn new(coalesce: Duration) -> Self {
        let config = super::Config {
            coalesce,
            silence: Some(super::Silence::default()),
            ..super::rig::config()
        };
        Self {
            rig: Rig::at(super::MemoryStore::default(), super::rig::now(0), config),
            machines: HOSTS.map(Machine::new).into(),
            told: Vec::new(),
            last_revision: 0,
            plain: Plain::default(),
            asked: Vec::new(),
            fragile: BTreeSet::new(),
            declared: Vec::new(),
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Ask(service, wish) => self.ask(service, wish),
            Op::Stranger(_) if self.rig.slow => {}
            Op::Stranger(service) => {
                let before = self.rig.everything();
                let command = Command::Stop {
                    service: name(SERVICES[service]),
                };
                let refused = self.rig.ask_as(&caller("bob"), command);
                assert!(matches!(refused, Err(Refusal::NoSuchService { .. })));
                assert_eq!(self.rig.everything(), before);
            }
            Op::Tell(which, what) => self.tell(which, what),
            Op::Replay(which) => {
                let report = self.told.get(which).cloned();
                let is_linked = |report: &ReplicaReport| {
                    let mut machines = self.machines.iter();
                    machines.any(|it| it.linked && it.name == report.host)
                };
                if let Some(report) = report.filter(is_linked) {
                    self.rig.tell(Input::Status(report));
                }
            }
            Op::Join(host, full) => self.join(host, full),
            Op::Boot(host) => {
                self.machines[host].boot();
                self.join(host, true);
            }
            Op::Operate(host, order) => self.operate(host, order),
            Op::Shutdown(host) => {
                let machine = &self.machines[host];
                if machine.linked && machine.joined {
                    let host = machine.name.clone();
                    self.rig.tell(Input::HostShutdown { host });
                }
            }
            Op::Cut(host) => self.machines[host].linked = false,
            Op::Mend(host, workers_first) => self.mend(host, workers_first),
            Op::Foreign(host, port) => {
                self.machines[host].stranger = Some(port);
                self.join(host, false);
            }
            Op::Pass(ms) => self.pass(Duration::from_millis(ms)),
            Op::FailNext(count) => self.rig.store.failing_commits = count,
            Op::Slow => self.rig.slow = true,
            Op::Land => self.land(),
            Op::Crash => self.crash(),
            Op::CrashStored => {
                // What it would have answered is what became durable.
                if self.rig.with_store.is_some() {
                    self.rig.land();
                }
                self.hear_answers();
                self.crash();
            }
        }
        self.hear_answers();
        self.act();
        self.check();
    }

    fn land(&mut self) {
        self.rig.slow = false;
        if self.rig.with_store.is_some() {
            self.rig.land();
        }
        self.rig.settle();
    }

    fn crash(&mut self) {
        let rig = std::mem::replace(&mut self.rig, Rig::new());
        self.rig = rig.restart();
        self.asked.clear();
        self.declared.clear();
        for machine in &mut self.machines {
            machine.told_nobody();
            // A start of the controller is no silence of the host.
            machine.heard_ms = now_ms(&self.rig);
        }
    }

    fn ask(&mut self, service: usize, wish: Wish) {
        let command = wish.command(SERVICES[service]);
        if wish.shape().is_some_and(|shape| !is_rerun(shape)) {
            self.fragile.insert(service);
        }
        let before = (!self.rig.slow).then(|| self.rig.everything());
        let settled = self.is_heard();
        let ticket = self.rig.ask_later(&alice(), command);
        self.rig.settle();
        if let (Some(before), Some(Err(refusal))) = (before, self.rig.answers.get(&ticket)) {
            // What was decided anew after a refused batch, and the ceiling, are no work of the command.
            if self.rig.store.failing_commits == 0 && !matches!(refusal, Refusal::NotStored { .. })
            {
                let text = format!("{wish:?}: {refusal}");
                assert_eq!(self.rig.everything(), before, "{text}");
            }
        }
        self.asked.push(Asked {
            ticket,
            service,
            wish,
            settled,
            ended: Vec::new(),
        });
    }

    fn operate(&mut self, host: usize, order: Order) {
        let machine = &mut self.machines[host];
        if order == Order::Fenced {
            if self.rig.slow {
                // The word is of the moment at which it is given, and the host may be back before it is heard.
                return;
            }
            // Whoever says so has made sure of it.
            machine.boot();
            machine.linked = false;
        }
        let command = Command::Host {
            host: machine.name.clone(),
            verb: order.verb(),
        };
        let ticket = self.rig.ask_later(&checks::operator(), command);
        if order == Order::Down {
            self.declared.push((ticket, host));
            self.forsake_the_declared();
        }
        self.rig.settle();
    }

    /// Until the order is answered, it may be carried out at any moment.
    fn forsake_the_declared(&mut self) {
        for (_, host) in &self.declared {
            self.machines[*host].forsake();
        }
        let answers = &self.rig.answers;
        self.declared
            .retain(|(ticket, _)| !answers.contains_key(ticket));
    }

    /// Keeps the plain account of what was acknowledged.
    fn hear_answers(&mut self) {
        self.forsake_the_declared();
        let mut open = Vec::new();
        for asked in std::mem::take(&mut self.asked) {
            let Some(answer) = self.rig.answers.remove(&asked.ticket) else {
                open.push(asked);
                continue;
            };
            if let Ok(Answer { changed: true, .. }) = answer {
                self.plain
                    .apply(asked.service, &asked.wish.meaning(), asked.settled);
                for who in &asked.ended {
                    self.plain.ended(asked.service, who);
                }
            }
        }
        self.asked = open;
    }

    /// Whether the controller knows of every end on every host.
    fn is_heard(&self) -> bool {
        !self.rig.slow
            && self.machines.iter().all(|machine| {
                let wanted = self.rig.registry.desired(&machine.name);
                machine.linked && wanted.is_none_or(|(_, untold, _)| !untold)
            })
    }

    fn tell(&mut self, which: usize, what: usize) {
        let living: Vec<(usize, ReplicaName)> = self
            .machines
            .iter()
            .enumerate()
            .flat_map(|(host, machine)| machine.living().map(move |(it, _)| (host, it.clone())))
            .collect();
        let Some((host, who)) = living.get(which % living.len().max(1)).cloned() else {
            return;
        };
        let machine = &mut self.machines[host];
        let mut living = machine.living();
        let grant = living.find(|(it, _)| **it == who).map(|(_, grant)| grant);
        let port = grant.and_then(|it| Some(it.ports.first()?.numbers.first()));
        drop(living);
        let is_stopping = machine.is_stopping(&who);
        let mut renews = false;
        machine.becomes(&who, |status| {
            status.ready = false;
            match what {
                0..=2 => {
                    status.state = State::Up;
                    status.ready = true;
                    status.restart_no = 9;
                }
                3 => status.state = State::Up,
                4 => {
                    status.state = State::Backoff;
                    status.restarts += 1;
                }
                5 => status.state = State::Final(Final::Stopped),
                6 => {
                    status.state = State::Final(Final::GaveUp {
                        reason: exit(1),
                        count: 1,
                    });
                }
                _ => {
                    renews = port.is_some();
                    status.state = State::Final(match port {
                        Some(port) => Final::PortConflict {
                            port,
                            protocol: crate::port::Protocol::Tcp,
                            pid: None,
                            comm: None,
                        },
                        None => Final::Succeeded,
                    });
                }
            }
        });
        if what >= 5 && !is_stopping && !renews {
            let service = service_number(&who.service);
            self.plain.ended(service, &who);
            let asked = self.asked.iter_mut();
            for asked in asked.filter(|it| it.service == service) {
                asked.ended.push(who.clone());
            }
        }
        self.deliver(host, &who);
        if self.machines[host].linked && !(0..=2).contains(&what) {
            self.a_withdrawal_waits_for_no_store(&who);
        }
    }

    /// The worker tells its newest status, if it can.
    fn deliver(&mut self, host: usize, who: &ReplicaName) {
        let machine = &self.machines[host];
        let Some(report) = machine.tells(who).filter(|_| machine.linked) else {
            return;
        };
        self.told.push(report.clone());
        self.rig.tell(Input::Status(report));
    }

    fn join(&mut self, host: usize, full: bool) {
        let now = now_ms(&self.rig);
        let machine = &mut self.machines[host];
        if !machine.linked {
            return;
        }
        machine.joined = true;
        machine.heard_ms = now;
        // The first word after a boot is everything.
        let full = std::mem::take(&mut machine.booted) || full;
        self.rig.tell(Input::HostReport(machine.report(full)));
    }

    fn mend(&mut self, host: usize, workers_first: bool) {
        if std::mem::replace(&mut self.machines[host].linked, true) {
            return;
        }
        let residents = self.machines[host].residents.iter();
        let watched = residents.filter(|(_, it)| it.may_live());
        let told: Vec<ReplicaName> = watched.map(|(name, _)| name.clone()).collect();
        if workers_first {
            told.iter().for_each(|who| self.deliver(host, who));
        }
        self.lease(host);
        if !workers_first {
            told.iter().for_each(|who| self.deliver(host, who));
        }
    }

    /// The agent gives its sign of life, and tells everything if that is what it is asked for.
    fn lease(&mut self, host: usize) {
        let now = now_ms(&self.rig);
        let machine = &mut self.machines[host];
        if !machine.linked || !machine.joined {
            return;
        }
        if machine.booted {
            return self.join(host, true);
        }
        machine.heard_ms = now;
        let name = machine.name.clone();
        self.rig.tell(Input::Lease {
            host: name.clone(),
            skew_ms: None,
        });
        if let Some((_, true, _)) | None = self.rig.registry.desired(&name) {
            self.join(host, true);
        }
    }

    /// Time passes in which every linked host gives signs of life.
    fn pass(&mut self, span: Duration) {
        const LEASE: Duration = Duration::from_secs(5);
        let mut left = span;
        while !left.is_zero() {
            let step = left.min(LEASE);
            self.rig.pass(step);
            left -= step;
            for host in 0..self.machines.len() {
                self.lease(host);
            }
            self.forsake_the_silent();
            self.hear_answers();
            self.act();
        }
    }

    /// Who was silent for the grace may have been given up with all that runs there.
    fn forsake_the_silent(&mut self) {
        let now = now_ms(&self.rig);
        let silent = |it: &&mut Machine| Duration::from_millis(now - it.heard_ms) >= GRACE;
        let silent = self.machines.iter_mut().filter(silent);
        silent.for_each(Machine::forsake);
    }

    /// Every host that hears of it does what it is wanted to.
    fn act(&mut self) {
        for _ in 0..8 {
            let mut is_quiet = true;
            for host in 0..self.machines.len() {
                let machine = &mut self.machines[host];
                let wanted = self.rig.registry.desired(&machine.name);
                let Some((_, false, wanted)) = wanted.filter(|_| machine.linked && !machine.booted)
                else {
                    // Unknown, cut off, or to tell everything before it acts.
                    continue;
                };
                let (reports, begun) = machine.act(&wanted);
                is_quiet &= reports.is_empty() && begun.is_empty();
                for who in begun {
                    self.nobody_else_is_that_copy(host, &who);
                }
                for report in reports {
                    self.rig.tell(Input::Status(report));
                }
            }
            if is_quiet {
                return;
            }
        }
        panic!("the hosts never come to rest");
    }
}

/// As configured by default.
const GRACE: Duration = Duration::from_secs(90);

fn now_ms(rig: &Rig) -> u64 {
    rig.now.wall.as_unix_millis()
}

fn service_number(service: &ServiceName) -> usize {
    let mut known = SERVICES.iter();
    known
        .position(|it| name(it) == *service)
        .expect("one of ours")
}

proptest! {
    #[test]
    fn any_life_of_a_cluster_keeps_the_promises(
        ops in proptest::collection::vec(op::op(), 1..80),
        coalesce in prop::sample::select(vec![0_u64, 20, 1000]),
    ) {
        let mut world = World::new(Duration::from_millis(coalesce));
        for op in ops {
            world.run(op);
        }
        world.makes_peace();
    }
}
