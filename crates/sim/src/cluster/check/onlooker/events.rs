//! What happened: to whom, and what it means for what is promised.

use portreeve::identity::HostName;
use portreeve::registry::{HostVerb, View};
use portreeve::residency::ReplicaName;
use portreeve::supervision::{Final, Report};
use portreeve::time::Monotonic;

use super::super::coverage::Kind;
use super::super::{Verdict, durable, words};
use super::Checks;
use crate::cluster::act::{Act, ControllerAct, HostAct, HostNo, PersonAct, Whom};
use crate::cluster::host::Host;
use crate::cluster::run::{Cluster, Handed, Step};
use crate::cluster::sight::{Sight, Subject, What};
use crate::cluster::wire::Heard;

impl Checks {
    pub(super) fn heard(&mut self, at: Monotonic, host: HostNo, heard: &Heard) {
        self.coverage.reach(Kind::Question, words::heard(heard));
        self.silence.asked(at, heard);
        match heard {
            Heard::Status(word) => self.listing.told(at, word),
            Heard::Report { told, number, .. } => {
                if self.contacts.reported(host, number.as_ref()) {
                    self.contacts.heard(host, at);
                    told.iter().for_each(|word| self.listing.told(at, word));
                }
            }
            Heard::Lease => self.contacts.heard(host, at),
            Heard::Wanted | Heard::Shutdown => {}
        }
    }

    /// The controller, which stood still, goes on and listens to what was said meanwhile: what of it is shown then is not
    /// followed, but nothing older counts after it.
    pub(super) fn taken_in(&mut self, host: HostNo, heard: &Heard) {
        let told = match heard {
            Heard::Status(word) => std::slice::from_ref(word),
            Heard::Report { told, number, .. } => {
                self.contacts.reported(host, number.as_ref());
                told
            }
            Heard::Lease | Heard::Wanted | Heard::Shutdown => &[],
        };
        for word in told {
            self.listing.passed(word);
        }
    }

    /// What a host is told that is wanted of it, and whom it tells to stop.
    pub(super) fn told_hosts(&mut self, step: &Step) -> Verdict {
        if let (Some(wanted), Handed::Reply(asker)) = (&step.wanted, &step.handed) {
            self.unasked.arrived(asker.host, wanted);
        }
        for (host, name) in &step.stopped {
            self.coverage.reach(Kind::Looked, "orders to stop");
            let shown = self.spec.hosts[*host].name.as_str();
            self.unasked.stopped(*host, shown, name)?;
        }
        Ok(())
    }

    pub(super) fn acted(&mut self, at: Monotonic, act: &Act) {
        self.coverage.reach(Kind::Act, words::act(act));
        self.silence.end();
        self.is_settled = false;
        self.healed = match act {
            Act::Heal => Some(at),
            // Whatever people ask for is settled from then on.
            Act::Person(_) => self.healed.map(|_| at),
            _ => None,
        };
        match act {
            Act::Person(act) => {
                let person = self.persons;
                self.persons += 1;
                if let Some((service, meaning)) = self.meaning(act) {
                    self.restarts.asked(&self.services[service]);
                    self.oracle.asked(person, service, meaning);
                }
                if let Some(service) = self.adopted(act) {
                    self.oracle.is_adopted(service);
                }
                if let PersonAct::Host(no, HostVerb::Down { .. }) = act {
                    self.contacts.ordered(*no);
                    self.lives.lose(*no);
                }
                if let PersonAct::Host(no, HostVerb::Down { fenced: true }) = act {
                    self.hosts[*no].numbers.being_fenced();
                }
                if let PersonAct::Host(no, HostVerb::Remove) = act {
                    self.hosts[*no].removals += 1;
                }
            }
            Act::Host(host, act) => {
                if matches!(act, HostAct::PowerLoss) {
                    self.lives.power_lost(*host);
                }
                self.befell(*host, act);
            }
            // On whichever host it is.
            Act::HostOf(_, act) => (0..self.hosts.len()).for_each(|host| self.befell(host, act)),
            Act::Controller(ControllerAct::Restore) => {
                self.is_set_back = true;
                self.oracle.is_set_back();
                self.restarts.set_back();
                self.listing.set_back();
                self.lives.forsake_placed(self.durable.all_placed());
                self.durable.set_back();
                self.lives.forsake_all();
                for host in &mut self.hosts {
                    host.numbers.set_back();
                    host.rests.forget();
                }
            }
            Act::Controller(ControllerAct::Halted) => self.contacts.halt(at),
            Act::Controller(ControllerAct::Continued) | Act::Heal => {
                // What it shows of what it took in at once then was not seen.
                self.listing.begin();
                self.contacts.go_on(at);
            }
            Act::Controller(_) | Act::Network(_) | Act::Disk(_) => {}
        }
    }

