//! Looks at a cluster after every step: at what the step touched, and now and then at everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portreeve::allocator::HostState;
use portreeve::endpoints::{Endpoint, EndpointTable};
use portreeve::identity::{HostName, ServiceName};
use portreeve::port::{PortName, PortRange, PortRanges};
use portreeve::port_pool::{ListedPorts, PortGrant, PortState, Want, WantedPort};
use portreeve::profile::{Profile, Replicas};
use portreeve::registry::{HostVerb, Refusal, Registry, View, Want as Wanted};
use portreeve::residency::ReplicaName;
use portreeve::supervision::{Final, Report};
use portreeve::time::Monotonic;

use super::super::act::{Act, ControllerAct, HostAct, HostNo, PersonAct, ServiceNo, Whom};
use super::super::controller::Outcome;
use super::super::host::{Host, Part};
use super::super::people::{Answered, service_name};
use super::super::run::{Cluster, Handed, Step};
use super::super::schedule::Actor;
use super::super::sight::{Sight, Subject, What};
use super::super::spec::Spec;
use super::super::trace::Digest;
use super::super::wire::Heard;
use super::contact::Contacts;
use super::coverage::{Coverage, Kind};
use super::durable::{self, Durable};
use super::follower::Follower;
use super::listing::{self, Listing};
use super::lives::Lives;
use super::numbers::{self, Life, Numbers, Placed};
use super::oracle::{Meaning, Oracle};
use super::refusals::{self, Stand};
use super::restarts::Restarts;
use super::rests::{self, Rests};
use super::revisions::{Numbered, Revisions};
use super::settled::Settled;
use super::settling::Settling;
use super::silence::Silence;
use super::wellness;
use super::words;
use super::{Verdict, broken};

/// Everything that is held against a run, and what the run reached.
#[derive(Debug)]
pub(crate) struct Checks {
    spec: Arc<Spec>,
    services: Vec<ServiceName>,
    by_name: BTreeMap<ServiceName, ServiceNo>,
    by_host: BTreeMap<HostName, HostNo>,
    /// Fixed numbers that somebody may wait for.
    awaited: PortRanges,
    settling: Settling,
    pace: Pace,
    hosts: Vec<HostWatch>,
    lives: Lives,
    restarts: Restarts,
    /// Services whose newest roll stopped midway.
    stopped_rolls: BTreeSet<ServiceName>,
    /// Every end that an incarnation told, in that order.
    ends: BTreeMap<ReplicaName, Vec<Final>>,
    revisions: Revisions,
    followers: [Follower; 2],
    listing: Listing,
    oracle: Oracle,
    silence: Silence,
    durable: Durable,
    contacts: Contacts,
    coverage: Coverage,
    /// Orders of people so far: by this number they are answered.
    persons: u64,
    /// The life of the controller that was seen last.
    starts: u64,
    /// The service list of this life is to be held against what was acknowledged.
    is_new: bool,
    stand: Option<Stand>,
    /// An order that is not answered yet, and how the controller stood before: nothing else reached it since.
    ordered: Option<(PersonAct, Stand)>,
    view: Option<Arc<View>>,
    /// Up to where the table was read.
    read: (String, u64),
    batches: u64,
    /// Since when nothing goes wrong and nobody orders anything.
    healed: Option<Monotonic>,
    /// It had time to settle, and was looked at.
    is_settled: bool,
    /// An older store was taken up: hosts may run what it does not know.
    is_set_back: bool,
}

/// What is watched of one host.
#[derive(Debug)]
struct HostWatch {
    numbers: Numbers,
    rests: Rests,
    living: Vec<Life>,
    /// What was written there may be lost.
    is_rough: bool,
    /// So many orders to remove it are not answered yet: with it goes what rests there.
    removals: u32,
}

/// All hosts of a cluster of so many are looked at after each turn of the controller; of larger ones some in turn.
const ALL_HOSTS: usize = 16;

