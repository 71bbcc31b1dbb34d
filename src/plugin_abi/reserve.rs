//! Taking numbers for replicas inside a transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::allocator::ReserveError;
use crate::identity::{HostId, HostName};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::context::{Context, Cycle};
use crate::plugin_abi::entry::{Class, inside};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::{Handle, Kind};
use crate::plugin_abi::memory::{Input, Output, Room};
use crate::plugin_abi::profile::Profile;
use crate::plugin_abi::register::{Key, Placed, Register, Stage, replica_id};
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
        let together = match flags {
            0 => Together::No,
            PR_RESERVE_ALL => Together::All,
            flags if flags == PR_RESERVE_ALL | PR_RESERVE_SAME => Together::Same,
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
        let (answers, failed) = match together {
            Together::No => cycle.reserve_each(context, &wants),
            Together::All => cycle.reserve_all(context, &wants)?,
            Together::Same => cycle.reserve_same(context, &wants)?,
        };
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

/// Whether wants stand and fall with each other.
#[derive(Clone, Copy)]
enum Together {
    No,
    All,
    /// All, with the same numbers on all hosts.
    Same,
}

/// What became of each want, and the first that failed.
pub(super) type Answers = (Vec<Answer>, Option<usize>);

/// What became of one want.
pub(super) enum Answer {
    New(Arc<Placed>),
    Known(Arc<Placed>),
    Refused {
        failure: Failure,
        reason: u32,
        retry: Duration,
    },
}

impl Answer {
    pub(super) const fn refused(failure: Failure, reason: u32) -> Self {
        Self::Refused {
            failure,
            reason,
            retry: Duration::ZERO,
        }
    }

    pub(super) const fn is_failure(&self) -> bool {
        !matches!(self, Self::New(_))
    }

    pub(super) const fn code(&self) -> i32 {
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
    pub(super) fn give_back(&mut self) {
        if matches!(self, Self::New(_)) {
            *self = Self::given_back();
        }
    }

    /// The answer to whom another of the gang kept from its numbers.
    pub(super) const fn given_back() -> Self {
        let others = "another of the gang was refused";
        Self::refused(Failure::said(PR_EAGAIN, others), PR_R_NONE)
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

    /// Each by itself.
    fn reserve_each(&mut self, context: &Context, wants: &Input<PrWant>) -> Answers {
        let answers: Vec<Answer> = wants.iter().map(|w| self.reserve(context, &w)).collect();
        let failed = answers.iter().position(Answer::is_failure);
        (answers, failed)
    }

    /// All or none; a key that has its numbers already is no failure.
    fn reserve_all(
        &mut self,
        context: &Context,
        wants: &Input<PrWant>,
    ) -> Result<Answers, Failure> {
        let before = self.here()?;
        let (mut answers, _) = self.reserve_each(context, wants);
        let fails = |answer: &Answer| answer.is_failure() && answer.code() != PR_EEXIST;
        let failed = answers.iter().position(fails);
        if failed.is_some() {
            self.back_to(context, before)?;
            answers.iter_mut().for_each(Answer::give_back);
        }
        Ok((answers, failed))
    }

    fn reserve(&mut self, context: &Context, want: &PrWant) -> Answer {
        match self.try_reserve(context, want) {
            Ok(answer) | Err(answer) => answer,
        }
    }

    fn try_reserve(&mut self, context: &Context, want: &PrWant) -> Result<Answer, Answer> {
        let mut register = context.register();
        let wish = match self.look(&register, want)? {
            Looked::Known(placed) => return Ok(Answer::Known(placed)),
            Looked::New(wish) => wish,
        };
        let handle = register.next().map_err(plain)?;
        let former = register.former(wish.key).filter(|_| wish.prefers);
        let replica = replica_id(&wish.profile, handle);
        let request = &wish.profile.request;
        let reserved = self
            .within(|trial| trial.reserve(wish.host, replica, request, former))
            .map_err(plain)?;
        let grant = reserved.map_err(|refused| refusal(&refused, want.host))?;
        self.enter(&mut register, handle, wish, grant)
            .map_err(plain)
    }

    /// Enters what was taken under an id.
    pub(super) fn enter(
        &mut self,
        register: &mut Register,
        handle: Handle,
        wish: Wish,
        grant: PortGrant,
    ) -> Result<Answer, Failure> {
        let placed = Arc::new(Placed {
            handle,
            key: wish.key,
            incarnation: wish.incarnation,
            host: self.number_of_host(&wish.host_name),
            host_name: wish.host_name,
            profile: wish.profile,
            grant,
        });
        register.enter(Arc::clone(&placed), Stage::Tentative)?;
        if let Some(open) = &mut self.open {
            open.taken.push(handle);
            open.numbers += placed.profile.numbers();
        }
        Ok(Answer::New(placed))
    }

    /// What there is to know of a want before numbers are looked for.
    pub(super) fn look(&self, register: &Register, want: &PrWant) -> Result<Looked, Answer> {
        if want.flags & !PR_WANT_PREFER != 0 {
            return Err(plain(Failure::value(
                PR_EINVAL,
                "want.flags",
                want.flags.into(),
            )));
        }
        let key = Key::from(want);
        if let Some(known) = register.find(key, want.incarnation) {
            let given = self.open.as_ref().map(|open| open.given.as_slice());
            if given.unwrap_or_default().contains(&known.handle) {
                let words = "its grant is given in this what-if; ask with a higher incarnation";
                let failure = Failure::said(PR_EAGAIN, words);
                return Err(Answer::refused(failure, PR_R_RELEASING));
            }
            return Ok(Looked::Known(Arc::clone(known)));
        }
        let profile = self.profile(want.profile).map_err(plain)?;
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
        Ok(Looked::New(Wish {
            host,
            host_name,
            profile,
            key,
            incarnation: want.incarnation,
            prefers: want.flags & PR_WANT_PREFER != 0,
        }))
    }

    /// Where a grant's host stands now.
    fn host_of(&self, answer: &Answer) -> Option<u32> {
        let placed = answer.placed()?;
        self.allocator.host_id(&placed.host_name).map(|host| host.0)
    }
}

/// A want that has no numbers yet.
pub(super) struct Wish {
    pub(super) host: HostId,
    host_name: HostName,
    pub(super) profile: Arc<Profile>,
    pub(super) key: Key,
    pub(super) incarnation: u32,
    pub(super) prefers: bool,
}

/// A want, before numbers are looked for.
pub(super) enum Looked {
    Known(Arc<Placed>),
    New(Wish),
}

/// Refused for another reason than the host's numbers.
pub(super) fn plain(failure: Failure) -> Answer {
    Answer::refused(failure, PR_R_NONE)
}

pub(super) fn refusal(refused: &ReserveError, host: u32) -> Answer {
    let ReserveError::Refused { why, .. } = refused else {
        // Every grant has an id of its own here, so no other can be in its way.
        debug_assert!(false, "{refused}");
        return Answer::refused(Failure::value(PR_ESTATE, "host", host.into()), PR_R_NONE);
    };
    does_not_fit(why, host)
}

/// The answer to who does not fit, with the first of the causes.
pub(super) fn does_not_fit(why: &[Why], host: u32) -> Answer {
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
