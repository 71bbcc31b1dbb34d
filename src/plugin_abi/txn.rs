//! Transactions: begin, ask, mark, go back, commit or abort.

use std::sync::atomic::Ordering;

use crate::allocator::{HostSet, Need};
use crate::identity::HostId;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::context::{Context, Cycle, MarkHere, Open};
use crate::plugin_abi::contexts;
use crate::plugin_abi::entry::{Class, inside};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::{Handle, Kind};
use crate::plugin_abi::memory::{Input, Output, Room, read};
use crate::plugin_abi::profile::Profile;
use crate::plugin_abi::trial::{Paused, Trial};
use crate::plugin_abi::types::{PrCtx, PrNeed, PrTxn};
use crate::time::Monotonic;

/// See `txn_begin` in the header.
pub(super) unsafe extern "C" fn txn_begin(
    ctx: PrCtx,
    flags: u32,
    now_ms: u64,
    txn: *mut PrTxn,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or writable.
        let txn = unsafe { Output::new(txn, "txn") }?;
        if flags & !PR_TXN_WHATIF != 0 {
            return Err(Failure::value(PR_EINVAL, "flags", u64::from(flags)));
        }
        let mut cycle = context.hot()?;
        if cycle.open.is_some() {
            return Err(Failure::said(PR_EBUSY, "a transaction is open already"));
        }
        cycle.apply_queue(context);
        let what_if = flags & PR_TXN_WHATIF != 0;
        let paused = Paused::open(&cycle.allocator, context.at(now_ms), what_if);
        let handle = contexts::next_transaction(context.handle());
        cycle.open = Some(Open {
            handle,
            paused: Some(paused),
            what_if,
            taken: Vec::new(),
            given: Vec::new(),
            numbers: 0,
            marks: Vec::new(),
            next_mark: 0,
        });
        txn.set(handle.id());
        Ok(PR_OK)
    })
}

impl Cycle {
    /// Acts in what is open. A panic ends it.
    pub(super) fn within<R>(
        &mut self,
        act: impl FnOnce(&mut Trial<'_>) -> R,
    ) -> Result<R, Failure> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let paused = open.paused.take().ok_or(NOT_OPEN)?;
        let mut trial = paused.resume(&self.allocator);
        let answer = act(&mut trial);
        open.paused = Some(trial.suspend());
        Ok(answer)
    }

    /// What is open, to be ended: dropped, it leaves no trace.
    fn resume(&mut self) -> Result<Trial<'_>, Failure> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let paused = open.paused.take().ok_or(NOT_OPEN)?;
        Ok(paused.resume(&self.allocator))
    }
}

/// The candidates of a question, as words; none for all hosts.
///
/// # Safety
///
/// `cand` is null, or points to `nwords` words that stay readable as long as what is returned.
pub(super) unsafe fn candidate_words(
    cand: *const u64,
    nwords: u32,
) -> Result<Option<Input<u64>>, Failure> {
    if nwords > MOST_WORDS {
        return Err(Failure::limit("nwords", nwords.into(), MOST_WORDS.into()));
    }
    if cand.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise, and not null.
    unsafe { Input::new(cand, nwords, MOST_WORDS, "cand") }.map(Some)
}

/// See `feasible` in the header.
pub(super) unsafe extern "C" fn feasible(
    txn: PrTxn,
    need: *const PrNeed,
    cand: *const u64,
    out: *mut u64,
    max_replicas: *mut u16,
    nwords: u32,
) -> i64 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        // SAFETY: by C's promise null, or readable.
        let need = unsafe { read(need, "need") }?;
        // SAFETY: by C's promise null, or `nwords` readable words.
        let candidates = unsafe { candidate_words(cand, nwords) }?;
        // SAFETY: by C's promise room for `nwords` words; it may be `cand`, which is read first.
        let out = unsafe { Room::new(out, nwords, "out") }?;
        // SAFETY: by C's promise null, or room for 64 numbers per word.
        let most = unsafe { Room::optional(max_replicas, nwords * 64, "max_replicas") }?;
        // The whole of `cand` is read before the first word of `out` is written.
        let words: Option<Vec<u64>> = candidates.map(|words| words.iter().collect());
        let fitting = fitting(context, txn, &need, words.as_deref(), most.is_wanted())?;
        let mut answer = vec![0; nwords as usize];
        let count = HostSet::write_words(&fitting.hosts, &mut answer);
        out.fill(answer);
        if most.is_wanted() {
            most.fill((0..nwords * 64).map(|_| 0));
            for (host, replicas) in fitting.most {
                if host.0 < nwords * 64 {
                    most.set(host.0, replicas);
                }
            }
        }
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    })
}

/// The need in the allocator's words.
pub(super) fn asked<'a>(profile: &'a Profile, need: &PrNeed) -> Need<'a> {
    Need {
        replicas: need.replicas,
        // 0 is no later than now, which is what it means.
        at: Some(Monotonic::from_millis(need.at_ms)),
        ..Need::new(&profile.request, profile.service_id)
    }
}

/// Words beyond this name hosts that cannot be.
pub(super) const MOST_WORDS: u32 = (1 << 20) / 64;

struct Fitting {
    hosts: HostSet,
    most: Vec<(HostId, u16)>,
}

