//! Taking chosen numbers, undoing that, giving them back, and holding what records say is held.

use std::collections::TryReserveError;

use crate::identity::ReplicaId;
use crate::port::{PortRange, Protocol};
use crate::time::Monotonic;

use super::choice::Choice;
use super::cooling::Cooled;
use super::holdings::{Slot, run};
use super::span::Span;
use super::{Phase, PortGrant, PortPool, PortRequest, Side};

/// Takes that can be undone, the last one first: one log for each open transaction, whatever hosts
/// it takes numbers on. Kept and reused by its owner, it allocates nothing once warm.
#[derive(Debug, Default)]
pub struct UndoLog {
    steps: Vec<Done>,
    /// What was cut out of the cooling runs, take after take.
    pub(super) cut: Vec<(Side, Cooled)>,
}

/// What can be undone.
#[derive(Clone, Copy, Debug)]
enum Done {
    Taken(Taken),
    Given(Given),
}

/// One take.
#[derive(Clone, Copy, Debug)]
struct Taken {
    replica: ReplicaId,
    /// Where its part of the cuts begins.
    cut_from: usize,
    cursor: Moved<u16>,
    random: Moved<u64>,
}

/// One release whose slot was kept.
#[derive(Clone, Copy, Debug)]
struct Given {
    replica: ReplicaId,
    slot: Slot,
    /// Whether numbers of the host had several holders.
    contested: bool,
}

/// A value before and after a take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved<T> {
    pub(super) before: T,
    pub(super) after: T,
}

impl<T: Copy + PartialEq> Moved<T> {
    /// Puts the later value in place, unless somebody else moved it on since it was worked out.
    fn forward(self, value: &mut T) {
        if *value == self.before {
            *value = self.after;
        }
    }

    /// Puts the earlier value back, unless somebody else moved it on since.
    fn back(self, value: &mut T) {
        if *value == self.after {
            *value = self.before;
        }
    }
}

impl UndoLog {
    /// How many takes and reversible releases can be undone.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing is left to be undone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Makes room for so many takes.
    ///
    /// # Errors
    ///
    /// [`TryReserveError`] if there is no memory for it.
    pub fn try_reserve(&mut self, takes: usize) -> Result<(), TryReserveError> {
        self.steps.try_reserve_exact(takes)?;
        self.cut.try_reserve_exact(takes)
    }

    /// Forgets every step: they stay.
    pub fn clear(&mut self) {
        self.steps.clear();
        self.cut.clear();
    }

    /// What the step at `place` cut out of the cooling runs.
    pub(super) fn cut_by(&self, place: usize) -> &[(Side, Cooled)] {
        let Some(Done::Taken(taken)) = self.steps.get(place) else {
            return &[];
        };
        let later = self.steps[place + 1..].iter().find_map(|step| match step {
            Done::Taken(taken) => Some(taken.cut_from),
            Done::Given(_) => None,
        });
        &self.cut[taken.cut_from..later.unwrap_or(self.cut.len())]
    }
}

/// Numbers that a restored grant shares with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The numbers.
    pub numbers: PortRange,
    /// On which side.
    pub protocol: Protocol,
    /// Who held them already; the restored replica itself if its record names them twice.
    pub holder: ReplicaId,
}

impl PortPool {
    /// Takes what [`Self::choose`] chose for `request` on this very state, tentatively, and notes in
    /// `log` how to undo it. Allocates nothing once warm.
    ///
    /// `replica` must hold nothing here yet.
    pub fn take(
        &mut self,
        replica: ReplicaId,
        request: &PortRequest,
        choice: &Choice,
        log: &mut UndoLog,
    ) {
        let taken = Taken {
            replica,
            cut_from: log.cut.len(),
            cursor: Moved {
                before: self.cursor,
                after: choice.cursor,
            },
            random: choice.random,
        };
        self.cursor = choice.cursor;
        taken.random.forward(&mut self.random);
        log.steps.push(Done::Taken(taken));
        let holding = self.holdings.insert(replica, request, Phase::Tentative);
        holding.spans.extend_from_slice(choice.spans());
        debug_assert_eq!(
            holding.spans.len(),
            request.as_slice().len(),
            "a choice has numbers for each port"
        );
        self.held += holding.count();
        let mut next = 0;
        while let Some((protocol, span, after)) = run(request, choice.spans(), next) {
            next = after;
            for side in Side::of(protocol) {
                if self.seize(side, span) < span.count() {
                    let numbers = self.numbers_mut(side);
                    let resting = numbers.rests.remove(span);
                    let cut = &mut log.cut;
                    numbers
                        .cooling
                        .cut(span, resting, &mut |was| cut.push((side, was)));
                }
            }
        }
    }

