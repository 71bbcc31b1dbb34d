//! Who lives: one run of one incarnation of a copy on a host, and another host's only where that one was given up.

use std::collections::{BTreeMap, BTreeSet};

use portreeve::identity::{Incarnation, Run, ServiceName};
use portreeve::residency::ReplicaName;

use super::super::act::HostNo;
use super::numbers::Life;
use super::{Verdict, broken};

/// All living processes by copy.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// Which incarnations of a copy live where.
    copies: BTreeMap<(ServiceName, u32), BTreeSet<(HostNo, Incarnation)>>,
    /// What each host ran at the last look.
    on: BTreeMap<HostNo, BTreeSet<ReplicaName>>,
    /// They lived when their host was given up, or a store was taken up that knows less: others may live beside them.
    forsaken: BTreeSet<(HostNo, ReplicaName)>,
    /// Hosts that are given up now: whatever lives there may be replaced.
    lost: BTreeSet<HostNo>,
}

impl Lives {
    /// The host is given up, or not known: what it runs may be replaced, until it is found again.
    pub(crate) fn lose(&mut self, host: HostNo) {
        self.lost.insert(host);
    }

    /// It counts again: what lives there by now may still have been replaced.
    pub(crate) fn find(&mut self, host: HostNo) {
        if self.lost.remove(&host) {
            self.forsake(host);
        }
    }

    /// An operator declares it down: what lives there may be replaced, though it is heard of at once.
    pub(crate) fn forsake(&mut self, host: HostNo) {
        let living = self.on.get(&host).into_iter().flatten();
        let living = living.map(|name| (host, name.clone()));
        self.forsaken.extend(living);
    }

    /// The store was set back: whatever lives may be replaced.
    pub(crate) fn forsake_all(&mut self) {
        let hosts: Vec<HostNo> = self.on.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.forsake(host));
    }

    /// What lives on a host now. Cost: linear in that.
    pub(crate) fn check(&mut self, host: HostNo, shown: &str, living: &[Life]) -> Verdict {
        one_run(shown, living)?;
        let now: BTreeSet<ReplicaName> = living.iter().map(|it| it.name.clone()).collect();
        let before = self.on.remove(&host).unwrap_or_default();
        for gone in before.difference(&now) {
            self.forsaken.remove(&(host, gone.clone()));
            let key = (gone.service.clone(), gone.index);
            if let Some(copies) = self.copies.get_mut(&key) {
                copies.remove(&(host, gone.incarnation));
                if copies.is_empty() {
                    self.copies.remove(&key);
                }
            }
        }
        for name in now.difference(&before) {
            let key = (name.service.clone(), name.index);
            let copies = self.copies.entry(key).or_default();
            for (other, incarnation) in copies.iter() {
                let twin = ReplicaName {
                    incarnation: *incarnation,
                    ..name.clone()
                };
                let is_left = |at: HostNo| {
                    self.lost.contains(&at) || self.forsaken.contains(&(at, twin.clone()))
                };
                // What was ordered before a host was given up may begin there after.
                if *other == host || !is_left(*other) && !self.lost.contains(&host) {
                    let text =
                        format!("{name} begins on {shown} while {twin} lives on host {other}");
                    return broken("one incarnation lives", text);
                }
            }
            copies.insert((host, name.incarnation));
        }
        if !now.is_empty() {
            self.on.insert(host, now);
        }
        Ok(())
    }

    /// Where a copy lives.
    pub(crate) fn of(
        &self,
        service: &ServiceName,
        index: u32,
    ) -> impl Iterator<Item = (HostNo, Incarnation)> {
        let copies = self.copies.get(&(service.clone(), index));
        copies.into_iter().flatten().copied()
    }

    /// Every copy that lives.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&ServiceName, u32)> {
        self.copies.keys().map(|(service, index)| (service, *index))
    }
}

/// Of one copy on one host, all processes are of one run.
fn one_run(shown: &str, living: &[Life]) -> Verdict {
    let mut runs: BTreeMap<(&ServiceName, u32), (Incarnation, Run, bool)> = BTreeMap::new();
    for life in living {
        let key = life.name.copy();
        let this = (life.name.incarnation, life.run, life.is_main);
        let Some((incarnation, run, has_main)) = runs.insert(key, this) else {
            continue;
        };
        let (own, name) = (life.run, &life.name);
        if (incarnation, run) != (name.incarnation, own) {
            let text = format!(
                "{name} run {own} lives on {shown} beside incarnation {incarnation} run {run}"
            );
            return broken("one run lives", text);
        }
        if has_main && life.is_main {
            return broken(
                "one run lives",
                format!("{name} run {own} lives twice on {shown}"),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, incarnation: u32) -> ReplicaName {
        ReplicaName {
            service: text.parse().unwrap(),
            index: 0,
            incarnation: Incarnation(incarnation),
        }
    }

    fn life(incarnation: u32, run: u32, is_main: bool) -> Life {
        Life {
            name: name("web.alice", incarnation),
            run: Run(run),
            is_main,
        }
    }

    #[test]
    fn a_run_and_its_leftovers_may_live_together_and_no_other_run_beside_them() {
        let mut lives = Lives::default();
        let own = [life(1, 1, true), life(1, 1, false)];
        assert_eq!(lives.check(0, "n1", &own), Ok(()));
        let beside = [life(1, 1, false), life(1, 2, true)];
        let found = lives.check(0, "n1", &beside).unwrap_err();
        assert_eq!(found.invariant, "one run lives");
        let twice = [life(1, 2, true), life(1, 2, true)];
        let found = lives.check(0, "n1", &twice).unwrap_err();
        assert_eq!(found.invariant, "one run lives");
        let newer = [life(1, 2, true), life(2, 1, true)];
        let found = lives.check(0, "n1", &newer).unwrap_err();
        assert_eq!(found.invariant, "one run lives");
    }

    #[test]
    fn a_copy_begins_elsewhere_only_where_its_host_was_given_up() {
        let mut lives = Lives::default();
        assert_eq!(lives.check(0, "n1", &[life(1, 1, true)]), Ok(()));
        let found = lives.check(1, "n2", &[life(2, 1, true)]).unwrap_err();
        assert_eq!(found.invariant, "one incarnation lives");
        let mut lives = Lives::default();
        assert_eq!(lives.check(0, "n1", &[life(1, 1, true)]), Ok(()));
        lives.lose(0);
        lives.find(0);
        assert_eq!(lives.check(1, "n2", &[life(2, 1, true)]), Ok(()));
        // What began after the host was given up is not forsaken.
        assert_eq!(lives.check(0, "n1", &[]), Ok(()));
        assert_eq!(lives.check(1, "n2", &[]), Ok(()));
        assert_eq!(lives.check(0, "n1", &[life(3, 1, true)]), Ok(()));
        let found = lives.check(1, "n2", &[life(4, 1, true)]).unwrap_err();
        assert_eq!(found.invariant, "one incarnation lives");
    }
}