    fn befell(&mut self, host: HostNo, act: &HostAct) {
        self.hosts[host].is_rough |= matches!(
            act,
            HostAct::DiskFull(true)
                | HostAct::PowerLoss
                | HostAct::WorkerKilled(_)
                | HostAct::WorkerDiesAfter(..)
                | HostAct::AgentKilled
                | HostAct::AgentDiesAfter(_)
        );
        match act {
            HostAct::PowerLoss | HostAct::Shutdown => {
                let living = self.hosts[host].living.iter().map(|it| it.name.clone());
                self.restarts.power_lost(living);
            }
            HostAct::WorkerStop(Whom { service, index }, _) => {
                self.oracle.ended_by_hand(*service, *index);
            }
            _ => {}
        }
    }

    pub(super) fn sights(&mut self, sights: &[Sight], cluster: &Cluster) -> Verdict {
        for sight in sights {
            self.follow_roll(sight);
            let Subject::Replica {
                service,
                index,
                incarnation,
                run,
                host,
            } = &sight.of
            else {
                continue;
            };
            let name = ReplicaName {
                service: service.clone(),
                index: *index,
                incarnation: *incarnation,
            };
            match &sight.what {
                What::Report(report) => {
                    self.coverage.reach(Kind::Report, words::report(report));
                    self.coverage.reach(Kind::Looked, "reports of machines");
                    if let Report::Final(end) = report {
                        self.lives.ended(*host, &name);
                        self.ended(&name, end);
                    }
                    let no = self.by_name.get(service);
                    if let Some(no) = no {
                        let rules = &self.spec.services[*no].profile.supervision;
                        let host = cluster.hosts().get(*host);
                        let is_full = host.is_some_and(Host::is_disk_full);
                        let at = (sight.at, is_full);
                        self.restarts.told(at, &name, *run, report, rules)?;
                    }
                }
                What::Worker(_) => {
                    let is_rough = self.hosts.get(*host).is_some_and(|it| it.is_rough);
                    self.restarts.worker_died(&name, is_rough);
                }
                // How it had ended nobody heard before its host was booted anew.
                What::Befell(text) if text.ends_with(" rebooted") => {
                    let last = self.ends.get(&name).and_then(|ends| ends.last());
                    if matches!(last, Some(Final::GaveUp { .. })) {
                        self.restarts.excuse(&name);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A roll that stops at a copy which does not come up leaves the others as they were.
    fn follow_roll(&mut self, sight: &Sight) {
        let (Subject::Service(service), What::Befell(text)) = (&sight.of, &sight.what) else {
            return;
        };
        if text.starts_with("roll-stopped") {
            self.stopped_rolls.insert(service.clone());
        } else if text.starts_with("replaced") {
            self.stopped_rolls.remove(service);
        }
    }

    /// It tells how it ended.
    fn ended(&mut self, name: &ReplicaName, end: &Final) {
        if matches!(end, Final::GaveUp { .. }) && !self.durable.is_placed(name) {
            self.restarts.excuse(name);
        }
        let ends = self.ends.entry(name.clone()).or_default();
        if ends.last() != Some(end) {
            ends.push(end.clone());
        }
    }

    /// A host is given up: how its replicas ended there, and nobody heard yet, counts for nothing.
    pub(super) fn given_up(&mut self, host: &HostName, view: &View) {
        let services = view.services.values();
        let placed = services.flat_map(|it| {
            let here = it.replicas.iter();
            let here = here.filter(|it| it.job_state == "RUN" && it.host.as_ref() == Some(host));
            here.map(|replica| ReplicaName {
                service: it.service.clone(),
                index: replica.replica,
                incarnation: replica.incarnation,
            })
        });
        self.lives.forsake_placed(placed);
        let gave_up = self.ends.iter().filter(|(name, ends)| {
            let copy = view.services.get(&name.service);
            let copy = copy.and_then(|it| it.replicas.of(name.index));
            let was_there = copy.is_some_and(|it| it.host.as_ref() == Some(host));
            let by_rule = matches!(ends.last(), Some(Final::GaveUp { .. }));
            by_rule && was_there && copy.is_some_and(|it| it.incarnation == name.incarnation)
        });
        let unheard: Vec<ReplicaName> = gave_up.map(|(name, _)| name.clone()).collect();
        unheard.iter().for_each(|name| self.restarts.excuse(name));
    }

    /// Notices that the controller died, or that another one begins.
    pub(super) fn follow_life(&mut self, cluster: &Cluster) {
        let starts = cluster.controller().starts();
        if starts != self.starts {
            self.starts = starts;
            self.is_new = true;
            self.stand = None;
            self.revisions.begin();
            self.listing.begin();
            self.contacts.begin(cluster.now());
            let stored = cluster.controller().store().kept();
            for name in self.durable.begin(stored) {
                self.restarts.begins_anew(&name);
            }
            for (name, number) in self.durable.newest_words() {
                self.listing.knows(&name, number);
            }
            for host in durable::lost_hosts(stored) {
                if let Some(no) = self.by_host.get(&host) {
                    self.contacts.found_lost(*no);
                }
            }
        }
    }
}
