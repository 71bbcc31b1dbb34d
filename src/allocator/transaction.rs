//! Decisions that become true together or not at all.

use crate::identity::{HostId, ReplicaId};
use crate::port_pool::{Cause, CauseCode, ListedPorts, Phase, PortGrant, Why};
use crate::time::Monotonic;

use super::feasibility::Scratch;
use super::host::Host;
use super::placements::TransactionNo;
use super::question::{Around, about_host};
use super::work::{Step, Work};
use super::{Allocator, CauseCounts, HostSet, Need, Summary};

/// An open transaction: what it takes is free for nobody and seen by no reader until
/// [`Self::commit`]. Dropped, it leaves no trace.
///
/// Several may be open at once, on one thread or many: each sees what the others took as taken.
#[derive(Debug)]
pub struct Transaction<'a> {
    pub(super) allocator: &'a Allocator,
    /// There until the transaction ends.
    pub(super) work: Option<Box<Work>>,
}

/// A transaction without its borrow: for callers that cannot keep one between calls.
///
/// What it took stays taken until it is [resumed](Allocator::resume) and ended; if it is dropped,
/// for good.
#[derive(Debug)]
#[must_use = "what it took stays taken until it is resumed and ended"]
pub struct Suspended {
    work: Box<Work>,
}

/// A point in a transaction to come back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(super) of: TransactionNo,
    pub(super) number: u64,
}

/// The mark was set after one that was rolled back to, or in another transaction. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mark is stale: the transaction was rolled back to before it")]
pub struct StaleMark;

impl Allocator {
    /// Opens a transaction at `now`, after ending all that is due on every host.
    pub fn begin(&self, now: Monotonic) -> Transaction<'_> {
        self.advance(now);
        self.open()
    }

    fn open(&self) -> Transaction<'_> {
        let mut work = self.spares.take(self.no);
        work.looks = self.census.looks();
        Transaction {
            allocator: self,
            work: Some(work),
        }
    }

    /// Takes up a transaction of this allocator that was suspended. One of another allocator is empty
    /// here, and what it took there stays taken.
    pub fn resume(&self, suspended: Suspended) -> Transaction<'_> {
        if suspended.work.home != self.no {
            return self.open();
        }
        Transaction {
            allocator: self,
            work: Some(suspended.work),
        }
    }

    /// Undoes the last steps of `work`, so that `length` are left.
    fn undo_to(&self, work: &mut Work, length: usize) {
        while work.steps.len() > length {
            let Some(step) = work.steps.pop() else {
                return;
            };
            let undone = self
                .hosts
                .with(step.host, |host| self.undo_step(step, host, work));
            debug_assert!(undone.is_some(), "a host in a transaction stays");
        }
    }

    /// Undoes one step on its host, under the host's lock.
    pub(super) fn undo_step(&self, step: Step, host: &mut Host, work: &mut Work) {
        let ours = self.placements.unclaim(step.replica, step.host, work.no);
        debug_assert!(ours, "what a transaction took is claimed by it");
        work.changed.clear();
        work.changed.extend(host.pool.numbers_of(step.replica));
        let whose = host.pool.undo(&mut work.undo);
        debug_assert_eq!(whose, Some(step.replica), "steps and takes go together");
        let now = self.now();
        if host.pool.next_deadline().is_some_and(|due| due <= now) {
            // What came back to rest was over while the transaction was open.
            self.end_due(step.host, host, now);
            self.census.free(step.host);
        }
        if self.census.looks() != work.looks {
            // Somebody who looked in vain meanwhile may want it. Unlooked for it leaves no trace.
            self.census.free(step.host);
        }
        self.note(step.host, host, &work.changed);
        self.recount(step.host, host);
    }
}

impl<'a> Transaction<'a> {
    pub(super) fn work(&mut self) -> &mut Work {
        self.work
            .as_deref_mut()
            .expect("a transaction has its work until it ends")
    }

    /// The hosts among `candidates` (`None`: all) on which [`Self::reserve`] would succeed at this
    /// moment. With several threads at work it is a hint. Cost: a few words per 64 hosts and number
    /// that is asked for as fixed, one search for each host that is short of numbers; for blocks
    /// and narrowed ranges one search for each host that has the fixed numbers. The first question
    /// about a fixed number visits every host.
    #[must_use]
    pub fn feasible(&mut self, need: &Need<'_>, candidates: Option<&HostSet>) -> HostSet {
        let mut hosts = HostSet::new();
        self.feasible_into(need, candidates, &mut hosts);
        hosts
    }

