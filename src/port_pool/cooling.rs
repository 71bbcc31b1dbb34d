//! The numbers of one side that rest after their release, as a queue by age.
//!
//! Nearly all that is released later rests longer, so that a release is a push at one end and the
//! end of a rest a pop at the other. Who looks for one number walks the queue: that is asked only of
//! a number that is known to rest, and costs microseconds at worst.

use std::collections::VecDeque;

use crate::identity::ServiceId;
use crate::time::Monotonic;

use super::span::Span;

/// Consecutive numbers that rest as long for one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cooled {
    pub(super) span: Span,
    pub(super) until: Monotonic,
    pub(super) service: ServiceId,
}

/// Resting numbers. Invariant: the runs are disjoint and ordered by end of rest, then number;
/// neighbours of one end and service are one run. So equal rests are equal queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cooling(VecDeque<Cooled>);

impl Cooling {
    /// No resting number. Allocates nothing.
    pub(super) const EMPTY: Self = Self(VecDeque::new());

    /// When the first run is cool.
    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.0.front().map(|cooled| cooled.until)
    }

    /// The run that `number` rests in. Cost: linear in the runs.
    pub(super) fn at(&self, number: u16) -> Option<&Cooled> {
        self.0.iter().find(|cooled| cooled.span.contains(number))
    }

    /// Every run, oldest first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = &Cooled> {
        self.0.iter()
    }

    /// Every run, ascending by number. Cost: sorts them.
    pub(super) fn by_number(&self) -> Vec<Cooled> {
        let mut all: Vec<Cooled> = self.0.iter().copied().collect();
        all.sort_unstable_by_key(|cooled| cooled.span);
        all
    }

    /// Lets numbers rest that do not rest yet. Cost: constant if none rests longer.
    pub(super) fn put(&mut self, cooled: Cooled) {
        let place = |other: &Cooled| (other.until, other.span.first);
        let new = place(&cooled);
        let at = match self.0.back() {
            Some(last) if place(last) > new => self.0.partition_point(|other| place(other) < new),
            _ => self.0.len(),
        };
        let alike = |other: &Cooled| other.until == cooled.until && other.service == cooled.service;
        let below = at.checked_sub(1).and_then(|below| self.0.get(below));
        let joins_below =
            below.is_some_and(|below| alike(below) && below.span.is_before(cooled.span));
        let above = self.0.get(at);
        let joins_above =
            above.is_some_and(|above| alike(above) && cooled.span.is_before(above.span));
        match (joins_below, joins_above) {
            (true, true) => {
                self.0[at - 1].span.last = self.0[at].span.last;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].span.last = cooled.span.last,
            (false, true) => self.0[at].span.first = cooled.span.first,
            (false, false) => self.0.insert(at, cooled),
        }
    }

    /// Takes the numbers of `window` out, of which no more than `most` rest. Each part that rested
    /// is told. Cost: linear in the runs, oldest first, until `most` were found.
    pub(super) fn cut(&mut self, window: Span, most: u32, was: &mut dyn FnMut(Cooled)) {
        let (mut left, mut at) = (most, 0);
        while left > 0
            && let Some(cooled) = self.0.get(at).copied()
        {
            let Some(part) = cooled.span.overlap(window) else {
                at += 1;
                continue;
            };
            left = left.saturating_sub(part.count());
            was(Cooled {
                span: part,
                ..cooled
            });
            let below = Span::new(cooled.span.first, part.first - 1);
            let above = part.last.checked_add(1);
            let above = above.and_then(|first| Span::new(first, cooled.span.last));
            match (below, above) {
                (Some(below), Some(above)) => {
                    self.0[at].span = below;
                    let above = Cooled {
                        span: above,
                        ..cooled
                    };
                    self.0.insert(at + 1, above);
                    at += 2;
                }
                (Some(rest), None) | (None, Some(rest)) => {
                    self.0[at].span = rest;
                    at += 1;
                }
                (None, None) => {
                    self.0.remove(at);
                }
            }
        }
    }

    /// Takes out the oldest run that is cool by `now`.
    pub(super) fn pop_due(&mut self, now: Monotonic) -> Option<Cooled> {
        let due = self.0.front()?.until <= now;
        due.then(|| self.0.pop_front()).flatten()
    }

    /// Gives spare memory back.
    pub(super) fn compact(&mut self) {
        self.0.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn cooled(first: u16, last: u16, until: u64, service: u64) -> Cooled {
        Cooled {
            span: Span { first, last },
            until: Monotonic::from_millis(until),
            service: ServiceId(service),
        }
    }

    proptest! {
        #[test]
        fn a_cut_that_is_put_back_leaves_the_same_queue_and_no_number_is_lost(
            puts in proptest::collection::vec((0u16..40, 0u16..6, 1u64..4, 0u64..2), 0..30),
            windows in proptest::collection::vec((1u16..60, 0u16..20), 1..6),
        ) {
            let mut queue = Cooling::default();
            let mut model: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
            for (first, more, until, service) in puts {
                let (first, last) = (first + 1, first + 1 + more);
                queue.cut(Span { first, last }, u32::MAX, &mut |_| {});
                queue.put(cooled(first, last, until, service));
                model.extend((first..=last).map(|number| (number, (until, service))));
            }
            let before = queue.clone();
            let mut parts = Vec::new();
            for (first, more) in windows {
                let window = Span { first, last: first + more };
                let mut told = BTreeMap::new();
                queue.cut(window, u32::MAX, &mut |part| {
                    told.extend(part.span.numbers().map(|n| {
                        (n, (part.until.as_millis(), part.service.0))
                    }));
                    parts.push(part);
                });
                let inside: BTreeMap<_, _> = model.range(window.numbers())
                    .map(|(number, rest)| (*number, *rest))
                    .collect();
                prop_assert_eq!(&told, &inside);
                model.retain(|number, _| !window.contains(*number));
                for number in 1..=60 {
                    prop_assert_eq!(queue.at(number).is_some(), model.contains_key(&number));
                }
            }
            let ends: Vec<_> = queue.by_age().map(|c| (c.until, c.span.first)).collect();
            prop_assert!(ends.is_sorted());
            for part in parts {
                queue.put(part);
            }
            prop_assert_eq!(queue, before);
        }
    }
}
