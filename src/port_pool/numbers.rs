//! The numbers of one side: the free set, what rests, and how many of the dynamic range are free.

use roaring::RoaringBitmap;

use crate::port::PortRanges;

use super::cooling::Cooling;
use super::span::{Span, gaps, overlaps, spans_in, spans_of};
use super::{PortPool, Side};

/// One side of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Numbers that carry no layer at all, over 1..=65535.
    pub(super) free: RoaringBitmap,
    pub(super) cooling: Cooling,
}

impl Numbers {
    /// Everything free but `reserved`.
    pub(super) fn unreserved(reserved: &PortRanges) -> Self {
        let mut free = RoaringBitmap::new();
        free.insert_range(Span::ALL.bits());
        for span in spans_of(reserved) {
            free.remove_range(span.bits());
        }
        Self {
            free,
            cooling: Cooling::default(),
        }
    }
}

/// Free numbers of the dynamic range, counted as they come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) tcp: u32,
    pub(super) udp: u32,
    pub(super) both: u32,
}

impl PortPool {
    /// Takes `span` out of the free set; numbers that are not free stay as they are.
    pub(super) fn seize(&mut self, side: Side, span: Span) {
        self.move_counted(side, span, |free, span| free.remove_range(span.bits()));
    }

    /// Puts `span`, which carries no layer, into the free set.
    pub(super) fn give(&mut self, side: Side, span: Span) {
        self.move_counted(side, span, |free, span| free.insert_range(span.bits()));
    }

    /// Applies `change` to `span`, and counts what that does to the dynamic part of it.
    fn move_counted(
        &mut self,
        side: Side,
        span: Span,
        change: impl Fn(&mut RoaringBitmap, Span) -> u64,
    ) {
        // Lent out for the loop, which changes everything but the ranges.
        let dynamic = std::mem::take(&mut self.ranges.dynamic);
        self.numbers_mut(side);
        for part in overlaps(spans_of(&dynamic), std::iter::once(span)) {
            let both_before = self.free_on_both(part);
            let one_before = self.free_on(side, part);
            change(&mut self.numbers_mut(side).free, part);
            let one_after = self.free_on(side, part);
            let one = match side {
                Side::Tcp => &mut self.free.tcp,
                Side::Udp => &mut self.free.udp,
            };
            *one -= one_before;
            *one += one_after;
            self.free.both -= both_before;
            self.free.both += self.free_on_both(part);
        }
        self.ranges.dynamic = dynamic;
        change(&mut self.numbers_mut(side).free, span);
    }

    /// Counts the whole dynamic range anew: after a change of the ranges.
    pub(super) fn count_free(&mut self) {
        let mut free = Free::default();
        for part in spans_of(&self.ranges.dynamic) {
            free.tcp += self.free_on(Side::Tcp, part);
            free.udp += self.free_on(Side::Udp, part);
            free.both += self.free_on_both(part);
        }
        self.free = free;
    }

    fn free_on(&self, side: Side, part: Span) -> u32 {
        self.free_spans(side, part).map(Span::count).sum()
    }

    fn free_on_both(&self, part: Span) -> u32 {
        match self.udp {
            // Whatever is free on the TCP side is not reserved, so it is free on the other too.
            None => self.free_on(Side::Tcp, part),
            Some(_) => overlaps(
                self.free_spans(Side::Tcp, part),
                self.free_spans(Side::Udp, part),
            )
            .map(Span::count)
            .sum(),
        }
    }

    /// The free runs of one side inside `window`, ascending.
    pub(super) fn free_spans(&self, side: Side, window: Span) -> impl Iterator<Item = Span> + '_ {
        let numbers = self.numbers(side);
        let untouched = numbers
            .is_none()
            .then(|| gaps(spans_of(&self.ranges.reserved), window));
        numbers
            .into_iter()
            .flat_map(move |numbers| spans_in(&numbers.free, window))
            .chain(untouched.into_iter().flatten())
    }

    /// The free sets as they would be stored, to hold undo against.
    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for numbers in Side::BOTH.into_iter().filter_map(|side| self.numbers(side)) {
            numbers.free.serialize_into(&mut bytes).unwrap();
        }
        bytes
    }
}
