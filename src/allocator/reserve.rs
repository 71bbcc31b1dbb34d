//! Taking numbers for one replica on one host.

use crate::identity::{HostId, Incarnation, ReplicaId};
use crate::port::{PortName, PortRange};
use crate::port_pool::{Causes, Phase, PortGrant, PortPool, PortRequest, Why};

use super::host::Host;
use super::placements::ClaimError;
use super::question::Around;
use super::work::{Step, Work};
use super::{Allocator, Need, Transaction};

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
    /// The host does not fit. Why is not worked out: see [`Transaction::explain`].
    #[error("host number {host} does not fit{}", at_port(.port.as_ref()))]
    DoesNotFit {
        /// The host.
        host: HostId,
        /// The first port that found no number; `None` if the host takes nothing at all.
        port: Option<PortName>,
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
    /// Another open transaction took ports for the replica, and may give them back.
    #[error("replica {} is being placed by another transaction; ask again after it", .replica.index)]
    BeingPlaced {
        /// Who asked.
        replica: ReplicaId,
    },
}

fn listed(why: &[Why]) -> String {
    let sentences: Vec<String> = why.iter().map(Why::to_string).collect();
    sentences.join("; ")
}

fn at_port(port: Option<&PortName>) -> String {
    port.map_or_else(String::new, |port| format!(": no number for port {port}"))
}

impl ReserveError {
    pub(super) const fn of(claim: ClaimError, replica: ReplicaId) -> Self {
        match claim {
            ClaimError::Stale(newest) => Self::Stale { replica, newest },
            ClaimError::Placed(host) => Self::HoldsOther { replica, host },
            ClaimError::Busy => Self::BeingPlaced { replica },
        }
    }
}

/// What came of an attempt to take numbers.
pub(super) enum Attempt {
    /// Taken now, or by an earlier ask for the same.
    Taken,
    /// The host does not fit, first of all for the port at this place in the request.
    NoFit(Option<usize>),
    /// The replica cannot be placed now, wherever.
    Claimed(ClaimError),
}

impl Transaction<'_> {
    /// Takes the ports of `request` on `host` for `replica`, all or none. Later decisions of this
    /// transaction see them as held. `former` are numbers that the replica held before: preferred,
    /// never a reason to refuse.
    ///
    /// Asked again for the same, it answers with the same numbers. A higher incarnation is a new
    /// grant beside the older one. For several replicas that start together or not at all see
    /// [`Self::reserve_gang`].
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
                let allocator = self.allocator;
                let work = self.work();
                if let Some(claim) = allocator.placements.against(replica, work.no) {
                    return Err(ReserveError::of(claim, replica));
                }
                let need = Need::new(request, replica.service);
                let mut why = Vec::new();
                allocator.explain_with(host, &need, &mut work.scratch, &mut why);
                if why.is_empty() {
                    // It fits by now: others gave something back.
                    return Err(ReserveError::DoesNotFit { host, port: None });
                }
                Err(ReserveError::Refused { host, why })
            }
        }
    }

    /// As [`Self::reserve`], but appends the numbers to `numbers`, in the order of the request, and
    /// allocates nothing once that has the room. A refusal says which port found no number, and no
    /// more; where the host does not fit it is not worked out whether the replica could be placed at all.
    ///
    /// # Errors
    ///
    /// [`ReserveError`], [`ReserveError::DoesNotFit`] in place of [`ReserveError::Refused`];
    /// everything is as it was, `numbers` too.
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
        let work = self.work();
        allocator.waiting.refresh(&mut work.scratch.awaited);
        let there = allocator.hosts.with(id, |host| {
            let attempt = allocator.take(id, host, replica, request, former, work);
            let told = matches!(attempt, Attempt::Taken).then(|| taken(&host.pool));
            (attempt, told)
        });
        there.unwrap_or((Attempt::NoFit(None), None))
    }
}

impl Allocator {
    /// Takes numbers on one host, under its lock. What is awaited is known to `work`.
    pub(super) fn take(
        &self,
        id: HostId,
        host: &mut Host,
        replica: ReplicaId,
        request: &PortRequest,
        former: Option<&PortGrant>,
        work: &mut Work,
    ) -> Attempt {
        let scratch = &mut work.scratch;
        let around = Around::new(&scratch.awaited.numbers, self.now(), None);
        let ask = host.ask(replica.service, request, former, &around);
        let takes_new = host.takes(request);
        let fits = takes_new
            && host
                .pool
                .choose(&ask, &mut scratch.look.choice, Causes::Untold);
        // The pool is asked first: a refusal, which is what a full cluster mostly answers, then costs no
        // look at the placements, unless the replica itself is in its way.
        let claim = if fits {
            self.placements.claim(replica, id, work.no).err()
        } else if host.pool.phase(replica).is_some() {
            self.placements.against(replica, work.no)
        } else {
            None
        };
        match claim {
            Some(ClaimError::Placed(there)) if there == id && host.holds(replica, request) => {
                Attempt::Taken
            }
            Some(claim) => Attempt::Claimed(claim),
            None if fits => {
                self.take_chosen(id, host, replica, request, work);
                Attempt::Taken
            }
            None if takes_new => Attempt::NoFit(work.scratch.look.choice.failed()),
            None => Attempt::NoFit(None),
        }
    }

    /// Takes what was chosen for a replica that is claimed.
    pub(super) fn take_chosen(
        &self,
        id: HostId,
        host: &mut Host,
        replica: ReplicaId,
        request: &PortRequest,
        work: &mut Work,
    ) {
        let choice = &work.scratch.look.choice;
        host.pool.take(replica, request, choice, &mut work.undo);
        work.steps.push(Step { host: id, replica });
        for (side, range) in host.pool.numbers_of(replica) {
            self.watches.note(id, &host.pool, side, range);
        }
        self.recount(id, host);
    }
}

impl Host {
    /// Whether what `replica` holds here answers `request`.
    pub(super) fn holds(&self, replica: ReplicaId, request: &PortRequest) -> bool {
        self.pool.phase(replica) != Some(Phase::Releasing)
            && self.pool.answers(replica, request) == Some(true)
    }
}
