//! Taking numbers for replicas inside a transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::allocator::ReserveError;
use crate::identity::{HostId, HostName};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Input, Output, Room};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::state::register::{Entry, Key, Register, replica_id};
use crate::plugin_abi::types::{PrGrant, PrTxn, PrWant};
use crate::port::PortRange;
use crate::port_pool::{Cause, Why};

/// See `reserve` in the header.
pub(crate) unsafe extern "C" fn reserve(
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
            PR_RESERVE_SAME => {
                let alone = "PR_RESERVE_SAME goes with PR_RESERVE_ALL";
                return Err(Failure::said(PR_EINVAL, alone));
            }
            other => return Err(Failure::flags("flags", other)),
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
        cycle.scratch.answers.clear();
        let failed = match together {
            Together::No => cycle.reserve_each(context, &wants),
            Together::All => cycle.reserve_all(context, &wants)?,
            Together::Same => cycle.reserve_same(context, &wants)?,
        };
        let answers = &cycle.scratch.answers;
        tell(&context.register(), answers, &wants, &grants, &ports);
        let Some(place) = failed else {
            return Ok(PR_OK);
        };
        let want = u32::try_from(place).ok().and_then(|place| wants.get(place));
        Err(answers[place].failure(want.map_or(0, |want| want.job)))
    })
}

/// Writes the answers.
fn tell(
    register: &Register,
    answers: &[Answer],
    wants: &Input<PrWant>,
    grants: &Room<PrGrant>,
    ports: &Room<u16>,
) {
    let mut offset = 0;
    for ((place, want), answer) in (0..).zip(wants.iter()).zip(answers) {
        let granted = answer.handle().and_then(|it| register.last_under(it));
        let mut written = 0;
        for number in granted.map(|it| numbers(&it.numbers)).into_iter().flatten() {
            ports.set(offset + written, number);
            written += 1;
        }
        let standing = granted.and_then(|granted| register.hosts.get(&granted.host));
        let host = standing.map_or(want.host, |standing| standing.index);
        grants.set(place, answer.told(host, offset, written));
        offset += written;
    }
}

/// Whether wants stand and fall with each other.
#[derive(Clone, Copy)]
enum Together {
    No,
    All,
    /// All, with the same numbers on all hosts.
    Same,
}

/// The place of the first want that failed.
pub(crate) type Failed = Option<usize>;

/// What became of one want.
#[derive(Debug)]
pub(crate) enum Answer {
    New(Handle),
    Known(Handle),
    Refused {
        failure: Failure,
        reason: u32,
        retry: Duration,
    },
}

impl Answer {
    pub(crate) const fn refused(failure: Failure, reason: u32) -> Self {
        Self::Refused {
            failure,
            reason,
            retry: Duration::ZERO,
        }
    }

    pub(crate) const fn is_failure(&self) -> bool {
        !matches!(self, Self::New(_))
    }

    pub(crate) const fn code(&self) -> i32 {
        match self {
            Self::New(_) => PR_OK,
            Self::Known(_) => PR_EEXIST,
            Self::Refused { failure, .. } => failure.code(),
        }
    }

    /// Why the call failed, if this is the want of `job` that it failed for.
    fn failure(&self, job: u64) -> Failure {
        match self {
            Self::Refused { failure, .. } => failure.clone(),
            Self::New(_) | Self::Known(_) => Failure::value(PR_EEXIST, "job", job),
        }
    }

    /// What was taken is back in the pool, because another of the gang was refused.
    pub(crate) fn give_back(&mut self) {
        if matches!(self, Self::New(_)) {
            *self = Self::given_back();
        }
    }

    /// The answer to whom another of the gang kept from its numbers.
    pub(crate) const fn given_back() -> Self {
        let others = "another of the gang was refused";
        Self::refused(Failure::said(PR_EAGAIN, others), PR_R_NONE)
    }

    const fn handle(&self) -> Option<Handle> {
        match self {
            Self::New(handle) | Self::Known(handle) => Some(*handle),
            Self::Refused { .. } => None,
        }
    }