/// After how many steps things are looked at that no step singled out, so that a step costs as much in a large cluster as in a small one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// Everything.
    sweep: u64,
    /// The next host in turn, where not all are looked at each time.
    turn: u64,
}

impl Pace {
    const fn of(hosts: u64, replicas: u64) -> Self {
        let sweep = hosts + replicas;
        Self {
            sweep: if sweep < 256 { 256 } else { sweep },
            turn: match replicas.checked_div(hosts) {
                Some(on_each) => 1 + on_each,
                None => 1,
            },
        }
    }
}

impl Checks {
    pub(crate) fn new(spec: &Arc<Spec>) -> Self {
        let spec = Arc::clone(spec);
        let services: Vec<ServiceName> = spec.services.iter().map(service_name).collect();
        let by_name = services.iter().cloned().zip(0..).collect();
        let by_host = spec
            .hosts
            .iter()
            .map(|it| it.name.clone())
            .zip(0..)
            .collect();
        let ports = spec.services.iter().flat_map(|it| &it.profile.ports);
        let fixed = ports.filter_map(|port| match port.want {
            Want::Fixed(number) => Some(PortRange::single(number)),
            Want::Any { .. } => None,
        });
        let hosts = u64::try_from(spec.hosts.len()).unwrap_or(u64::MAX);
        let replicas = spec.services.iter();
        let replicas = replicas.map(|it| match it.profile.replicas {
            Replicas::Count(count) => u64::from(count),
            Replicas::PerHost => hosts,
        });
        let host = || HostWatch {
            numbers: Numbers::default(),
            rests: Rests::new(spec.config.cooling),
            living: Vec::new(),
            is_rough: false,
            removals: 0,
        };
        Self {
            awaited: PortRanges::new(fixed),
            settling: Settling::of(&spec),
            pace: Pace::of(hosts, replicas.sum()),
            hosts: spec.hosts.iter().map(|_| host()).collect(),
            services,
            by_name,
            by_host,
            lives: Lives::default(),
            restarts: Restarts::default(),
            stopped_rolls: BTreeSet::new(),
            ends: BTreeMap::new(),
            revisions: Revisions::default(),
            followers: [Follower::new(1), Follower::new(7)],
            listing: Listing::default(),
            oracle: Oracle::default(),
            silence: Silence::default(),
            durable: Durable::default(),
            contacts: Contacts::new(
                spec.hosts.len(),
                spec.config.silence.map(|it| it.host_grace()),
            ),
            coverage: Coverage::default(),
            persons: 0,
            starts: 0,
            is_new: false,
            stand: None,
            ordered: None,
            view: None,
            read: (String::new(), 0),
            batches: 0,
            healed: None,
            is_settled: false,
            is_set_back: false,
            spec,
        }
    }

    pub(crate) const fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Whether the run was long enough to say whether the cluster settles, and it did.
    #[cfg(test)]
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Looks at what a step did. Cost: linear in what is on the hosts that it touched.
    ///
    /// # Errors
    ///
    /// The first promise that does not hold.
    pub(crate) fn after(&mut self, cluster: &Cluster, step: &Step) -> Verdict {
        if let Some((batch, is_taken)) = &step.wrote {
            self.batches += 1;
            if *is_taken {
                self.durable.took(&batch.writes)?;
            }
        }
        if let (Some(heard), Handed::Question(asker)) = (&step.heard, &step.handed) {
            self.heard(step.at, asker.host, heard);
            self.durable.heard(asker, heard);
        }
        if let Handed::Act(act) = &step.handed {
            self.acted(step.at, act);
        }
        for passage in &step.passed {
            let (from, to) = (words::state(&passage.from), words::state(&passage.to));
            self.coverage.pass(from, passage.on, to);
        }
        if is_of_controller(step) {
            let before = self.stand.take().filter(|it| it.is_at_rest);
            self.ordered = match &step.handed {
                Handed::Act(Act::Person(act)) => before.map(|it| (act.clone(), it)),
                Handed::Due => self.ordered.take(),
                _ => None,
            };
        }
        self.sights(&step.sights, cluster)?;
        self.follow_life(cluster);
        for asker in &step.acknowledged {
            self.coverage.reach(Kind::Looked, "what was acknowledged");
            self.durable.acknowledged(asker)?;
        }
        for host in touched(step, self.hosts.len()) {
            self.look_at_host(cluster, host)?;
        }
        if let Some(registry) = cluster.controller().registry() {
            self.answers(step, cluster)?;
            if is_of_controller(step) {
                self.look_at_controller(cluster, registry, step)?;
            }
        } else {
            self.answers(step, cluster)?;
            self.stand = None;
        }
        if let Some(table) = cluster.controller().table()
            && cluster.controller().is_up()
        {
            self.listing.due(step.at, table)?;
            self.listing.nothing_lost(step.at, table)?;
        }
        if step.number.is_multiple_of(self.pace.sweep) {
            self.sweep(cluster)?;
        }
        self.settle(cluster, step.at)
    }

