//! One number on several hosts, for callers that keep the room that it needs: nothing is allocated once warm.

use parking_lot::MutexGuard;

use crate::identity::{HostId, ReplicaId};
use crate::port::PortRange;
use crate::port_pool::{Ask, Cause, Causes, PortGrant, PortPool, PortRequest, Why};

use super::host::Host;
use super::question::Around;
use super::reserve::ReserveError;
use super::work::Work;
use super::world::World;
use super::{Allocator, Transaction, WhatIf};

/// Why no numbers were taken on any of several hosts. Everything is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SameError {
    /// One host takes nothing.
    #[error("the host of member {member} takes nothing: {}", .cause.code())]
    Host {
        /// Its place in the list.
        member: usize,
        /// Why.
        cause: Cause,
    },
    /// Two members are to run on one host, which has each number once.
    #[error("member {member} shares host number {host} with another")]
    SharedHost {
        /// The place of the later one in the list.
        member: usize,
        /// The host.
        host: HostId,
    },
    /// A member asks for something else than the first, so that their numbers cannot be the same.
    #[error("member {member} asks for other ports than the first")]
    Unlike {
        /// Its place in the list.
        member: usize,
    },
    /// A member has numbers already, or is being placed.
    #[error("member {member}: {error}")]
    Placed {
        /// Its place in the list.
        member: usize,
        /// Why it cannot be placed.
        error: ReserveError,
    },
    /// There are no numbers that all hosts have.
    #[error("no numbers are the same on all hosts")]
    NothingInCommon,
}

/// A locked host of a gang.
type Guard<'a> = (HostId, MutexGuard<'a, Option<Box<Host>>>);
/// The pool of one, and the question to it.
type Asked<'a> = (&'a PortPool, Ask<'a>);

/// Room for lists of borrows, which cannot be kept as what they are.
#[derive(Debug, Default)]
pub(super) struct SameRoom {
    order: Vec<(HostId, usize)>,
    guards: Vec<[usize; 2]>,
    pools: Vec<[usize; 7]>,
}

impl Transaction<'_> {
    /// Takes the ports of `request` for each of `members`, none of which has any yet, or for none of them, each
    /// "any" and each block the same on all hosts. Appends them to `numbers`; what is against it, if it is about
    /// the numbers, to `why`. All hosts are locked at once, in ascending order, so no other thread comes between.
    ///
    /// # Errors
    ///
    /// [`SameError`]; everything is as it was, `numbers` too.
    pub fn reserve_same_into(
        &mut self,
        members: &[(HostId, ReplicaId)],
        request: &PortRequest,
        former: Option<&PortGrant>,
        numbers: &mut Vec<PortRange>,
        why: &mut Vec<Why>,
    ) -> Result<(), SameError> {
        let allocator = self.allocator;
        let work = self.work();
        allocator.waiting.refresh(&mut work.scratch.awaited);
        let mut order = std::mem::take(&mut work.same.order);
        sort_by_host(&mut order, members);
        let mut locked: Vec<Guard<'_>> = room_of(std::mem::take(&mut work.same.guards));
        for (id, _) in &order {
            if locked.last().is_none_or(|(last, _)| last != id) {
                locked.extend(allocator.hosts.slot(*id).map(|slot| (*id, slot)));
            }
        }
        let before = work.steps.len();
        let taken = match shared(&order).filter(|_| !request.is_empty()) {
            Some((host, member)) => Err(SameError::SharedHost { member, host }),
            None => take(allocator, members, request, former, &mut locked, work, why),
        };
        if taken.is_err() {
            while work.steps.len() > before {
                let Some(step) = work.steps.pop() else { break };
                if let Some(host) = host_mut(&mut locked, step.host) {
                    allocator.undo_step(step, host, work);
                }
            }
        } else if let Some((id, replica)) = members.first()
            && let Some(host) = host_mut(&mut locked, *id)
        {
            numbers.extend(host.pool.ports_of(*replica));
        }
        work.same.guards = room_of(locked);
        work.same.order = order;
        taken
    }
}

impl WhatIf<'_> {
    /// As [`Transaction::reserve_same_into`], but only here.
    ///
    /// # Errors
    ///
    /// [`SameError`]; everything is as it was, `numbers` too.
    pub fn reserve_same_into(
        &mut self,
        members: &[(HostId, ReplicaId)],
        request: &PortRequest,
        former: Option<&PortGrant>,
        numbers: &mut Vec<PortRange>,
        why: &mut Vec<Why>,
    ) -> Result<(), SameError> {
        let allocator = self.allocator;
        let order = &mut self.world().same.order;
        sort_by_host(order, members);
        if let Some((host, member)) = shared(order).filter(|_| !request.is_empty()) {
            return Err(SameError::SharedHost { member, host });
        }
        for (member, (id, replica)) in members.iter().enumerate() {
            if let Some(claim) = self.claim_against(*replica) {
                let error = ReserveError::of(claim, *replica);
                return Err(SameError::Placed { member, error });
            }
            let host = self.world().copy_of(allocator, *id);
            let barrier = host.map(|host| host.barriers(request).next());
            let cause = barrier.map(|barrier| barrier.map(|why| why.cause));
            if let Some(cause) = cause.unwrap_or(Some(Cause::UnknownHost)) {
                return Err(SameError::Host { member, cause });
            }
        }
        let world = self.world();
        if !world.take_same(allocator, members, request, former, why) {
            return Err(SameError::NothingInCommon);
        }
        if let Some((id, replica)) = members.first()
            && let Some(host) = world.copies.get(*id)
        {
            numbers.extend(host.pool.ports_of(*replica));
        }
        Ok(())
    }
}

