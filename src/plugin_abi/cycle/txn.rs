//! Transactions: begin, ask, mark, go back, commit or abort.

use std::sync::atomic::Ordering;

use crate::allocator::{HostSet, Need};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Input, Output, Room, read};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::cycle::trial::{Paused, Trial};
use crate::plugin_abi::state::context::{Context, Cycle, MarkHere, Open};
use crate::plugin_abi::state::contexts;
use crate::plugin_abi::state::scratch::{Lists, MOST_MARKS, Scratch};
use crate::plugin_abi::types::{PrCtx, PrNeed, PrTxn};
use crate::time::Monotonic;

/// See `txn_begin` in the header.
pub(crate) unsafe extern "C" fn txn_begin(
    ctx: PrCtx,
    flags: u32,
    now_ms: u64,
    txn: *mut PrTxn,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or writable.
        let txn = unsafe { Output::new(txn, "txn") }?;
        if flags & !PR_TXN_WHATIF != 0 {
            return Err(Failure::flags("flags", flags));
        }
        let mut cycle = context.hot()?;
        if cycle.open.is_some() {
            return Err(Failure::said(PR_EBUSY, "a transaction is open already"));
        }
        cycle.apply_queue(context);
        let what_if = flags & PR_TXN_WHATIF != 0;
        let paused = Paused::open(&cycle.allocator, context.at(now_ms), what_if);
        let handle = contexts::next_transaction(context.handle());
        let lists = std::mem::take(&mut cycle.scratch.lists);
        cycle.open = Some(Open {
            handle,
            paused: Some(paused),
            what_if,
            taken: lists.taken,
            given: lists.given,
            numbers: 0,
            marks: lists.marks,
            next_mark: 0,
        });
        context.register().outline.what_if = Some(what_if);
        txn.set(handle.id());
        Ok(PR_OK)
    })
}

impl Cycle {
    /// Acts in what is open. A panic ends it.
    pub(crate) fn within<R>(
        &mut self,
        act: impl FnOnce(&mut Trial<'_>) -> R,
    ) -> Result<R, Failure> {
        self.at_work(|trial, _| act(trial))
    }

    /// As [`Cycle::within`], with what there is room in.
    pub(crate) fn at_work<R>(
        &mut self,
        act: impl FnOnce(&mut Trial<'_>, &mut Scratch) -> R,
    ) -> Result<R, Failure> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let paused = open.paused.take().ok_or(NOT_OPEN)?;
        let mut trial = paused.resume(&self.allocator);
        let answer = act(&mut trial, &mut self.scratch);
        open.paused = Some(trial.suspend());
        Ok(answer)
    }

    /// What is open, to be ended: dropped, it leaves no trace.
    fn resume(&mut self) -> Result<Trial<'_>, Failure> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let paused = open.paused.take().ok_or(NOT_OPEN)?;
        Ok(paused.resume(&self.allocator))
    }

    /// Closes what is open: `settle` is told of each grant that it took, and there is none any more.
    fn close(&mut self, mut settle: impl FnMut(Handle)) {
        let Some(open) = self.open.take() else {
            return;
        };
        let mut lists = Lists {
            taken: open.taken,
            given: open.given,
            marks: open.marks,
        };
        lists.given.clear();
        lists.marks.clear();
        lists.taken.drain(..).for_each(&mut settle);
        self.scratch.lists = lists;
    }
}

/// The candidates of a question, as words; none for all hosts.
///
/// # Safety
///
/// `cand` is null, or points to `nwords` words that stay readable as long as what is returned.
pub(crate) unsafe fn candidate_words(
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
pub(crate) unsafe extern "C" fn feasible(
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
        let mut cycle = context.transaction(txn)?;
        let profile = cycle.profile(need.profile)?;
        let asked = asked(&profile, &need);
        // There are no hosts beyond.
        let end = context.settings().limits.hosts;
        let count = cycle.at_work(|trial, scratch| {
            // The whole of `cand` that matters is read before the first word of `out` is written.
            let candidates = candidates.map(|words| {
                let set = &mut scratch.candidates;
                set.refill(words.len(), end, |set| words.copy_to(set));
                &scratch.candidates
            });
            trial.feasible_into(&asked, candidates, &mut scratch.fitting);
            let words = scratch.fitting.as_words();
            let told = words.get(..nwords as usize).unwrap_or(words);
            out.fill_all(told);
            let count: u32 = told.iter().map(|word| word.count_ones()).sum();
            if most.is_wanted() {
                most.fill_all(&[]);
                count_replicas(trial, &asked, &scratch.fitting, nwords, &most);
            }
            count
        })?;
        Ok(i64::from(count))
    })
}

