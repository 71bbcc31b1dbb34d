//! Starting workers: for a new replica, and again for one whose worker died.

use std::time::Duration;

use super::Household;
use super::assigned::{Assigned, Order};
use super::errand::{Errand, Hindrance, Start, Word};
use super::keeping::Keeping;
use super::talk::newer;
use crate::residency::{Life, ReplicaName, Resident, Told, Want};
use crate::supervision::{Failure, Final, Reason, StartFailure, Status};
use crate::time::Now;

/// When a replica is tried again that could not begin now.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// When it is looked again whether what was killed is gone.
const AFTER_FORCE: Duration = Duration::from_millis(100);
/// The shortest wait after a worker that could not be started at all.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A worker that ends this often in a row without a word will not say one.
const SILENT_ATTEMPTS: u32 = 5;

impl<A: Assigned> Household<A> {
    /// A worker lives with this assignment.
    pub fn started(&mut self, now: Now, name: &ReplicaName, worker: u32, assignment: A) {
        self.awaited = self.awaited.saturating_sub(1);
        let order = assignment.order();
        let told = order.told();
        let addresses = (assignment.host_address(), order.addresses().clone());
        let keeping = self.keeping.entry(name.clone());
        let keeping = keeping.or_insert_with(|| Keeping::new(None));
        // One that takes over goes by what its predecessor wrote down.
        let takes_over = self.residents.contains_key(name);
        let is_first = keeping.assignment.replace(Box::new(assignment)).is_none();
        keeping.addresses = (is_first && !takes_over).then_some(addresses);
        keeping.watch(now.mono, worker);
        let resident = self.residents.entry(name.clone()).or_insert(Resident {
            life: Life::Watched,
            told: None,
            restart_no: told.restart_no,
            status: None,
            reported: false,
        });
        resident.life = Life::Watched;
        resident.told = Some(told);
        self.changed = true;
    }

    /// No worker could be started. No process exists.
    pub fn not_started(&mut self, now: Now, name: &ReplicaName, why: Hindrance) {
        self.awaited = self.awaited.saturating_sub(1);
        let takes_over = self.residents.contains_key(name);
        match why {
            Hindrance::NotNow => self.later(now.mono + ASK_AGAIN),
            Hindrance::Failed(why) if !takes_over => self.fail(now, name, why),
            // Its service may run: it is tried again for ever.
            Hindrance::Failed(_) => {
                if let Some(keeping) = self.keeping.get_mut(name) {
                    let moment = keeping.next_start(now.mono).max(now.mono + AFTER_FAILURE);
                    keeping.start_after = Some(moment);
                    self.later(moment);
                }
            }
        }
    }

    /// What came of ending its processes by force: whether none is left; `None`: nobody but a worker can know them.
    pub fn forced(&mut self, now: Now, name: &ReplicaName, ended: Option<bool>) {
        self.awaited = self.awaited.saturating_sub(1);
        let Some(told) = self.forcing.take() else {
            return;
        };
        let is_silent = self.status(name).is_none();
        match ended {
            Some(true) if !is_silent => {
                self.say(name, Word::Forced);
                self.conclude(now, name, Final::Stopped, None);
            }
            Some(false) => self.later(now.mono + AFTER_FORCE),
            Some(true) | None => self.take_over_with_worker(now, name, told),
        }
    }

    /// How it ended, of whom no worker ever said a word.
    pub fn hopeless(&mut self, now: Now, name: &ReplicaName, why: StartFailure) {
        self.awaited = self.awaited.saturating_sub(1);
        self.fail(now, name, why);
    }

    /// Whatever is in the way is the end of the incarnation, so that nothing waits for it.
    pub(super) fn start(&mut self, name: ReplicaName) {
        let wanted = self.wanted.as_ref();
        let Some((order, tokens)) = wanted.and_then(|wanted| wanted.get(&name)) else {
            return;
        };
        // Woken when the host finds an address; until then the controller knows that there is none.
        let Some(host_address) = self.published else {
            return self.say(&name, Word::NoAddress);
        };
        if let Some(what) = order.lacks() {
            // Woken when the controller tells one; until then it knows that there is none.
            return self.say(&name, Word::Lacks(what));
        }
        let start = Start {
            order: order.clone(),
            tokens: tokens.clone(),
            name,
            host_address,
            again: false,
        };
        self.out.push_back(Errand::Start(Box::new(start)));
    }