    /// Looks at everything once more as the run ends.
    ///
    /// # Errors
    ///
    /// The first promise that does not hold.
    pub(crate) fn at_end(&mut self, cluster: &Cluster) -> Verdict {
        for host in 0..self.hosts.len() {
            self.look_at_host(cluster, host)?;
        }
        self.sweep(cluster)?;
        self.settle(cluster, cluster.now())?;
        if self.is_settled {
            self.settled(cluster)?;
            if self.silence.is_on() {
                self.coverage.reach(Kind::Looked, "silences");
            }
            self.silence
                .check(self.batches, cluster_revision(cluster))?;
        }
        let counts = cluster.network().counts();
        let messages = [
            ("arrived", counts.arrived),
            ("lost", counts.lost),
            ("cut off", counts.cut_off),
            ("doubled", counts.duplicated),
            ("held back", counts.held_back),
        ];
        for (what, times) in messages.into_iter().filter(|(_, times)| *times > 0) {
            self.coverage.reach_times(Kind::Message, what, times);
        }
        Ok(())
    }

    fn heard(&mut self, at: Monotonic, host: HostNo, heard: &Heard) {
        self.coverage.reach(Kind::Question, words::heard(heard));
        self.silence.asked(at, heard);
        match heard {
            Heard::Status(word) => self.listing.told(at, word),
            Heard::Report { told, .. } => {
                self.contacts.heard(host, at);
                told.iter().for_each(|word| self.listing.told(at, word));
            }
            Heard::Lease => self.contacts.heard(host, at),
            Heard::Wanted | Heard::Shutdown => {}
        }
    }

    fn acted(&mut self, at: Monotonic, act: &Act) {
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
                    self.contacts.declared(*no);
                    self.lives.lose(*no);
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
                self.lives.forsake_placed(self.durable.all_placed());
                self.durable.set_back();
                self.lives.forsake_all();
                for host in &mut self.hosts {
                    host.numbers.set_back();
                    host.rests.forget();
                }
            }
            // What it took in at once then was not seen.
            Act::Controller(ControllerAct::Continued) | Act::Heal => self.listing.begin(),
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

