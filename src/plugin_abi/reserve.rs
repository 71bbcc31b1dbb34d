//! Taking numbers for replicas inside a transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::allocator::ReserveError;
use crate::identity::HostId;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::context::{Context, Cycle};
use crate::plugin_abi::entry::{Class, inside};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::Kind;
use crate::plugin_abi::memory::{Input, Output, Room};
use crate::plugin_abi::register::{Key, Placed, Stage, replica_id};
use crate::plugin_abi::types::{PrGrant, PrTxn, PrWant};
use crate::port_pool::{Cause, PortGrant, Why};

/// See `reserve` in the header.
pub(super) unsafe extern "C" fn reserve(
    txn: PrTxn,
    flags: u32,
    wants: *const PrWant,
    n: u32,
    grants: *mut PrGrant,
    ports: *mut u16,
    ports_cap: u32,
    need_ports: *mut u32,
) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        let limits = context.settings().limits;
        // SAFETY: by C's promise null, or `n` readable elements.
        let wants = unsafe { Input::new(wants, n, limits.allocs, "wants") }?;
        // SAFETY: by C's promise null, or room for `n` elements.
        let grants = unsafe { Room::new(grants, n, "grants") }?;
        // SAFETY: by C's promise null, or room for `ports_cap` numbers.
        let ports = unsafe { Room::new(ports, ports_cap, "ports") }?;
        // SAFETY: by C's promise null, or writable.
        let need = unsafe { Output::new(need_ports, "need_ports") }?;
        let whole = match flags {
            0 => false,
            PR_RESERVE_ALL => true,
            flags if flags == PR_RESERVE_ALL | PR_RESERVE_SAME => {
                return Err(Failure::said(PR_ENOSYS, "PR_RESERVE_SAME is not built yet"));
            }
            other => return Err(Failure::value(PR_EINVAL, "flags", u64::from(other))),
        };
        let mut cycle = context.transaction(txn)?;
        if cycle.restoring {
            return Err(Failure::said(PR_EAGAIN, "restore_end has not been called"));
        }
        let needed = cycle.numbers_of(context, &wants);
        need.set(needed);
        let taken = cycle.open.as_ref().map_or(0, |open| open.numbers);
        if needed > limits.ports.saturating_sub(taken) {
            let all = u64::from(needed) + u64::from(taken);
            return Err(Failure::limit(
                "numbers in one transaction",
                all,
                limits.ports.into(),
            ));
        }
        ports.fits(needed)?;
        let before = if whole { Some(cycle.set_mark()?) } else { None };
        let mut answers: Vec<Answer> = wants.iter().map(|w| cycle.reserve(context, &w)).collect();
        let failed = answers
            .iter()
            .position(|answer| answer.is_failure() && !(whole && answer.code() == PR_EEXIST));
        if let (Some(before), Some(_)) = (before, failed) {
            cycle.roll_back(context, before)?;
            for answer in &mut answers {
                answer.give_back();
            }
        }
        let mut offset = 0;
        for ((place, want), answer) in (0..).zip(wants.iter()).zip(&answers) {
            let host = cycle.host_of(answer).unwrap_or(want.host);
            let mut written = 0;
            for number in answer.numbers() {
                ports.set(offset + written, number);
                written += 1;
            }
            grants.set(place, answer.told(host, offset, written));
            offset += written;
        }
        match failed.map(|place| &answers[place]) {
            Some(answer) => Err(answer.failure()),
            None => Ok(PR_OK),
        }
    })
}

/// What became of one want.
enum Answer {
    New(Arc<Placed>),
    Known(Arc<Placed>),
    Refused {
        failure: Failure,
        reason: u32,
        retry: Duration,
    },
}

impl Answer {
    const fn refused(failure: Failure, reason: u32) -> Self {
        Self::Refused {
            failure,
            reason,
            retry: Duration::ZERO,
        }
    }

    const fn is_failure(&self) -> bool {
        !matches!(self, Self::New(_))
    }

    const fn code(&self) -> i32 {
        match self {
            Self::New(_) => PR_OK,
            Self::Known(_) => PR_EEXIST,
            Self::Refused { failure, .. } => failure.code(),
        }
    }

    fn failure(&self) -> Failure {
        match self {
            Self::Refused { failure, .. } => failure.clone(),
            Self::New(placed) | Self::Known(placed) => {
                Failure::value(PR_EEXIST, "job", placed.key.job)
            }
        }
    }

    /// What was taken is back in the pool, because another of the gang was refused.
    fn give_back(&mut self) {
        if matches!(self, Self::New(_)) {
            let others = "another of the gang was refused";
            *self = Self::refused(Failure::said(PR_EAGAIN, others), PR_R_NONE);
        }
    }

    const fn placed(&self) -> Option<&Arc<Placed>> {
        match self {
            Self::New(placed) | Self::Known(placed) => Some(placed),
            Self::Refused { .. } => None,
        }
    }