impl World {
    /// Takes the same numbers on each of several hosts, all of which were copied. Whether there were any; if not,
    /// what is against it is in `why`.
    pub(super) fn take_same(
        &mut self,
        allocator: &Allocator,
        members: &[(HostId, ReplicaId)],
        request: &PortRequest,
        former: Option<&PortGrant>,
        why: &mut Vec<Why>,
    ) -> bool {
        let Self {
            copies,
            scratch,
            same,
            ..
        } = self;
        allocator.waiting.refresh(&mut scratch.awaited);
        let around = Around::new(&scratch.awaited.numbers, allocator.now(), None);
        let mut pools: Vec<Asked<'_>> = room_of(std::mem::take(&mut same.pools));
        pools.extend(members.iter().filter_map(|(id, replica)| {
            let host = copies.get(*id)?;
            let ask = host.ask(replica.service, request, former, &around);
            Some((&host.pool, ask))
        }));
        let fits = PortPool::choose_same(&pools, &mut scratch.look.choice, Causes::All(why));
        same.pools = room_of(pools);
        if !fits {
            return members.is_empty();
        }
        for (id, replica) in members {
            self.take_chosen(*id, *replica, request, |_| {});
        }
        true
    }
}

fn take(
    allocator: &Allocator,
    members: &[(HostId, ReplicaId)],
    request: &PortRequest,
    former: Option<&PortGrant>,
    locked: &mut [Guard<'_>],
    work: &mut Work,
    why: &mut Vec<Why>,
) -> Result<(), SameError> {
    let barriers = members.iter().enumerate().find_map(|(member, (id, _))| {
        let Some(host) = host(locked, *id) else {
            let cause = Cause::UnknownHost;
            return Some(SameError::Host { member, cause });
        };
        let barrier = host.barriers(request).next();
        barrier.map(|Why { cause, .. }| SameError::Host { member, cause })
    });
    if let Some(refused) = barriers {
        return Err(refused);
    }
    let mut pools: Vec<Asked<'_>> = room_of(std::mem::take(&mut work.same.pools));
    let scratch = &mut work.scratch;
    let around = Around::new(&scratch.awaited.numbers, allocator.now(), None);
    pools.extend(members.iter().filter_map(|(id, replica)| {
        let host = host(locked, *id)?;
        let ask = host.ask(replica.service, request, former, &around);
        Some((&host.pool, ask))
    }));
    let fits = PortPool::choose_same(&pools, &mut scratch.look.choice, Causes::All(why));
    work.same.pools = room_of(pools);
    if !fits && !members.is_empty() {
        return Err(SameError::NothingInCommon);
    }
    for (member, (id, replica)) in members.iter().enumerate() {
        if let Err(claim) = allocator.placements.claim(*replica, *id, work.no) {
            let error = ReserveError::of(claim, *replica);
            return Err(SameError::Placed { member, error });
        }
        if let Some(host) = host_mut(locked, *id) {
            allocator.take_chosen(*id, host, *replica, request, work);
        }
    }
    Ok(())
}

/// The hosts of the members, ascending, each with its place in the list.
fn sort_by_host(order: &mut Vec<(HostId, usize)>, members: &[(HostId, ReplicaId)]) {
    order.clear();
    order.extend((0..).zip(members).map(|(place, (host, _))| (*host, place)));
    order.sort_unstable();
}

/// The first member that shares its host with an earlier one.
fn shared(order: &[(HostId, usize)]) -> Option<(HostId, usize)> {
    let neighbours = order.windows(2);
    let later = neighbours.filter_map(|pair| (pair[0].0 == pair[1].0).then_some(pair[1]));
    later.min_by_key(|(_, member)| *member)
}

fn host<'a>(locked: &'a [Guard<'_>], id: HostId) -> Option<&'a Host> {
    let at = locked.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    locked[at].1.as_deref()
}

fn host_mut<'a>(locked: &'a mut [Guard<'_>], id: HostId) -> Option<&'a mut Host> {
    let at = locked.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    locked[at].1.as_deref_mut()
}

/// The room of a list, emptied, for elements of the same size and alignment: the standard library collects such
/// a list in place. Where it did not, there would be new room, and nothing else would differ.
fn room_of<A, B>(mut list: Vec<A>) -> Vec<B> {
    const {
        assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>());
    }
    list.clear();
    let none = |_| unreachable!("the list is empty");
    list.into_iter().map(none).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_others_keeps_the_room() {
        let list: Vec<[usize; 2]> = Vec::with_capacity(100);
        let counted = allocation_counter::measure(|| {
            let others: Vec<(u64, u64)> = room_of(list);
            assert_eq!(others.capacity(), 100);
        });
        assert_eq!(counted.count_total, 0);
    }
}
