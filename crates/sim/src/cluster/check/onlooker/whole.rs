//! Looks at all of a cluster: now and then, and when it had time to settle.

use portreeve::registry::Registry;
use portreeve::residency::ReplicaName;
use portreeve::time::Monotonic;

use super::super::coverage::Kind;
use super::super::settled::Settled;
use super::super::{Verdict, broken, listing, wellness};
use super::Checks;
use crate::cluster::run::Cluster;

impl Checks {
    /// Looks at everything.
    pub(super) fn sweep(&mut self, cluster: &Cluster) -> Verdict {
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
    pub(super) fn settle(&mut self, cluster: &Cluster, now: Monotonic) -> Verdict {
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

    pub(super) fn settled(&self, cluster: &Cluster) -> Verdict {
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
            is_unknown: &|no, name| {
                let host = &self.spec.hosts[no].name;
                // Of a deleted service nothing is known but what may still run, and by an operator's word that did not.
                let is_forgotten = self.is_set_back || self.hosts[no].numbers.is_forsworn(name);
                let registry = controller.registry().filter(|_| is_forgotten);
                registry.is_some_and(|registry| registry.is_unknown(host, name))
            },
        };
        settled.check()
    }
}

pub(super) fn cluster_revision(cluster: &Cluster) -> u64 {
    let registry = cluster.controller().registry();
    registry.map_or(0, Registry::revision)
}

/// Whoever waits for a place waits for what is not there.
pub(super) fn nobody_is_overlooked(cluster: &Cluster, registry: &Registry) -> Verdict {
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
