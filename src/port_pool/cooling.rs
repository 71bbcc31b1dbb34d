//! The numbers of one side that rest after their release, as a queue by age.
//!
//! Nearly all that is released later rests longer, so that a release is a push at one end and the
//! end of a rest a pop at the other. Who looks for one number walks the queue: that is asked only of
//! a number that is known to rest, and costs microseconds at worst.

use std::collections::VecDeque;

use crate::identity::ServiceId;
use crate::time::Monotonic;

use super::Side;
use super::span::Span;

/// Consecutive numbers that rest as long for one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cooled {
    pub(super) span: Span,
    pub(super) until: Monotonic,
    pub(super) service: ServiceId,
}

impl Cooled {
    /// Where it stands in the queue.
    const fn place(&self) -> (Monotonic, u16) {
        (self.until, self.span.first)
    }

    /// Whether both are one run.
    pub(super) fn continues_as(&self, next: Self) -> bool {
        self.until == next.until && self.service == next.service && self.span.is_before(next.span)
    }

    /// What is left below and above of a window that it shares numbers with.
    fn left_by(&self, window: Span) -> [Option<Span>; 2] {
        let (first, last) = (self.span.first, self.span.last);
        let above = window.last.checked_add(1);
        [
            Span::new(first, window.first - 1),
            above.and_then(|above| Span::new(above, last)),
        ]
    }
}

/// Resting numbers. Invariant: the runs are disjoint and ordered by end of rest, then number;
/// neighbours of one end and service are one run. So equal rests are equal queues.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cooling(VecDeque<Cooled>);

impl Clone for Cooling {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}

impl Cooling {
    /// No resting number. Allocates nothing.
    pub(super) const EMPTY: Self = Self(VecDeque::new());

    /// The memory beside the value itself.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Cooled>()
    }

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
        let new = cooled.place();
        let at = match self.0.back() {
            Some(last) if last.place() > new => self.0.partition_point(|other| other.place() < new),
            _ => self.0.len(),
        };
        let below = at.checked_sub(1).and_then(|below| self.0.get(below));
        let joins_below = below.is_some_and(|below| below.continues_as(cooled));
        let joins_above = (self.0.get(at)).is_some_and(|above| cooled.continues_as(*above));
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
    /// is told, oldest first. Cost: linear in the runs.
    pub(super) fn cut(&mut self, window: Span, most: u32, was: &mut dyn FnMut(Cooled)) {
        let overlapping = |cooled: &Cooled| cooled.span.overlap(window).is_some();
        let first = match self.0.iter().position(overlapping) {
            Some(first) if most > 0 => first,
            _ => return,
        };
        let cooled = self.0[first];
        let part = cooled.span.overlap(window).unwrap_or(cooled.span);
        if part == window || part.count() >= most {
            was(Cooled {
                span: part,
                ..cooled
            });
            self.shorten(first, cooled.left_by(window));
            return;
        }
        // Several: each goes or is left with one part, in one pass.
        self.0.retain_mut(|cooled| {
            let Some(span) = cooled.span.overlap(window) else {
                return true;
            };
            was(Cooled { span, ..*cooled });
            let [below, above] = cooled.left_by(window);
            let rest = below.or(above);
            cooled.span = rest.unwrap_or(span);
            rest.is_some()
        });
    }

    fn shorten(&mut self, at: usize, left: [Option<Span>; 2]) {
        match left {
            [Some(below), Some(span)] => {
                let above = Cooled { span, ..self.0[at] };
                self.0[at].span = below;
                self.0.insert(at + 1, above);
            }
            [Some(rest), None] | [None, Some(rest)] => self.0[at].span = rest,
            [None, None] => {
                self.0.remove(at);
            }
        }
    }

    /// Puts back those of `parts` that were cut from this side, as [`Self::put`] would one after the
    /// other. `parts` may be left in another order. Cost: linear in the runs, however many come back.
    pub(super) fn put_back(&mut self, parts: &mut [(Side, Cooled)], side: Side) {
        const FEW: usize = 4;
        if parts.len() <= FEW {
            for (_, cooled) in parts.iter().filter(|(of, _)| *of == side) {
                self.put(*cooled);
            }
            return;
        }
        parts.sort_unstable_by_key(|(side, cooled)| (*side, cooled.place()));
        let from = parts.partition_point(|(of, _)| *of < side);
        let to = parts.partition_point(|(of, _)| *of <= side);
        let parts = &parts[from..to];
        let Some((_, last)) = parts.last() else {
            return;
        };
        // Merged from the end, so that each run moves once.
        let (mut old, mut new) = (self.0.len(), parts.len());
        self.0.resize(old + new, *last);
        while new > 0 {
            let (_, part) = parts[new - 1];
            let earlier = old.checked_sub(1).map(|at| self.0[at]);
            match earlier.filter(|earlier| earlier.place() > part.place()) {
                Some(earlier) => {
                    self.0[old + new - 1] = earlier;
                    old -= 1;
                }
                None => {
                    self.0[old + new - 1] = part;
                    new -= 1;
                }
            }
        }
        let mut kept = 0;
        for at in 1..self.0.len() {
            let next = self.0[at];
            if self.0[kept].continues_as(next) {
                self.0[kept].span.last = next.span.last;
            } else {
                kept += 1;
                self.0[kept] = next;
            }
        }
        self.0.truncate(kept + 1);
    }

    /// Takes out the oldest run that is cool by `now`.
    pub(super) fn pop_due(&mut self, now: Monotonic) -> Option<Cooled> {
        let due = self.0.front()?.until <= now;
        due.then(|| self.0.pop_front()).flatten()
    }

    /// Forgets every run, and keeps the room.
    pub(super) fn clear(&mut self) {
        self.0.clear();
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
            let mut one_by_one = queue.clone();
            for part in &parts {
                one_by_one.put(*part);
            }
            prop_assert_eq!(&one_by_one, &before);
            let mut parts: Vec<_> = parts.into_iter().map(|part| (Side::Tcp, part)).collect();
            queue.put_back(&mut parts, Side::Tcp);
            prop_assert_eq!(queue, before);
        }
    }
}
