//! Single numbers of one side for ports that ask alike: one walk answers all of them.

use super::number_set::NumberSet;
use super::span::{Span, spans_within};
use super::{PortPool, Side};

/// The numbers of one side, walked for ports that want any one of them each.
pub(super) struct Walk<'a> {
    pub(super) pool: &'a PortPool,
    pub(super) side: Side,
    pub(super) awaited: [&'a NumberSet; 2],
    /// What other ports of the request have.
    pub(super) picked: &'a NumberSet,
}

impl Walk<'_> {
    /// Tells `found` up to `many` numbers: free ones from `start` on, then what cools, oldest first.
    /// Returns how many.
    pub(super) fn singles(
        &self,
        start: u16,
        many: usize,
        mut found: impl FnMut(usize, u16),
    ) -> usize {
        let mut count = 0;
        if self.pool.free_count(self.side.protocol()) > 0 {
            count = self.free(Span::new(start, Span::ALL.last), count, many, &mut found);
            if count < many {
                let before = Span::new(Span::ALL.first, start - 1);
                count = self.free(before, count, many, &mut found);
            }
        }
        if count < many && !self.pool.resting_on(self.side).is_empty() {
            count = self.resting(count, many, &mut found);
        }
        count
    }

    fn free(
        &self,
        window: Option<Span>,
        count: usize,
        many: usize,
        found: &mut impl FnMut(usize, u16),
    ) -> usize {
        let mut count = count;
        let (pool, is_spoken_for) = (self.pool, self.is_any_spoken_for());
        let free = pool.free_on(self.side);
        let windows = window
            .into_iter()
            .flat_map(|window| spans_within(&pool.ranges.dynamic, window));
        for offered in windows {
            let mut rest = Some(offered);
            while let Some(here) = rest {
                let missing = u32::try_from(many - count).unwrap_or(u32::MAX);
                let Some(run) = free.run_from(here, missing) else {
                    break;
                };
                for number in run.numbers() {
                    if !(is_spoken_for && self.is_spoken_for(number)) {
                        found(count, number);
                        count += 1;
                    }
                }
                if count == many {
                    return count;
                }
                let after = run.last.checked_add(1);
                rest = after.and_then(|first| Span::new(first, here.last));
            }
        }
        count
    }

    fn resting(&self, count: usize, many: usize, found: &mut impl FnMut(usize, u16)) -> usize {
        let mut count = count;
        let (pool, resting) = (self.pool, self.pool.resting_on(self.side));
        for cooled in pool.cooling_on(self.side).by_age() {
            for offered in spans_within(&pool.ranges.dynamic, cooled.span) {
                for number in offered.numbers() {
                    if count == many {
                        return count;
                    }
                    if resting.contains(number) && !self.is_spoken_for(number) {
                        found(count, number);
                        count += 1;
                    }
                }
            }
        }
        count
    }

    fn is_any_spoken_for(&self) -> bool {
        let [anywhere, here] = self.awaited;
        !anywhere.is_empty() || !here.is_empty() || !self.picked.is_empty()
    }

    /// Whether a waiting request or another port of this one names the number.
    fn is_spoken_for(&self, number: u16) -> bool {
        let [anywhere, here] = self.awaited;
        anywhere.contains(number) || here.contains(number) || self.picked.contains(number)
    }
}
