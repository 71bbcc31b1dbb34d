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
    takes: Vec<Taken>,
    /// What was cut out of the cooling runs, take after take.
    cut: Vec<(Side, Cooled)>,
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
    /// How many takes can be undone.
    #[must_use]
    pub fn len(&self) -> usize {
        self.takes.len()
    }

    /// Whether nothing is left to be undone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.takes.is_empty()
    }

    /// Makes room for so many takes.
    ///
    /// # Errors
    ///
    /// [`TryReserveError`] if there is no memory for it.
    pub fn try_reserve(&mut self, takes: usize) -> Result<(), TryReserveError> {
        self.takes.try_reserve_exact(takes)
    }

    /// Forgets every take: they stay.
    pub fn clear(&mut self) {
        self.takes.clear();
        self.cut.clear();
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
        log.takes.push(taken);
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

    /// Undoes the last take of `log`, which must have been made on this pool. Returns whose it was;
    /// `None` if the log is empty. Allocates nothing once warm.
    ///
    /// If nothing else happened here since, everything is exactly as it was. If it did, the numbers
    /// of the take alone are as they would be without it. Cooling that became due meanwhile ends
    /// at the next [`Self::end_due`]: ask [`Self::next_deadline`] again.
    pub fn undo(&mut self, log: &mut UndoLog) -> Option<ReplicaId> {
        let taken = log.takes.pop()?;
        let Some(slot) = self.holdings.remove(taken.replica) else {
            debug_assert!(false, "{:?} holds what is undone", taken.replica);
            log.cut.truncate(taken.cut_from);
            return None;
        };
        self.rest_again(&mut log.cut, taken.cut_from);
        self.let_go(slot, None);
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
        Some(self.let_go(slot, cool))
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
                    if !self.contested.contains_key(&(*side, number)) {
                        let span = Span::single(number);
                        self.let_rest(*side, Cooled { span, ..*was });
                    }
                }
            }
        }
        cut.truncate(from);
    }

    /// Frees the numbers of a holding that was taken out, or lets them rest. Returns how many.
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
                    if !self.yield_contested(side, number) {
                        go(self, side, Span::single(number));
                    }
                }
            }
        }
        self.holdings.recycle(slot);
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
        if let Some(holding) = self.holdings.get_mut(replica) {
            if known.ports.len() > before {
                holding.record(&known);
            }
            holding.phase = phase;
        }
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
            *self.contested.entry((side, number)).or_default() += 1;
        }
        self.seize(side, span);
        let numbers = self.numbers_mut(side);
        numbers.rests.remove(span);
        numbers.cooling.cut(span, span.count(), &mut |_| {});
    }

    /// Takes one holder off a number that several have. Whether there was more than one.
    fn yield_contested(&mut self, side: Side, number: u16) -> bool {
        let place = (side, number);
        let Some(others) = self.contested.get_mut(&place) else {
            return false;
        };
        *others -= 1;
        if *others == 0 {
            self.contested.remove(&place);
        }
        true
    }
}
