//! The replicas that live on a host: the acting on what is wanted of them, and on what becomes of their workers.
//!
//! One thing is done after another, so that no two decisions about a replica can cross: [`Household::next`] says what,
//! the driver does it, and what came of it is told before there is a next. What failed is tried again later. What to do
//! is the [`difference`](super::difference) between what lives here and what is wanted; this module knows how far each of it is.

mod assigned;
mod closing;
mod ending;
mod errand;
mod keeping;
mod start;
mod talk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::action::Action;
use super::resident::{Life, ReplicaName, Resident, Told, Want};
use super::{Residents, difference_by};
use crate::supervision::Status;
use crate::time::{Monotonic, Now};

use keeping::Keeping;

pub use assigned::{Assigned, Order};
pub use errand::{Addresses, Answer, Errand, Hindrance, Remains, Start, Talk, Word};
pub use talk::newer;

/// The replicas of one host. `A` is what a worker is given.
///
/// Not for several threads. A turn costs a walk over what lives here and what is wanted here, and is taken when one of
/// these changed or a wait is over; in the steady state there is none.
pub struct Household<A: Assigned> {
    residents: Residents,
    keeping: BTreeMap<ReplicaName, Keeping<A>>,
    wanted: Option<Orders<A>>,
    /// A controller was told everything since that came: what had not begun here it may have placed elsewhere, so nothing
    /// of it begins until another set is there.
    is_outdated: bool,
    /// Ends on their way to the controller.
    reporting: BTreeSet<ReplicaName>,
    /// The address that the host publishes.
    published: Option<IpAddr>,
    /// How long logs are kept after the end.
    keep_logs: Duration,
    /// Whether the host is being shut down: nothing begins here any more.
    is_closing: bool,
    inbox: VecDeque<Input<A>>,
    out: VecDeque<Errand<A>>,
    /// Answers that are due.
    awaited: usize,
    /// What the worker is to be told that takes over if force does not end its processes.
    forcing: Option<Option<Told>>,
    stage: Stage<A>,
    /// Whether something was heard since the last turn.
    is_unsettled: bool,
    /// Whether something changed in this turn, so that another is due.
    changed: bool,
    /// When something that could not be done is tried again.
    next_try: Option<Monotonic>,
}

/// What the controller wants of a host, whole: what of each replica, and what it proves itself with.
pub type Orders<A> = BTreeMap<ReplicaName, (<A as Assigned>::Order, <A as Assigned>::Tokens)>;

/// What was heard and is acted on between two turns.
enum Input<A: Assigned> {
    Wanted(Orders<A>),
    Gather,
    Reported(Vec<ReplicaName>),
    Close,
    Published(Option<IpAddr>),
    WorkerEnded(ReplicaName, u32, Remains),
}

/// How far a turn is.
enum Stage<A: Assigned> {
    Rest,
    /// A controller wants to know everything; workers are asked.
    Gathering,
    Begin,
    /// Tokens are told before anything else, so that an end that follows is heard.
    Tokens,
    /// These are done, then these are said.
    Acting(VecDeque<Action>, Vec<(ReplicaName, Talk<A::Tokens>)>),
    Talking,
}

/// A folder that was found when the agent started.
#[derive(Debug)]
pub struct Found<A> {
    /// Whose it is.
    pub name: ReplicaName,
    /// [`Life::Ended`] if it is marked so, [`Life::Rebooted`] if it is of an earlier boot, else [`Life::Orphaned`]: the
    /// worker decides.
    pub life: Life,
    /// What its worker was given.
    pub assignment: Option<A>,
    /// Its newest status.
    pub status: Option<Status>,
    /// Its living worker, if one was recognised.
    pub worker: Option<u32>,
    /// Whether a worker ever said who it is.
    pub had_worker: bool,
    /// How long ago it ended, if it did.
    pub ended_ago: Duration,
}

impl<A: Assigned> Household<A> {
    /// Of an agent that finds no folder.
    #[must_use]
    pub fn new(keep_logs: Duration) -> Self {
        Self {
            residents: Residents::new(),
            keeping: BTreeMap::new(),
            wanted: None,
            is_outdated: false,
            reporting: BTreeSet::new(),
            published: None,
            keep_logs,
            is_closing: false,
            inbox: VecDeque::new(),
            out: VecDeque::new(),
            awaited: 0,
            forcing: None,
            stage: Stage::Rest,
            is_unsettled: true,
            changed: false,
            next_try: None,
        }
    }

