//! Replicas that start together or not at all, on many hosts, on wish with one number on all of them.

use parking_lot::MutexGuard;

use crate::identity::{HostId, ReplicaId};
use crate::port_pool::{Cause, Causes, PortGrant, PortPool, PortRequest, Why};

use super::host::Host;
use super::host_table::HostTable;
use super::placements::ClaimError;
use super::question::{Around, about_host};
use super::reserve::Attempt;
use super::work::Work;
use super::{Allocator, Need, ReserveError, Transaction};

/// One replica of a gang.
#[derive(Clone, Copy, Debug)]
pub struct GangMember<'a> {
    /// Where it is to run.
    pub host: HostId,
    /// Who.
    pub replica: ReplicaId,
    /// What it asks for.
    pub request: &'a PortRequest,
    /// What it held before: preferred, never a reason to refuse. With one number for all, only that
    /// of the first member counts.
    pub former: Option<&'a PortGrant>,
}

/// Whether the members of a gang draw each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameNumbers {
    /// Each has its own numbers.
    No,
    /// Each "any" is answered with one number, or one block, that is the same on all hosts. All
    /// members must ask for the same, on hosts of their own.
    Yes,
}

/// Why a gang was not reserved. Everything is as it was, for all of its members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GangError {
    /// One member was refused.
    #[error("member {member} of the gang: {error}")]
    Member {
        /// Its place in the list.
        member: usize,
        /// Why.
        error: ReserveError,
    },
    /// Each host may fit by itself, but there are no numbers that all of them have.
    #[error("no numbers are the same on all hosts: {}", sentences(.why))]
    NothingInCommon {
        /// Every cause; never empty.
        why: Vec<Why>,
    },
    /// A member asks for something else than the first, so that their numbers cannot be the same.
    #[error("member {member} of the gang asks for other ports than the first")]
    Unlike {
        /// Its place in the list.
        member: usize,
    },
    /// Two members are to run on one host, which has each number once.
    #[error("member {member} of the gang shares host number {host} with another")]
    SharedHost {
        /// The place of the later one in the list.
        member: usize,
        /// The host.
        host: HostId,
    },
}

fn sentences(why: &[Why]) -> String {
    let sentences: Vec<String> = why.iter().map(Why::to_string).collect();
    sentences.join("; ")
}

/// The locked hosts of a gang, ascending.
struct Locked<'a>(Vec<(HostId, MutexGuard<'a, Option<Box<Host>>>)>);

impl<'a> Locked<'a> {
    /// Locks every host of `members` that there is.
    fn all(hosts: &'a HostTable, members: &[GangMember<'_>]) -> Self {
        let mut wanted: Vec<HostId> = members.iter().map(|member| member.host).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut locked = Vec::with_capacity(wanted.len());
        locked.extend(
            wanted
                .into_iter()
                .filter_map(|id| Some((id, hosts.slot(id)?))),
        );
        Self(locked)
    }

    fn host(&self, id: HostId) -> Option<&Host> {
        let at = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0[at].1.as_deref()
    }

    fn host_mut(&mut self, id: HostId) -> Option<&mut Host> {
        let at = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0[at].1.as_deref_mut()
    }
}

impl Transaction<'_> {
    /// Takes the ports of all `members`, or of none. All their hosts are locked at once, in ascending
    /// order, so no other thread comes between. Grants come in the order of the members; who has its
    /// ports already is answered with them, as by [`Self::reserve`].
    ///
    /// Cost: one search for each member; with the same numbers, each number that is looked at is
    /// looked at on all hosts.
    ///
    /// # Errors
    ///
    /// [`GangError`]; everything is as it was.
    pub fn reserve_gang(
        &mut self,
        members: &[GangMember<'_>],
        same: SameNumbers,
    ) -> Result<Vec<PortGrant>, GangError> {
        let allocator = self.allocator;
        let work = self.work();
        allocator.waiting.refresh(&mut work.scratch.awaited);
        let mut locked = Locked::all(&allocator.hosts, members);
        let before = work.steps.len();
        let taken = match same {
            SameNumbers::No => allocator.take_each(members, &mut locked, work),
            SameNumbers::Yes => allocator.take_same(members, &mut locked, work),
        };
        if let Err(refused) = taken {
            while work.steps.len() > before {
                let Some(step) = work.steps.pop() else { break };
                if let Some(host) = locked.host_mut(step.host) {
                    allocator.undo_step(step, host, work);
                }
            }
            return Err(refused);
        }
        let grant = |member: &GangMember<'_>| {
            let host = locked.host(member.host)?;
            host.pool.grant(member.replica)
        };
        Ok(members
            .iter()
            .map(grant)
            .map(Option::unwrap_or_default)
            .collect())
    }
}

