//! What else a number can carry beside a holder: cooling, strangers, reservation; and what happens
//! when one of these comes or goes.

use roaring::RoaringBitmap;

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{Port, PortRange, Protocol};
use crate::time::Monotonic;

use super::cooling::Cooled;
use super::numbers::Numbers;
use super::span::{Span, gaps, spans_in, spans_of};
use super::take::sides;
use super::{Draw, Foreign, Phase, PoolRanges, PortPool, Side, Stranger};

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
        for (side, number) in &gone {
            changed(*side, Span::single(*number).into());
        }
        let freed = self.settle_places(&gone);
        for foreign in list {
            let span = Span::single(foreign.port.number());
            for side in Side::of(foreign.protocol) {
                changed(side, span.into());
                self.seize(side, span);
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
            self.seize(side, Span::single(port.number()));
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
            let held = self.held_set(side);
            let free: Vec<Span> = gaps(spans_in(&held, Span::ALL), numbers.into()).collect();
            for span in free {
                self.seize(side, span);
                self.numbers_mut(side).cooling.put(Cooled {
                    span,
                    until,
                    service,
                });
            }
        }
    }

    /// Ends cooling, and rests after refused binds, that are over by `now`; their numbers are told to
    /// `changed`. Whether any was.
    pub fn end_due(&mut self, now: Monotonic, changed: &mut dyn FnMut(Side, PortRange)) -> bool {
        let mut ended = false;
        for side in Side::BOTH {
            while let Some(cooled) = self.pop_due(side, now) {
                self.settle(side, cooled.span);
                changed(side, cooled.span.into());
                ended = true;
            }
        }
        let rested = self.strangers.end_due(now);
        for (side, number) in &rested {
            changed(*side, Span::single(*number).into());
        }
        let freed = self.settle_places(&rested);
        ended || freed
    }

    fn pop_due(&mut self, side: Side, now: Monotonic) -> Option<Cooled> {
        let untouched = self.numbers(side).is_none_or(|n| n.cooling.is_empty());
        if untouched {
            return None;
        }
        self.numbers_mut(side).cooling.pop_due(now)
    }

    /// Frees what carries no layer any more of numbers that nobody holds.
    pub(super) fn settle(&mut self, side: Side, span: Span) {
        let cooling = self
            .numbers(side)
            .is_some_and(|numbers| numbers.cooling.within(span).next().is_some());
        let reserved = spans_of(&self.ranges.reserved).any(|r| r.overlap(span).is_some());
        if !cooling && !reserved && self.strangers.is_empty() {
            self.give(side, span);
            return;
        }
        for number in span.numbers() {
            if !self.is_layered(side, number) {
                self.give(side, Span::single(number));
            }
        }
    }

    /// Frees those of `places` that carry no layer any more and that nobody holds. Whether any was.
    fn settle_places(&mut self, places: &[(Side, u16)]) -> bool {
        if places.is_empty() {
            return false;
        }
        let mut freed = false;
        for side in Side::BOTH {
            let held = self.held_set(side);
            for (_, number) in places.iter().filter(|(place, _)| *place == side) {
                if !held.contains(u32::from(*number)) {
                    self.settle(side, Span::single(*number));
                    freed = true;
                }
            }
        }
        freed
    }

    /// Whether the number cools, is foreign or is reserved.
    fn is_layered(&self, side: Side, number: u16) -> bool {
        let cools = self
            .numbers(side)
            .is_some_and(|numbers| numbers.cooling.at(number).is_some());
        cools || self.strangers.at(side, number).is_some() || self.is_reserved(number)
    }

    /// Makes the free sets anew from the layers.
    fn rebuild(&mut self) {
        for side in Side::BOTH {
            if self.numbers(side).is_none() {
                continue;
            }
            let mut free = Numbers::unreserved(&self.ranges.reserved).free;
            free -= self.held_set(side);
            for (place, number) in self.strangers.places() {
                if place == side {
                    free.remove(u32::from(number));
                }
            }
            let numbers = self.numbers_mut(side);
            for cooled in numbers.cooling.by_age() {
                free.remove_range(cooled.span.bits());
            }
            numbers.free = free;
        }
    }

    /// Every number that a replica holds on one side. Cost: linear in the host's grants.
    fn held_set(&self, side: Side) -> RoaringBitmap {
        let mut held = RoaringBitmap::new();
        for (_, grant, _) in self.held_grants() {
            for (_, span) in sides(grant).filter(|(taken, _)| *taken == side) {
                held.insert_range(span.bits());
            }
        }
        held
    }

    /// Who holds the number in a phase that `counts`; the lowest replica if several do. Cost: linear
    /// in the host's grants.
    pub(super) fn holder(
        &self,
        side: Side,
        number: u16,
        counts: impl Fn(Phase) -> bool,
    ) -> Option<(ReplicaId, Phase)> {
        self.held_grants()
            .filter(|(_, _, phase)| counts(*phase))
            .find(|(_, grant, _)| {
                sides(grant).any(|(taken, span)| taken == side && span.contains(number))
            })
            .map(|(replica, _, phase)| (replica, phase))
    }
}
