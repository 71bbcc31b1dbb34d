//! Why hosts do not fit, and what is not free on one of them.

use std::time::Duration;

use crate::allocator::{CauseCounts, HostSet};
use crate::identity::{HostId, ReplicaId};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Output, Room, read};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::proto;
use crate::plugin_abi::cycle::txn::{asked, candidate_words};
use crate::plugin_abi::state::context::Context;
use crate::plugin_abi::types::{PrHeld, PrNeed, PrTxn, PrWhy};
use crate::port_pool::{Cause, CauseCode, ListedPorts, PortRequest, PortState, Why};
use crate::time::Monotonic;

/// What these questions need room for, kept by the cycle so that they allocate nothing once warm.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    causes: Vec<Why>,
    candidates: HostSet,
}

/// See `explain` in the header.
pub(crate) unsafe extern "C" fn explain(
    txn: PrTxn,
    need: *const PrNeed,
    host: u32,
    causes: *mut PrWhy,
    cap: u32,
    count: *mut u32,
) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        // SAFETY: by C's promise null, or readable.
        let need = unsafe { read(need, "need") }?;
        // SAFETY: by C's promise null, or room for `cap` elements.
        let room = unsafe { Room::new(causes, cap, "causes") }?;
        // SAFETY: by C's promise null, or writable.
        let count = unsafe { Output::new(count, "count") }?;
        let mut cycle = context.transaction(txn)?;
        let profile = cycle.profile(need.profile)?;
        let asked = asked(&profile, &need);
        let mut causes = std::mem::take(&mut cycle.asking.causes);
        causes.clear();
        cycle.within(|trial| trial.explain_into(HostId(host), &asked, &mut causes))?;
        let needed = u32::try_from(causes.len()).unwrap_or(u32::MAX);
        count.set(needed);
        let fits = room.fits(needed);
        if fits.is_ok() {
            let told = causes.iter();
            room.fill(told.map(|why| told_why(context, &profile.request, why)));
        }
        cycle.asking.causes = causes;
        fits.map(|()| PR_OK)
    })
}

/// See `explain_all` in the header.
pub(crate) unsafe extern "C" fn explain_all(
    txn: PrTxn,
    need: *const PrNeed,
    cand: *const u64,
    nwords: u32,
    hosts_by_reason: *mut u32,
    n_reasons: u32,
) -> i32 {
    /// Far more reasons than there will be; a larger number is a mistake, and its room would be written.
    const MOST_REASONS: u32 = 4096;
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        // SAFETY: by C's promise null, or readable.
        let need = unsafe { read(need, "need") }?;
        // SAFETY: by C's promise null, or `nwords` readable words.
        let candidates = unsafe { candidate_words(cand, nwords) }?;
        if n_reasons > MOST_REASONS {
            let (asked, most) = (n_reasons.into(), MOST_REASONS.into());
            return Err(Failure::limit("n_reasons", asked, most));
        }
        // SAFETY: by C's promise null, or room for `n_reasons` numbers.
        let room = unsafe { Room::new(hosts_by_reason, n_reasons, "hosts_by_reason") }?;
        let mut cycle = context.transaction(txn)?;
        let profile = cycle.profile(need.profile)?;
        let asked = asked(&profile, &need);
        // Bits past the last host are no hosts that anybody asks about.
        let mut hosts = std::mem::take(&mut cycle.asking.candidates);
        let end = cycle.end_of_hosts;
        let named =
            candidates.map(|words| hosts.refill(words.len(), end, |set| words.copy_to(set)));
        let mut counts = CauseCounts::default();
        let named = named.is_some().then_some(&hosts);
        cycle.within(|trial| trial.count_causes(&asked, named, &mut counts))?;
        cycle.asking.candidates = hosts;
        let Some(last) = n_reasons.checked_sub(1) else {
            return Ok(PR_OK);
        };
        let sum = |reason: u32| {
            let codes = CauseCode::ALL.iter();
            codes
                .filter(|code| code.number().min(last) == reason)
                .map(|code| counts.of(*code))
                .sum()
        };
        // Beyond the reasons that there are every entry is 0, the last one too.
        room.fill((0..n_reasons).map(sum));
        Ok(PR_OK)
    })
}

