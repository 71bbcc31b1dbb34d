//! Nobody is stopped unasked: a host ends a copy because a controller said so of it, or of a newer incarnation that is to
//! run there, and never because a wanted set leaves it out.

use std::collections::{BTreeMap, BTreeSet};

use portreeve::identity::{Incarnation, ServiceName};
use portreeve::registry::Want;
use portreeve::residency::ReplicaName;

use super::super::act::HostNo;
use super::super::wire::WantedOfHost;
use super::{Verdict, broken};

/// What every host was told so far, by whichever controller.
#[derive(Debug)]
pub(crate) struct Unasked {
    hosts: Vec<OfHost>,
}

#[derive(Clone, Debug, Default)]
struct OfHost {
    /// Incarnations that are to end, or ended and are to be forgotten.
    ended: BTreeSet<ReplicaName>,
    /// The newest incarnation of each copy that is to run.
    newest: BTreeMap<ServiceName, BTreeMap<u32, Incarnation>>,
}

impl Unasked {
    pub(crate) fn new(hosts: usize) -> Self {
        Self {
            hosts: vec![OfHost::default(); hosts],
        }
    }

    /// A wanted set reached the host. Cost: a look for each that it names.
    pub(crate) fn arrived(&mut self, host: HostNo, wanted: &WantedOfHost) {
        let of = &mut self.hosts[host];
        for desired in wanted.replicas.iter() {
            if desired.want != Want::Run {
                of.ended.insert(ReplicaName {
                    service: desired.service.clone(),
                    index: desired.index,
                    incarnation: desired.incarnation,
                });
            } else if let Some(copies) = of.newest.get_mut(&desired.service) {
                let newest = copies.entry(desired.index).or_default();
                *newest = desired.incarnation.max(*newest);
            } else {
                let copies = BTreeMap::from([(desired.index, desired.incarnation)]);
                of.newest.insert(desired.service.clone(), copies);
            }
        }
    }

    /// The agent of the host tells the worker of this one that it is not wanted.
    pub(crate) fn stopped(&self, host: HostNo, shown: &str, name: &ReplicaName) -> Verdict {
        let of = &self.hosts[host];
        let newest = of.newest.get(&name.service);
        let newest = newest.and_then(|copies| copies.get(&name.index));
        if of.ended.contains(name) || newest.is_some_and(|newest| *newest > name.incarnation) {
            return Ok(());
        }
        let text = format!("{name} is told to stop on {shown}, and no controller said so");
        broken("nobody is stopped unasked", text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::{Stage, host};
    use super::*;

    fn wanted(stage: &Stage) -> WantedOfHost {
        let (revision, report_first, replicas) = stage.registry.desired(&host()).unwrap();
        WantedOfHost {
            instance: "c1".into(),
            revision,
            report_first,
            replicas: replicas.into(),
        }
    }

    #[test]
    fn a_stop_that_nobody_ordered_is_found() {
        let mut stage = Stage::new("20000-20009");
        stage.submit("web", "replicas = 2\n");
        let mut unasked = Unasked::new(1);
        unasked.arrived(0, &wanted(&stage));
        let names: Vec<_> = stage.placed().into_iter().map(|it| it.name).collect();
        let found = unasked.stopped(0, "n1", &names[0]).unwrap_err();
        assert_eq!(found.invariant, "nobody is stopped unasked");
        // An older one makes way, wherever that is not named.
        let older = ReplicaName {
            incarnation: Incarnation(0),
            ..names[0].clone()
        };
        let is_newer = names[0].incarnation > older.incarnation;
        assert_eq!(unasked.stopped(0, "n1", &older).is_ok(), is_newer);
        let mut set = wanted(&stage);
        let mut replicas = set.replicas.to_vec();
        let one = replicas.iter_mut().find(|it| it.index == names[0].index);
        one.unwrap().want = Want::Stop;
        set.replicas = replicas.into();
        unasked.arrived(0, &set);
        assert_eq!(unasked.stopped(0, "n1", &names[0]), Ok(()));
        assert!(unasked.stopped(0, "n1", &names[1]).is_err());
    }
}