    fn told(&self, host: u32, port_off: u32, n_ports: u32) -> PrGrant {
        let (reason, retry) = match self {
            Self::Refused { reason, retry, .. } => (*reason, *retry),
            _ => (PR_R_NONE, Duration::ZERO),
        };
        PrGrant {
            id: self.handle().map_or(0, Handle::id),
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
pub(crate) fn numbers(granted: &[PortRange]) -> impl Iterator<Item = u16> + '_ {
    granted
        .iter()
        .flat_map(|range| range.first().number()..=range.last().number())
}

impl Cycle {
    /// How many numbers a full answer holds.
    fn numbers_of(&self, context: &Context, wants: &Input<PrWant>) -> u32 {
        let register = context.register();
        let each =
            wants.iter().map(
                |want| match register.find(Key::from(&want), want.incarnation) {
                    Some((_, known)) => known.profile.numbers(),
                    None => self
                        .profile(want.profile)
                        .map_or(0, |profile| profile.numbers()),
                },
            );
        // At most 2^24 wants of at most 256 numbers.
        each.fold(0, u32::saturating_add)
    }

    /// Each by itself.
    fn reserve_each(&mut self, context: &Context, wants: &Input<PrWant>) -> Failed {
        for want in wants.iter() {
            let answer = self.reserve(context, &want);
            self.scratch.answers.push(answer);
        }
        self.scratch.answers.iter().position(Answer::is_failure)
    }

    /// All or none; a key that has its numbers already is no failure.
    fn reserve_all(&mut self, context: &Context, wants: &Input<PrWant>) -> Result<Failed, Failure> {
        let before = self.here()?;
        self.reserve_each(context, wants);
        let fails = |answer: &Answer| answer.is_failure() && answer.code() != PR_EEXIST;
        let failed = self.scratch.answers.iter().position(fails);
        if failed.is_some() {
            self.back_to(context, before)?;
            self.scratch.answers.iter_mut().for_each(Answer::give_back);
        }
        Ok(failed)
    }

    fn reserve(&mut self, context: &Context, want: &PrWant) -> Answer {
        match self.try_reserve(context, want) {
            Ok(answer) | Err(answer) => answer,
        }
    }

    fn try_reserve(&mut self, context: &Context, want: &PrWant) -> Result<Answer, Answer> {
        // Let go of while numbers are chosen: the next handle stays the next as long as no other cycle begins.
        let (wish, handle) = {
            let register = context.register();
            let wish = match self.look(&register, want)? {
                Looked::Known(handle) => return Ok(Answer::Known(handle)),
                Looked::New(wish) => wish,
            };
            let handle = register.next().map_err(plain)?;
            let former = &mut self.scratch.former.ports;
            former.clear();
            if let Some(ended) = register.former(wish.key).filter(|_| wish.prefers) {
                former.extend(ended.ports());
            }
            (wish, handle)
        };
        let replica = replica_id(&wish.profile, handle);
        let request = &wish.profile.request;
        self.at_work(|trial, scratch| {
            let former = &scratch.former;
            let former = (!former.ports.is_empty()).then_some(former);
            scratch.numbers.clear();
            scratch.why.clear();
            let numbers = &mut scratch.numbers;
            trial
                .reserve_into(
                    wish.host,
                    replica,
                    request,
                    former,
                    numbers,
                    &mut scratch.why,
                )
                .map_err(|refused| refusal(&refused, &scratch.why, want.host))
        })
        .map_err(plain)??;
        self.enter(&mut context.register(), handle, wish)
            .map_err(plain)
    }

    /// Enters under an id what was taken last.
    pub(crate) fn enter(
        &mut self,
        register: &mut Register,
        handle: Handle,
        wish: Wish,
    ) -> Result<Answer, Failure> {
        let numbers = wish.profile.numbers();
        let entry = Entry {
            key: wish.key,
            incarnation: wish.incarnation,
            host: self.number_of_host(&wish.host_name),
            profile: wish.profile,
        };
        register.enter(handle, entry, &self.scratch.numbers)?;
        if let Some(open) = &mut self.open {
            open.taken.push(handle);
            open.numbers += numbers;
        }
        Ok(Answer::New(handle))
    }

    /// What there is to know of a want before numbers are looked for.
    pub(crate) fn look(&self, register: &Register, want: &PrWant) -> Result<Looked, Answer> {
        if want.flags & !PR_WANT_PREFER != 0 {
            return Err(plain(Failure::flags("want.flags", want.flags)));
        }
        let key = Key::from(want);
        if let Some((known, _)) = register.find(key, want.incarnation) {
            let given = self.open.as_ref().map(|open| open.given.as_slice());
            if given.unwrap_or_default().contains(&known) {
                let words = "its grant is given in this what-if; ask with a higher incarnation";
                let failure = Failure::said(PR_EAGAIN, words);
                return Err(Answer::refused(failure, PR_R_RELEASING));
            }
            return Ok(Looked::Known(known));
        }
        let profile = self.profile(want.profile).map_err(plain)?;
        if let Some((_, newest)) = register.newest(key)
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
}

/// A want that has no numbers yet.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) host: HostId,
    host_name: HostName,
    pub(crate) profile: Arc<Profile>,
    pub(crate) key: Key,
    pub(crate) incarnation: u32,
    pub(crate) prefers: bool,
}

/// A want, before numbers are looked for.
pub(crate) enum Looked {
    Known(Handle),
    New(Wish),
}

/// Refused for another reason than the host's numbers.
pub(crate) fn plain(failure: Failure) -> Answer {
    Answer::refused(failure, PR_R_NONE)
}

/// The answer to a refusal, with what is against it if that was worked out beside it.
pub(crate) fn refusal(refused: &ReserveError, why: &[Why], host: u32) -> Answer {
    match refused {
        ReserveError::DoesNotFit { .. } => does_not_fit(why, host),
        ReserveError::Refused { why, .. } => does_not_fit(why, host),
        _ => {
            // Every grant has an id of its own here, so no other can be in its way.
            debug_assert!(false, "{refused}");
            Answer::refused(Failure::value(PR_ESTATE, "host", host.into()), PR_R_NONE)
        }
    }
}

/// The answer where a host takes nothing.
pub(crate) const fn about_host(cause: &Cause, host: u32) -> Answer {
    let reason = cause.code().number();
    Answer::refused(Failure::no_port(host, reason), reason)
}

/// The answer to who does not fit, with the first of the causes.
pub(crate) fn does_not_fit(why: &[Why], host: u32) -> Answer {
    let retry = |why: &Why| match why.cause {
        Cause::Cooling { left } => Some(left),
        _ => None,
    };
    let first = why.first();
    let reason = first.map_or(PR_R_NONE, |why| why.cause.code().number());
    Answer::Refused {
        failure: Failure::no_port(host, reason),
        reason,
        retry: why.iter().filter_map(retry).max().unwrap_or_default(),
    }
}
