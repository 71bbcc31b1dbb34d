//! Questions about what would be: who could start if these ended? Nothing of it happens.

use crate::identity::{HostId, ReplicaId};
use crate::port::PortRange;
use crate::port_pool::{
    Cause, CauseCode, Causes, ListedPorts, Phase, PortGrant, PortPool, PortRequest, UndoLog, Why,
};
use crate::time::Monotonic;

use super::feasibility::Look;
use super::gang::{check_alike, unknown};
use super::host::Host;
use super::placements::ClaimError;
use super::question::{Around, about_host};
use super::reserve::Attempt;
use super::world::{Does, World};
use super::{
    Allocator, CauseCounts, GangError, GangMember, HostSet, Mark, Need, ReleaseError, ReserveError,
    SameNumbers, StaleMark, Summary,
};

/// A transaction that is never committed, on copies of the hosts it touches: a host is copied when
/// a reservation that fits or a [`Self::give`] first touches it, and stays as it was then; all other hosts are
/// seen as they are. Nobody else sees any of it, and dropping it is free.
///
/// The memory of the copies is kept for the next what-if. A copy costs what the host holds; an allocation
/// only where no what-if touched the host before, or the host grew since.
#[derive(Debug)]
pub struct WhatIf<'a> {
    pub(super) allocator: &'a Allocator,
    /// There until the what-if ends.
    world: Option<Box<World>>,
}

/// A what-if without its borrow: plain data, for callers that cannot keep one between calls. Dropped,
/// it is forgotten.
#[derive(Debug)]
#[must_use = "dropped, all that was tried is forgotten"]
pub struct SuspendedWhatIf {
    world: Box<World>,
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
            world: Some(self.worlds.take(self.no)),
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
            world: Some(suspended.world),
        }
    }
}

impl Drop for WhatIf<'_> {
    fn drop(&mut self) {
        if let Some(world) = self.world.take() {
            self.allocator.worlds.keep(world);
        }
    }
}

