//! Decisions that become true together or not at all.

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::port_pool::{Ask, Cause, Causes, Choice, Phase, PortGrant, PortRequest, UndoLog, Why};
use crate::time::Monotonic;

use super::host::Host;
use super::{Allocator, HostSet, Summary};

/// An open transaction: what it takes is free for nobody and seen by no reader until
/// [`Self::commit`]. Dropped, it leaves no trace.
#[derive(Debug)]
pub struct Transaction<'a> {
    allocator: &'a mut Allocator,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Abort,
    Suspend,
}

/// A point in a transaction to come back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

/// The mark was set after one that was rolled back to, or in another transaction. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mark is stale: the transaction was rolled back to before it")]
pub struct StaleMark;

/// Why nothing was reserved. Everything is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The host does not fit.
    #[error("host number {host} does not fit: {}", listed(.why))]
    Refused {
        /// The host.
        host: HostId,
        /// Every cause against it; never empty.
        why: Vec<Why>,
    },
    /// A newer placement of the replica holds ports.
    #[error("incarnation {} is stale: incarnation {newest} holds ports", .replica.incarnation)]
    Stale {
        /// Who asked.
        replica: ReplicaId,
        /// The newest incarnation.
        newest: Incarnation,
    },
    /// The replica has ports already: on another host, for another request, or only until its
    /// release is confirmed. Release them, or ask with the next incarnation.
    #[error("replica {} incarnation {} has other or releasing ports on host number {host}; ask with the next incarnation", .replica.index, .replica.incarnation)]
    HoldsOther {
        /// Who asked.
        replica: ReplicaId,
        /// Where it holds them.
        host: HostId,
    },
}

fn listed(why: &[Why]) -> String {
    let sentences: Vec<String> = why.iter().map(Why::to_string).collect();
    sentences.join("; ")
}

/// What an open transaction did, to be undone in reverse.
#[derive(Debug, Default)]
pub(super) struct Open {
    steps: Vec<Step>,
    undo: UndoLog,
    marks: Vec<(Mark, usize)>,
    next_mark: u32,
}

#[derive(Debug)]
struct Step {
    host: HostId,
    replica: ReplicaId,
}

impl Allocator {
    /// Opens a transaction at `now`, after ending all that is due on every host. A transaction that
    /// was suspended and not resumed is aborted.
    pub fn begin(&mut self, now: Monotonic) -> Transaction<'_> {
        self.undo_to(0);
        self.advance(now);
        self.open = Some(Open::default());
        Transaction {
            allocator: self,
            end: End::Abort,
        }
    }

    /// The suspended transaction, if there is one.
    pub fn resume(&mut self) -> Option<Transaction<'_>> {
        self.open.as_ref()?;
        Some(Transaction {
            allocator: self,
            end: End::Abort,
        })
    }

    /// Whether a suspended transaction waits to be resumed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn undo_to(&mut self, length: usize) {
        let Some(open) = &mut self.open else {
            return;
        };
        for step in open.steps.drain(length..).rev() {
            self.placed.remove(&(step.replica, step.host));
            let host = self.hosts.get_mut(step.host.0 as usize);
            if let Some(host) = host.and_then(Option::as_mut) {
                host.pool.undo(&mut open.undo);
            }
        }
    }
}