    /// Another worker in the folder of one that died. Its service may still run, so this is tried again for ever,
    /// unless no worker ever said a word.
    pub(super) fn take_over(&mut self, now: Now, name: ReplicaName, told: Option<Told>) {
        let Some(keeping) = self.keeping.get(&name) else {
            return;
        };
        let is_silent = self.status(&name).is_none();
        let to_end = told.is_some_and(|told| told.want != Want::Run);
        if keeping.attempts >= SILENT_ATTEMPTS && (is_silent || to_end) {
            // A job can see to it that no worker can work in its folder. What holds it does not ask the job.
            self.forcing = Some(told);
            self.out.push_back(Errand::EndByForce(name));
        } else {
            self.take_over_with_worker(now, &name, told);
        }
    }

    fn take_over_with_worker(&mut self, now: Now, name: &ReplicaName, told: Option<Told>) {
        let Some(keeping) = self.keeping.get(name) else {
            return;
        };
        if self.status(name).is_none() && keeping.attempts >= SILENT_ATTEMPTS {
            let hopeless = Errand::Hopeless(name.clone(), SILENT_ATTEMPTS);
            return self.out.push_back(hopeless);
        }
        if let Some(moment) = keeping.start_after.filter(|moment| *moment > now.mono) {
            return self.later(moment);
        }
        match self.start_again(name, told) {
            Some(start) => self.out.push_back(Errand::Start(Box::new(start))),
            None => self.say(name, Word::Lost),
        }
    }

    /// What a worker that takes over is given: what stood there, with what is wanted now.
    fn start_again(&self, name: &ReplicaName, told: Option<Told>) -> Option<Start<A>> {
        let stood = self.assignment(name);
        let wanted = self.wanted.as_ref();
        let wanted = wanted.and_then(|wanted| wanted.get(name));
        // An incarnation keeps its ports and its profile. Of one that was replaced, the controller may know
        // no more than the name.
        let order = stood.map(Assigned::order);
        let mut order = order.or(wanted.map(|(order, _)| order))?.clone();
        let tokens = wanted.map(|(_, tokens)| tokens);
        let tokens = tokens.or(stood.map(Assigned::tokens))?.clone();
        if let Some(told) = told {
            let restart_no = told.restart_no.max(order.told().restart_no);
            order.set_told(Told { restart_no, ..told });
        }
        if let Some((wanted, _)) = wanted {
            order.extend_addresses(wanted.addresses());
        }
        Some(Start {
            name: name.clone(),
            order,
            tokens,
            host_address: self.published.or_else(|| Some(stood?.host_address()))?,
            again: true,
        })
    }

    /// Notes that it ended before it began here.
    pub(super) fn never_begun(&mut self, now: Now, name: ReplicaName) {
        self.conclude(now, &name, Final::Stopped, None);
    }

    fn fail(&mut self, now: Now, name: &ReplicaName, why: StartFailure) {
        self.say(name, Word::NotStarted(why.clone()));
        let reason = Reason::StartFailed(why);
        self.conclude(now, name, Final::Failed(reason.clone()), Some(reason));
    }

    /// Gives an incarnation without a worker its last status; reporting it follows.
    fn conclude(&mut self, now: Now, name: &ReplicaName, end: Final, reason: Option<Reason>) {
        let wanted = self.wanted.as_ref();
        let wanted = wanted.and_then(|wanted| wanted.get(name));
        let wanted = wanted.map(|(order, _)| order);
        let restart_no = wanted.map_or(0, |wanted| wanted.told().restart_no);
        let heard = wanted.and_then(Order::last_status);
        let before = newer(heard.cloned(), self.status(name).cloned());
        let before = before.unwrap_or_else(Status::silent);
        let failure = reason.map(|reason| Failure {
            reason,
            exit: None,
            run: before.run,
            at: now.wall,
            probe_output: None,
        });
        let status = before.concluded(end, failure);
        let keeping = self.keeping.entry(name.clone());
        keeping.or_insert_with(|| Keeping::new(None));
        let resident = Resident {
            life: Life::Orphaned,
            told: None,
            restart_no,
            status: Some(status),
            reported: false,
        };
        self.residents.insert(name.clone(), resident);
        self.out.push_back(Errand::StoreStatus(name.clone()));
        self.changed = true;
    }
}