    /// As [`Self::feasible`], into a set that is used again: allocates nothing once that has the
    /// room.
    pub fn feasible_into(
        &mut self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        out: &mut HostSet,
    ) {
        let allocator = self.allocator;
        allocator.find_feasible(need, candidates, &mut self.work().scratch, out);
    }

    /// How many replicas of `need` the host takes one after the other, `most` at most; the number in
    /// `need` plays no part. Exact, but where the request has blocks, or ports that want single numbers of
    /// one side from among different ones: there no more than 256 are tried, so that it is a lower bound,
    /// at least 1 if one fits. Cost: a count where it is a matter of counting, else one search each.
    pub fn max_replicas(&mut self, need: &Need<'_>, host: HostId, most: u32) -> u32 {
        let allocator = self.allocator;
        let scratch = &mut self.work().scratch;
        allocator.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), need.at);
        let look = &mut scratch.look;
        let times = allocator
            .hosts
            .with(host, |host| host.fits_times(need, &around, look, most));
        times.unwrap_or(0)
    }

    /// Every cause that keeps `need` from `host`; nothing if it fits.
    #[must_use]
    pub fn explain(&self, host: HostId, need: &Need<'_>) -> Vec<Why> {
        let mut why = Vec::new();
        let scratch = &mut Scratch::default();
        self.allocator.explain_with(host, need, scratch, &mut why);
        why
    }

    /// As [`Self::explain`], but pushes the causes to `why`, and allocates nothing once that has the room.
    /// Cost: for each cause that names a holder a look at every grant of the host.
    pub fn explain_into(&mut self, host: HostId, need: &Need<'_>, why: &mut Vec<Why>) {
        let allocator = self.allocator;
        allocator.explain_with(host, need, &mut self.work().scratch, why);
    }

    /// The first cause that keeps `need` from `host`; `None` if it fits.
    #[must_use]
    pub fn explain_first(&self, host: HostId, need: &Need<'_>) -> Option<Why> {
        let scratch = &mut Scratch::default();
        self.allocator.explain_first(host, need, scratch)
    }

    /// The first cause of each of `candidates` (`None`: all hosts), summed.
    #[must_use]
    pub fn explain_all(&self, need: &Need<'_>, candidates: Option<&HostSet>) -> Summary {
        self.allocator.explain_all(need, candidates)
    }

    /// Adds to `counts` how many of `candidates` (`None`: all hosts) fit, and what the first cause against each
    /// of the others is: the numbers of [`Self::explain_all`], but allocates nothing once warm.
    pub fn count_causes(
        &mut self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        counts: &mut CauseCounts,
    ) {
        let allocator = self.allocator;
        allocator.count_causes(need, candidates, &mut self.work().scratch, counts);
    }

    /// Every number of `host` that is not free, as [`Allocator::ports`] lists them, as it was before this
    /// transaction took any; `None` if there is no such host. Cost: sorts the runs of the host, but for the
    /// host that was asked about last, whose list is kept. Allocates nothing once warm.
    pub fn listed(&mut self, host: HostId) -> Option<&[ListedPorts]> {
        let allocator = self.allocator;
        let Work {
            steps,
            undo,
            scratch,
            ..
        } = self.work();
        let listed = &mut scratch.listed;
        if listed.host != Some(host) {
            listed.host = None;
            let is_here = |place: usize| steps.get(place).is_some_and(|step| step.host == host);
            let listing = &mut listed.listing;
            let list = |there: &mut Host| there.pool.list(listing, undo, is_here);
            allocator.hosts.with(host, list)?;
            listed.host = Some(host);
        }
        Some(&listed.listing.entries)
    }

    /// A point to come back to, to try another host.
    pub fn mark(&mut self) -> Mark {
        let work = self.work();
        Mark {
            of: work.no,
            number: work.marks.set(work.steps.len()),
        }
    }

    /// Gives back all that was taken since `mark`, without a trace. Later marks become stale, this
    /// one stays.
    ///
    /// # Errors
    ///
    /// [`StaleMark`]; nothing changed.
    pub fn rollback(&mut self, mark: Mark) -> Result<(), StaleMark> {
        let allocator = self.allocator;
        let work = self.work();
        if mark.of != work.no {
            return Err(StaleMark);
        }
        let length = work.marks.back_to(mark.number).ok_or(StaleMark)?;
        allocator.undo_to(work, length);
        Ok(())
    }

    /// Makes everything that was taken held. Returns how many grants were new. Nothing can refuse it; another
    /// thread may see the grants of some hosts a moment before those of others.
    pub fn commit(mut self) -> usize {
        let Some(mut work) = self.work.take() else {
            return 0;
        };
        let allocator = self.allocator;
        let mut held = 0;
        for step in work.steps.drain(..) {
            let settled = allocator.hosts.with(step.host, |host| {
                let ours = allocator
                    .placements
                    .settle(step.replica, step.host, work.no);
                if ours {
                    host.pool.set_phase(step.replica, Phase::Held);
                }
                ours
            });
            if settled == Some(true) {
                held += 1;
                allocator.end_wait(step.replica);
            }
        }
        work.undo.clear();
        allocator.spares.keep(work);
        held
    }

    /// Leaves the transaction open, without its borrow: for callers that cannot keep one.
    pub fn suspend(mut self) -> Suspended {
        Suspended {
            work: self
                .work
                .take()
                .expect("a transaction has its work until it ends"),
        }
    }

    /// What `replica` holds, taken by this transaction or before, and where.
    #[must_use]
    pub fn grant(&self, replica: ReplicaId) -> Option<(HostId, PortGrant)> {
        let no = self.work.as_deref().map(|work| work.no);
        let allocator = self.allocator;
        let id = *allocator.placements.of(replica, no).first()?;
        let grant = allocator.hosts.with(id, |host| host.pool.grant(replica));
        Some((id, grant.flatten()?))
    }

    /// The allocator as readers see it: without what this transaction took.
    #[must_use]
    pub const fn allocator(&self) -> &'a Allocator {
        self.allocator
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let Some(mut work) = self.work.take() {
            self.allocator.undo_to(&mut work, 0);
            self.allocator.spares.keep(work);
        }
    }
}

