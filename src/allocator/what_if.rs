//! Questions about what would be: who could start if these ended? Nothing of it happens.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::identity::{HostId, ReplicaId};
use crate::port_pool::{
    Ask, Cause, Causes, Choice, PortGrant, PortPool, PortRequest, UndoLog, Why,
};
use crate::time::Monotonic;

use super::feasibility::{Scratch, SeenAwaited};
use super::gang::{check_alike, unknown};
use super::host::Host;
use super::placements::{Owner, Placement, TransactionNo, against};
use super::question::{Around, about_host};
use super::work::{Marks, next_number};
use super::{
    Allocator, GangError, GangMember, HostSet, Mark, Need, ReleaseError, ReserveError, SameNumbers,
    StaleMark, Summary,
};

/// A transaction that is never committed, on copies of the hosts it touches: a host is copied when
/// a reservation or a [`Self::give`] first touches it, and stays as it was then; all other hosts are
/// seen as they are. Nobody else sees any of it, and dropping it is free.
#[derive(Debug)]
pub struct WhatIf<'a> {
    allocator: &'a Allocator,
    world: Box<World>,
}

/// A what-if without its borrow: plain data, for callers that cannot keep one between calls. Dropped,
/// it is forgotten.
#[derive(Debug)]
#[must_use = "dropped, all that was tried is forgotten"]
pub struct SuspendedWhatIf {
    world: Box<World>,
}

/// What is different from the real hosts.
#[derive(Debug)]
struct World {
    no: TransactionNo,
    /// The allocator that it belongs to.
    home: u64,
    copies: BTreeMap<HostId, Host>,
    steps: Vec<Step>,
    undo: UndoLog,
    marks: Marks,
    scratch: Scratch,
}

#[derive(Debug)]
enum Step {
    Reserved(HostId, ReplicaId),
    /// Given back, and the pool as it was before.
    Given(HostId, ReplicaId, Box<PortPool>),
}

impl Allocator {
    /// Opens a what-if at `now`, after ending all that is due on every host.
    pub fn what_if(&self, now: Monotonic) -> WhatIf<'_> {
        self.advance(now);
        self.imagine()
    }

    fn imagine(&self) -> WhatIf<'_> {
        WhatIf {
            allocator: self,
            world: Box::new(World {
                no: TransactionNo(next_number()),
                home: self.no,
                copies: BTreeMap::new(),
                steps: Vec::new(),
                undo: UndoLog::default(),
                marks: Marks::default(),
                scratch: Scratch::default(),
            }),
        }
    }

    /// Takes up a what-if of this allocator that was suspended. In one of another allocator nothing was
    /// tried here.
    pub fn resume_what_if(&self, suspended: SuspendedWhatIf) -> WhatIf<'_> {
        if suspended.world.home != self.no {
            return self.imagine();
        }
        WhatIf {
            allocator: self,
            world: suspended.world,
        }
    }
}