    fn numbers(&self) -> impl Iterator<Item = u16> {
        self.placed()
            .into_iter()
            .flat_map(|placed| numbers(&placed.grant))
    }

    fn told(&self, host: u32, port_off: u32, n_ports: u32) -> PrGrant {
        let (reason, retry) = match self {
            Self::Refused { reason, retry, .. } => (*reason, *retry),
            _ => (PR_R_NONE, Duration::ZERO),
        };
        PrGrant {
            id: self.placed().map_or(0, |placed| placed.handle.id()),
            rc: self.code(),
            reason,
            host,
            n_ports,
            port_off,
            retry_ms: u32::try_from(retry.as_millis()).unwrap_or(u32::MAX),
        }
    }
}

/// Every number of a grant, in the order of the profile.
pub(super) fn numbers(grant: &PortGrant) -> impl Iterator<Item = u16> {
    let ranges = grant.ports.iter().map(|port| port.numbers);
    ranges.flat_map(|range| range.first().number()..=range.last().number())
}

impl Cycle {
    /// How many numbers a full answer holds.
    fn numbers_of(&self, context: &Context, wants: &Input<PrWant>) -> u32 {
        let register = context.register();
        let each =
            wants.iter().map(
                |want| match register.find(Key::from(&want), want.incarnation) {
                    Some(known) => known.profile.numbers(),
                    None => self
                        .profile(want.profile)
                        .map_or(0, |profile| profile.numbers()),
                },
            );
        // At most 2^24 wants of at most 256 numbers.
        each.fold(0, u32::saturating_add)
    }

    fn reserve(&mut self, context: &Context, want: &PrWant) -> Answer {
        match self.try_reserve(context, want) {
            Ok(answer) | Err(answer) => answer,
        }
    }

    fn try_reserve(&mut self, context: &Context, want: &PrWant) -> Result<Answer, Answer> {
        let plain = |failure| Answer::refused(failure, PR_R_NONE);
        if want.flags & !PR_WANT_PREFER != 0 {
            return Err(plain(Failure::value(
                PR_EINVAL,
                "want.flags",
                want.flags.into(),
            )));
        }
        let profile = self.profile(want.profile).map_err(plain)?;
        let key = Key::from(want);
        let mut register = context.register();
        if let Some(known) = register.find(key, want.incarnation) {
            return Ok(Answer::Known(Arc::clone(known)));
        }
        if let Some(newest) = register.newest(key)
            && newest.incarnation > want.incarnation
        {
            let newest = u64::from(newest.incarnation);
            return Err(plain(Failure::value(
                PR_ESTALE,
                "the newest incarnation",
                newest,
            )));
        }
        if register.is_leaving(key, want.incarnation) {
            let words = "the release of its older grant takes effect with the next transaction";
            return Err(Answer::refused(
                Failure::said(PR_EAGAIN, words),
                PR_R_RELEASING,
            ));
        }
        let unknown = Failure::value(PR_ENOENT, "host", u64::from(want.host));
        let host = HostId(want.host);
        let Some(host_name) = self.allocator.host_name(host) else {
            return Err(Answer::refused(unknown, PR_R_UNKNOWN_HOST));
        };
        let number = self.number_of_host(&host_name);
        let handle = register.next().map_err(plain)?;
        let prefers = want.flags & PR_WANT_PREFER != 0;
        let former = register.former(key).filter(|_| prefers);
        let replica = replica_id(&profile, handle);
        let reserved = self
            .within(|transaction| transaction.reserve(host, replica, &profile.request, former))
            .map_err(plain)?;
        let grant = reserved.map_err(|refused| refusal(&refused, want.host))?;
        let placed = Arc::new(Placed {
            handle,
            key,
            incarnation: want.incarnation,
            host: number,
            host_name,
            profile,
            grant,
        });
        register
            .enter(Arc::clone(&placed), Stage::Tentative)
            .map_err(plain)?;
        if let Some(open) = &mut self.open {
            open.taken.push(handle);
            open.numbers += placed.profile.numbers();
        }
        Ok(Answer::New(placed))
    }

    /// Where a grant's host stands now.
    fn host_of(&self, answer: &Answer) -> Option<u32> {
        let placed = answer.placed()?;
        self.allocator.host_id(&placed.host_name).map(|host| host.0)
    }
}

fn refusal(refused: &ReserveError, host: u32) -> Answer {
    let ReserveError::Refused { why, .. } = refused else {
        // Every grant has an id of its own here, so no other can be in its way.
        debug_assert!(false, "{refused}");
        return Answer::refused(Failure::value(PR_ESTATE, "host", host.into()), PR_R_NONE);
    };
    let retry = |why: &Why| match why.cause {
        Cause::Cooling { left } => Some(left),
        _ => None,
    };
    Answer::Refused {
        failure: Failure::value(PR_ENOPORT, "host", u64::from(host)),
        reason: why
            .first()
            .map_or(PR_R_NONE, |why| why.cause.code().number()),
        retry: why.iter().filter_map(retry).max().unwrap_or_default(),
    }
}
