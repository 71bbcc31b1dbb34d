//! Numbers as a list of runs.

use super::span::Span;

/// Runs, ascending; neither touching nor overlapping.
pub(super) struct Runs {
    pub(super) runs: Vec<Span>,
    /// Where numbers were last taken out: a search that goes on from there finds its place at once.
    /// Nothing but a hint, which is looked at before it is believed.
    near: usize,
}

/// How many runs are kept as runs: 1 KiB of them.
pub(super) const MOST_RUNS: usize = 256;

impl Clone for Runs {
    fn clone(&self) -> Self {
        Self {
            runs: self.runs.clone(),
            near: self.near,
        }
    }

    fn clone_from(&mut self, source: &Self) {
        refill(&mut self.runs, &source.runs);
        self.near = source.near;
    }
}

/// Makes `to` a copy of `from` with room for some more: a copy that is made again and again seldom grows.
pub(super) fn refill<T: Copy>(to: &mut Vec<T>, from: &[T]) {
    to.clear();
    let more = from.len() / 4 + 8;
    to.reserve((from.len() + more).next_power_of_two());
    to.extend_from_slice(from);
}

impl Runs {
    pub(super) const fn new(runs: Vec<Span>) -> Self {
        Self { runs, near: 0 }
    }

    /// The place of the first run that ends at `number` or later.
    pub(super) fn seek(&self, number: u16) -> usize {
        let reaches = |at: usize| self.runs.get(at).is_some_and(|run| run.last >= number);
        if reaches(self.near) && (self.near == 0 || !reaches(self.near - 1)) {
            return self.near;
        }
        self.runs.partition_point(|run| run.last < number)
    }

    /// The parts of `window` that it holds, ascending.
    pub(super) fn overlaps(&self, window: Span) -> impl Iterator<Item = Span> + '_ {
        let from = self.seek(window.first);
        self.runs[from..]
            .iter()
            .map_while(move |run| run.overlap(window))
    }

    /// Adds the numbers of `span` and returns how many are new; `None`, and nothing is done, if that
    /// would be too many runs.
    pub(super) fn insert(&mut self, span: Span) -> Option<u32> {
        // Runs that touch the span become one with it.
        let below = span.first - 1;
        let from = self.runs.partition_point(|run| run.last < below);
        let above = span.last.saturating_add(1);
        let (mut merged, mut known, mut to) = (span, 0, from);
        while let Some(run) = self.runs.get(to).filter(|run| run.first <= above) {
            known += run.overlap(span).map_or(0, Span::count);
            merged.first = merged.first.min(run.first);
            merged.last = merged.last.max(run.last);
            to += 1;
        }
        if to == from {
            if self.runs.len() == MOST_RUNS {
                return None;
            }
            self.runs.insert(from, merged);
            self.near += usize::from(from <= self.near);
        } else {
            self.runs[from] = merged;
            if to > from + 1 {
                self.runs.drain(from + 1..to);
                if from < self.near {
                    self.near = self.near.saturating_sub(to - from - 1);
                }
            }
        }
        Some(span.count() - known)
    }

    /// Takes the numbers of `span` out and returns how many were there; `None`, and nothing is done,
    /// if that would be too many runs.
    pub(super) fn remove(&mut self, span: Span) -> Option<u32> {
        let from = self.seek(span.first);
        let (mut gone, mut to) = (0, from);
        while let Some(part) = self.runs.get(to).and_then(|run| run.overlap(span)) {
            gone += part.count();
            to += 1;
        }
        if to == from {
            return Some(0);
        }
        let below = Span::new(self.runs[from].first, span.first - 1);
        let above = span.last.checked_add(1);
        let above = above.and_then(|first| Span::new(first, self.runs[to - 1].last));
        self.near = from + usize::from(below.is_some());
        match (below, above) {
            (Some(below), Some(above)) if to == from + 1 => {
                if self.runs.len() == MOST_RUNS {
                    return None;
                }
                self.runs[from] = below;
                self.runs.insert(to, above);
            }
            (Some(below), Some(above)) => {
                self.runs[from] = below;
                self.runs[to - 1] = above;
                self.runs.drain(from + 1..to - 1);
            }
            (Some(rest), None) | (None, Some(rest)) => {
                self.runs[from] = rest;
                self.runs.drain(from + 1..to);
            }
            (None, None) => {
                self.runs.drain(from..to);
            }
        }
        Some(gone)
    }
}