    /// Undoes the last step of `log`, which must have been made on this pool. Returns whose it was;
    /// `None` if the log is empty. Allocates nothing once warm.
    ///
    /// If nothing else happened here since, everything is exactly as it was. If it did, the numbers
    /// of the take alone are as they would be without it. Cooling that became due meanwhile ends
    /// at the next [`Self::end_due`]: ask [`Self::next_deadline`] again.
    pub fn undo(&mut self, log: &mut UndoLog) -> Option<ReplicaId> {
        let taken = match log.steps.pop()? {
            Done::Taken(taken) => taken,
            Done::Given(given) => {
                self.take_back(given);
                return Some(given.replica);
            }
        };
        let Some(slot) = self.holdings.remove(taken.replica) else {
            debug_assert!(false, "{:?} holds what is undone", taken.replica);
            log.cut.truncate(taken.cut_from);
            return None;
        };
        self.rest_again(&mut log.cut, taken.cut_from);
        self.let_go(slot, None);
        self.holdings.recycle(slot);
        taken.cursor.back(&mut self.cursor);
        taken.random.back(&mut self.random);
        Some(taken.replica)
    }

    /// Gives back what `replica` holds: to rest for its service until `cool`, or at once if that is
    /// `None`. Numbers that another restored record names as well stay held by that one.
    ///
    /// Returns how many numbers that were, or `None` if it held nothing; the pool is then unchanged.
    /// Allocates nothing once warm.
    pub fn release(&mut self, replica: ReplicaId, cool: Option<Monotonic>) -> Option<u32> {
        let slot = self.holdings.remove(replica)?;
        let count = self.let_go(slot, cool);
        self.holdings.recycle(slot);
        Some(count)
    }

    /// As [`Self::release`], and notes in `log` how to undo it. What `replica` had is kept in its place until
    /// then: for pools on which something is tried, which are forgotten in the end.
    pub(crate) fn give_back(
        &mut self,
        replica: ReplicaId,
        cool: Option<Monotonic>,
        log: &mut UndoLog,
    ) -> Option<u32> {
        let slot = self.holdings.remove(replica)?;
        log.steps.push(Done::Given(Given {
            replica,
            slot,
            contested: !self.contested.is_empty(),
        }));
        Some(self.let_go(slot, cool))
    }

    /// Holds again what was given back: nothing else has it now, since later steps were undone.
    fn take_back(&mut self, given: Given) {
        let slot = given.slot;
        self.held += self.holdings.removed(&slot).count();
        let mut next = 0;
        while let Some((protocol, span, after)) = self.holdings.removed(&slot).run(next) {
            for side in Side::of(protocol) {
                if !given.contested {
                    self.hold_again(side, span);
                    continue;
                }
                for number in span.numbers() {
                    // Another holder kept it then, be it another port of the same record.
                    if self.holder(side, number, |_| true).is_some()
                        || self.names_before(slot, next, side, number)
                    {
                        self.contested.add(side, number);
                    } else {
                        self.hold_again(side, Span::single(number));
                    }
                }
            }
            next = after;
        }
        self.holdings.put_back(slot);
    }

    /// Whether a port before the one at `place` names the number too.
    fn names_before(&self, slot: Slot, place: usize, side: Side, number: u16) -> bool {
        let ports = self.holdings.removed(&slot).ports().take(place);
        ports
            .filter(|(_, span)| span.contains(number))
            .any(|(protocol, _)| Side::of(protocol).any(|of| of == side))
    }

    /// Takes numbers out of what is free or rests.
    fn hold_again(&mut self, side: Side, span: Span) {
        if self.seize(side, span) < span.count() {
            let numbers = self.numbers_mut(side);
            numbers.rests.remove(span);
            numbers.cooling.cut(span, span.count(), &mut |_| {});
        }
    }

