//! Looks at a cluster after every step: at what the step touched, and now and then at everything.
//!
//! * `events` is what happened, and what it means for what is promised; `orders` is what people are answered.
//! * `host` looks at one host, `tables` at what the controller publishes, `whole` at everything; `pace` is how often.

mod events;
mod host;
mod orders;
mod pace;
mod tables;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portreeve::identity::{HostName, ServiceName};
use portreeve::port::{PortRange, PortRanges};
use portreeve::port_pool::Want;
use portreeve::profile::Replicas;
use portreeve::registry::View;
use portreeve::residency::ReplicaName;
use portreeve::supervision::Final;
use portreeve::time::Monotonic;

use super::contact::Contacts;
use super::coverage::{Coverage, Kind};
use super::durable::Durable;
use super::follower::Follower;
use super::listing::Listing;
use super::lives::Lives;
use super::oracle::Oracle;
use super::refusals::Stand;
use super::restarts::Restarts;
use super::revisions::Revisions;
use super::settling::Settling;
use super::silence::Silence;
use super::unasked::Unasked;
use super::{Verdict, words};
use crate::cluster::act::{Act, HostNo, PersonAct, ServiceNo};
use crate::cluster::people::service_name;
use crate::cluster::run::{Cluster, Handed, Step};
use crate::cluster::schedule::Actor;
use crate::cluster::spec::Spec;
use host::HostWatch;
use pace::Pace;
use whole::cluster_revision;

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
    unasked: Unasked,
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
        Self {
            awaited: PortRanges::new(fixed),
            settling: Settling::of(&spec),
            pace: Pace::of(hosts, replicas.sum()),
            hosts: spec
                .hosts
                .iter()
                .map(|_| HostWatch::new(spec.config.cooling))
                .collect(),
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
            contacts: Contacts::new(spec.hosts.len(), spec.config.silence),
            unasked: Unasked::new(spec.hosts.len()),
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
        for (host, heard) in &step.taken_in {
            self.taken_in(*host, heard);
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
        self.told_hosts(step)?;
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