fn fitting(
    context: &Context,
    txn: Handle,
    need: &PrNeed,
    words: Option<&[u64]>,
    count: bool,
) -> Result<Fitting, Failure> {
    let mut cycle = context.transaction(txn)?;
    let profile = cycle.profile(need.profile)?;
    let candidates = words.map(HostSet::from_words);
    let asked = asked(&profile, need);
    // Exact where nothing but single numbers are drawn; blocks cost a search each, and few say enough.
    let most = if profile.request.has_blocks() {
        MOST_BLOCKS
    } else {
        u32::from(u16::MAX)
    };
    cycle.within(|trial| {
        let mut hosts = HostSet::new();
        trial.feasible_into(&asked, candidates.as_ref(), &mut hosts);
        let mut times = |host| {
            let times = trial.max_replicas(&asked, host, most);
            // So many fit at once, as was found already.
            let times = times.max(need.replicas);
            (host, u16::try_from(times).unwrap_or(u16::MAX))
        };
        let most = if count {
            hosts.iter().map(&mut times).collect()
        } else {
            Vec::new()
        };
        Fitting { hosts, most }
    })
}

/// How many replicas with blocks are tried on one host.
const MOST_BLOCKS: u32 = 16;

/// See `mark` in the header.
pub(super) unsafe extern "C" fn mark(txn: PrTxn, mark: *mut u32) -> i32 {
    const MOST_MARKS: usize = 1 << 16;
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        // SAFETY: by C's promise null, or writable.
        let out = unsafe { Output::new(mark, "mark") }?;
        let mut cycle = context.transaction(txn)?;
        let marks = cycle.open.as_ref().map_or(0, |open| open.marks.len());
        if marks >= MOST_MARKS {
            return Err(Failure::limit("marks", marks as u64 + 1, MOST_MARKS as u64));
        }
        out.set(cycle.set_mark()?);
        Ok(PR_OK)
    })
}

/// See `rollback` in the header.
pub(super) unsafe extern "C" fn rollback(txn: PrTxn, mark: u32) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        context.transaction(txn)?.roll_back(context, mark)?;
        Ok(PR_OK)
    })
}

/// See `commit` in the header.
pub(super) unsafe extern "C" fn commit(txn: PrTxn, commit_no: *mut u64) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        // SAFETY: by C's promise null, or writable.
        let commit_no = unsafe { Output::new(commit_no, "commit_no") }?;
        let mut cycle = context.transaction(txn)?;
        if cycle.open.as_ref().is_some_and(|open| open.what_if) {
            return Err(Failure::said(PR_ESTATE, "a what-if is never committed"));
        }
        if let Trial::Real(transaction) = cycle.resume()? {
            transaction.commit();
        }
        let taken = cycle.open.take().map(|open| open.taken).unwrap_or_default();
        if !taken.is_empty() {
            context.counters.commits.fetch_add(1, Ordering::Relaxed);
            let mut register = context.register();
            for handle in taken {
                register.hold(handle);
            }
        }
        // Only a commit changes it, and only one is at work.
        commit_no.set(context.counters.commits.load(Ordering::Relaxed));
        Ok(PR_OK)
    })
}

/// See `abort_` in the header.
pub(super) unsafe extern "C" fn abort(txn: PrTxn) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        let mut cycle = context.transaction(txn)?;
        // Dropped without commit, it gives everything back.
        if let Trial::Real(transaction) = cycle.resume()? {
            drop(transaction);
            context.counters.aborts.fetch_add(1, Ordering::Relaxed);
        }
        let taken = cycle.open.take().map(|open| open.taken).unwrap_or_default();
        let mut register = context.register();
        for handle in taken {
            register.forget(handle);
        }
        Ok(PR_OK)
    })
}

impl Cycle {
    /// Sets a mark in the open transaction.
    fn set_mark(&mut self) -> Result<u32, Failure> {
        let here = self.here()?;
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let number = here.number;
        open.next_mark = number.wrapping_add(1);
        open.marks.push(here);
        Ok(number)
    }

    /// This point of the open transaction, without its becoming one of the caller's marks.
    pub(super) fn here(&mut self) -> Result<MarkHere, Failure> {
        let mark = self.within(|trial| trial.mark())?;
        let open = self.open.as_ref().ok_or(NOT_OPEN)?;
        Ok(MarkHere {
            number: open.next_mark,
            mark,
            taken: open.taken.len(),
            given: open.given.len(),
            numbers: open.numbers,
        })
    }

    /// Gives back what was taken since a mark. Later marks become stale, this one stays.
    fn roll_back(&mut self, context: &Context, number: u32) -> Result<(), Failure> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let place = open.marks.iter().rposition(|here| here.number == number);
        let place = place.ok_or(Failure::value(PR_ESTALE, "mark", u64::from(number)))?;
        open.marks.truncate(place + 1);
        let here = open.marks[place];
        self.back_to(context, here)
    }

    /// Gives back what was taken since a point.
    pub(super) fn back_to(&mut self, context: &Context, here: MarkHere) -> Result<(), Failure> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        open.numbers = here.numbers;
        open.given.truncate(here.given);
        let (mark, taken) = (here.mark, open.taken.split_off(here.taken));
        let back = self.within(|trial| trial.rollback(mark))?;
        debug_assert!(
            back.is_ok(),
            "the allocator keeps the marks that are kept here"
        );
        let mut register = context.register();
        for handle in taken {
            register.forget(handle);
        }
        Ok(())
    }
}

const NOT_OPEN: Failure = Failure::said(PR_ESTALE, "no transaction is open");