    /// Lets rest again what a take cut out of the cooling runs: the part of `cut` from `from` on.
    fn rest_again(&mut self, cut: &mut Vec<(Side, Cooled)>, from: usize) {
        let parts = &mut cut[from..];
        if self.contested.is_empty() {
            for (side, was) in &*parts {
                self.show_rest(*side, was.span);
            }
            for side in Side::BOTH {
                if parts.iter().any(|(of, _)| *of == side) {
                    self.numbers_mut(side).cooling.put_back(parts, side);
                }
            }
        } else {
            // A record that was restored meanwhile may hold some too: what is held does not rest.
            for (side, was) in &*parts {
                for number in was.span.numbers() {
                    if !self.contested.contains(*side, number) {
                        let span = Span::single(number);
                        self.let_rest(*side, Cooled { span, ..*was });
                    }
                }
            }
        }
        cut.truncate(from);
    }

    /// Frees the numbers of a holding that was taken out, or lets them rest. Returns how many. Its slot is left.
    fn let_go(&mut self, slot: Slot, cool: Option<Monotonic>) -> u32 {
        let holding = self.holdings.removed(&slot);
        let service = holding.replica.service;
        let count = holding.count();
        self.held -= count;
        let go = |pool: &mut Self, side, span| match cool {
            Some(until) => {
                let cooled = Cooled {
                    span,
                    until,
                    service,
                };
                pool.let_rest(side, cooled);
            }
            None => pool.settle(side, span),
        };
        let mut next = 0;
        while let Some((protocol, span, after)) = self.holdings.removed(&slot).run(next) {
            next = after;
            for side in Side::of(protocol) {
                if self.contested.is_empty() {
                    go(self, side, span);
                    continue;
                }
                for number in span.numbers() {
                    if !self.contested.take(side, number) {
                        go(self, side, Span::single(number));
                    }
                }
            }
        }
        count
    }

    /// Holds `grant` for `replica` because a record says so, whatever the ranges say and whoever
    /// holds the numbers already: both keep them, and each clash is returned.
    pub fn restore(&mut self, replica: ReplicaId, grant: &PortGrant, phase: Phase) -> Vec<Clash> {
        let mut clashes = Vec::new();
        // A record that is restored again is the same record, not a second holder.
        let mut known = self.grant(replica).unwrap_or_default();
        if self.holdings.get(replica).is_none() {
            let nothing = PortRequest::recorded(&[]);
            self.holdings.insert(replica, &nothing, phase);
        }
        let before = known.ports.len();
        for port in &grant.ports {
            if known.ports[..before].contains(port) {
                continue;
            }
            for side in Side::of(port.protocol) {
                self.restore_span(side, port.numbers.into(), (replica, &known), &mut clashes);
            }
            self.held += port.numbers.count();
            known.ports.push(port.clone());
        }
        if known.ports.len() > before
            && let Some(holding) = self.holdings.get_mut(replica)
        {
            holding.record(&known);
        }
        self.holdings.set_phase(replica, phase);
        clashes
    }

    /// Holds numbers for a replica, of whose grant `own` is restored so far.
    fn restore_span(
        &mut self,
        side: Side,
        span: Span,
        own: (ReplicaId, &PortGrant),
        clashes: &mut Vec<Clash>,
    ) {
        if self.free_on(side).covers(span) {
            self.seize(side, span);
            return;
        }
        let (replica, known) = own;
        let own = known.ports.iter().flat_map(|port| {
            let span = Span::from(port.numbers);
            Side::of(port.protocol).map(move |side| (replica, side, span))
        });
        let others = self.holdings.iter().filter(|it| it.replica != replica);
        let others = others.flat_map(|it| {
            let sides = it.sides();
            sides.map(|(side, span)| (it.replica, side, span))
        });
        let mut twice: Vec<(ReplicaId, Span)> = others
            .chain(own)
            .filter(|(_, taken, _)| *taken == side)
            .filter_map(|(holder, _, taken)| Some((holder, taken.overlap(span)?)))
            .collect();
        twice.sort_unstable();
        // However often a damaged record names a number, who has it is told once.
        twice.dedup();
        let mut contested = std::collections::BTreeSet::new();
        for (holder, both) in twice {
            contested.extend(both.numbers());
            clashes.push(Clash {
                numbers: both.into(),
                protocol: side.protocol(),
                holder,
            });
        }
        for number in contested {
            self.contested.add(side, number);
        }
        self.seize(side, span);
        let numbers = self.numbers_mut(side);
        numbers.rests.remove(span);
        numbers.cooling.cut(span, span.count(), &mut |_| {});
    }
}
