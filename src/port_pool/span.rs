//! Runs of consecutive numbers, and the walks over sorted runs that the search for ports is made of.
//!
//! Nothing here allocates: intersections are walked, never built.

use std::iter::Peekable;
use std::ops::RangeInclusive;

use crate::port::{Port, PortRange, PortRanges};

/// Consecutive numbers in 1..=65535, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) first: u16,
    pub(super) last: u16,
}

impl Span {
    /// Every number.
    pub(super) const ALL: Self = Self {
        first: 1,
        last: u16::MAX,
    };

    /// Stands where a run is still missing: 0 is no number.
    pub(super) const MISSING: Self = Self { first: 0, last: 0 };

    pub(super) const fn is_missing(self) -> bool {
        self.first == 0
    }

    pub(super) const fn single(number: u16) -> Self {
        Self {
            first: number,
            last: number,
        }
    }

    /// `first` to `last`, or nothing if they are reversed.
    pub(super) fn new(first: u16, last: u16) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    pub(super) const fn count(self) -> u32 {
        self.last as u32 - self.first as u32 + 1
    }

    pub(super) const fn contains(self, number: u16) -> bool {
        self.first <= number && number <= self.last
    }

    /// The numbers in both.
    pub(super) fn overlap(self, other: Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    pub(super) const fn numbers(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    /// Whether `next` begins right after it ends.
    pub(super) const fn is_before(self, next: Self) -> bool {
        self.last < next.first && next.first - self.last == 1
    }
}

impl From<PortRange> for Span {
    fn from(range: PortRange) -> Self {
        Self {
            first: range.first().number(),
            last: range.last().number(),
        }
    }
}

impl From<Span> for PortRange {
    fn from(span: Span) -> Self {
        Port::new(span.first)
            .zip(Port::new(span.last))
            .and_then(|(first, last)| Self::new(first, last))
            .expect("a span is never reversed and never holds 0")
    }
}

/// The runs of `ranges`, ascending.
pub(super) fn spans_of(ranges: &PortRanges) -> impl Iterator<Item = Span> + Clone + '_ {
    ranges.as_slice().iter().map(|range| Span::from(*range))
}

/// The runs of `ranges` inside `window`, ascending, cut at its ends. Cost: a binary search, then each.
pub(super) fn spans_within(
    ranges: &PortRanges,
    window: Span,
) -> impl Iterator<Item = Span> + Clone + '_ {
    let all = ranges.as_slice();
    let from = all.partition_point(|range| range.last().number() < window.first);
    all[from..]
        .iter()
        .map_while(move |range| Span::from(*range).overlap(window))
}

/// The runs of `window` that lie between the runs of `taken`.
pub(super) fn gaps(taken: impl Iterator<Item = Span>, window: Span) -> impl Iterator<Item = Span> {
    let mut from = Some(window.first);
    let mut taken = taken.skip_while(move |span| span.last < window.first);
    std::iter::from_fn(move || {
        loop {
            let start = from.filter(|start| *start <= window.last)?;
            let Some(next) = taken.next() else {
                from = None;
                return Span::new(start, window.last);
            };
            from = next.last.checked_add(1);
            if next.first > start {
                return Span::new(start, window.last.min(next.first - 1));
            }
        }
    })
}

/// The numbers in both of two ascending sequences of runs.
pub(super) struct Overlaps<A: Iterator<Item = Span>, B: Iterator<Item = Span>> {
    a: Peekable<A>,
    b: Peekable<B>,
}

/// Walks the numbers that `a` and `b` have in common.
pub(super) fn overlaps<A, B>(a: A, b: B) -> Overlaps<A, B>
where
    A: Iterator<Item = Span>,
    B: Iterator<Item = Span>,
{
    Overlaps {
        a: a.peekable(),
        b: b.peekable(),
    }
}

impl<A, B> Iterator for Overlaps<A, B>
where
    A: Iterator<Item = Span>,
    B: Iterator<Item = Span>,
{
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        loop {
            let (a, b) = (*self.a.peek()?, *self.b.peek()?);
            if a.last <= b.last {
                self.a.next();
            } else {
                self.b.next();
            }
            if let Some(both) = a.overlap(b) {
                return Some(both);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::number_set::NumberSet;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn spans(numbers: &BTreeSet<u16>) -> Vec<Span> {
        let set: NumberSet = numbers.iter().map(|number| Span::single(*number)).collect();
        set.runs_in(Span::ALL).collect()
    }

    fn edge_heavy() -> impl Strategy<Value = BTreeSet<u16>> {
        let number = prop_oneof![1u16..40, 65_500u16..=65_535];
        proptest::collection::btree_set(number, 0..40)
    }

    proptest! {
        // Each case walks all 65,535 numbers: a tenth of what others try.
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(10)))]

        #[test]
        fn walks_over_runs_agree_with_sets(a in edge_heavy(), b in edge_heavy()) {
            let both: BTreeSet<u16> = a.intersection(&b).copied().collect();
            let neither: BTreeSet<u16> = (1..=u16::MAX).filter(|n| !a.contains(n)).collect();
            let (a, b) = (spans(&a), spans(&b));
            let walked = |spans: &mut dyn Iterator<Item = Span>| -> BTreeSet<u16> {
                spans.flat_map(Span::numbers).collect()
            };
            prop_assert_eq!(walked(&mut overlaps(a.iter().copied(), b.iter().copied())), both);
            prop_assert_eq!(
                gaps(a.iter().copied(), Span::ALL).collect::<Vec<_>>(),
                spans(&neither)
            );
        }
    }
}
