//! What people asked for, as plainly as it can be said: which services there are, how many copies, of what.
//!
//! An order that was answered happened. One that nobody answered before the controller died happened or did not:
//! both are kept until readers see which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portreeve::profile::{Profile, Replicas};
use portreeve::registry::ServiceView;

use super::super::act::ServiceNo;
use super::{Verdict, broken};

/// One service as its owner would describe it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) running: bool,
    pub(crate) copies: Replicas,
    pub(crate) profile: Arc<Profile>,
    /// Ended by their owner: nothing runs there.
    pub(crate) empty: BTreeSet<u32>,
    /// Ended by their owner before something else was asked for that may mean them too.
    pub(crate) open: BTreeSet<u32>,
    /// How many copies the profile said when it was last submitted.
    written: Replicas,
}

/// An order, as far as it says what is wanted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meaning {
    Submit {
        profile: Arc<Profile>,
        replace: bool,
    },
    Scale(u32),
    Start,
    Stop,
    Kill(u32),
    Delete,
    /// It changes nothing of what is wanted.
    Nothing,
}

/// Everything that people asked for.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// What each service may be: one thing, or several while it is not known whether an order happened.
    services: BTreeMap<ServiceNo, Vec<Option<Wanted>>>,
    /// Orders that nobody answered yet.
    asked: BTreeMap<u64, (ServiceNo, Meaning)>,
    /// Services of which too much is open to say anything.
    unknown: BTreeSet<ServiceNo>,
}

/// More than so many possibilities say nothing.
const MOST: usize = 32;

impl Oracle {
    /// Somebody orders something.
    pub(crate) fn asked(&mut self, person: u64, service: ServiceNo, meaning: Meaning) {
        self.asked.insert(person, (service, meaning));
    }

    /// It was answered: `changed` says whether it changed anything, `None` that it was refused.
    pub(crate) fn answered(&mut self, person: u64, changed: Option<bool>) {
        let Some((service, meaning)) = self.asked.remove(&person) else {
            return;
        };
        if changed != Some(true) {
            return;
        }
        for one in self.possible(service) {
            *one = apply(one.take(), &meaning);
        }
    }

    /// Nobody will answer it: the controller died meanwhile.
    pub(crate) fn lost(&mut self, person: u64) {
        let Some((service, meaning)) = self.asked.remove(&person) else {
            return;
        };
        self.maybe(service, &meaning);
    }

    /// The store is an older one: any of what was asked for may be undone.
    pub(crate) fn is_set_back(&mut self) {
        self.unknown.extend(self.services.keys().copied());
    }

    /// A person makes a copy theirs that nobody asked for, or does not get it: what is seen then is wanted.
    pub(crate) fn is_adopted(&mut self, service: ServiceNo) {
        self.unknown.insert(service);
    }

    /// Somebody ended the copy by hand where it runs: that is no order, and who ends it so leaves it ended.
    pub(crate) fn ended_by_hand(&mut self, service: ServiceNo, index: u32) {
        for wanted in self.possible(service).iter_mut().flatten() {
            if !wanted.empty.contains(&index) {
                wanted.open.insert(index);
            }
        }
    }

    fn maybe(&mut self, service: ServiceNo, meaning: &Meaning) {
        let possible = self.possible(service);
        let mut also: Vec<_> = possible
            .iter()
            .map(|one| apply(one.clone(), meaning))
            .collect();
        also.retain(|one| !possible.contains(one));
        possible.append(&mut also);
        if possible.len() > MOST {
            self.unknown.insert(service);
        }
    }

    fn possible(&mut self, service: ServiceNo) -> &mut Vec<Option<Wanted>> {
        self.services.entry(service).or_insert_with(|| vec![None])
    }

    /// Whether something was ordered about the service and not answered.
    fn is_open(&self, service: ServiceNo) -> bool {
        self.asked.values().any(|(of, _)| *of == service)
    }

    /// What readers see of the service has to be what was acknowledged.
    pub(crate) fn check(
        &mut self,
        service: ServiceNo,
        name: &str,
        seen: Option<&ServiceView>,
    ) -> Verdict {
        if self.is_open(service) {
            return Ok(());
        }
        if self.unknown.remove(&service) {
            let now = seen.map(Wanted::seen);
            self.services.insert(service, vec![now]);
            return Ok(());
        }
        let possible = self.possible(service);
        let before = possible.len();
        let kept: Vec<_> = possible
            .iter()
            .filter(|one| is_seen(one.as_ref(), seen))
            .cloned()
            .collect();
        if kept.is_empty() {
            let shown = seen.map(|it| (&it.state, it.desired));
            let all: Vec<_> = possible
                .iter()
                .map(|it| it.as_ref().map(Wanted::text))
                .collect();
            let text = format!("{name} is seen as {shown:?}; acknowledged was one of {all:?}");
            return broken("acknowledged stays", text);
        }
        if kept.len() < before {
            *possible = kept;
        }
        if possible.len() > 1 && possible.iter().all(Option::is_some) {
            *possible = vec![joined(possible)];
        }
        Ok(())
    }

