//! What else a number can carry beside a holder: cooling, strangers, reservation; and what happens
//! when one of these comes or goes.

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{Port, PortRange, Protocol};
use crate::time::Monotonic;

use super::cooling::Cooled;
use super::number_set::NumberSet;
use super::span::{Span, gaps, spans_of};
use super::{Draw, Foreign, Phase, PoolRanges, PortPool, Side, Stranger};

/// Numbers that rest no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    pub(crate) side: Side,
    pub(crate) numbers: PortRange,
    /// Whether they can be had again.
    pub(crate) has_freed: bool,
}

impl PortPool {
    /// Puts other ranges in force. Who holds a number keeps it, also outside of them. Any number may
    /// have another status afterwards.
    pub fn set_ranges(&mut self, ranges: PoolRanges, draw: Draw) {
        if draw.seed() != self.draw.seed() {
            self.random = draw.seed();
        }
        self.draw = draw;
        let reserved_before = std::mem::replace(&mut self.ranges, ranges).reserved;
        if reserved_before != self.ranges.reserved {
            self.rebuild();
        }
        self.count_free();
    }

    /// Replaces the list of listeners that are not ours. A number that was in the last list and is
    /// not in this one rests no more after a refused bind either. Every number that comes or goes is
    /// told to `changed`. Whether a number became free.
    pub fn set_foreign(
        &mut self,
        list: &[Foreign],
        changed: &mut dyn FnMut(Side, PortRange),
    ) -> bool {
        let gone = self.strangers.report(list);
        let freed = self.settle_places(&gone, changed);
        for foreign in list {
            let span = Span::single(foreign.port.number());
            for side in Side::of(foreign.protocol) {
                self.bar(side, span);
                changed(side, span.into());
            }
        }
        freed
    }

    /// Takes the number for foreign until `until`: a bind to it was refused.
    pub fn refuse_bind(
        &mut self,
        port: Port,
        protocol: Protocol,
        until: Monotonic,
        stranger: &Stranger,
    ) {
        for side in Side::of(protocol) {
            self.strangers
                .rest((side, port.number()), until, stranger.clone());
            self.bar(side, Span::single(port.number()));
        }
    }

    /// Lets numbers rest for `service` because a record says so. Those that are held stay held.
    pub fn restore_cooling(
        &mut self,
        numbers: PortRange,
        protocol: Protocol,
        until: Monotonic,
        service: ServiceId,
    ) {
        for side in Side::of(protocol) {
            let held = self.held_on(side);
            let free: Vec<Span> = gaps(held.runs_in(numbers.into()), numbers.into()).collect();
            for span in free {
                self.bar(side, span);
                let cooling = &mut self.numbers_mut(side).cooling;
                cooling.cut(span, span.count(), &mut |_| {});
                let cooled = Cooled {
                    span,
                    until,
                    service,
                };
                self.let_rest(side, cooled);
            }
        }
    }

    /// Ends cooling, and rests after refused binds, that are over by `now`; their numbers are told to
    /// `changed`. Whether any was. Cost: constant if none was.
    pub fn end_due(&mut self, now: Monotonic, changed: &mut dyn FnMut(Side, PortRange)) -> bool {
        let mut ended = false;
        while let Some(over) = self.end_next_due(now) {
            changed(over.side, over.numbers);
            ended |= over.has_freed;
        }
        ended
    }

    /// Ends one rest that is over by `now`. Called until nothing is left, it is [`Self::end_due`] for who looks at
    /// the numbers of each as it ends.
    pub(crate) fn end_next_due(&mut self, now: Monotonic) -> Option<Over> {
        for side in Side::BOTH {
            if (self.cooling_on(side).next_deadline()).is_none_or(|until| until > now) {
                continue;
            }
            let numbers = self.numbers_mut(side);
            if let Some(cooled) = numbers.cooling.pop_due(now) {
                numbers.rests.remove(cooled.span);
                self.settle(side, cooled.span);
                return Some(Over {
                    side,
                    numbers: cooled.span.into(),
                    has_freed: true,
                });
            }
        }
        self.strangers.end_due(now);
        let (side, number) = self.strangers.next_ended()?;
        let span = Span::single(number);
        let is_held = self.holder(side, number, |_| true).is_some();
        if !is_held {
            if self.cooling_on(side).at(number).is_none() {
                self.settle(side, span);
            } else if self.is_bare(side, span) {
                self.numbers_mut(side).rests.insert(span);
            }
        }
        Some(Over {
            side,
            numbers: span.into(),
            has_freed: !is_held,
        })
    }

    /// Takes numbers out of what can be had: something stands on them from now on.
    fn bar(&mut self, side: Side, span: Span) {
        self.seize(side, span);
        self.numbers_mut(side).rests.remove(span);
    }

