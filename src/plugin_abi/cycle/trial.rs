//! A transaction or a what-if: what calls inside it need not tell apart.

use crate::allocator::{
    Allocator, CauseCounts, HostSet, Mark, Need, ReserveError, SameError, StaleMark, Suspended,
    SuspendedWhatIf, Transaction, WhatIf,
};
use crate::identity::{HostId, ReplicaId};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::cycle::release::Batch;
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::state::register::{Stage, not_committed};
use crate::plugin_abi::types::{PrAlloc, PrTxn};
use crate::port::PortRange;
use crate::port_pool::{ListedPorts, PortGrant, PortRequest, Why};
use crate::time::Monotonic;

/// What is open, during a call. Dropped, it leaves no trace.
pub(crate) enum Trial<'a> {
    Real(Transaction<'a>),
    Imagined(WhatIf<'a>),
}

/// What is open, between calls.
#[derive(Debug)]
pub(crate) enum Paused {
    Real(Suspended),
    Imagined(SuspendedWhatIf),
}

impl Paused {
    /// Opens a transaction or a what-if.
    pub(crate) fn open(allocator: &Allocator, now: Monotonic, what_if: bool) -> Self {
        if what_if {
            Self::Imagined(allocator.what_if(now).suspend())
        } else {
            Self::Real(allocator.begin(now).suspend())
        }
    }

    pub(crate) fn resume(self, allocator: &Allocator) -> Trial<'_> {
        match self {
            Self::Real(suspended) => Trial::Real(allocator.resume(suspended)),
            Self::Imagined(suspended) => Trial::Imagined(allocator.resume_what_if(suspended)),
        }
    }
}

/// Says the same to whichever it is.
macro_rules! either {
    ($trial:expr, $it:ident => $call:expr) => {
        match $trial {
            Trial::Real($it) => $call,
            Trial::Imagined($it) => $call,
        }
    };
}

impl Trial<'_> {
    pub(crate) fn suspend(self) -> Paused {
        match self {
            Self::Real(transaction) => Paused::Real(transaction.suspend()),
            Self::Imagined(what_if) => Paused::Imagined(what_if.suspend()),
        }
    }

    pub(crate) fn feasible_into(
        &mut self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        out: &mut HostSet,
    ) {
        either!(self, it => it.feasible_into(need, candidates, out));
    }

    pub(crate) fn max_replicas(&mut self, need: &Need<'_>, host: HostId, most: u32) -> u32 {
        either!(self, it => it.max_replicas(need, host, most))
    }

    pub(crate) fn explain_into(&mut self, host: HostId, need: &Need<'_>, why: &mut Vec<Why>) {
        either!(self, it => it.explain_into(host, need, why));
    }

    pub(crate) fn count_causes(
        &mut self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        counts: &mut CauseCounts,
    ) {
        either!(self, it => it.count_causes(need, candidates, counts));
    }

    pub(crate) fn listed(&mut self, host: HostId) -> Option<&[ListedPorts]> {
        either!(self, it => it.listed(host))
    }

    /// Takes numbers, which are appended to `numbers`, or appends what is against it, if the host does not
    /// fit, to `why`.
    pub(crate) fn reserve_into(
        &mut self,
        host: HostId,
        replica: ReplicaId,
        request: &PortRequest,
        former: Option<&PortGrant>,
        numbers: &mut Vec<PortRange>,
        why: &mut Vec<Why>,
    ) -> Result<(), ReserveError> {
        let reserved =
            either!(self, it => it.reserve_into(host, replica, request, former, numbers));
        if let Err(ReserveError::DoesNotFit { .. }) = &reserved {
            self.explain_into(host, &Need::new(request, replica.service), why);
        }
        reserved
    }

    /// Takes the same numbers for all members, none of which has any yet, and appends them to `numbers`; what is
    /// against it, if it is about the numbers, to `why`.
    pub(crate) fn reserve_same_into(
        &mut self,
        members: &[(HostId, ReplicaId)],
        request: &PortRequest,
        former: Option<&PortGrant>,
        numbers: &mut Vec<PortRange>,
        why: &mut Vec<Why>,
    ) -> Result<(), SameError> {
        either!(self, it => it.reserve_same_into(members, request, former, numbers, why))
    }

    pub(crate) fn mark(&mut self) -> Mark {
        either!(self, it => it.mark())
    }

    pub(crate) fn rollback(&mut self, mark: Mark) -> Result<(), StaleMark> {
        either!(self, it => it.rollback(mark))
    }
}

/// See `give` in the header.
pub(crate) unsafe extern "C" fn give(txn: PrTxn, ids: *const PrAlloc, n: u32, rc: *mut i32) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        // SAFETY: by C's promise null, or `n` readable ids, and null or room for `n` codes.
        let batch = unsafe { Batch::new(context, ids, n, rc) }?;
        let mut cycle = context.transaction(txn)?;
        if cycle.open.as_ref().is_none_or(|open| !open.what_if) {
            let words = "a grant ends by its release; only in a what-if is it given";
            return Err(Failure::said(PR_ESTATE, words));
        }
        batch.each(|handle| cycle.give(context, handle))
    })
}

impl Cycle {
    /// As if a grant ended now, in the open what-if.
    fn give(&mut self, context: &Context, handle: Handle) -> Result<(), Failure> {
        let replica = {
            let register = context.register();
            let entered = register.get(handle)?;
            if entered.stage == Stage::Tentative {
                return Err(not_committed());
            }
            entered.replica
        };
        let given = self.within(|trial| match trial {
            Trial::Imagined(what_if) => what_if.give(replica).is_ok(),
            Trial::Real(_) => false,
        })?;
        if !given {
            // It was given before.
            return Err(handle.stale());
        }
        if let Some(open) = &mut self.open {
            open.given.push(handle);
        }
        Ok(())
    }
}
