//! From a seed's mix to acts at their times.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

use portreeve::identity::ServiceName;
use portreeve::port::{Port, Protocol};
use portreeve::registry::{DrainPace, HostReplica, HostVerb};
use portreeve::supervision::ExitStatus;
use portreeve::time::Monotonic;

use super::draw::Draw;
use super::mix::{Kind, Mix};
use crate::cluster::act::{
    Act, ControllerAct, HostAct, HostNo, PersonAct, Planned, ServiceNo, StrangerPort, Whom,
};
use crate::cluster::spec::{DiskSpec, NetworkSpec};

/// What faults are drawn for.
pub(super) struct Field<'a> {
    pub(super) hosts: usize,
    pub(super) services: usize,
    /// What the controller calls them.
    pub(super) names: &'a [ServiceName],
    pub(super) most_replicas: u32,
    /// When they happen.
    pub(super) storm: Range<Monotonic>,
    /// Spans that decide something: a fault often lasts about as long as one of them.
    pub(super) telling: &'a [Duration],
    /// Where "any" draws from, and what services ask for by number.
    pub(super) numbers: &'a [Port],
}

/// Everything that goes wrong in this seed, in no order.
pub(super) fn acts(seed: u64, mix: &Mix, field: &Field<'_>) -> Vec<Planned> {
    let mut planned = Vec::new();
    for (kind, often) in &mix.kinds {
        let mut drawn = Faults {
            draw: Draw::new(seed, &format!("{kind:?}")),
            field,
            planned: &mut planned,
        };
        for _ in 0..*often {
            drawn.add(*kind);
        }
    }
    planned
}

struct Faults<'a> {
    draw: Draw,
    field: &'a Field<'a>,
    planned: &'a mut Vec<Planned>,
}