impl Allocator {
    /// Takes for one member after the other; stops at the first that is refused.
    fn take_each(
        &self,
        members: &[GangMember<'_>],
        locked: &mut Locked<'_>,
        work: &mut Work,
    ) -> Result<(), GangError> {
        for (place, member) in members.iter().enumerate() {
            let GangMember {
                host: id,
                replica,
                request,
                former,
            } = *member;
            let refused = |error| GangError::Member {
                member: place,
                error,
            };
            let Some(host) = locked.host_mut(id) else {
                return Err(refused(unknown(id)));
            };
            match self.take(id, host, replica, request, former, work) {
                Attempt::Taken => {}
                Attempt::Claimed(claim) => {
                    return Err(refused(ReserveError::of(claim, replica)));
                }
                Attempt::NoFit(_) => {
                    if let Some(claim) = self.placements.against(replica, work.no) {
                        return Err(refused(ReserveError::of(claim, replica)));
                    }
                    // What the members before took is in the way like everything else.
                    let around = Around::new(&work.scratch.awaited.numbers, self.now(), None);
                    let mut why = Vec::new();
                    let need = Need::new(request, replica.service);
                    host.explain(&need, &around, &mut work.scratch.look, &mut why);
                    return Err(refused(ReserveError::Refused { host: id, why }));
                }
            }
        }
        Ok(())
    }

    /// Takes the same numbers for all members.
    fn take_same(
        &self,
        members: &[GangMember<'_>],
        locked: &mut Locked<'_>,
        work: &mut Work,
    ) -> Result<(), GangError> {
        check_alike(members)?;
        if self.hold_same(members, locked, work)? {
            return Ok(());
        }
        for (place, member) in members.iter().enumerate() {
            let host = locked.host_mut(member.host);
            let error = match host.map(|host| host.barriers(member.request).next()) {
                Some(None) => continue,
                Some(Some(barrier)) => ReserveError::Refused {
                    host: member.host,
                    why: vec![barrier],
                },
                None => unknown(member.host),
            };
            return Err(GangError::Member {
                member: place,
                error,
            });
        }
        let scratch = &mut work.scratch;
        let around = Around::new(&scratch.awaited.numbers, self.now(), None);
        let mut pools: Vec<(&PortPool, crate::port_pool::Ask<'_>)> =
            Vec::with_capacity(members.len());
        for member in members {
            if let Some(host) = locked.host(member.host) {
                let GangMember {
                    replica,
                    request,
                    former,
                    ..
                } = *member;
                pools.push((
                    &host.pool,
                    host.ask(replica.service, request, former, &around),
                ));
            }
        }
        let mut why = Vec::new();
        let fits = PortPool::choose_same(&pools, &mut scratch.look.choice, Causes::All(&mut why));
        if !fits && !members.is_empty() {
            return Err(GangError::NothingInCommon { why });
        }
        for (place, member) in members.iter().enumerate() {
            let GangMember {
                host: id,
                replica,
                request,
                ..
            } = *member;
            if let Err(claim) = self.placements.claim(replica, id, work.no) {
                return Err(GangError::Member {
                    member: place,
                    error: ReserveError::of(claim, replica),
                });
            }
            if let Some(host) = locked.host_mut(id) {
                self.take_chosen(id, host, replica, request, work);
            }
        }
        Ok(())
    }

    /// Whether all members have their ports already, by an earlier ask for the same.
    fn hold_same(
        &self,
        members: &[GangMember<'_>],
        locked: &mut Locked<'_>,
        work: &Work,
    ) -> Result<bool, GangError> {
        let mut held = 0;
        let mut first_held = None;
        for (place, member) in members.iter().enumerate() {
            let Some(claim) = self.placements.against(member.replica, work.no) else {
                continue;
            };
            let refused = GangError::Member {
                member: place,
                error: ReserveError::of(claim, member.replica),
            };
            let host = locked.host_mut(member.host);
            let answers = host.is_some_and(|host| host.holds(member.replica, member.request));
            if claim != ClaimError::Placed(member.host) || !answers {
                return Err(refused);
            }
            held += 1;
            first_held.get_or_insert(refused);
        }
        if held == members.len() && all_same(members, locked) {
            return Ok(true);
        }
        // Some have numbers that were not drawn for all.
        first_held.map_or(Ok(false), Err)
    }
}

fn all_same(members: &[GangMember<'_>], locked: &Locked<'_>) -> bool {
    let numbers = |member: &GangMember<'_>| -> Vec<_> {
        let host = locked.host(member.host);
        host.map(|host| host.pool.numbers_of(member.replica).collect())
            .unwrap_or_default()
    };
    let Some((first, others)) = members.split_first() else {
        return true;
    };
    let first = numbers(first);
    others.iter().all(|other| numbers(other) == first)
}

pub(super) fn check_alike(members: &[GangMember<'_>]) -> Result<(), GangError> {
    let mut hosts = std::collections::BTreeSet::new();
    for (place, member) in members.iter().enumerate() {
        if member.request != members[0].request
            || member.replica.service != members[0].replica.service
        {
            return Err(GangError::Unlike { member: place });
        }
        if !hosts.insert(member.host) && !member.request.is_empty() {
            return Err(GangError::SharedHost {
                member: place,
                host: member.host,
            });
        }
    }
    Ok(())
}

pub(super) fn unknown(host: HostId) -> ReserveError {
    ReserveError::Refused {
        host,
        why: vec![about_host(Cause::UnknownHost)],
    }
}
