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
    /// What began on each host and did not tell its end: between two runs, too.
    begun: BTreeMap<HostNo, BTreeSet<ReplicaName>>,
    /// They were on a host when that was given up, or a store was taken up that knows less: others may live beside them,
    /// and until they are told to end another run of theirs may begin.
    forsaken: BTreeSet<ReplicaName>,
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
        let begun = self.begun.get(&host).into_iter().flatten();
        self.forsaken.extend(begun.cloned());
    }

    /// These had a place on a host that is given up, or in a store that was set back: they may not even have begun there.
    pub(crate) fn forsake_placed(&mut self, placed: impl IntoIterator<Item = ReplicaName>) {
        self.forsaken.extend(placed);
    }

    /// The store was set back: whatever lives may be replaced.
    pub(crate) fn forsake_all(&mut self) {
        let begun = self.begun.values().flatten();
        self.forsaken.extend(begun.cloned());
    }

    /// It told its end: nothing of it begins any more.
    pub(crate) fn ended(&mut self, host: HostNo, name: &ReplicaName) {
        if let Some(begun) = self.begun.get_mut(&host) {
            begun.remove(name);
        }
        self.forsaken.remove(name);
    }

    /// The power is lost: nothing that began there goes on.
    pub(crate) fn power_lost(&mut self, host: HostNo) {
        for name in self.begun.remove(&host).into_iter().flatten() {
            self.forsaken.remove(&name);
        }
    }

    /// What lives on a host now; `is_placed` says whether the truth has an incarnation where it lives. Cost: linear in
    /// what lives there.
    pub(crate) fn check(
        &mut self,
        host: HostNo,
        shown: &str,
        living: &[Life],
        is_placed: impl Fn(&ReplicaName) -> bool,
    ) -> Verdict {
        one_run(shown, living)?;
        let now: BTreeSet<ReplicaName> = living.iter().map(|it| it.name.clone()).collect();
        let before = self.on.remove(&host).unwrap_or_default();
        for gone in before.difference(&now) {
            let key = (gone.service.clone(), gone.index);
            if let Some(copies) = self.copies.get_mut(&key) {
                copies.remove(&(host, gone.incarnation));
                if copies.is_empty() {
                    self.copies.remove(&key);
                }
            }
        }
        // Of what was given up the truth knows no place, unless it was taken back.
        let is_left = |at: HostNo, name: &ReplicaName| {
            self.lost.contains(&at) || self.forsaken.contains(name) && !is_placed(name)
        };
        for name in now.difference(&before) {
            let key = (name.service.clone(), name.index);
            let copies = self.copies.entry(key).or_default();
            for (other, incarnation) in copies.iter() {
                let twin = ReplicaName {
                    incarnation: *incarnation,
                    ..name.clone()
                };
                // What was ordered before a host was given up may begin there after.
                if *other == host || !is_left(*other, &twin) && !is_left(host, name) {
                    let text =
                        format!("{name} begins on {shown} while {twin} lives on host {other}");
                    return broken("one incarnation lives", text);
                }
            }
            copies.insert((host, name.incarnation));
            self.begun.entry(host).or_default().insert(name.clone());
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

    const fn never(_: &ReplicaName) -> bool {
        false
    }

    #[test]
    fn a_run_and_its_leftovers_may_live_together_and_no_other_run_beside_them() {
        let mut lives = Lives::default();
        let own = [life(1, 1, true), life(1, 1, false)];
        assert_eq!(lives.check(0, "n1", &own, never), Ok(()));
        let beside = [life(1, 1, false), life(1, 2, true)];
        let found = lives.check(0, "n1", &beside, never).unwrap_err();
        assert_eq!(found.invariant, "one run lives");
        let twice = [life(1, 2, true), life(1, 2, true)];
        let found = lives.check(0, "n1", &twice, never).unwrap_err();
        assert_eq!(found.invariant, "one run lives");
        let newer = [life(1, 2, true), life(2, 1, true)];
        let found = lives.check(0, "n1", &newer, never).unwrap_err();
        assert_eq!(found.invariant, "one run lives");
    }

    #[test]
    fn a_copy_begins_elsewhere_only_where_its_host_was_given_up() {
        let mut lives = Lives::default();
        assert_eq!(lives.check(0, "n1", &[life(1, 1, true)], never), Ok(()));
        let found = lives
            .check(1, "n2", &[life(2, 1, true)], never)
            .unwrap_err();
        assert_eq!(found.invariant, "one incarnation lives");
        let mut lives = Lives::default();
        assert_eq!(lives.check(0, "n1", &[life(1, 1, true)], never), Ok(()));
        lives.lose(0);
        lives.find(0);
        assert_eq!(lives.check(1, "n2", &[life(2, 1, true)], never), Ok(()));
        // What began after the host was given up is not forsaken.
        assert_eq!(lives.check(0, "n1", &[], never), Ok(()));
        assert_eq!(lives.check(1, "n2", &[], never), Ok(()));
        assert_eq!(lives.check(0, "n1", &[life(3, 1, true)], never), Ok(()));
        let found = lives
            .check(1, "n2", &[life(4, 1, true)], never)
            .unwrap_err();
        assert_eq!(found.invariant, "one incarnation lives");
    }

    #[test]
    fn what_was_given_up_between_two_runs_may_run_once_more_until_it_told_its_end_or_was_taken_back()
     {
        let given_up = || {
            let mut lives = Lives::default();
            assert_eq!(lives.check(0, "n1", &[life(1, 1, true)], never), Ok(()));
            assert_eq!(lives.check(0, "n1", &[], never), Ok(()));
            lives.lose(0);
            assert_eq!(lives.check(1, "n2", &[life(2, 1, true)], never), Ok(()));
            lives.find(0);
            lives
        };
        let again = [life(1, 2, true)];
        assert_eq!(given_up().check(0, "n1", &again, never), Ok(()));
        let taken_back = given_up().check(0, "n1", &again, |it| it.incarnation == Incarnation(1));
        assert_eq!(taken_back.unwrap_err().invariant, "one incarnation lives");
        let mut lives = given_up();
        lives.ended(0, &name("web.alice", 1));
        let found = lives.check(0, "n1", &again, never).unwrap_err();
        assert_eq!(found.invariant, "one incarnation lives");
    }
}