    /// Takes in a folder; before the first [`Self::next`]. Whether it counts: one in which nothing ever began does not.
    pub fn take_in(&mut self, now: Now, found: Found<A>) -> bool {
        let mut life = found.life;
        let restart_no = found
            .assignment
            .as_ref()
            .map_or(0, |one| one.order().told().restart_no);
        let mut keeping = Keeping::new(found.assignment.map(Box::new));
        match (life, found.worker) {
            (Life::Orphaned | Life::Watched, Some(worker)) => {
                life = Life::Watched;
                keeping.watch(now.mono, worker);
            }
            (Life::Orphaned | Life::Watched, None) => {
                life = Life::Orphaned;
                // The assignment is written before anything starts: nothing ever did.
                if keeping.assignment.is_none() && !found.had_worker && found.status.is_none() {
                    return false;
                }
            }
            (Life::Ended, _) => {
                keeping.expires = Some(now.mono + self.keep_logs.saturating_sub(found.ended_ago));
                // The agent may have ended before that was done.
                self.out.push_back(Errand::Clear(found.name.clone()));
            }
            (Life::Rebooted, _) => self.say(&found.name, Word::Rebooted),
        }
        let resident = Resident {
            life,
            told: None,
            restart_no,
            status: found.status,
            reported: false,
        };
        self.keeping.insert(found.name.clone(), keeping);
        self.residents.insert(found.name, resident);
        true
    }

    /// What the controller wants of this host, whole.
    pub fn wanted(&mut self, orders: Orders<A>) {
        self.inbox.push_back(Input::Wanted(orders));
    }

    /// A controller wants to know everything: [`Errand::Gathered`] follows.
    pub fn gather(&mut self) {
        self.inbox.push_back(Input::Gather);
    }

    /// The controller acknowledged what was reported of these.
    pub fn reported(&mut self, names: Vec<ReplicaName>) {
        self.inbox.push_back(Input::Reported(names));
    }

    /// The host is being shut down: from now on everything here is to end. Said twice it is said once.
    pub fn close(&mut self) {
        self.inbox.push_back(Input::Close);
    }

    /// The host publishes this address now.
    pub fn published(&mut self, address: Option<IpAddr>) {
        self.inbox.push_back(Input::Published(address));
    }

    /// The process of a worker has ended, and its folder says this. One that is not the newest of its replica is ignored.
    pub fn worker_ended(&mut self, name: ReplicaName, worker: u32, remains: Remains) {
        let ended = Input::WorkerEnded(name, worker, remains);
        self.inbox.push_back(ended);
    }

    /// The next thing to do; `None`: an answer is due, or everything is done until [`Self::next_deadline`].
    pub fn next(&mut self, now: Now) -> Option<Errand<A>> {
        loop {
            if let Some(errand) = self.out.pop_front() {
                self.awaited += match &errand {
                    Errand::Talk(talks) => talks.len(),
                    Errand::Start(_) | Errand::EndByForce(_) | Errand::Hopeless(..) => 1,
                    _ => 0,
                };
                return Some(errand);
            }
            if self.awaited > 0 || !self.advance(now) {
                return None;
            }
        }
    }

