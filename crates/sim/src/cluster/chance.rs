//! Chance out of a seed: the same draws on every machine.
//!
//! A part of the cluster has its own, split off by a label: how often one part draws moves nothing of another's.

use std::ops::Range;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::trace::Digest;

/// A stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    seed: u64,
    stream: Pcg64Mcg,
}

impl Chance {
    /// Parts that a probability is counted in.
    pub(crate) const WHOLE: u32 = 1_000_000;

    pub(crate) fn of(seed: u64) -> Self {
        Self {
            seed,
            stream: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// Another stream, that depends on the seed and the label alone: not on what was drawn here.
    pub(crate) fn split(&self, label: &str) -> Self {
        self.split_no(label, 0)
    }

    /// The same for one of many of a kind.
    pub(crate) fn split_no(&self, label: &str, no: u64) -> Self {
        let mut digest = Digest::default();
        digest.eat(&self.seed.to_le_bytes());
        digest.eat(label.as_bytes());
        digest.eat(&no.to_le_bytes());
        Self::of(digest.value())
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.stream.next_u64()
    }

    /// A number below `end`, all with the same chance; 0 if there is none.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The high half of a product is even enough: of 2^64 draws it is off by less than `end`.
        let product = u128::from(self.any()) * u128::from(end);
        u64::try_from(product >> 64).expect("the high half of a product of two u64 is a u64")
    }

    /// The same for places of a list.
    pub(crate) fn place(&mut self, len: usize) -> usize {
        let place = self.below(len as u64);
        usize::try_from(place).expect("a number below a usize is one")
    }

    /// Whether it happens that does so in `parts` of [`Chance::WHOLE`] cases. Draws nothing where that is certain.
    pub(crate) fn hits(&mut self, parts: u32) -> bool {
        match parts {
            0 => false,
            Self::WHOLE.. => true,
            _ => self.below(u64::from(Self::WHOLE)) < u64::from(parts),
        }
    }

    /// A whole number of milliseconds out of `range`; its start where it is empty. Draws nothing then.
    pub(crate) fn span(&mut self, range: &Range<Duration>) -> Duration {
        let (start, end) = (whole_ms(range.start), whole_ms(range.end));
        match end.checked_sub(start) {
            None | Some(0 | 1) => Duration::from_millis(start),
            Some(width) => Duration::from_millis(start + self.below(width)),
        }
    }
}

pub(super) fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_on_every_machine() {
        let mut chance = Chance::of(7).split("network");
        let drawn: Vec<u64> = (0..4).map(|_| chance.below(1000)).collect();
        assert_eq!(drawn, DRAWN);
    }

    #[test]
    fn draws_of_one_part_move_nothing_of_another() {
        let mut chance = Chance::of(7);
        let before = chance.split_no("host", 3).any();
        chance.any();
        assert_eq!(chance.split_no("host", 3).any(), before);
        assert_ne!(chance.split_no("host", 4).any(), before);
        assert_ne!(chance.split_no("disk", 3).any(), before);
    }

    #[test]
    fn draws_stay_in_bounds_and_reach_them() {
        let mut chance = Chance::of(1);
        let span = Duration::from_millis(3)..Duration::from_millis(6);
        let drawn: std::collections::BTreeSet<u64> =
            (0..100).map(|_| whole_ms(chance.span(&span))).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(chance.below(0), 0);
        assert!(!chance.hits(0));
        assert!(chance.hits(Chance::WHOLE));
        let hits = (0..10_000).filter(|_| chance.hits(250_000)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
    }

    const DRAWN: [u64; 4] = [101, 785, 232, 45];
}