impl Faults<'_> {
    fn add(&mut self, kind: Kind) {
        let at = self.moment();
        let host = self.host();
        let (service, whom) = (self.service(), self.whom());
        match kind {
            Kind::PowerLoss => {
                self.host_act(at, host, HostAct::PowerLoss);
                self.back(at, |_| Act::Host(host, HostAct::Boot));
            }
            Kind::Shutdown => {
                self.host_act(at, host, HostAct::Shutdown);
                self.back(at, |_| Act::Host(host, HostAct::Boot));
            }
            Kind::CutOff => self.cut_off(at, true, true),
            Kind::CutOffOneWay => {
                let from_host = self.draw.once_in(2);
                self.cut_off(at, from_host, !from_host);
            }
            Kind::AgentKilled => {
                self.host_act(at, host, HostAct::AgentKilled);
                self.back(at, |_| Act::Host(host, HostAct::AgentStarts));
            }
            Kind::AgentHalted => {
                self.host_act(at, host, HostAct::AgentHalted);
                self.back(at, |_| Act::Host(host, HostAct::AgentContinued));
            }
            Kind::AgentDies => {
                let after = self.draw.count(0..=6);
                self.host_act(at, host, HostAct::AgentDiesAfter(after));
                self.back(at, |_| Act::Host(host, HostAct::AgentStarts));
            }
            Kind::WorkerKilled => self.plan(at, Act::HostOf(whom, HostAct::WorkerKilled(whom))),
            Kind::WorkerHalted => {
                self.plan(at, Act::HostOf(whom, HostAct::WorkerHalted(whom)));
                self.back(at, |_| Act::HostOf(whom, HostAct::WorkerContinued(whom)));
            }
            Kind::WorkerDies => {
                let after = self.draw.count(0..=5);
                self.plan(at, Act::HostOf(whom, HostAct::WorkerDiesAfter(whom, after)));
            }
            Kind::ProcessEnds => {
                let status = self.draw.one_of(&[
                    ExitStatus::Code(0),
                    ExitStatus::Code(1),
                    ExitStatus::Signal {
                        signal: 9,
                        core: false,
                        oom: true,
                    },
                ]);
                self.plan(at, Act::HostOf(whom, HostAct::ProcessEnds(whom, status)));
            }
            Kind::WorkerStop => {
                let grace = self.draw.once_in(2).then(|| self.draw.span(0..=5_000));
                self.plan(at, Act::HostOf(whom, HostAct::WorkerStop(whom, grace)));
            }
            Kind::WorkerRestart => self.plan(at, Act::HostOf(whom, HostAct::WorkerRestart(whom))),
            Kind::HostDiskFull => {
                self.host_act(at, host, HostAct::DiskFull(true));
                self.back(at, |_| Act::Host(host, HostAct::DiskFull(false)));
            }
            Kind::Stranger => self.stranger(at, host, whom),
            Kind::HostClock => {
                let ms = self.jump();
                self.host_act(at, host, HostAct::ClockJumps(ms));
            }
            Kind::Address => self.address(at, host),
            Kind::ControllerKilled => {
                self.controller(at, ControllerAct::Killed);
                self.back(at, |_| Act::Controller(ControllerAct::Starts));
            }
            Kind::ControllerHalted => {
                self.controller(at, ControllerAct::Halted);
                self.back(at, |_| Act::Controller(ControllerAct::Continued));
            }
            Kind::ControllerDies => {
                let after = self.draw.count(0..=8);
                self.controller(at, ControllerAct::DiesAfter(after));
                self.back(at, |_| Act::Controller(ControllerAct::Starts));
            }
            Kind::ControllerDiskFull => {
                self.controller(at, ControllerAct::DiskFull(true));
                self.back(at, |_| Act::Controller(ControllerAct::DiskFull(false)));
            }
            Kind::ControllerDiesInCommit => {
                let written = self.draw.once_in(2);
                self.controller(at, ControllerAct::DiesInCommit { written });
                self.back(at, |_| Act::Controller(ControllerAct::Starts));
            }
            Kind::ControllerClock => {
                let ms = self.jump();
                self.controller(at, ControllerAct::ClockJumps(ms));
            }
            Kind::Restore => {
                self.controller(at, ControllerAct::Backup);
                self.back(at, |_| Act::Controller(ControllerAct::Restore));
            }
            Kind::Network => {
                let network = network(&mut self.draw);
                self.plan(at, Act::Network(network));
                self.back(at, |_| Act::Network(NetworkSpec::default()));
            }
            Kind::Disk => {
                let disk = disk(&mut self.draw);
                self.plan(at, Act::Disk(disk));
                self.back(at, |_| Act::Disk(DiskSpec::default()));
            }
            Kind::Drain => {
                let pace = self.draw.one_of(&[
                    DrainPace::OneByOne,
                    DrainPace::OneByOne,
                    DrainPace::Within(Duration::from_secs(20)),
                    DrainPace::AtOnce,
                ]);
                self.verb(at, host, HostVerb::Drain { pace });
                self.back(at, |_| {
                    Act::Person(PersonAct::Host(host, HostVerb::Undrain))
                });
            }
            Kind::Down => {
                let fenced = self.draw.once_in(2);
                self.verb(at, host, HostVerb::Down { fenced });
            }
            Kind::Remove => self.verb(at, host, HostVerb::Remove),
            Kind::Fence => self.verb(at, host, HostVerb::Fence { replica: None }),
            Kind::Adopt => self.adopt(at),
            Kind::Scale => {
                let replicas = self.draw.count(0..=self.field.most_replicas);
                self.person(at, PersonAct::Scale(service, replicas));
            }
            Kind::StartStop => {
                self.person(at, PersonAct::Stop(service));
                self.back(at, |_| Act::Person(PersonAct::Start(service)));
            }
            Kind::Restart => {
                let index = self.draw.once_in(2).then_some(whom.index);
                self.person(at, PersonAct::Restart(service, index));
            }
            Kind::Replace => {
                let generation = self.draw.count(1..=3);
                self.person(at, PersonAct::Replace(service, generation));
            }
            Kind::Kill => self.person(at, PersonAct::Kill(service, whom.index)),
            Kind::Delete => {
                self.person(at, PersonAct::Stop(service));
                self.back(at, |_| Act::Person(PersonAct::Delete(service)));
                if self.draw.once_in(2) {
                    self.back(at, |_| Act::Person(PersonAct::Submit(service)));
                }
            }
        }
    }

    /// The store is set back, so that hosts run what it does not know; then people make some of that theirs again.
    fn adopt(&mut self, at: Monotonic) {
        self.controller(at, ControllerAct::Backup);
        let mut at = at + self.lasting();
        self.controller(at, ControllerAct::Restore);
        for _ in 0..self.draw.count(1..=8) {
            at = at + self.draw.span(0..=8_000);
            let (host, whom) = (self.host(), self.whom());
            let Some(service) = self.field.names.get(whom.service) else {
                return;
            };
            let replica = HostReplica {
                service: service.clone(),
                index: whom.index,
                incarnation: None,
            };
            self.verb(at, host, HostVerb::Adopt { replica });
        }
    }

    fn cut_off(&mut self, at: Monotonic, from_host: bool, to_host: bool) {
        // Now and then half of all at once, as when a switch dies.
        let hosts = if self.draw.once_in(5) {
            (0..self.field.hosts).step_by(2).collect()
        } else {
            vec![self.host()]
        };
        for host in &hosts {
            let act = HostAct::CutOff { from_host, to_host };
            self.host_act(at, *host, act);
        }
        let until = at + self.lasting();
        for host in hosts {
            self.host_act(until, host, HostAct::Rejoin);
        }
    }

    fn stranger(&mut self, at: Monotonic, host: HostNo, whom: Whom) {
        let port = if self.draw.once_in(2) && !self.field.numbers.is_empty() {
            let number = self.draw.one_of(self.field.numbers);
            let protocol = self
                .draw
                .one_of(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp]);
            StrangerPort::Number(number, protocol)
        } else {
            StrangerPort::Of(whom)
        };
        let on = |act| match port {
            StrangerPort::Of(whom) => Act::HostOf(whom, act),
            StrangerPort::Number(..) => Act::Host(host, act),
        };
        self.plan(at, on(HostAct::StrangerTakes(port)));
        self.back(at, |_| on(HostAct::StrangerLeaves(port)));
    }

    fn address(&mut self, at: Monotonic, host: HostNo) {
        let last = u8::try_from(self.draw.within(200..=203)).unwrap_or(200);
        let address = IpAddr::V4(Ipv4Addr::new(10, 9, 0, last));
        let address = (!self.draw.once_in(4)).then_some(address);
        self.host_act(at, host, HostAct::AddressBecomes(address));
        if address.is_none() {
            // One of its own again, of which nobody else claims anything.
            let own = u8::try_from(host % 200).unwrap_or(0);
            let address = Some(IpAddr::V4(Ipv4Addr::new(10, 8, 0, own)));
            self.back(at, |_| Act::Host(host, HostAct::AddressBecomes(address)));
        }
    }

    fn host_act(&mut self, at: Monotonic, host: HostNo, act: HostAct) {
        self.plan(at, Act::Host(host, act));
    }

    fn controller(&mut self, at: Monotonic, act: ControllerAct) {
        self.plan(at, Act::Controller(act));
    }

    fn person(&mut self, at: Monotonic, act: PersonAct) {
        self.plan(at, Act::Person(act));
    }

    fn verb(&mut self, at: Monotonic, host: HostNo, verb: HostVerb) {
        self.person(at, PersonAct::Host(host, verb));
    }

    fn plan(&mut self, at: Monotonic, act: Act) {
        if at < self.field.storm.end {
            self.planned.push(Planned { at, act });
        }
    }

    /// What makes a fault good again, after a while; now and then only the end of the storm does.
    fn back(&mut self, at: Monotonic, act: impl Fn(&mut Draw) -> Act) {
        if !self.draw.once_in(10) {
            let at = at + self.lasting();
            let act = act(&mut self.draw);
            self.plan(at, act);
        }
    }

    /// How long something lasts: no time, a while, or as long as something that counts, give or take a little.
    fn lasting(&mut self) -> Duration {
        match self.draw.within(0..=5) {
            0 => Duration::ZERO,
            1 => self.draw.span(1..=2_000),
            2 | 3 => self.draw.span(1_000..=60_000),
            _ => {
                let span = self.draw.one_of(self.field.telling);
                let slack = Duration::from_millis(self.draw.within(0..=2_000));
                if self.draw.once_in(2) {
                    span + slack
                } else {
                    span.saturating_sub(slack)
                }
            }
        }
    }

    fn moment(&mut self) -> Monotonic {
        let storm = &self.field.storm;
        let length = storm.end.since(storm.start).as_millis();
        let last = u64::try_from(length).unwrap_or(u64::MAX).max(1) - 1;
        storm.start + self.draw.span(0..=last)
    }

    fn host(&mut self) -> HostNo {
        self.draw.place(self.field.hosts)
    }

    fn service(&mut self) -> ServiceNo {
        self.draw.place(self.field.services)
    }

    fn whom(&mut self) -> Whom {
        Whom {
            service: self.service(),
            // Mostly one that is there.
            index: self.draw.one_of(&[0, 0, 0, 1, 1, 2]),
        }
    }

    fn jump(&mut self) -> i64 {
        let span = self.draw.one_of(&[1_000, 30_000, 3_600_000, 86_400_000]);
        if self.draw.once_in(2) { span } else { -span }
    }
}

/// A network of any quality, the ideal one among them.
pub(super) fn network(draw: &mut Draw) -> NetworkSpec {
    if draw.once_in(3) {
        return NetworkSpec::default();
    }
    let least = draw.span(0..=20);
    let most = least + draw.span(0..=500);
    let parts = [0, 0, 1_000, 20_000, 200_000];
    NetworkSpec {
        delay: least..most,
        loss: draw.one_of(&parts),
        duplication: draw.one_of(&parts),
        reordering: (draw.one_of(&parts), draw.span(10..=5_000)),
    }
}

/// A disk of any quality, the ideal one among them.
pub(super) fn disk(draw: &mut Draw) -> DiskSpec {
    if draw.once_in(3) {
        return DiskSpec::default();
    }
    let least = draw.span(0..=10);
    DiskSpec {
        commit: least..least + draw.span(0..=1_000),
        refusal: draw.one_of(&[0, 0, 10_000, 200_000]),
    }
}