/// Writes how many replicas fit on each host that does.
fn count_replicas(
    trial: &mut Trial<'_>,
    asked: &Need<'_>,
    fitting: &HostSet,
    nwords: u32,
    most: &Room<u16>,
) {
    // Exact where it is a matter of counting; blocks cost a search each, and few say enough.
    let bound = if asked.request.has_blocks() {
        MOST_BLOCKS
    } else {
        u32::from(u16::MAX)
    };
    for host in fitting.iter().take_while(|host| host.0 < nwords * 64) {
        let times = trial.max_replicas(asked, host, bound);
        // So many fit at once, as was found already.
        let times = times.max(asked.replicas);
        most.set(host.0, u16::try_from(times).unwrap_or(u16::MAX));
    }
}

/// The need in the allocator's words.
pub(crate) fn asked<'a>(profile: &'a Profile, need: &PrNeed) -> Need<'a> {
    Need {
        replicas: need.replicas,
        // 0 is no later than now, which is what it means.
        at: Some(Monotonic::from_millis(need.at_ms)),
        ..Need::new(&profile.request, profile.service_id)
    }
}

/// Words beyond this name hosts that cannot be.
pub(crate) const MOST_WORDS: u32 = (1 << 20) / 64;

/// How many replicas with blocks are tried on one host.
const MOST_BLOCKS: u32 = 16;

/// See `mark` in the header.
pub(crate) unsafe extern "C" fn mark(txn: PrTxn, mark: *mut u32) -> i32 {
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
pub(crate) unsafe extern "C" fn rollback(txn: PrTxn, mark: u32) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        context.transaction(txn)?.roll_back(context, mark)?;
        Ok(PR_OK)
    })
}

/// See `commit` in the header.
pub(crate) unsafe extern "C" fn commit(txn: PrTxn, commit_no: *mut u64) -> i32 {
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
        if cycle
            .open
            .as_ref()
            .is_some_and(|open| !open.taken.is_empty())
        {
            context.counters.commits.fetch_add(1, Ordering::Relaxed);
        }
        let mut register = context.register();
        cycle.close(|handle| register.hold(handle));
        register.outline.what_if = None;
        // Only a commit changes it, and only one is at work.
        commit_no.set(context.counters.commits.load(Ordering::Relaxed));
        Ok(PR_OK)
    })
}

/// See `abort_` in the header.
pub(crate) unsafe extern "C" fn abort(txn: PrTxn) -> i32 {
    inside(txn, Kind::Transaction, Class::Hot, |context, txn| {
        let mut cycle = context.transaction(txn)?;
        // Dropped without commit, it gives everything back.
        if let Trial::Real(transaction) = cycle.resume()? {
            drop(transaction);
            context.counters.aborts.fetch_add(1, Ordering::Relaxed);
        }
        let mut register = context.register();
        // Slots are used again in the order in which they would have been.
        cycle.back_from(0, |handle| register.forget(handle));
        cycle.close(|_| ());
        register.outline.what_if = None;
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
    pub(crate) fn here(&mut self) -> Result<MarkHere, Failure> {
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
    pub(crate) fn back_to(&mut self, context: &Context, here: MarkHere) -> Result<(), Failure> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        open.numbers = here.numbers;
        open.given.truncate(here.given);
        let back = self.within(|trial| trial.rollback(here.mark))?;
        debug_assert!(
            back.is_ok(),
            "the allocator keeps the marks that are kept here"
        );
        let mut register = context.register();
        self.back_from(here.taken, |handle| register.forget(handle));
        Ok(())
    }

    /// Tells `forget` of what was taken after the first `kept` grants, the last one first.
    fn back_from(&mut self, kept: usize, mut forget: impl FnMut(Handle)) {
        if let Some(open) = &mut self.open {
            while open.taken.len() > kept
                && let Some(handle) = open.taken.pop()
            {
                forget(handle);
            }
        }
    }
}

const NOT_OPEN: Failure = Failure::said(PR_ESTALE, "no transaction is open");