    /// What is wanted of the service, if that is known: `Some(None)` says that it shall not be there.
    pub(crate) fn wanted(&self, service: ServiceNo) -> Option<Option<&Wanted>> {
        if self.unknown.contains(&service) || self.is_open(service) {
            return None;
        }
        match self.services.get(&service).map(Vec::as_slice) {
            None => Some(None),
            Some([one]) => Some(one.as_ref()),
            Some(_) => None,
        }
    }
}

impl Wanted {
    fn new(profile: Arc<Profile>) -> Self {
        Self {
            running: true,
            copies: profile.replicas,
            written: profile.replicas,
            profile,
            empty: BTreeSet::new(),
            open: BTreeSet::new(),
        }
    }

    /// As far as readers see it.
    fn seen(view: &ServiceView) -> Self {
        let copies = match view.profile.replicas {
            Replicas::PerHost => Replicas::PerHost,
            Replicas::Count(_) => Replicas::Count(view.desired),
        };
        Self {
            running: view.state != "stopped",
            copies,
            written: view.profile.replicas,
            profile: Arc::clone(&view.profile),
            empty: BTreeSet::new(),
            // Who ended it is not known any more.
            open: (0..view.desired).collect(),
        }
    }

    fn text(&self) -> (bool, Replicas) {
        (self.running, self.copies)
    }

    /// Whether this index is to run: `None`: that cannot be said.
    pub(crate) fn is_wanted(&self, index: u32) -> Option<bool> {
        if !self.running {
            return Some(false);
        }
        match self.copies {
            Replicas::Count(copies) if index >= copies => Some(false),
            _ if self.empty.contains(&index) => Some(false),
            _ if self.open.contains(&index) => None,
            Replicas::PerHost => None,
            Replicas::Count(_) => Some(true),
        }
    }

    fn resize(&mut self, copies: Replicas) {
        if let (Replicas::Count(before), Replicas::Count(now)) = (self.copies, copies) {
            // What was ended beyond the old number may stand there, or not any more.
            let beyond = self.empty.split_off(&before);
            self.open.extend(beyond);
            self.empty.retain(|index| *index < now);
            self.open.retain(|index| *index < now);
        }
        self.copies = copies;
    }

    fn run_again(&mut self) {
        // An end on its way may be of one that was just wanted again.
        self.open.append(&mut self.empty);
        self.running = true;
    }
}

/// What is wanted after an order that changed something.
fn apply(before: Option<Wanted>, meaning: &Meaning) -> Option<Wanted> {
    let Some(mut wanted) = before else {
        return match meaning {
            Meaning::Submit { profile, .. } => Some(Wanted::new(Arc::clone(profile))),
            _ => None,
        };
    };
    match meaning {
        Meaning::Submit { profile, replace } => {
            let is_same = *profile == wanted.profile;
            wanted.run_again();
            // The profile that is known leaves it as it was scaled since.
            if !is_same || *replace || profile.replicas != wanted.written {
                wanted.resize(profile.replicas);
            }
            wanted.written = profile.replicas;
            wanted.profile = Arc::clone(profile);
        }
        Meaning::Scale(copies) => wanted.resize(Replicas::Count(*copies)),
        Meaning::Start => wanted.run_again(),
        Meaning::Stop => wanted.running = false,
        Meaning::Kill(index) => {
            wanted.open.remove(index);
            wanted.empty.insert(*index);
        }
        Meaning::Delete => return None,
        Meaning::Nothing => {}
    }
    Some(wanted)
}

/// One of several of which readers see the same: they differ in what else was ended by its owner.
fn joined(possible: &mut Vec<Option<Wanted>>) -> Option<Wanted> {
    let mut all = possible.drain(..).flatten();
    let mut one = all.next()?;
    for other in all {
        let ended = one.empty.intersection(&other.empty).copied().collect();
        one.open.extend(other.open);
        one.open
            .extend(one.empty.symmetric_difference(&other.empty));
        one.empty = ended;
    }
    Some(one)
}

