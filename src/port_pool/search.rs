//! Where numbers for one "any" can be had: in the free set from the cursor on, then in what cools.
//!
//! A block, a number on both sides, and a number that several pools must have are looked for 64
//! numbers at a time: whatever the layout, a look at all of them is a thousand words.

use smallvec::SmallVec;

use crate::port::{PortRanges, Protocol};

use super::number_bits::{mask_within, masks, whole_word};
use super::number_set::NumberSet;
use super::span::{Span, spans_within};
use super::{Ask, PortPool, Side, offered};

/// A look for the numbers of one port, beside those that the request has picked already.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) pool: &'a PortPool,
    pub(super) ask: Ask<'a>,
    /// Pools that must have the same numbers.
    pub(super) others: &'a [(&'a PortPool, Ask<'a>)],
    pub(super) protocol: Protocol,
    pub(super) within: Option<&'a PortRanges>,
    pub(super) picked: &'a [NumberSet; 2],
}

/// Which numbers count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Among {
    /// Free ones.
    Free,
    /// Free ones, and those that only cool.
    Usable,
    /// The same, awaited ones too.
    UsableIfNobodyWaited,
}

impl<'a> Search<'a> {
    /// `count` consecutive free numbers: the first at or after `start`, else the first of all.
    pub(super) fn free(&self, count: u16, start: u16) -> Option<Span> {
        if self.pool.free_count(self.protocol) < u32::from(count) {
            return None;
        }
        let after = Span::new(start, Span::ALL.last);
        // Blocks may reach over the cursor when the search comes round.
        let before = Span::new(1, start.saturating_add(count - 1).saturating_sub(1));
        let mut windows = after.into_iter().chain(before);
        windows.find_map(|window| self.first(count, window, Among::Free))
    }

    /// Numbers of which some or all cool: a single one oldest first, else the lowest run.
    pub(super) fn cooling(&self, count: u16) -> Option<Span> {
        let mut pools = self.pools();
        if !pools.any(|(pool, side, _)| !pool.resting_on(side).is_empty()) {
            return None;
        }
        let side = match (self.protocol, count) {
            (Protocol::Tcp, 1) if self.others.is_empty() => Side::Tcp,
            (Protocol::Udp, 1) if self.others.is_empty() => Side::Udp,
            _ => return self.first(count, Span::ALL, Among::Usable),
        };
        self.oldest(side)
    }

    /// What would be found if nobody waited for a number.
    pub(super) fn but_for_waiting(&self, count: u16) -> Option<Span> {
        self.first(count, Span::ALL, Among::UsableIfNobodyWaited)
    }

    /// Whether `span` is all free or cooling for the service that asks, and left alone by nobody's
    /// wish.
    pub(super) fn may_return(&self, span: Span) -> bool {
        let offer = |pool: &PortPool| {
            let mut parts = spans_within(&pool.ranges.dynamic, span);
            parts.next() == Some(span)
        };
        self.pools().all(|(pool, side, ask)| {
            let free = pool.free_on(side).count_in(span);
            let resting = pool.resting_on(side).count_in(span);
            let ours = || -> u32 {
                let parts = pool.cooling_on(side).by_age();
                parts
                    .filter(|cooled| cooled.service == ask.service)
                    .filter_map(|cooled| cooled.span.overlap(span))
                    .map(Span::count)
                    .sum()
            };
            free + resting == span.count()
                && (resting == 0 || ours() == resting)
                && offer(pool)
                && !self.picked[side.index()].touches(span)
                && !ask
                    .awaited
                    .iter()
                    .any(|awaited| awaited.on(side).touches(span))
        })
    }

    /// Whether a waiting request names the number.
    pub(super) fn is_awaited(&self, number: u16) -> bool {
        self.pools().any(|(_, side, ask)| {
            ask.awaited
                .iter()
                .any(|awaited| awaited.contains(side, number))
        })
    }

    /// Every pool with each side that is wanted.
    fn pools(&self) -> impl Iterator<Item = (&PortPool, Side, &Ask<'_>)> {
        let others = self.others.iter().map(|(pool, ask)| (*pool, ask));
        let pools = std::iter::once((self.pool, &self.ask)).chain(others);
        pools.flat_map(|(pool, ask)| Side::of(self.protocol).map(move |side| (pool, side, ask)))
    }

    fn oldest(&self, side: Side) -> Option<Span> {
        let dynamic = &self.pool.ranges.dynamic;
        let may = |number: &u16| {
            self.pool.resting_on(side).contains(*number)
                && !self.picked[side.index()].contains(*number)
                && !self.is_awaited(*number)
        };
        self.pool.cooling_on(side).by_age().find_map(|cooled| {
            offered(dynamic, self.within, cooled.span)
                .flat_map(Span::numbers)
                .find(may)
                .map(Span::single)
        })
    }