    /// When [`Self::next`] has something to do although nothing is heard.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.next_try.filter(|_| self.awaited == 0)
    }

    /// Everything that has a folder here.
    #[must_use]
    pub const fn residents(&self) -> &Residents {
        &self.residents
    }

    /// What the worker of a replica was given.
    #[must_use]
    pub fn assignment(&self, name: &ReplicaName) -> Option<&A> {
        self.keeping.get(name)?.assignment.as_deref()
    }

    /// The newest status that is known of a replica.
    #[must_use]
    pub fn status(&self, name: &ReplicaName) -> Option<&Status> {
        self.residents.get(name)?.status.as_ref()
    }

    /// What has, or may have, a process here.
    pub fn living(&self) -> impl Iterator<Item = (&ReplicaName, &Resident)> + Clone {
        self.residents
            .iter()
            .filter(|(_, one)| matches!(one.life, Life::Watched | Life::Orphaned))
    }

    /// The orders whose numbers are held here: of what lives, and of what is to live or end here. A number may be named
    /// twice.
    pub fn held(&self) -> impl Iterator<Item = &A::Order> {
        let here = self.living();
        let here = here.filter_map(|(name, _)| Some(self.assignment(name)?.order()));
        let wanted = self.wanted.iter().flat_map(BTreeMap::values);
        let wanted = wanted.map(|(order, _)| order);
        here.chain(wanted.filter(|order| order.told().want != Want::Forget))
    }

    /// Goes one stage on; whether there was anything to do.
    fn advance(&mut self, now: Now) -> bool {
        match &mut self.stage {
            Stage::Rest => {
                if let Some(input) = self.inbox.pop_front() {
                    self.is_unsettled = true;
                    self.hear(now, input);
                } else if self.is_unsettled || self.next_try.is_some_and(|at| at <= now.mono) {
                    self.is_unsettled = false;
                    self.next_try = None;
                    self.stage = Stage::Begin;
                } else {
                    return false;
                }
            }
            Stage::Gathering => {
                let all = self.living();
                let all = all.map(|(name, one)| {
                    let status = one.status.clone().unwrap_or_else(Status::silent);
                    (name.clone(), status)
                });
                let all = all.collect();
                self.out.push_back(Errand::Gathered(all));
                self.stage = Stage::Rest;
            }
            Stage::Begin => {
                self.changed = false;
                self.out.push_back(Errand::Turn);
                let news = self.token_news(now.mono);
                self.talk(now, news);
                self.stage = Stage::Tokens;
            }
            Stage::Tokens => {
                let wanted = self.wanted.as_ref();
                let actions = difference_by(&self.residents, wanted, |(order, _)| order.told());
                let mut talks = self.address_news();
                talks.extend(self.farewells());
                self.stage = Stage::Acting(actions.into(), talks);
            }
            Stage::Acting(actions, talks) => match actions.pop_front() {
                Some(Action::Tell { name, told }) => talks.push((name, Talk::Want(told))),
                Some(Action::Ask { name }) => talks.push((name, Talk::Ask)),
                Some(action) => self.act(now, action),
                None => {
                    let talks = std::mem::take(talks);
                    self.talk(now, talks);
                    self.stage = Stage::Talking;
                }
            },
            Stage::Talking => {
                self.expire(now);
                self.stage = match self.changed {
                    true => Stage::Begin,
                    false => Stage::Rest,
                };
            }
        }
        true
    }

    fn act(&mut self, now: Now, action: Action) {
        match action {
            Action::Start { name } if self.is_closing => self.say(&name, Word::Closing),
            Action::Start { .. } if self.is_outdated => {}
            Action::Start { name } => self.start(name),
            Action::TakeOver { name, told } => self.take_over(now, name, told),
            Action::Report { name } => self.report(name),
            Action::NeverBegun { name } => self.never_begun(now, name),
            Action::End { name } => self.end(now, &name),
            Action::Remove { name } => self.remove(&name),
            Action::Tell { .. } | Action::Ask { .. } => {}
        }
    }

    fn hear(&mut self, now: Now, input: Input<A>) {
        match input {
            Input::Wanted(orders) => {
                self.wanted = Some(orders);
                self.is_outdated = false;
            }
            Input::Gather => self.ask_all(),
            Input::Reported(names) => {
                for name in names {
                    self.reporting.remove(&name);
                    if let Some(resident) = self.residents.get_mut(&name) {
                        resident.reported = resident.is_final();
                    }
                }
            }
            Input::Close => self.is_closing = true,
            Input::Published(address) => self.published = address,
            Input::WorkerEnded(name, worker, remains) => self.bury(now, name, worker, remains),
        }
    }

    /// The newest status of every replica that lives here is asked for.
    fn ask_all(&mut self) {
        // What an earlier controller acknowledged says nothing about this one.
        self.reporting.clear();
        self.is_outdated = true;
        for resident in self.residents.values_mut() {
            resident.reported = false;
        }
        let watched = self.watched();
        let questions: Vec<_> = watched
            .map(|(name, _)| (name.clone(), Talk::Newest))
            .collect();
        if !questions.is_empty() {
            self.out.push_back(Errand::Talk(questions));
        }
        self.stage = Stage::Gathering;
    }

    fn watched(&self) -> impl Iterator<Item = (&ReplicaName, &Resident)> {
        let residents = self.residents.iter();
        residents.filter(|(_, one)| one.life == Life::Watched)
    }

    fn say(&mut self, name: &ReplicaName, word: Word) {
        self.out.push_back(Errand::Word(name.clone(), word));
    }

    fn later(&mut self, moment: Monotonic) {
        self.next_try = Some(self.next_try.map_or(moment, |earlier| earlier.min(moment)));
    }
}

#[cfg(test)]
#[path = "household_model_test.rs"]
mod model_tests;
#[cfg(test)]
#[path = "household_test.rs"]
mod tests;