/// Whether readers see this.
fn is_seen(wanted: Option<&Wanted>, seen: Option<&ServiceView>) -> bool {
    match (wanted, seen) {
        (None, None) => true,
        (Some(wanted), Some(seen)) => {
            let is_sized = match wanted.copies {
                Replicas::Count(copies) => seen.desired == copies,
                Replicas::PerHost => true,
            };
            is_sized
                && wanted.running == (seen.state != "stopped")
                && wanted.profile.env == seen.profile.env
                && wanted.profile.ports == seen.profile.ports
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use portreeve::registry::{Command, View};

    use super::super::stage::{Stage, profile};
    use super::*;

    fn submit(replicas: u32) -> Meaning {
        Meaning::Submit {
            profile: Arc::new(profile("web", &format!("replicas = {replicas}\n"))),
            replace: true,
        }
    }

    fn look(oracle: &mut Oracle, view: &View) -> Result<(), &'static str> {
        let service = view.services.get(&"web.alice".parse().unwrap());
        let found = oracle.check(0, "web.alice", service.map(AsRef::as_ref));
        found.map_err(|it| it.invariant)
    }

    #[test]
    fn what_was_acknowledged_is_seen_and_a_world_that_forgot_it_is_found() {
        let mut stage = Stage::new("20000-20009");
        let empty = stage.registry.view();
        let mut oracle = Oracle::default();
        assert_eq!(look(&mut oracle, &empty), Ok(()));
        oracle.asked(1, 0, submit(2));
        let name = stage.submit("web", "replicas = 2\n");
        let two = stage.registry.view();
        // Not answered: it may be seen, or not.
        assert_eq!(look(&mut oracle, &empty), Ok(()));
        assert_eq!(look(&mut oracle, &two), Ok(()));
        oracle.answered(1, Some(true));
        assert_eq!(look(&mut oracle, &two), Ok(()));
        assert_eq!(look(&mut oracle, &empty), Err("acknowledged stays"));
        oracle.asked(2, 0, Meaning::Scale(3));
        oracle.answered(2, Some(true));
        assert_eq!(look(&mut oracle, &two), Err("acknowledged stays"));
        let scale = Command::Scale {
            service: name,
            replicas: 3,
        };
        stage.ask(scale).unwrap();
        assert_eq!(look(&mut oracle, &stage.registry.view()), Ok(()));
    }

    #[test]
    fn an_order_that_died_with_the_controller_happened_or_did_not_and_one_look_says_which() {
        let mut stage = Stage::new("20000-20009");
        let mut oracle = Oracle::default();
        oracle.asked(1, 0, submit(2));
        oracle.answered(1, Some(true));
        let name = stage.submit("web", "replicas = 2\n");
        let two = stage.registry.view();
        oracle.asked(2, 0, Meaning::Scale(3));
        oracle.asked(3, 0, Meaning::Stop);
        oracle.lost(2);
        oracle.lost(3);
        assert_eq!(oracle.wanted(0), None);
        let scale = Command::Scale {
            service: name,
            replicas: 3,
        };
        stage.ask(scale).unwrap();
        let three = stage.registry.view();
        assert_eq!(look(&mut oracle, &three), Ok(()));
        let wanted = oracle.wanted(0).unwrap().unwrap();
        assert!(wanted.running);
        assert_eq!(wanted.copies, Replicas::Count(3));
        assert_eq!(look(&mut oracle, &two), Err("acknowledged stays"));
    }

    #[test]
    fn a_killed_index_stays_empty_until_it_may_be_meant_again() {
        let mut oracle = Oracle::default();
        let order = |oracle: &mut Oracle, meaning| {
            oracle.asked(1, 0, meaning);
            oracle.answered(1, Some(true));
        };
        order(&mut oracle, submit(3));
        order(&mut oracle, Meaning::Kill(1));
        let wanted = |oracle: &Oracle, index| oracle.wanted(0).unwrap().unwrap().is_wanted(index);
        assert_eq!(wanted(&oracle, 0), Some(true));
        assert_eq!(wanted(&oracle, 1), Some(false));
        assert_eq!(wanted(&oracle, 3), Some(false));
        order(&mut oracle, Meaning::Start);
        assert_eq!(wanted(&oracle, 1), None);
        order(&mut oracle, Meaning::Stop);
        assert_eq!(wanted(&oracle, 0), Some(false));
        // What was refused changes nothing.
        oracle.asked(2, 0, Meaning::Delete);
        oracle.answered(2, None);
        assert!(oracle.wanted(0).unwrap().is_some());
        order(&mut oracle, Meaning::Delete);
        assert_eq!(oracle.wanted(0), Some(None));
    }
}
