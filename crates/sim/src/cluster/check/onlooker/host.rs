//! What is looked at on one host: who lives there, and which numbers are taken.

use std::time::Duration;

use portreeve::allocator::HostState;
use portreeve::endpoints::EndpointTable;
use portreeve::port::PortName;
use portreeve::port_pool::{ListedPorts, PortGrant, PortState, WantedPort};
use portreeve::registry::{Registry, Want};
use portreeve::residency::ReplicaName;
use portreeve::time::Monotonic;

use super::super::coverage::Kind;
use super::super::numbers::{self, Life, Numbers, Placed};
use super::super::rests::{self, Rests};
use super::super::{Verdict, listing};
use super::Checks;
use crate::cluster::act::HostNo;
use crate::cluster::host::Part;
use crate::cluster::run::Cluster;

/// What is watched of one host.
#[derive(Debug)]
pub(super) struct HostWatch {
    pub(super) numbers: Numbers,
    pub(super) rests: Rests,
    pub(super) living: Vec<Life>,
    /// What was written there may be lost.
    pub(super) is_rough: bool,
    /// So many orders to remove it are not answered yet: with it goes what rests there.
    pub(super) removals: u32,
}

impl HostWatch {
    /// Nothing was seen yet; numbers rest for `cooling`.
    pub(super) fn new(cooling: Duration) -> Self {
        Self {
            numbers: Numbers::default(),
            rests: Rests::new(cooling),
            living: Vec::new(),
            is_rough: false,
            removals: 0,
        }
    }
}

impl Checks {
    pub(super) fn look_at_host(&mut self, cluster: &Cluster, no: HostNo) -> Verdict {
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

    pub(super) fn look_at_numbers(
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
                is_stopping: it.want == Want::Stop,
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
}