impl WhatIf<'_> {
    /// As [`Transaction::feasible`](super::Transaction::feasible).
    #[must_use]
    pub fn feasible(&mut self, need: &Need<'_>, candidates: Option<&HostSet>) -> HostSet {
        let mut hosts = HostSet::new();
        self.feasible_into(need, candidates, &mut hosts);
        hosts
    }

    /// As [`Transaction::feasible_into`](super::Transaction::feasible_into).
    pub fn feasible_into(
        &mut self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        out: &mut HostSet,
    ) {
        let allocator = self.allocator;
        let scratch = &mut self.world.scratch;
        allocator.find_feasible(need, candidates, scratch, out);
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), need.at);
        for (id, host) in &self.world.copies {
            let asked = candidates.is_none_or(|candidates| candidates.contains(*id));
            out.set(*id, asked && host.fits(need, &around, &mut scratch.choice));
        }
    }

    /// As [`Transaction::max_replicas`](super::Transaction::max_replicas).
    pub fn max_replicas(&mut self, need: &Need<'_>, host: HostId, most: u32) -> u32 {
        let mut choice = Choice::default();
        let times = self.ask(host, need, |host, around| {
            host.fits_times(need, around, &mut choice, most)
        });
        times.unwrap_or(0)
    }

    /// As [`Transaction::explain`](super::Transaction::explain).
    #[must_use]
    pub fn explain(&self, host: HostId, need: &Need<'_>) -> Vec<Why> {
        let (mut why, mut choice) = (Vec::new(), Choice::default());
        let known = self.ask(host, need, |host, around| {
            host.explain(need, around, &mut choice, &mut why);
        });
        if known.is_none() {
            why.push(about_host(Cause::UnknownHost));
        }
        why
    }

    /// As [`Transaction::explain_first`](super::Transaction::explain_first).
    #[must_use]
    pub fn explain_first(&self, host: HostId, need: &Need<'_>) -> Option<Why> {
        let mut choice = Choice::default();
        let first = self.ask(host, need, |host, around| {
            host.explain_first(need, around, &mut choice)
        });
        first.unwrap_or(Some(about_host(Cause::UnknownHost)))
    }

    /// As [`Transaction::explain_all`](super::Transaction::explain_all).
    #[must_use]
    pub fn explain_all(&self, need: &Need<'_>, candidates: Option<&HostSet>) -> Summary {
        let mut summary = Summary::default();
        let mut add = |id| summary.add(id, self.explain_first(id, need));
        match candidates {
            Some(candidates) => candidates.iter().for_each(&mut add),
            None => {
                let known = self.allocator.census.read().known.clone();
                known.iter().for_each(&mut add);
            }
        }
        summary
    }

    /// As [`Transaction::reserve`](super::Transaction::reserve), but only here.
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
        let allocator = self.allocator;
        allocator.waiting.refresh(&mut self.world.scratch.awaited);
        if let Some(claim) = self.claim_against(replica) {
            let holds = |host: &Host| {
                let holds = host.holds(replica, request);
                holds.then(|| host.pool.grant(replica)).flatten()
            };
            let same = match claim {
                super::placements::ClaimError::Placed(there) if there == host => {
                    self.ask(host, &Need::new(request, replica.service), |host, _| {
                        holds(host)
                    })
                }
                _ => None,
            };
            return same
                .flatten()
                .ok_or_else(|| ReserveError::of(claim, replica));
        }
        let World {
            copies,
            steps,
            undo,
            scratch,
            ..
        } = &mut *self.world;
        let Some(there) = copy_of(allocator, copies, host) else {
            let why = vec![about_host(Cause::UnknownHost)];
            return Err(ReserveError::Refused { host, why });
        };
        if there.pool.phase(replica).is_some() {
            // It was here when the host was copied, and is gone from the real one since.
            let same = there
                .holds(replica, request)
                .then(|| there.pool.grant(replica));
            return same
                .flatten()
                .ok_or(ReserveError::HoldsOther { replica, host });
        }
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), None);
        let ask = there.ask(replica.service, request, former, &around);
        let choice = &mut scratch.choice;
        if !there.takes(request) || !there.pool.choose(&ask, choice, Causes::Untold) {
            let mut why = Vec::new();
            let need = Need::new(request, replica.service);
            there.explain(&need, &around, choice, &mut why);
            return Err(ReserveError::Refused { host, why });
        }
        there.pool.take(replica, request, choice, undo);
        steps.push(Step::Reserved(host, replica));
        Ok(there.pool.grant(replica).unwrap_or_default())
    }

    /// As [`Transaction::reserve_gang`](super::Transaction::reserve_gang), but only here; with the same
    /// numbers for all, who has ports already is refused.
    ///
    /// # Errors
    ///
    /// [`GangError`]; everything is as it was.
    pub fn reserve_gang(
        &mut self,
        members: &[GangMember<'_>],
        same: SameNumbers,
    ) -> Result<Vec<PortGrant>, GangError> {
        if same == SameNumbers::Yes {
            return self.reserve_same(members);
        }
        let before = self.mark();
        let mut grants = Vec::with_capacity(members.len());
        for (place, member) in members.iter().enumerate() {
            let reserved = self.reserve(member.host, member.replica, member.request, member.former);
            match reserved {
                Ok(grant) => grants.push(grant),
                Err(error) => {
                    let back = self.rollback(before);
                    debug_assert!(back.is_ok(), "the mark was set just now");
                    return Err(GangError::Member {
                        member: place,
                        error,
                    });
                }
            }
        }
        Ok(grants)
    }

    fn reserve_same(&mut self, members: &[GangMember<'_>]) -> Result<Vec<PortGrant>, GangError> {
        check_alike(members)?;
        let allocator = self.allocator;
        for (place, member) in members.iter().enumerate() {
            let refused = |error| GangError::Member {
                member: place,
                error,
            };
            if let Some(claim) = self.claim_against(member.replica) {
                return Err(refused(ReserveError::of(claim, member.replica)));
            }
            let host = copy_of(allocator, &mut self.world.copies, member.host);
            let Some(host) = host else {
                return Err(refused(unknown(member.host)));
            };
            if let Some(barrier) = host.barriers(member.request).next() {
                let (host, why) = (member.host, vec![barrier]);
                return Err(refused(ReserveError::Refused { host, why }));
            }
        }
        let World {
            copies,
            steps,
            undo,
            scratch,
            ..
        } = &mut *self.world;
        allocator.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), None);
        let pools: Vec<(&PortPool, Ask<'_>)> = members
            .iter()
            .filter_map(|member| {
                let host = copies.get(&member.host)?;
                let service = member.replica.service;
                let ask = host.ask(service, member.request, member.former, &around);
                Some((&host.pool, ask))
            })
            .collect();
        let mut why = Vec::new();
        let fits = PortPool::choose_same(&pools, &mut scratch.choice, Causes::All(&mut why));
        if !fits && !members.is_empty() {
            return Err(GangError::NothingInCommon { why });
        }
        let mut grants = Vec::with_capacity(members.len());
        for member in members {
            let Some(host) = copies.get_mut(&member.host) else {
                continue;
            };
            let choice = &scratch.choice;
            host.pool.take(member.replica, member.request, choice, undo);
            steps.push(Step::Reserved(member.host, member.replica));
            grants.push(host.pool.grant(member.replica).unwrap_or_default());
        }
        Ok(grants)
    }

    /// From now on `replica` has ended here: its numbers cool from now, as after
    /// [`Allocator::confirm_release`].
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] if it holds nothing, or was given already; everything is as it was. What was
    /// only reserved here is taken back by [`Self::rollback`], not by this.
    pub fn give(&mut self, replica: ReplicaId) -> Result<(), ReleaseError> {
        let allocator = self.allocator;
        let hosts = allocator.placements.of(replica, None);
        let given = self.given().any(|(_, given)| given == replica);
        if given {
            return Err(ReleaseError::AlreadyReleased { replica });
        }
        let mut found = false;
        for id in hosts {
            let World { copies, steps, .. } = &mut *self.world;
            let Some(host) = copy_of(allocator, copies, id) else {
                continue;
            };
            let before = Box::new(host.pool.clone());
            let cooling = host.cooling.unwrap_or(allocator.config.cooling);
            let until = (!cooling.is_zero()).then(|| allocator.now() + cooling);
            if host.pool.release(replica, until).is_some() {
                steps.push(Step::Given(id, replica, before));
                found = true;
            }
        }
        if found {
            Ok(())
        } else {
            Err(allocator.not_held(replica))
        }
    }

    /// A point to come back to.
    pub fn mark(&mut self) -> Mark {
        let world = &mut *self.world;
        Mark {
            of: world.no,
            number: world.marks.set(world.steps.len()),
        }
    }

    /// Takes back all that was reserved and given since `mark`. Later marks become stale, this one
    /// stays.
    ///
    /// # Errors
    ///
    /// [`StaleMark`]; nothing changed.
    pub fn rollback(&mut self, mark: Mark) -> Result<(), StaleMark> {
        let world = &mut *self.world;
        if mark.of != world.no {
            return Err(StaleMark);
        }
        let length = world.marks.back_to(mark.number).ok_or(StaleMark)?;
        while world.steps.len() > length {
            match world.steps.pop() {
                Some(Step::Reserved(id, _)) => {
                    if let Some(host) = world.copies.get_mut(&id) {
                        host.pool.undo(&mut world.undo);
                    }
                }
                Some(Step::Given(id, _, before)) => {
                    if let Some(host) = world.copies.get_mut(&id) {
                        host.pool = *before;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Leaves the what-if open, without its borrow.
    pub fn suspend(self) -> SuspendedWhatIf {
        SuspendedWhatIf { world: self.world }
    }

    /// Asks one host as it is here.
    fn ask<R>(
        &self,
        id: HostId,
        need: &Need<'_>,
        ask: impl FnOnce(&Host, &Around<'_>) -> R,
    ) -> Option<R> {
        let mut awaited = SeenAwaited::default();
        self.allocator.waiting.refresh(&mut awaited);
        let around = Around::new(&awaited.numbers, self.allocator.now(), need.at);
        match self.world.copies.get(&id) {
            Some(host) => Some(ask(host, &around)),
            None => self.allocator.hosts.with(id, |host| ask(host, &around)),
        }
    }

    fn given(&self) -> impl Iterator<Item = (HostId, ReplicaId)> + '_ {
        self.world.steps.iter().filter_map(|step| match step {
            Step::Given(host, replica, _) => Some((*host, *replica)),
            Step::Reserved(..) => None,
        })
    }

    /// What stands here against placing `replica`.
    pub(super) fn claim_against(
        &self,
        replica: ReplicaId,
    ) -> Option<super::placements::ClaimError> {
        let given: BTreeSet<(HostId, ReplicaId)> = self.given().collect();
        let same = |it: &ReplicaId| it.service == replica.service && it.index == replica.index;
        let mut placed = self.allocator.placements.list(replica);
        placed.retain(|it| {
            let replica = ReplicaId {
                incarnation: it.incarnation,
                ..replica
            };
            !given.contains(&(it.host, replica))
        });
        for step in &self.world.steps {
            if let Step::Reserved(host, reserved) = step
                && same(reserved)
            {
                placed.push(Placement {
                    incarnation: reserved.incarnation,
                    host: *host,
                    owner: Owner::Claimed(self.world.no),
                });
            }
        }
        placed.sort_unstable_by_key(|it| (it.incarnation, it.host));
        against(&placed, replica.incarnation, self.world.no)
    }
}

/// The copy of a host, made if it is touched for the first time.
fn copy_of<'a>(
    allocator: &Allocator,
    copies: &'a mut BTreeMap<HostId, Host>,
    id: HostId,
) -> Option<&'a mut Host> {
    match copies.entry(id) {
        Entry::Occupied(copy) => Some(copy.into_mut()),
        Entry::Vacant(place) => {
            let copy = allocator.hosts.with(id, |host| host.clone())?;
            Some(place.insert(copy))
        }
    }
}