    /// Lets numbers rest that nobody holds and that do not rest yet.
    pub(super) fn let_rest(&mut self, side: Side, cooled: Cooled) {
        self.numbers_mut(side).cooling.put(cooled);
        self.show_rest(side, cooled.span);
    }

    /// Counts those of the resting numbers that carry nothing else as what only cools.
    pub(super) fn show_rest(&mut self, side: Side, span: Span) {
        if self.is_bare(side, span) {
            self.numbers_mut(side).rests.insert(span);
            return;
        }
        for number in span.numbers() {
            let single = Span::single(number);
            if self.is_bare(side, single) {
                self.numbers_mut(side).rests.insert(single);
            }
        }
    }

    /// Frees what carries no layer any more of numbers that nobody holds.
    pub(super) fn settle(&mut self, side: Side, span: Span) {
        if self.is_bare(side, span) && !self.resting_on(side).touches(span) {
            self.give(side, span);
            return;
        }
        for number in span.numbers() {
            let single = Span::single(number);
            if self.is_bare(side, single) && !self.resting_on(side).contains(number) {
                self.give(side, single);
            }
        }
    }

    /// Whether none of the numbers is foreign or reserved.
    fn is_bare(&self, side: Side, span: Span) -> bool {
        self.unreserved.covers(span) && !self.strangers.on(side).touches(span)
    }

    /// Frees, or lets only cool, those of `places` that nobody holds and that are foreign no more.
    /// Each is told to `changed`. Whether any could be had again.
    fn settle_places(
        &mut self,
        places: &[(Side, u16)],
        changed: &mut dyn FnMut(Side, PortRange),
    ) -> bool {
        if places.is_empty() {
            return false;
        }
        let mut freed = false;
        for side in Side::BOTH {
            let held = self.held_on(side);
            let cooling = self.cooling_on(side).by_age();
            let cools: NumberSet = cooling.map(|cooled| cooled.span).collect();
            for (_, number) in places.iter().filter(|(place, _)| *place == side) {
                let span = Span::single(*number);
                if !held.contains(*number) {
                    if !cools.contains(*number) {
                        self.settle(side, span);
                    } else if self.is_bare(side, span) {
                        self.numbers_mut(side).rests.insert(span);
                    }
                    freed = true;
                }
                changed(side, span.into());
            }
        }
        freed
    }

    /// Makes the sets anew from the layers.
    fn rebuild(&mut self) {
        self.unreserved = unreserved(&self.ranges);
        for side in Side::BOTH {
            if side == Side::Udp && self.udp.is_none() {
                continue;
            }
            let mut free = self.unreserved.clone();
            for held in self.held_on(side).runs_in(Span::ALL) {
                free.remove(held);
            }
            let foreign = self.strangers.on(side);
            for span in foreign.runs_in(Span::ALL) {
                free.remove(span);
            }
            let mut rests = NumberSet::EMPTY;
            for cooled in self.cooling_on(side).by_age() {
                free.remove(cooled.span);
                for span in self.unreserved.runs_in(cooled.span) {
                    rests.insert(span);
                }
            }
            for span in foreign.runs_in(Span::ALL) {
                rests.remove(span);
            }
            let numbers = self.numbers_mut(side);
            (numbers.free, numbers.rests) = (free, rests);
        }
    }

    /// Every number that a replica holds on one side. Cost: linear in the host's grants.
    pub(super) fn held_on(&self, side: Side) -> NumberSet {
        let sides = self
            .holdings
            .iter()
            .flat_map(super::holdings::Holding::sides);
        sides
            .filter(|(taken, _)| *taken == side)
            .map(|(_, span)| span)
            .collect()
    }

    /// Who holds the number in a phase that `counts`; the lowest replica if several do. Cost: linear
    /// in the host's grants.
    pub(super) fn holder(
        &self,
        side: Side,
        number: u16,
        counts: impl Fn(Phase) -> bool,
    ) -> Option<(ReplicaId, Phase)> {
        let holders = self.holdings.iter().filter(|holding| {
            // Numbers first: they lie in the slot.
            holding.spans.iter().any(|span| span.contains(number))
                && counts(holding.phase)
                && holding
                    .sides()
                    .any(|(taken, span)| taken == side && span.contains(number))
        });
        let mut found = holders.map(|holding| (holding.replica, holding.phase));
        if self.contested.is_empty() {
            found.next()
        } else {
            found.min_by_key(|(replica, _)| *replica)
        }
    }
}

/// Every number that `ranges` does not reserve.
pub(super) fn unreserved(ranges: &PoolRanges) -> NumberSet {
    let mut numbers = NumberSet::full();
    for span in spans_of(&ranges.reserved) {
        numbers.remove(span);
    }
    numbers
}