impl Transaction<'_> {
    /// The hosts among `candidates` (`None`: all) on which [`Self::reserve`] would succeed for a
    /// replica of `service` at this moment. Cost: one search per candidate.
    #[must_use]
    pub fn feasible(
        &mut self,
        request: &PortRequest,
        service: ServiceId,
        candidates: Option<&HostSet>,
    ) -> HostSet {
        let mut choice = std::mem::take(&mut self.allocator.choice);
        let allocator = &*self.allocator;
        let fits = |id: &HostId| {
            let host = allocator.host(*id);
            host.is_some_and(|host| {
                host.state.cause().is_none()
                    && host.pool.choose(
                        &allocator.ask(host, service, request, None),
                        &mut choice,
                        Causes::Untold,
                    )
            })
        };
        let fitting = match candidates {
            Some(candidates) => candidates.iter().filter(fits).collect(),
            None => allocator
                .hosts()
                .map(|(id, _, _)| id)
                .filter(fits)
                .collect(),
        };
        self.allocator.choice = choice;
        fitting
    }

    /// Every cause that keeps a replica of `service` from `host`; nothing if it fits.
    #[must_use]
    pub fn explain(&self, host: HostId, request: &PortRequest, service: ServiceId) -> Vec<Why> {
        let Some(there) = self.allocator.host(host) else {
            return vec![about_host(Cause::UnknownHost)];
        };
        let mut why: Vec<Why> = there.state.cause().map(about_host).into_iter().collect();
        let ask = self.allocator.ask(there, service, request, None);
        there
            .pool
            .choose(&ask, &mut Choice::default(), Causes::All(&mut why));
        why
    }

    /// The first cause of each of `candidates` (`None`: all hosts), summed.
    #[must_use]
    pub fn explain_all(
        &self,
        request: &PortRequest,
        service: ServiceId,
        candidates: Option<&HostSet>,
    ) -> Summary {
        let mut summary = Summary::default();
        let mut add = |id| summary.add(id, self.explain(id, request, service));
        match candidates {
            Some(candidates) => candidates.iter().for_each(&mut add),
            None => self.allocator.hosts().for_each(|(id, _, _)| add(id)),
        }
        summary
    }

    /// Takes the ports of `request` on `host` for `replica`, all or none. Later decisions of this
    /// transaction see them as held. `former` are numbers that the replica held before: preferred,
    /// never a reason to refuse.
    ///
    /// Asked again for the same, it answers with the same numbers. A higher incarnation is a new
    /// grant beside the older one. Several replicas reserved in one transaction are a gang: dropping
    /// it gives all of them back.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; everything is as it was.
    pub fn reserve(
        &mut self,
        host: HostId,
        replica: ReplicaId,
        request: &PortRequest,
        former: Option<&PortGrant>,
    ) -> Result<PortGrant, ReserveError> {
        let newest = self.allocator.newest(replica.service, replica.index);
        if let Some(newest) = newest.filter(|newest| *newest > replica.incarnation) {
            return Err(ReserveError::Stale { replica, newest });
        }
        if let Some((held_on, grant, phase)) = self.allocator.holding(replica) {
            let answers = self
                .allocator
                .host(held_on)
                .and_then(|there| there.pool.answers(replica, request));
            if held_on == host && phase != Phase::Releasing && answers == Some(true) {
                return Ok(grant);
            }
            let host = held_on;
            return Err(ReserveError::HoldsOther { replica, host });
        }
        self.take(host, replica, request, former)
    }

    fn take(
        &mut self,
        id: HostId,
        replica: ReplicaId,
        request: &PortRequest,
        former: Option<&PortGrant>,
    ) -> Result<PortGrant, ReserveError> {
        let refused = |why| ReserveError::Refused { host: id, why };
        let service = replica.service;
        let mut choice = std::mem::take(&mut self.allocator.choice);
        let allocator = &*self.allocator;
        let fits = allocator.host(id).is_some_and(|host| {
            let ask = allocator.ask(host, service, request, former);
            host.state.cause().is_none() && host.pool.choose(&ask, &mut choice, Causes::Untold)
        });
        let mut open = self.allocator.open.take().unwrap_or_default();
        let taken = match self.allocator.host_mut(id) {
            Some(host) if fits => {
                host.pool.take(replica, request, &choice, &mut open.undo);
                open.steps.push(Step { host: id, replica });
                Ok(host.pool.grant(replica).unwrap_or_default())
            }
            _ => Err(refused(self.explain(id, request, service))),
        };
        self.allocator.open = Some(open);
        self.allocator.choice = choice;
        let grant = taken?;
        self.allocator.placed.insert((replica, id));
        Ok(grant)
    }

    /// A point to come back to, to try another host.
    pub fn mark(&mut self) -> Mark {
        let Some(open) = &mut self.allocator.open else {
            return Mark(0);
        };
        let mark = Mark(open.next_mark);
        open.next_mark += 1;
        open.marks.push((mark, open.steps.len()));
        mark
    }

    /// Gives back all that was taken since `mark`, without a trace. Later marks become stale, this
    /// one stays.
    ///
    /// # Errors
    ///
    /// [`StaleMark`]; nothing changed.
    pub fn rollback(&mut self, mark: Mark) -> Result<(), StaleMark> {
        let open = self.allocator.open.as_mut().ok_or(StaleMark)?;
        let known = open.marks.binary_search_by_key(&mark.0, |(mark, _)| mark.0);
        let at = known.map_err(|_| StaleMark)?;
        let (_, length) = open.marks[at];
        open.marks.truncate(at + 1);
        self.allocator.undo_to(length);
        Ok(())
    }

    /// Makes everything that was taken held, in one step. Returns how many grants were new.
    pub fn commit(self) -> usize {
        let steps = self
            .allocator
            .open
            .take()
            .map(|open| open.steps)
            .unwrap_or_default();
        for step in &steps {
            if let Some(host) = self.allocator.host_mut(step.host) {
                host.pool.set_phase(step.replica, Phase::Held);
            }
            self.allocator.stop_waiting(step.replica);
            // Numbers taken from cooling may have been what was due next.
            self.allocator.requeue(step.host);
        }
        steps.len()
    }

    /// Leaves the transaction open, to be taken up by [`Allocator::resume`]: for callers that
    /// cannot keep a borrow. Change nothing else in between; reports wait until it is over.
    pub fn suspend(mut self) {
        self.end = End::Suspend;
    }

    /// What `replica` holds, taken by this transaction or before, and where.
    #[must_use]
    pub fn grant(&self, replica: ReplicaId) -> Option<(HostId, PortGrant)> {
        self.allocator
            .holding(replica)
            .map(|(host, grant, _)| (host, grant))
    }

    /// The allocator as readers see it: without what this transaction took.
    #[must_use]
    pub const fn allocator(&self) -> &Allocator {
        self.allocator
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.end == End::Abort {
            self.allocator.undo_to(0);
            self.allocator.open = None;
        }
    }
}

impl Allocator {
    fn ask<'a>(
        &'a self,
        host: &'a Host,
        service: ServiceId,
        request: &'a PortRequest,
        former: Option<&'a PortGrant>,
    ) -> Ask<'a> {
        Ask {
            service,
            request,
            former,
            awaited: [&self.waiting.anywhere, &host.awaited],
            now: self.now,
        }
    }
}

const fn about_host(cause: Cause) -> Why {
    Why { port: None, cause }
}