    fn sights(&mut self, sights: &[Sight], cluster: &Cluster) -> Verdict {
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
                _ => {}
            }
        }
        Ok(())
    }

    /// Of which service a copy is to be adopted, if that is ordered.
    fn adopted(&self, act: &PersonAct) -> Option<ServiceNo> {
        let PersonAct::Host(_, HostVerb::Adopt { replica }) = act else {
            return None;
        };
        self.by_name.get(&replica.service).copied()
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
    fn given_up(&mut self, host: &HostName, view: &View) {
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
    fn follow_life(&mut self, cluster: &Cluster) {
        let starts = cluster.controller().starts();
        if starts != self.starts {
            self.starts = starts;
            self.is_new = true;
            self.stand = None;
            self.revisions.begin();
            self.listing.begin();
            self.contacts.begin(cluster.now());
            let stored = cluster.controller().store().kept();
            self.durable.begin(stored);
            for host in durable::lost_hosts(stored) {
                if let Some(no) = self.by_host.get(&host) {
                    self.contacts.found_lost(*no);
                }
            }
        }
    }

    fn answers(&mut self, step: &Step, cluster: &Cluster) -> Verdict {
        for answered in &step.answered {
            let Answered {
                person,
                act,
                outcome,
            } = answered;
            match outcome {
                Outcome::Done(answer) => self.oracle.answered(person.0, Some(answer.changed)),
                Outcome::Refused(refusal) => {
                    self.coverage.reach(Kind::Refusal, words::refusal(refusal));
                    self.oracle.answered(person.0, None);
                    // What the store does not take was tried.
                    if !matches!(refusal, Refusal::NotStored { .. }) {
                        self.refused(step, act, cluster)?;
                    }
                }
                Outcome::Unreachable => self.oracle.answered(person.0, None),
                Outcome::Lost => self.oracle.lost(person.0),
            }
            if let (
                PersonAct::Host(no, HostVerb::Down { fenced: true }),
                Outcome::Done(_) | Outcome::Lost,
            ) = (act, outcome)
            {
                let host = &mut self.hosts[*no];
                let living = host.living.iter().map(|it| it.name.clone());
                host.numbers.forswear(living);
            }
            if let PersonAct::Host(no, HostVerb::Down { .. }) = act {
                match outcome {
                    Outcome::Refused(_) | Outcome::Unreachable => self.contacts.not_declared(*no),
                    Outcome::Done(_) | Outcome::Lost => self.lives.forsake(*no),
                }
            }
            if let Some(service) = self.adopted(act) {
                self.oracle.is_adopted(service);
            }
            if let PersonAct::Host(no, HostVerb::Remove) = act {
                let host = &mut self.hosts[*no];
                host.removals = host.removals.saturating_sub(1);
                host.rests.forget();
            }
            if let Some(no) = act.service()
                && let Some(view) = cluster.controller().view()
            {
                self.acknowledged(no, view)?;
            }
        }
        Ok(())
    }

    /// An order that was refused before anything else reached the controller.
    fn refused(&mut self, step: &Step, act: &PersonAct, cluster: &Cluster) -> Verdict {
        let (Some((ordered, before)), Some(now)) = (self.ordered.take(), self.stands(cluster))
        else {
            return Ok(());
        };
        let was_due = before.due.is_some_and(|due| due <= step.at);
        if ordered != *act || was_due {
            return Ok(());
        }
        self.coverage.reach(Kind::Looked, "refusals");
        refusals::check(&format!("{act:?}"), &before, &now)
    }

    fn stands(&self, cluster: &Cluster) -> Option<Stand> {
        let controller = cluster.controller();
        let registry = controller.registry()?;
        let is_due = controller
            .next_deadline()
            .is_some_and(|due| due <= cluster.now());
        Some(Stand {
            view: Arc::clone(controller.view()?),
            revision: registry.revision(),
            batches: self.batches,
            due: controller.next_deadline(),
            is_at_rest: !is_due && controller.is_up() && !controller.is_storing(),
        })
    }

    fn acknowledged(&mut self, no: ServiceNo, view: &View) -> Verdict {
        self.coverage
            .reach(Kind::Looked, "services as acknowledged");
        let name = &self.services[no];
        let seen = view.services.get(name).map(AsRef::as_ref);
        self.oracle.check(no, &name.to_string(), seen)
    }

    fn meaning(&self, act: &PersonAct) -> Option<(ServiceNo, Meaning)> {
        let profile = |no: ServiceNo, generation| {
            let mut profile: Profile = (*self.spec.services[no].profile).clone();
            super::super::people::mark(&mut profile, generation);
            Arc::new(profile)
        };
        Some(match act {
            PersonAct::Submit(no) => {
                let profile = Arc::clone(&self.spec.services[*no].profile);
                let replace = false;
                (*no, Meaning::Submit { profile, replace })
            }
            PersonAct::Replace(no, generation) => {
                let profile = profile(*no, *generation);
                let replace = true;
                (*no, Meaning::Submit { profile, replace })
            }
            PersonAct::Scale(no, copies) => (*no, Meaning::Scale(*copies)),
            PersonAct::Start(no) => (*no, Meaning::Start),
            PersonAct::Stop(no) => (*no, Meaning::Stop),
            PersonAct::Restart(no, _) => (*no, Meaning::Nothing),
            PersonAct::Kill(no, index) => (*no, Meaning::Kill(*index)),
            PersonAct::Delete(no) => (*no, Meaning::Delete),
            PersonAct::Host(..) => return None,
        })
    }

    fn look_at_host(&mut self, cluster: &Cluster, no: HostNo) -> Verdict {
        let host = &cluster.hosts()[no];
        let living: Vec<Life> = host
            .living(cluster.now())
            .map(|it| Life {
                name: it.name.clone(),
                run: it.run,
                is_main: it.part == Part::Main,
            })
            .collect();
        let watch = &mut self.hosts[no];
        if living == watch.living {
            return Ok(());
        }
        let before = std::mem::replace(&mut watch.living, living);
        if !watch.living.is_empty() {
            self.coverage.reach(Kind::Looked, "lives of copies");
        }
        for life in &watch.living {
            if before.iter().all(|it| it.name != life.name) {
                self.durable.check_begun(&life.name)?;
            }
        }
        let name = &self.spec.hosts[no].name;
        let is_placed = |name: &ReplicaName| self.durable.is_placed(name);
        let living = &watch.living;
        self.lives.check(no, name.as_str(), living, is_placed)?;
        match cluster.controller().registry() {
            Some(registry) => self.look_at_numbers(registry, None, no, cluster.now()),
            None => {
                watch.numbers.remember(&[], &watch.living);
                Ok(())
            }
        }
    }

    fn look_at_numbers(
        &mut self,
        registry: &Registry,
        table: Option<&EndpointTable>,
        no: HostNo,
        now: Monotonic,
    ) -> Verdict {
        let name = &self.spec.hosts[no].name;
        let watch = &mut self.hosts[no];
        let placed: Vec<Placed> = registry
            .placed_audit(name)
            .map(|it| Placed {
                name: it.name,
                id: it.id,
                grant: PortGrant::clone(it.grant),
                is_stopping: it.want == Wanted::Stop,
            })
            .collect();
        if let Some(table) = table {
            for one in placed.iter().filter(|it| it.is_stopping) {
                listing::not_listed(table, &one.name)?;
            }
        }
        let Some(pool) = registry.pool_audit(name) else {
            watch.numbers.remember(&placed, &watch.living);
            watch.rests.forget();
            return Ok(());
        };
        if !pool.ports.is_empty() {
            self.coverage
                .reach(Kind::Looked, "pools with taken numbers");
        }
        if !watch.living.is_empty() && pool.state == HostState::Up {
            self.coverage.reach(Kind::Looked, "numbers of what lives");
        }
        let is_resting = |it: &ListedPorts| matches!(it.state, PortState::Cooling { .. });
        if pool.ports.iter().any(is_resting) {
            self.coverage.reach(Kind::Looked, "numbers that rest");
        }
        if watch.removals > 0 {
            watch.rests.forget();
        }
        let who = |by| registry.holder_audit(pool.host, by);
        watch.numbers.check(&numbers::Seen {
            host: name.as_str(),
            pool: &pool,
            placed: &placed,
            living: &watch.living,
            who: &who,
        })?;
        let (spec, by_name) = (&self.spec, &self.by_name);
        let asks = |replica: &ReplicaName, port: &PortName| -> Option<WantedPort> {
            let profile = &spec.services[*by_name.get(&replica.service)?].profile;
            let declared = profile.ports.iter().find(|it| it.name == *port)?;
            Some(declared.wanted())
        };
        watch.rests.check(&rests::Seen {
            host: name.as_str(),
            now,
            pool: &pool,
            placed: &placed,
            asks: &asks,
            awaited: &self.awaited,
        })
    }

    fn look_at_controller(
        &mut self,
        cluster: &Cluster,
        registry: &Registry,
        step: &Step,
    ) -> Verdict {
        let count = self.hosts.len();
        let all = 0..if count <= ALL_HOSTS { count } else { 0 };
        for no in all {
            self.look_at_numbers(registry, cluster.controller().table(), no, step.at)?;
        }
        if count > ALL_HOSTS && step.number.is_multiple_of(self.pace.turn) {
            let turn = step.number / self.pace.turn;
            let turn = usize::try_from(turn).unwrap_or(0) % count;
            self.look_at_numbers(registry, cluster.controller().table(), turn, step.at)?;
        }
        if let Some(table) = cluster.controller().table() {
            self.read(table, registry, step.at)?;
        }
        if let Some(view) = cluster.controller().view() {
            let is_same = self.view.as_ref().is_some_and(|it| Arc::ptr_eq(it, view));
            if !is_same {
                self.follow_view(view, step.at)?;
                self.view = Some(Arc::clone(view));
            }
            if std::mem::take(&mut self.is_new) {
                for no in 0..self.services.len() {
                    self.acknowledged(no, view)?;
                }
            }
        }
        if count <= ALL_HOSTS {
            // A wake-up that is lost is often made good by the next one: only a look in between finds it.
            nobody_is_overlooked(cluster, registry)?;
        }
        self.stand = self.stands(cluster);
        Ok(())
    }

    /// Reads what changed in the table.
    fn read(&mut self, table: &EndpointTable, registry: &Registry, now: Monotonic) -> Verdict {
        let (epoch, revision) = &self.read;
        if table.revision() == *revision && table.epoch() == epoch {
            return Ok(());
        }
        let since = if table.epoch() == epoch { *revision } else { 0 };
        self.revisions.check(table.epoch(), table.revision())?;
        let recent = table.recent(since).map(|recent| recent.services);
        let changed: Vec<ServiceName> = match recent {
            Some(recent) => recent.iter().map(|(_, name)| (**name).clone()).collect(),
            None => {
                let all = table.services();
                all.iter().map(|it| it.service().clone()).collect()
            }
        };
        for gone in table.removed_since(since).unwrap_or_default() {
            if !changed.contains(&gone) {
                self.revisions.removed(&gone);
            }
        }
        let view = registry.view();
        let grant = |name: &ReplicaName| {
            let service = view.services.get(&name.service)?;
            let host = service.replicas.of(name.index)?.host.clone()?;
            let mut placed = registry.placed_audit(&host);
            let found = placed.find(|it| it.name == *name)?;
            Some(found.grant.clone())
        };
        for name in &changed {
            let numbered = table.read(name, |snapshot| {
                let service = view.services.get(name).map(AsRef::as_ref);
                self.listing.check(now, snapshot, service, &grant)?;
                if snapshot.listed().next().is_some() {
                    self.coverage.reach(Kind::Looked, "lists with endpoints");
                }
                let states = snapshot.entries().map(|(it, _)| words::endpoint(it.state));
                states.for_each(|state| self.coverage.reach(Kind::Endpoint, state));
                Ok(Numbered {
                    all: snapshot.mod_revision(),
                    listed: snapshot.ready_revision(),
                    content: digest(snapshot.desired(), snapshot.listed()),
                })
            });
            match numbered {
                Some(numbered) => self.revisions.check_service(name, numbered?)?,
                None => self.revisions.removed(name),
            }
        }
        self.coverage
            .reach(Kind::Looked, "tables that readers follow");
        for follower in &mut self.followers {
            follower.look(table)?;
        }
        self.read = (table.epoch().to_owned(), table.revision());
        Ok(())
    }

    /// What people read changed.
    fn follow_view(&mut self, view: &View, now: Monotonic) -> Verdict {
        let mut lost = Vec::new();
        for (name, no) in &self.by_host {
            let host = view.hosts.get(name);
            let state = host.map_or("not known", |it| words::host(&it.state));
            self.coverage.reach(Kind::Host, state);
            if state == "lost" && !self.contacts.is_lost(*no) {
                self.coverage.reach(Kind::Looked, "hosts that are given up");
                lost.push(name.clone());
            }
            self.contacts
                .check(*no, name.as_str(), state == "lost", now)?;
            self.listing.host(now, name, state == "lost");
            if matches!(state, "lost" | "not known") {
                self.lives.lose(*no);
            } else {
                self.lives.find(*no);
            }
        }
        if let Some(before) = self.view.clone() {
            lost.iter().for_each(|host| self.given_up(host, &before));
        }
        for service in view.services.values() {
            let before = self
                .view
                .as_ref()
                .and_then(|it| it.services.get(&service.service));
            if before.is_some_and(|before| Arc::ptr_eq(before, service)) {
                continue;
            }
            self.coverage.reach(Kind::Looked, "services on disk");
            self.durable.check(service)?;
            for replica in &service.replicas {
                self.coverage
                    .reach(Kind::Replica, words::replica(&replica.state));
                for cause in replica.reason_sums.iter().flat_map(|it| &it.causes) {
                    self.coverage.reach(Kind::Cause, words::cause(&cause.code));
                }
            }
        }
        Ok(())
    }

    /// Looks at everything.
    fn sweep(&mut self, cluster: &Cluster) -> Verdict {
        let controller = cluster.controller();
        let Some(registry) = controller.registry() else {
            return Ok(());
        };
        if let Some(table) = controller.table() {
            listing::apart(table)?;
        }
        for no in 0..self.hosts.len() {
            self.look_at_numbers(registry, controller.table(), no, cluster.now())?;
        }
        if let Some(view) = controller.view() {
            for no in 0..self.services.len() {
                self.acknowledged(no, view)?;
            }
            let is_known = |name: &ReplicaName| view.services.contains_key(&name.service);
            self.listing.keep(is_known);
        }
        self.coverage.reach(Kind::Looked, "everybody who waits");
        nobody_is_overlooked(cluster, registry)
    }

    /// Holds a cluster that had time to settle against what was asked for, once.
    fn settle(&mut self, cluster: &Cluster, now: Monotonic) -> Verdict {
        let Some(healed) = self.healed.filter(|_| !self.is_settled) else {
            return Ok(());
        };
        if now.since(healed) < self.settling.total() {
            return Ok(());
        }
        self.settled(cluster)?;
        self.is_settled = true;
        self.coverage.reach(Kind::Looked, "clusters that settled");
        if wellness::is_at_rest(&self.spec) {
            self.silence
                .begin(now, self.batches, cluster_revision(cluster));
        }
        Ok(())
    }

    fn settled(&self, cluster: &Cluster) -> Verdict {
        let controller = cluster.controller();
        let (Some(view), Some(table)) = (controller.view(), controller.table()) else {
            return broken("converges", "the controller does not listen");
        };
        let settled = Settled {
            view,
            table,
            oracle: &self.oracle,
            lives: &self.lives,
            services: &self.services,
            is_newest: &|no, name, newest| {
                let profile = cluster.hosts()[no].profile_of(name);
                let is_left = self.stopped_rolls.contains(&name.service);
                is_left || profile.is_some_and(|it| it.env == newest.env)
            },
            ends: &|name| self.ends.get(name).map_or(&[], Vec::as_slice),
            is_drained: &|no| {
                let host = view.hosts.get(&self.spec.hosts[no].name);
                host.is_some_and(|it| it.state == "drained")
            },
            is_powered: &|host| {
                let no = self.by_host.get(host);
                no.is_some_and(|no| cluster.hosts()[*no].is_up())
            },
            is_well: &|no, index| wellness::is_well(&self.spec.services[no], index),
            is_mortal: &|no, index| wellness::is_mortal(&self.spec.services[no], index),
            is_unknown: &|host, name| {
                let host = &self.spec.hosts[host].name;
                let registry = controller.registry().filter(|_| self.is_set_back);
                registry.is_some_and(|registry| registry.is_unknown(host, name))
            },
        };
        settled.check()
    }
}

fn cluster_revision(cluster: &Cluster) -> u64 {
    let registry = cluster.controller().registry();
    registry.map_or(0, Registry::revision)
}

/// Whoever waits for a place waits for what is not there.
fn nobody_is_overlooked(cluster: &Cluster, registry: &Registry) -> Verdict {
    let controller = cluster.controller();
    let is_due = controller
        .next_deadline()
        .is_some_and(|due| due <= cluster.now());
    if controller.is_up()
        && !is_due
        && let Some((name, host)) = registry.overlooked()
    {
        let text = format!(
            "{name} waits, and {host} would take it at {} ms",
            cluster.now().as_millis()
        );
        return broken("nobody waits for what is there", text);
    }
    Ok(())
}

/// The hosts on which the step did something.
fn touched(step: &Step, hosts: usize) -> std::ops::Range<HostNo> {
    let one = |no: HostNo| no..no + 1;
    match (&step.handed, step.actor) {
        (Handed::Reply(asker), _) => one(asker.host),
        (Handed::Act(Act::Host(no, _)), _) => one(*no),
        (Handed::Act(Act::Heal | Act::HostOf(..)), _) => 0..hosts,
        (Handed::Due, Actor::Host(no)) => one(no),
        _ => 0..0,
    }
}

/// Whether the controller did something.
const fn is_of_controller(step: &Step) -> bool {
    match (&step.handed, step.actor) {
        (Handed::Question(_), _) | (Handed::Due, Actor::Controller) => true,
        (Handed::Act(act), _) => {
            matches!(act, Act::Person(_) | Act::Controller(_) | Act::Heal)
        }
        _ => false,
    }
}

/// What clients are told, without what ages.
fn digest<'a>(desired: u32, listed: impl Iterator<Item = &'a Endpoint>) -> u64 {
    use std::fmt::Write as _;
    let mut digest = Digest::default();
    // The default answer says how many there shall be, too.
    digest.eat(&desired.to_le_bytes());
    for it in listed {
        // A digest refuses no words.
        _ = write!(
            digest,
            "{} {} {:?} {} {:?} {:?} {:?} {} {:?};",
            it.replica,
            it.incarnation,
            it.job,
            it.host,
            it.address,
            it.ports,
            it.ready_since,
            it.restarts,
            it.labels
        );
    }
    digest.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first violation of the run of a seed, and what was looked at.
    fn watch(seed: u64, most: u64) -> (Verdict, Checks) {
        let mut cluster = Cluster::new(Arc::new(Spec::of_seed(seed)));
        let mut checks = Checks::new(cluster.spec());
        while let Some(step) = cluster.step() {
            if step.number > most {
                return (Ok(()), checks);
            }
            if let Err(violation) = checks.after(&cluster, &step) {
                return (Err(violation), checks);
            }
        }
        let end = checks.at_end(&cluster);
        (end, checks)
    }

    #[test]
    fn a_large_cluster_is_looked_at_whole_as_seldom_as_it_is_large() {
        let small = Pace {
            sweep: 256,
            turn: 1,
        };
        assert_eq!(Pace::of(0, 0), small);
        assert_eq!(Pace::of(40, 30), small);
        let large = Pace {
            sweep: 10_500,
            turn: 21,
        };
        assert_eq!(Pace::of(500, 10_000), large);
    }

    #[test]
    fn whatever_befalls_a_cluster_it_keeps_its_promises_and_settles() {
        let mut coverage = Coverage::default();
        let mut settled = 0;
        for seed in 0..6 {
            let (verdict, checks) = watch(seed, 20_000);
            assert_eq!(verdict, Ok(()), "seed {seed}");
            settled += u32::from(checks.is_settled());
            coverage.merge(checks.coverage());
        }
        assert!(settled > 2, "{settled} settled");
        assert!(coverage.times(Kind::Report, "ready") > 0, "{coverage}");
        assert!(coverage.times(Kind::Endpoint, "ready") > 0, "{coverage}");
    }
}