    /// The first `count` consecutive numbers inside `window`.
    fn first(&self, count: u16, window: Span, among: Among) -> Option<Span> {
        let here = Sets::new(self, self.pool, &self.ask, among);
        offered(&self.pool.ranges.dynamic, self.within, window)
            .filter(|window| window.count() >= u32::from(count))
            .find_map(|window| {
                let mut run = Run::new(count);
                masks(window).find_map(|(at, mask)| {
                    let mut word = here.word(at) & mask;
                    if word != 0 && !self.others.is_empty() {
                        word &= self.elsewhere(at, among);
                    }
                    run.end(at, word)
                })
            })
    }

    /// The numbers of one word that can be had on every other pool.
    fn elsewhere(&self, at: usize, among: Among) -> u64 {
        let Some(all) = whole_word(at) else { return 0 };
        self.others.iter().fold(u64::MAX, |word, (pool, ask)| {
            let ranges = spans_within(&pool.ranges.dynamic, all);
            let offered = ranges.map(mask_within).fold(0, |word, mask| word | mask);
            word & offered & Sets::new(self, pool, ask, among).word(at)
        })
    }
}

/// What a search looks at on one pool: sets that hold nothing are left out.
struct Sets<'a> {
    /// Each must have a number, be it in the first or, where there is one, the second.
    usable: SmallVec<[(&'a NumberSet, Option<&'a NumberSet>); 2]>,
    /// None may have it.
    barred: SmallVec<[&'a NumberSet; 6]>,
}

impl<'a> Sets<'a> {
    fn new(search: &Search<'a>, pool: &'a PortPool, ask: &Ask<'a>, among: Among) -> Self {
        let mut sets = Self {
            usable: SmallVec::new(),
            barred: SmallVec::new(),
        };
        for side in Side::of(search.protocol) {
            let resting = (among != Among::Free).then(|| pool.resting_on(side));
            let resting = resting.filter(|resting| !resting.is_empty());
            sets.usable.push((pool.free_on(side), resting));
            let picked = &search.picked[side.index()];
            let awaited = ask.awaited.map(|awaited| awaited.on(side));
            let minded = match among {
                Among::UsableIfNobodyWaited => &awaited[..0],
                Among::Free | Among::Usable => &awaited[..],
            };
            let barred = std::iter::once(picked).chain(minded.iter().copied());
            sets.barred.extend(barred.filter(|set| !set.is_empty()));
        }
        sets
    }

    /// The numbers of one word that can be had.
    fn word(&self, at: usize) -> u64 {
        let mut word = u64::MAX;
        for (free, resting) in &self.usable {
            word &= free.word(at) | resting.map_or(0, |resting| resting.word(at));
        }
        for barred in &self.barred {
            word &= !barred.word(at);
        }
        word
    }
}

/// A run of consecutive numbers that is looked for word by word.
struct Run {
    count: u32,
    /// How many numbers in a row end the words so far.
    tail: u32,
}

impl Run {
    fn new(count: u16) -> Self {
        Self {
            count: u32::from(count),
            tail: 0,
        }
    }

    /// Whether the word `at`, which follows the last one, completes a run; the lowest.
    fn end(&mut self, at: usize, word: u64) -> Option<Span> {
        let base = u32::try_from(at * 64).ok()?;
        let head = word.trailing_ones();
        if self.tail + head >= self.count {
            return self.from(base - self.tail);
        }
        if head == 64 {
            self.tail += 64;
            return None;
        }
        let start = run_in(word, self.count);
        self.tail = word.leading_ones();
        start.and_then(|start| self.from(base + start))
    }

    fn from(&self, first: u32) -> Option<Span> {
        let last = u16::try_from(first + self.count - 1).ok()?;
        Span::new(u16::try_from(first).ok()?, last)
    }
}

/// The lowest bit of `word` that begins `count` set ones.
fn run_in(word: u64, count: u32) -> Option<u32> {
    if count > 64 {
        return None;
    }
    // Each step keeps the bits that begin a run of twice the length known.
    let (mut starts, mut known) = (word, 1);
    while known < count && starts != 0 {
        let step = known.min(count - known);
        starts &= starts >> step;
        known += step;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lowest_run_of_words_is_the_lowest_run_of_their_numbers(
            words in proptest::collection::vec(
                prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), any::<u64>().prop_map(|w| w | w << 7 | w >> 9)],
                1..6,
            ),
            count in prop_oneof![1u16..10, 60u16..70, 120u16..200],
        ) {
            let words: Vec<u64> = std::iter::once(0).chain(words).collect();
            let mut run = Run::new(count);
            let found = words.iter().enumerate().find_map(|(at, word)| run.end(at, *word));
            let is_set = |n: u16| words.get(usize::from(n / 64)).is_some_and(|w| w >> (n % 64) & 1 == 1);
            let expected = (64..448u16).find(|first| (*first..first + count).all(is_set));
            prop_assert_eq!(found.map(|span| span.first), expected);
            prop_assert!(found.is_none_or(|span| span.count() == u32::from(count)));
        }
    }
}
