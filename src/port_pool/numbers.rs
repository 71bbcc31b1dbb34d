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

/// Whether free numbers are added or taken.
#[derive(Clone, Copy)]
enum Sign {
    More,
    Less,
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
        self.move_counted(side, span, Sign::Less, |free, span| {
            free.remove_range(span.bits())
        });
    }

    /// Puts `span`, which carries no layer, into the free set.
    pub(super) fn give(&mut self, side: Side, span: Span) {
        self.move_counted(side, span, Sign::More, |free, span| {
            free.insert_range(span.bits())
        });
    }

    /// Applies `change` to `span`, and counts what that does to the dynamic part of it.
    fn move_counted(
        &mut self,
        side: Side,
        span: Span,
        sign: Sign,
        change: impl Fn(&mut RoaringBitmap, Span) -> u64,
    ) {
        // Lent out for the loop, which changes everything but the ranges.
        let dynamic = std::mem::take(&mut self.ranges.dynamic);
        self.numbers_mut(side);
        let (mut whole, mut rest) = (true, true);
        for part in overlaps(spans_of(&dynamic), std::iter::once(span)) {
            let moved = change(&mut self.numbers_mut(side).free, part);
            rest &= part != span;
            if moved == u64::from(part.count()) {
                self.count_moved(side, part, sign);
            } else {
                whole = false;
            }
        }
        self.ranges.dynamic = dynamic;
        if rest {
            change(&mut self.numbers_mut(side).free, span);
        }
        if !whole {
            // Some of it was so already: reports and records only.
            self.count_free();
        }
    }

    /// Counts `part`, all of which became free or stopped to be.
    fn count_moved(&mut self, side: Side, part: Span, sign: Sign) {
        let both = match (&self.udp, side) {
            (None, _) => part.count(),
            (Some(_), Side::Tcp) => self.free_on(Side::Udp, part),
            (Some(_), Side::Udp) => self.free_on(Side::Tcp, part),
        };
        let one = match side {
            Side::Tcp => &mut self.free.tcp,
            Side::Udp => &mut self.free.udp,
        };
        for (count, moved) in [(one, part.count()), (&mut self.free.both, both)] {
            match sign {
                Sign::More => *count += moved,
                Sign::Less => *count -= moved,
            }
        }
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
