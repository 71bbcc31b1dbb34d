//! Draws of a seed, in whole numbers, so that one seed is the same run on every machine.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Chance of one part of a seed.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    state: u64,
}

impl Draw {
    /// The chance that `label` has of this seed: draws of one part do not move those of another.
    pub(super) fn new(seed: u64, label: &str) -> Self {
        let mut state = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in label.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self { state }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of these numbers.
    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (from, to) = range.into_inner();
        from + self.next() % (to.saturating_sub(from) + 1)
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
        let last = u64::try_from(length - 1).unwrap_or(u64::MAX);
        usize::try_from(self.within(0..=last)).unwrap_or(0)
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