impl WhatIf<'_> {
    pub(super) fn world(&mut self) -> &mut World {
        self.world
            .as_deref_mut()
            .expect("a what-if has its world until it ends")
    }

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
        let World {
            scratch, copies, ..
        } = self.world();
        allocator.find_feasible(need, candidates, scratch, out);
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), need.at);
        for (id, host) in copies.iter() {
            let asked = candidates.is_none_or(|candidates| candidates.contains(id));
            out.set(id, asked && host.fits(need, &around, &mut scratch.look));
        }
    }

    /// As [`Transaction::max_replicas`](super::Transaction::max_replicas).
    pub fn max_replicas(&mut self, need: &Need<'_>, host: HostId, most: u32) -> u32 {
        let times = self.ask(host, need, |host, around, look| {
            host.fits_times(need, around, look, most)
        });
        times.unwrap_or(0)
    }

    /// As [`Transaction::explain`](super::Transaction::explain).
    #[must_use]
    pub fn explain(&mut self, host: HostId, need: &Need<'_>) -> Vec<Why> {
        let mut why = Vec::new();
        self.explain_into(host, need, &mut why);
        why
    }

    /// As [`Transaction::explain_into`](super::Transaction::explain_into).
    pub fn explain_into(&mut self, host: HostId, need: &Need<'_>, why: &mut Vec<Why>) {
        let known = self.ask(host, need, |host, around, look| {
            host.explain(need, around, look, why);
        });
        if known.is_none() {
            why.push(about_host(Cause::UnknownHost));
        }
    }

    /// As [`Transaction::explain_first`](super::Transaction::explain_first).
    #[must_use]
    pub fn explain_first(&mut self, host: HostId, need: &Need<'_>) -> Option<Why> {
        let first = self.ask(host, need, |host, around, look| {
            host.explain_first(need, around, look)
        });
        first.unwrap_or(Some(about_host(Cause::UnknownHost)))
    }

    /// As [`Transaction::explain_all`](super::Transaction::explain_all).
    #[must_use]
    pub fn explain_all(&mut self, need: &Need<'_>, candidates: Option<&HostSet>) -> Summary {
        let mut summary = Summary::default();
        self.each_asked(candidates, |it, id| {
            summary.add(id, it.explain_first(id, need));
        });
        summary
    }

    /// As [`Transaction::count_causes`](super::Transaction::count_causes).
    pub fn count_causes(
        &mut self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        counts: &mut CauseCounts,
    ) {
        self.each_asked(candidates, |it, id| {
            let first = it.ask(id, need, |host, around, look| {
                host.first_code(need, around, look)
            });
            counts.add(first.unwrap_or(Some(CauseCode::UnknownHost)));
        });
    }

    /// As [`Transaction::listed`](super::Transaction::listed): the real host, whatever was tried.
    pub fn listed(&mut self, host: HostId) -> Option<&[ListedPorts]> {
        let allocator = self.allocator;
        let listed = &mut self.world().scratch.listed;
        if listed.host != Some(host) {
            listed.host = None;
            let listing = &mut listed.listing;
            let list = |there: &mut Host| {
                there.pool.list(listing, &UndoLog::default(), |_| false);
            };
            allocator.hosts.with(host, list)?;
            listed.host = Some(host);
        }
        Some(&listed.listing.entries)
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
        let grant = |pool: &PortPool| pool.grant(replica).unwrap_or_default();
        match self.attempt(host, replica, request, former, grant) {
            (Attempt::Taken, grant) => Ok(grant.unwrap_or_default()),
            (Attempt::Claimed(claim), _) => Err(ReserveError::of(claim, replica)),
            (Attempt::NoFit(_), _) => {
                let why = self.explain(host, &Need::new(request, replica.service));
                if why.is_empty() {
                    // It fits by now: others gave something back.
                    return Err(ReserveError::DoesNotFit { host, port: None });
                }
                Err(ReserveError::Refused { host, why })
            }
        }
    }

    /// As [`Transaction::reserve_into`](super::Transaction::reserve_into), but only here.
    ///
    /// # Errors
    ///
    /// As there; everything is as it was, `numbers` too.
    pub fn reserve_into(
        &mut self,
        host: HostId,
        replica: ReplicaId,
        request: &PortRequest,
        former: Option<&PortGrant>,
        numbers: &mut Vec<PortRange>,
    ) -> Result<(), ReserveError> {
        let push = |pool: &PortPool| numbers.extend(pool.ports_of(replica));
        match self.attempt(host, replica, request, former, push) {
            (Attempt::Taken, _) => Ok(()),
            (Attempt::Claimed(claim), _) => Err(ReserveError::of(claim, replica)),
            (Attempt::NoFit(place), _) => {
                let port = place.and_then(|place| request.as_slice().get(place));
                let port = port.map(|port| port.name.clone());
                Err(ReserveError::DoesNotFit { host, port })
            }
        }
    }

    fn attempt<R>(
        &mut self,
        id: HostId,
        replica: ReplicaId,
        request: &PortRequest,
        former: Option<&PortGrant>,
        taken: impl FnOnce(&PortPool) -> R,
    ) -> (Attempt, Option<R>) {
        let allocator = self.allocator;
        if let Some(claim) = self.claim_against(replica) {
            let need = Need::new(request, replica.service);
            let same = (claim == ClaimError::Placed(id)).then(|| {
                self.ask(id, &need, |host, _, _| {
                    let holds = host.holds(replica, request);
                    holds.then(|| taken(&host.pool))
                })
            });
            return match same.flatten().flatten() {
                Some(told) => (Attempt::Taken, Some(told)),
                None => (Attempt::Claimed(claim), None),
            };
        }
        let world = self.world();
        let World {
            copies, scratch, ..
        } = &mut *world;
        allocator.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), None);
        let choice = &mut scratch.look.choice;
        let mut fits = |host: &Host| {
            let ask = host.ask(replica.service, request, former, &around);
            let takes_new = host.takes(request);
            if takes_new && host.pool.choose(&ask, choice, Causes::Untold) {
                Ok(())
            } else {
                let place = takes_new.then(|| choice.failed()).flatten();
                Err(Attempt::NoFit(place))
            }
        };
        let decided = match copies.get(id) {
            // It was here when the host was copied, and is gone from the real one since.
            Some(copy) if copy.pool.phase(replica).is_some() => {
                if copy.holds(replica, request) {
                    return (Attempt::Taken, Some(taken(&copy.pool)));
                }
                Err(Attempt::Claimed(ClaimError::Placed(id)))
            }
            Some(copy) => fits(copy),
            // Who does not fit is told so without a copy.
            None => {
                let there = allocator.hosts.with(id, |host| {
                    // Placed by another thread since its claim was looked at.
                    match host.pool.phase(replica) {
                        None => {}
                        Some(Phase::Tentative) => return Err(Attempt::Claimed(ClaimError::Busy)),
                        Some(_) => return Err(Attempt::Claimed(ClaimError::Placed(id))),
                    }
                    fits(host)?;
                    copies.make(id, host);
                    Ok(())
                });
                there.unwrap_or(Err(Attempt::NoFit(None)))
            }
        };
        if let Err(refused) = decided {
            return (refused, None);
        }
        let told = world.take_chosen(id, replica, request, taken);
        (Attempt::Taken, told)
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
        let before = self.world().steps.len();
        let mut grants = Vec::with_capacity(members.len());
        for (place, member) in members.iter().enumerate() {
            let reserved = self.reserve(member.host, member.replica, member.request, member.former);
            match reserved {
                Ok(grant) => grants.push(grant),
                Err(error) => {
                    self.undo_to(before);
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
            let host = self.world().copy_of(allocator, member.host);
            let Some(host) = host else {
                return Err(refused(unknown(member.host)));
            };
            if let Some(barrier) = host.barriers(member.request).next() {
                let (host, why) = (member.host, vec![barrier]);
                return Err(refused(ReserveError::Refused { host, why }));
            }
        }
        let Some(first) = members.first() else {
            return Ok(Vec::new());
        };
        let (request, former) = (first.request, first.former);
        let list: Vec<_> = members.iter().map(|it| (it.host, it.replica)).collect();
        let mut why = Vec::new();
        let world = self.world();
        if !world.take_same(allocator, &list, request, former, &mut why) {
            return Err(GangError::NothingInCommon { why });
        }
        let grant = |(host, replica): &(HostId, ReplicaId)| {
            let host = world.copies.get(*host)?;
            host.pool.grant(*replica)
        };
        let grants = list.iter().map(|it| grant(it).unwrap_or_default());
        Ok(grants.collect())
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
        let world = self.world();
        if world.is_given(replica, None) {
            return Err(ReleaseError::AlreadyReleased { replica });
        }
        let mut found = false;
        for id in hosts {
            let Some(host) = world.copy_of(allocator, id) else {
                continue;
            };
            let cooling = host.cooling.unwrap_or(allocator.config.cooling);
            let until = (!cooling.is_zero()).then(|| allocator.now() + cooling);
            if world.give(id, replica, until) {
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
        let world = self.world();
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
        let world = self.world();
        if mark.of != world.no {
            return Err(StaleMark);
        }
        let length = world.marks.back_to(mark.number).ok_or(StaleMark)?;
        self.undo_to(length);
        Ok(())
    }

    fn undo_to(&mut self, length: usize) {
        let world = self.world();
        while world.steps.len() > length {
            world.take_back();
        }
    }

    /// Leaves the what-if open, without its borrow.
    pub fn suspend(mut self) -> SuspendedWhatIf {
        SuspendedWhatIf {
            world: self
                .world
                .take()
                .expect("a what-if has its world until it ends"),
        }
    }

    /// Asks one host as it is here.
    fn ask<R>(
        &mut self,
        id: HostId,
        need: &Need<'_>,
        ask: impl FnOnce(&Host, &Around<'_>, &mut Look) -> R,
    ) -> Option<R> {
        let allocator = self.allocator;
        let World {
            copies, scratch, ..
        } = self.world();
        allocator.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), need.at);
        let look = &mut scratch.look;
        match copies.get(id) {
            Some(host) => Some(ask(host, &around, look)),
            None => allocator.hosts.with(id, |host| ask(host, &around, look)),
        }
    }

    /// Asks about each of the candidates, ascending.
    fn each_asked(&mut self, candidates: Option<&HostSet>, mut ask: impl FnMut(&mut Self, HostId)) {
        let allocator = self.allocator;
        let mut asked = std::mem::take(&mut self.world().scratch.asked);
        allocator.set_asked(candidates, &mut asked);
        for id in asked.iter() {
            ask(self, id);
        }
        self.world().scratch.asked = asked;
    }

    /// What stands here against placing `replica`.
    pub(super) fn claim_against(&mut self, replica: ReplicaId) -> Option<ClaimError> {
        let allocator = self.allocator;
        let world = &*self.world();
        // The newest of all, and the first host of this very incarnation; who is placed by a transaction that
        // is open elsewhere is said to be busy.
        let mut newest: Option<(ReplicaId, HostId, bool)> = None;
        let mut same: Option<(HostId, bool)> = None;
        let mut stands = |it: ReplicaId, host: HostId, elsewhere: bool| {
            let before = newest.map(|(newest, host, _)| (newest.incarnation, host));
            if before.is_none_or(|before| before <= (it.incarnation, host)) {
                newest = Some((it, host, elsewhere));
            }
            if it.incarnation == replica.incarnation && same.is_none_or(|(first, _)| host < first) {
                same = Some((host, elsewhere));
            }
        };
        allocator.placements.each(replica, |placed| {
            let it = ReplicaId {
                incarnation: placed.incarnation,
                ..replica
            };
            if !world.is_given(it, Some(placed.host)) {
                stands(it, placed.host, placed.is_claimed());
            }
        });
        for step in world.steps_of(replica) {
            if step.does == Does::Reserve {
                stands(step.replica, step.host, false);
            }
        }
        let (newest, _, elsewhere) = newest?;
        if newest.incarnation > replica.incarnation {
            return Some(if elsewhere {
                ClaimError::Busy
            } else {
                ClaimError::Stale(newest.incarnation)
            });
        }
        let (host, elsewhere) = same?;
        Some(if elsewhere {
            ClaimError::Busy
        } else {
            ClaimError::Placed(host)
        })
    }
}