impl Allocator {
    pub(super) fn explain_with(
        &self,
        host: HostId,
        need: &Need<'_>,
        scratch: &mut Scratch,
        why: &mut Vec<Why>,
    ) {
        self.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, self.now(), need.at);
        let look = &mut scratch.look;
        let known = self
            .hosts
            .with(host, |host| host.explain(need, &around, look, why));
        if known.is_none() {
            why.push(about_host(Cause::UnknownHost));
        }
    }

    pub(super) fn explain_first(
        &self,
        host: HostId,
        need: &Need<'_>,
        scratch: &mut Scratch,
    ) -> Option<Why> {
        self.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, self.now(), need.at);
        let look = &mut scratch.look;
        let first = self
            .hosts
            .with(host, |host| host.explain_first(need, &around, look));
        first.unwrap_or(Some(about_host(Cause::UnknownHost)))
    }

    pub(super) fn explain_all(&self, need: &Need<'_>, candidates: Option<&HostSet>) -> Summary {
        let mut scratch = Scratch::default();
        let mut summary = Summary::default();
        self.set_asked(candidates, &mut scratch.asked);
        let asked = std::mem::take(&mut scratch.asked);
        for id in asked.iter() {
            summary.add(id, self.explain_first(id, need, &mut scratch));
        }
        summary
    }

    fn count_causes(
        &self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        scratch: &mut Scratch,
        counts: &mut CauseCounts,
    ) {
        let mut asked = std::mem::take(&mut scratch.asked);
        self.set_asked(candidates, &mut asked);
        for id in asked.iter() {
            counts.add(self.first_code(id, need, scratch));
        }
        scratch.asked = asked;
    }

    fn first_code(
        &self,
        host: HostId,
        need: &Need<'_>,
        scratch: &mut Scratch,
    ) -> Option<CauseCode> {
        self.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, self.now(), need.at);
        let look = &mut scratch.look;
        let first = self
            .hosts
            .with(host, |host| host.first_code(need, &around, look));
        first.unwrap_or(Some(CauseCode::UnknownHost))
    }

    /// The candidates of a question, or all hosts.
    pub(super) fn set_asked(&self, candidates: Option<&HostSet>, asked: &mut HostSet) {
        match candidates {
            Some(candidates) => asked.clone_from(candidates),
            None => asked.clone_from(&self.census.read().known),
        }
    }
}
