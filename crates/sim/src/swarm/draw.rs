//! Draws of a seed, in whole numbers, so that one seed is the same run on every machine.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::cluster::chance::Chance;

/// Chance of one part of a seed.
#[derive(Clone, Debug)]
pub(super) struct Draw(Chance);

impl Draw {
    /// The chance that `label` has of this seed: draws of one part do not move those of another.
    pub(super) fn new(seed: u64, label: &str) -> Self {
        Self(Chance::of(seed).split(label))
    }

    /// One of these numbers.
    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (from, to) = range.into_inner();
        from + self.0.below(to.saturating_sub(from).saturating_add(1))
    }

    /// One of these numbers.
    pub(super) fn count(&mut self, range: RangeInclusive<u32>) -> u32 {
        let (from, to) = range.into_inner();
        u32::try_from(self.within(u64::from(from)..=u64::from(to))).unwrap_or(to)
    }

    /// True once in so many times.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.within(1..=times) == 1
    }

    /// True in so many of a hundred times.
    pub(super) fn percent(&mut self, parts: u64) -> bool {
        self.within(1..=100) <= parts
    }

    /// One of them; a list that holds one more than once has it more often.
    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place(all.len())]
    }

    /// A place in a list of this length, which is above zero.
    pub(super) fn place(&mut self, length: usize) -> usize {
        self.0.place(length)
    }

    /// A span of so many milliseconds, often a round one, so that spans meet.
    pub(super) fn span(&mut self, ms: RangeInclusive<u64>) -> Duration {
        let drawn = self.within(ms.clone());
        let round = match drawn {
            _ if self.once_in(2) => drawn,
            0..1_000 => drawn / 100 * 100,
            1_000..20_000 => drawn / 1_000 * 1_000,
            _ => drawn / 5_000 * 5_000,
        };
        Duration::from_millis(round.max(*ms.start()))
    }
}
