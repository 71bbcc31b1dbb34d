//! How replicas leave: their workers end, the controller is told, their folders are marked and in the end removed.

use std::time::Duration;

use super::Household;
use super::assigned::{Assigned, Order};
use super::errand::{Errand, Remains, Word};
use super::talk::newer;
use crate::residency::{Life, ReplicaName, Want};
use crate::time::{Monotonic, Now};

/// How long until a folder is looked at again that was to go and is still wanted.
const EXPIRE_AGAIN: Duration = Duration::from_secs(60 * 60);

impl<A: Assigned> Household<A> {
    /// A worker is gone; what it leaves says what follows.
    pub(super) fn bury(&mut self, now: Now, name: ReplicaName, worker: u32, remains: Remains) {
        let (Some(resident), Some(keeping)) =
            (self.residents.get_mut(&name), self.keeping.get_mut(&name))
        else {
            return;
        };
        if keeping.worker != Some(worker) {
            return;
        }
        keeping.worker = None;
        keeping.start_after = Some(keeping.next_start(now.mono));
        resident.told = None;
        match remains {
            // Dismissed, it has marked the folder itself.
            Remains::Ended => {
                resident.life = Life::Ended;
                keeping.expires = Some(now.mono + self.keep_logs);
                self.out.push_back(Errand::Clear(name.clone()));
                self.let_go(&name);
                self.say(&name, Word::Forgotten);
            }
            // The process that its life hung on is gone, and its service with it.
            Remains::Nothing => {
                self.let_go(&name);
                self.residents.remove(&name);
                self.keeping.remove(&name);
            }
            Remains::Folder(status) => {
                // On a full disk it said more than it wrote down.
                resident.status = newer(resident.status.take(), status);
                resident.life = Life::Orphaned;
                if !resident.is_final() {
                    self.say(&name, Word::WorkerGone(worker));
                }
            }
        }
    }

    /// Tells the controller of an end that no worker tells; once.
    pub(super) fn report(&mut self, name: ReplicaName) {
        let status = self.status(&name).cloned();
        if let Some(status) = status
            && self.reporting.insert(name.clone())
        {
            self.out.push_back(Errand::Report(name, Box::new(status)));
        }
    }

    /// The controller knows of the end: only logs are kept.
    pub(super) fn end(&mut self, now: Now, name: &ReplicaName) {
        let Some(keeping) = self.keeping.get_mut(name) else {
            return;
        };
        keeping.expires = Some(now.mono + self.keep_logs);
        self.out.push_back(Errand::MarkEnded(name.clone()));
        self.let_go(name);
        if let Some(resident) = self.residents.get_mut(name) {
            resident.life = Life::Ended;
        }
        self.say(name, Word::Forgotten);
        self.changed = true;
    }

    /// Logs go too.
    pub(super) fn remove(&mut self, name: &ReplicaName) {
        self.let_go(name);
        if self.keeping.remove(name).is_some() {
            self.out.push_back(Errand::Remove(name.clone()));
        }
        self.changed |= self.residents.remove(name).is_some();
    }

    /// Forgets what was assigned: nothing of it runs any more.
    fn let_go(&mut self, name: &ReplicaName) {
        let keeping = self.keeping.get_mut(name);
        if let Some(assignment) = keeping.and_then(|one| one.assignment.take()) {
            self.out.push_back(Errand::LetGo(assignment));
        }
    }

    /// Removes the folders whose time has come, and sets when to look again.
    pub(super) fn expire(&mut self, now: Now) {
        let Some(wanted) = &self.wanted else { return };
        let mut gone: Vec<ReplicaName> = Vec::new();
        let mut next = None;
        for (name, keeping) in &mut self.keeping {
            let ended = self
                .residents
                .get(name)
                .is_some_and(|resident| resident.life == Life::Ended);
            let Some(expires) = keeping.expires.filter(|_| ended) else {
                continue;
            };
            // Its end is still waited for.
            let waited_for = wanted.get(name);
            let is_waited_for =
                waited_for.is_some_and(|(order, _)| order.told().want != Want::Forget);
            let expires = match (expires > now.mono, is_waited_for) {
                (true, _) => expires,
                (false, true) => now.mono + EXPIRE_AGAIN,
                (false, false) => {
                    gone.push(name.clone());
                    continue;
                }
            };
            keeping.expires = Some(expires);
            next = Some(next.map_or(expires, |next: Monotonic| next.min(expires)));
        }
        for name in gone {
            self.say(&name, Word::Expired);
            self.remove(&name);
        }
        if let Some(next) = next {
            self.later(next);
        }
    }
}