fn told_why(context: &Context, request: &PortRequest, why: &Why) -> PrWhy {
    let port = why.port.as_ref();
    let item = port.and_then(|port| {
        let names = request.as_slice().iter().map(|wanted| &wanted.name);
        (0..).zip(names).find(|(_, name)| **name == port.name)
    });
    let (have, want) = match why.cause {
        Cause::TooFew { have, want } => (have, want),
        Cause::NoBlock { size } => (0, u32::from(size)),
        _ => (0, 0),
    };
    let holder = why.cause.holder();
    PrWhy {
        holder: holder.map_or(0, |by| alloc_of(context, by).id()),
        reason: why.cause.code().number(),
        item: item.map_or(PR_ANY, |(at, _)| at),
        proto: port.map_or(0, |port| proto(port.protocol)),
        have,
        want,
        retry_ms: match why.cause {
            Cause::Cooling { left } => milliseconds(left),
            _ => 0,
        },
        pid: match &why.cause {
            Cause::Foreign(stranger) => stranger.pid.unwrap_or(0),
            _ => 0,
        },
        port: port
            .and_then(|port| port.number)
            .map_or(0, |port| port.number()),
        zero: 0,
    }
}

/// The id of what the allocator calls by slot and generation.
fn alloc_of(context: &Context, replica: ReplicaId) -> Handle {
    context.handle().alloc(replica.index, replica.incarnation.0)
}

fn milliseconds(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

/// See `holders` in the header.
pub(crate) unsafe extern "C" fn holders(
    txn: PrTxn,
    host: u32,
    cursor: *mut u32,
    held: *mut PrHeld,
    cap: u32,
    n: *mut u32,
) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        // SAFETY: by C's promise null, or readable.
        let from = unsafe { read(cursor, "cursor") }?;
        // SAFETY: by C's promise null, or writable.
        let cursor = unsafe { Output::new(cursor, "cursor") }?;
        // SAFETY: by C's promise null, or room for `cap` elements.
        let room = unsafe { Room::new(held, cap, "held") }?;
        // SAFETY: by C's promise null, or writable.
        let n = unsafe { Output::new(n, "n") }?;
        let mut cycle = context.transaction(txn)?;
        let now = context.at(0);
        cycle.within(|trial| {
            let unknown = Failure::value(PR_ENOENT, "host", u64::from(host));
            let all = trial.listed(HostId(host)).ok_or(unknown)?;
            let rest = all.get(from as usize..).unwrap_or_default();
            if !rest.is_empty() {
                room.fits(1)?;
            }
            let mut told = 0;
            for entry in rest.iter().take(cap as usize) {
                room.set(told, told_held(context, entry, now));
                told += 1;
            }
            n.set(told);
            cursor.set(from.saturating_add(told));
            Ok(PR_OK)
        })?
    })
}

fn told_held(context: &Context, entry: &ListedPorts, now: Monotonic) -> PrHeld {
    let (state, by) = match entry.state {
        PortState::Held { by } => (PR_P_HELD, Some(by)),
        PortState::Releasing { by } => (PR_P_RELEASING, Some(by)),
        PortState::Cooling { .. } => (PR_P_COOLING, None),
        PortState::Foreign(_) => (PR_P_FOREIGN, None),
        PortState::Reserved => (PR_P_RESERVED, None),
        PortState::Free => (PR_P_FREE, None),
    };
    let handle = by.map(|by| alloc_of(context, by));
    let replica = handle.and_then(|handle| {
        let register = context.register();
        register.get(handle).ok().map(|entered| entered.key.replica)
    });
    PrHeld {
        id: handle.map_or(0, Handle::id),
        lo: entry.numbers.first().number(),
        hi: entry.numbers.last().number(),
        proto: proto(entry.protocol),
        state,
        left_ms: match entry.state {
            PortState::Cooling { until, .. } => milliseconds(until.since(now)),
            _ => 0,
        },
        replica: replica.unwrap_or(PR_ANY),
        pid: match &entry.state {
            PortState::Foreign(stranger) => stranger.pid.unwrap_or(0),
            _ => 0,
        },
    }
}
