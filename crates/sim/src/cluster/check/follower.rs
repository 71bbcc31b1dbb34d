//! Readers that follow by deltas, look seldom, sleep and come back: they must have what a fresh reader has.

use std::collections::BTreeMap;

use portreeve::endpoints::{Endpoint, EndpointState, EndpointTable, Entry, Listing, Snapshot};
use portreeve::identity::ServiceName;

use super::{Verdict, broken};

/// One reader of all services.
#[derive(Debug)]
pub(crate) struct Follower {
    /// It looks at every so many-th change.
    stride: u32,
    /// Changes until its next look.
    left: u32,
    epoch: String,
    revision: u64,
    services: BTreeMap<ServiceName, Followed>,
}

/// What it has of one service.
#[derive(Debug, Default)]
struct Followed {
    revision: u64,
    listed: BTreeMap<u32, Endpoint>,
}

impl Follower {
    /// One that looks at every so many-th change; at least 1.
    pub(crate) const fn new(stride: u32) -> Self {
        Self {
            stride,
            left: stride,
            epoch: String::new(),
            revision: 0,
            services: BTreeMap::new(),
        }
    }

    /// Something in the table may have changed: it looks, if it is its turn.
    pub(crate) fn look(&mut self, table: &EndpointTable) -> Verdict {
        if table.revision() == self.revision && table.epoch() == self.epoch {
            return Ok(());
        }
        self.left -= 1;
        if self.left > 0 {
            return Ok(());
        }
        self.left = self.stride;
        let seen = self.follow(table);
        for name in &seen {
            self.compare(table, name)?;
        }
        Ok(())
    }

    /// Takes in what changed since its last look; which services those were.
    fn follow(&mut self, table: &EndpointTable) -> Vec<ServiceName> {
        let is_known = table.epoch() == self.epoch && self.revision <= table.revision();
        let recent = is_known.then(|| table.recent(self.revision)).flatten();
        let Some(recent) = recent else {
            return self.reset(table);
        };
        self.revision = recent.revision;
        let mut seen = Vec::new();
        for (_, service) in recent.services {
            let followed = self.services.entry((*service).clone()).or_default();
            let there = table.read(&service, |snapshot| followed.take(snapshot));
            if there.is_none_or(|there| !there) {
                self.services.remove(&*service);
            }
            seen.push((*service).clone());
        }
        seen
    }

    fn reset(&mut self, table: &EndpointTable) -> Vec<ServiceName> {
        self.epoch = table.epoch().to_owned();
        // First the number: what comes between is told again.
        self.revision = table.revision();
        let had: Vec<ServiceName> = std::mem::take(&mut self.services).into_keys().collect();
        for handle in table.services() {
            let mut followed = Followed::default();
            if handle.read(|snapshot| followed.take(snapshot)) {
                self.services.insert(handle.service().clone(), followed);
            }
        }
        let mut all: Vec<ServiceName> = self.services.keys().cloned().collect();
        all.extend(had);
        all
    }

    /// Holds what it has of a service against a fresh look.
    fn compare(&self, table: &EndpointTable, name: &ServiceName) -> Verdict {
        let had = self.services.get(name);
        let fresh: Option<BTreeMap<u32, Endpoint>> = table
            .read(name, |snapshot| {
                let all = snapshot.listed().map(|it| (it.key(), it.clone()));
                (!snapshot.is_removed()).then(|| all.collect())
            })
            .flatten();
        match (had, fresh) {
            (None, None) => Ok(()),
            (Some(had), Some(fresh)) if had.is(&fresh) => Ok(()),
            (had, fresh) => {
                let had = had.map(|it| &it.listed);
                let text = format!(
                    "{name} at revision {}: a reader of every {}-th change has {had:?}, a fresh one {fresh:?}",
                    self.revision, self.stride
                );
                broken("who follows has what is there", text)
            }
        }
    }
}

impl Followed {
    /// Whether the service is still there.
    fn take(&mut self, snapshot: &Snapshot) -> bool {
        let revision = snapshot.mod_revision();
        let changes = (self.revision > 0)
            .then(|| snapshot.changes_since(self.revision, Listing::Ready))
            .flatten();
        match changes {
            Some(changes) => {
                for key in changes.remove {
                    self.listed.remove(&key);
                }
                for (entry, _) in changes.upsert {
                    self.listed.insert(entry.key(), entry.clone());
                }
            }
            None => {
                let all = snapshot.listed();
                self.listed = all.map(|it| (it.key(), it.clone())).collect();
            }
        }
        self.revision = revision;
        !snapshot.is_removed()
    }

    /// The same, but for what ages without moving a revision.
    fn is(&self, fresh: &BTreeMap<u32, Endpoint>) -> bool {
        // How old what is known is moves no revision.
        let ageless = |it: &Endpoint| Endpoint {
            state: EndpointState::Ready,
            reason: None,
            ..it.clone()
        };
        let mut pairs = self.listed.iter().zip(fresh);
        self.listed.len() == fresh.len()
            && pairs
                .all(|((at, a), (other, b))| at == other && (a == b || ageless(a) == ageless(b)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portreeve::endpoints::{Change, ServiceUpdate};
    use portreeve::identity::Incarnation;

    use super::*;

    fn endpoint(replica: u32, incarnation: u32) -> Endpoint {
        Endpoint {
            replica,
            incarnation: Incarnation(incarnation),
            job: None,
            host: "n1".parse().unwrap(),
            address: Some([10, 0, 0, 1].into()),
            ports: Vec::new(),
            state: EndpointState::Ready,
            reason: None,
            ready_since: None,
            restarts: 0,
            labels: Arc::default(),
        }
    }

    fn whole(service: &str, endpoints: Vec<Endpoint>) -> ServiceUpdate {
        ServiceUpdate {
            service: service.parse().unwrap(),
            desired: 2,
            change: Change::Whole(endpoints),
        }
    }

    #[test]
    fn who_looks_seldom_has_what_is_there_through_changes_removal_and_another_epoch() {
        let table = EndpointTable::new("a".to_owned(), 1);
        let mut all = [1, 2, 5].map(Follower::new);
        for revision in 2..200_u32 {
            let endpoints = (0..revision % 4).map(|it| endpoint(it, revision / 7));
            let service = if revision % 3 == 0 { "a.b" } else { "c.d" };
            let update = whole(service, endpoints.collect());
            let gone = (revision % 17 == 0).then(|| "a.b".parse().unwrap());
            table.publish(u64::from(revision), vec![update], gone.as_slice());
            for follower in &mut all {
                follower.look(&table).unwrap();
            }
        }
        let table = EndpointTable::new("b".to_owned(), 1);
        for revision in 2..20 {
            table.publish(revision, vec![whole("e.f", vec![endpoint(0, 1)])], &[]);
            table.publish(revision, vec![whole("e.f", vec![])], &[]);
            for follower in &mut all {
                follower.look(&table).unwrap();
            }
        }
    }

    #[test]
    fn a_reader_that_missed_something_is_found() {
        let table = EndpointTable::new("a".to_owned(), 1);
        let mut follower = Follower::new(1);
        table.publish(2, vec![whole("a.b", vec![endpoint(0, 1)])], &[]);
        follower.look(&table).unwrap();
        let name: ServiceName = "a.b".parse().unwrap();
        follower.services.get_mut(&name).unwrap().listed.clear();
        table.publish(
            3,
            vec![whole("a.b", vec![endpoint(0, 1), endpoint(1, 1)])],
            &[],
        );
        let found = follower.look(&table).unwrap_err();
        assert_eq!(found.invariant, "who follows has what is there");
    }
}
