//! The numbers of one side that rest after their release, found by number and by age.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::ServiceId;
use crate::time::Monotonic;

use super::span::Span;

/// Consecutive numbers released together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cooled {
    pub(super) span: Span,
    pub(super) until: Monotonic,
    pub(super) service: ServiceId,
}

/// Resting numbers. Invariant: the runs are disjoint, and both maps hold the same runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cooling {
    by_number: BTreeMap<u16, Cooled>,
    by_age: BTreeSet<(Monotonic, u16)>,
}

impl Cooling {
    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// When the first run is cool.
    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.by_age.first().map(|(until, _)| *until)
    }

    /// The run that `number` rests in.
    pub(super) fn at(&self, number: u16) -> Option<&Cooled> {
        let (_, cooled) = self.by_number.range(..=number).next_back()?;
        cooled.span.contains(number).then_some(cooled)
    }

    /// Every run that touches `window`, ascending by number.
    pub(super) fn within(&self, window: Span) -> impl Iterator<Item = &Cooled> {
        let from = self.at(window.first).map_or(window.first, |c| c.span.first);
        self.by_number
            .range(from..=window.last)
            .map(|(_, cooled)| cooled)
    }

    /// Every run, oldest first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = &Cooled> {
        self.by_age
            .iter()
            .filter_map(|(_, first)| self.by_number.get(first))
    }

    /// Lets `cooled` rest; what rested on its numbers before is forgotten.
    pub(super) fn put(&mut self, cooled: Cooled) {
        self.cut(cooled.span, &mut |_| {});
        self.insert(cooled);
    }

    /// Takes the numbers of `window` out. Each run that changes is told as it was before.
    pub(super) fn cut(&mut self, window: Span, was: &mut dyn FnMut(Cooled)) {
        while let Some(cooled) = self.first_within(window) {
            was(cooled);
            self.remove(cooled);
            let below = window.first.checked_sub(1);
            let above = window.last.checked_add(1);
            let below = below.and_then(|last| Span::new(cooled.span.first, last));
            let above = above.and_then(|first| Span::new(first, cooled.span.last));
            for span in [below, above].into_iter().flatten() {
                self.insert(Cooled { span, ..cooled });
            }
        }
    }

    /// Puts back a run that [`Self::cut`] told of, in reverse order of the cuts.
    pub(super) fn uncut(&mut self, was: Cooled) {
        while let Some(rest) = self.first_within(was.span) {
            self.remove(rest);
        }
        self.insert(was);
    }

    /// Takes out the oldest run that is cool by `now`.
    pub(super) fn pop_due(&mut self, now: Monotonic) -> Option<Cooled> {
        let (until, first) = *self.by_age.first()?;
        if until > now {
            return None;
        }
        let cooled = *self.by_number.get(&first)?;
        self.remove(cooled);
        Some(cooled)
    }

    fn first_within(&self, window: Span) -> Option<Cooled> {
        self.within(window).next().copied()
    }

    fn insert(&mut self, cooled: Cooled) {
        let first = cooled.span.first;
        self.by_age.insert((cooled.until, first));
        let other = self.by_number.insert(first, cooled);
        debug_assert_eq!(other, None, "{first} rested twice at once");
    }

    fn remove(&mut self, cooled: Cooled) {
        self.by_number.remove(&cooled.span.first);
        self.by_age.remove(&(cooled.until, cooled.span.first));
    }
}
