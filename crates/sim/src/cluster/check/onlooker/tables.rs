//! What the controller publishes: the view of people, and the table that clients read.

use std::sync::Arc;

use portreeve::endpoints::{Endpoint, EndpointTable};
use portreeve::identity::ServiceName;
use portreeve::registry::{Registry, View};
use portreeve::residency::ReplicaName;
use portreeve::time::Monotonic;

use super::super::coverage::Kind;
use super::super::revisions::Numbered;
use super::super::{Verdict, words};
use super::Checks;
use super::pace::ALL_HOSTS;
use super::whole::nobody_is_overlooked;
use crate::cluster::run::{Cluster, Step};
use crate::cluster::trace::Digest;

impl Checks {
    pub(super) fn look_at_controller(
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
            let is_there = |index| service.replicas.of(index).is_some();
            self.restarts.keep(&service.service, is_there);
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
