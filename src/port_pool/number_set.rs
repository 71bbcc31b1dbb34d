//! A set of numbers in 1..=65535: sorted runs while they are few, else one bit for each.
//!
//! Few runs are small and quick; many would make every change a long move in memory, so past
//! [`MOST_RUNS`] the set becomes a bitmap of 8 KiB, in which every change costs the same. It goes
//! back to runs only in [`NumberSet::compact`]: a hot call never pays for that twice, however the
//! content swings.

use super::span::Span;

/// Numbers, in whichever of the two forms. Equal if it holds the same numbers.
#[derive(Clone)]
pub(super) struct NumberSet(Form);

#[derive(Clone)]
enum Form {
    /// Ascending; neither touching nor overlapping.
    Runs(Vec<Span>),
    Bits(Box<Bits>),
}

/// One bit for each number, and one for each word that is not zero.
#[derive(Clone)]
struct Bits {
    words: [u64; WORDS],
    filled: [u64; WORDS / 64],
}

/// How many runs are kept as runs: 1 KiB of them.
const MOST_RUNS: usize = 256;

/// How few runs must be left for [`NumberSet::compact`] to go back to them.
const FEW_RUNS: usize = MOST_RUNS / 4;

/// Words of 64 numbers each.
const WORDS: usize = 1024;

impl NumberSet {
    /// No number. Allocates nothing.
    pub(super) const EMPTY: Self = Self(Form::Runs(Vec::new()));

    /// Every number.
    pub(super) fn full() -> Self {
        Self(Form::Runs(vec![Span::ALL]))
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.0 {
            Form::Runs(runs) => runs.is_empty(),
            Form::Bits(bits) => bits.filled.iter().all(|word| *word == 0),
        }
    }

    /// Takes every number out and keeps the memory.
    pub(super) fn clear(&mut self) {
        match &mut self.0 {
            Form::Runs(runs) => runs.clear(),
            Form::Bits(bits) => {
                bits.words.fill(0);
                bits.filled.fill(0);
            }
        }
    }

    pub(super) fn contains(&self, number: u16) -> bool {
        match &self.0 {
            Form::Runs(runs) => {
                let at = runs.partition_point(|run| run.last < number);
                runs.get(at).is_some_and(|run| run.first <= number)
            }
            Form::Bits(bits) => bits.words[word_of(number)] >> (number % 64) & 1 == 1,
        }
    }

    /// Whether it holds one number of `span` at least.
    pub(super) fn touches(&self, span: Span) -> bool {
        self.run_from(span, 1).is_some()
    }

    /// How many numbers of `span` it holds.
    pub(super) fn count_in(&self, span: Span) -> u32 {
        match &self.0 {
            Form::Runs(runs) => {
                let from = runs.partition_point(|run| run.last < span.first);
                let overlaps = runs[from..].iter().map_while(|run| run.overlap(span));
                overlaps.map(Span::count).sum()
            }
            Form::Bits(bits) => masks(span)
                .map(|(at, mask)| count(bits.words[at] & mask, mask))
                .sum(),
        }
    }

    /// The numbers of the word `at`: bit `b` is the number `64 * at + b`.
    pub(super) fn word(&self, at: usize) -> u64 {
        match &self.0 {
            Form::Runs(runs) => {
                let Some(all) = whole_word(at) else { return 0 };
                let from = runs.partition_point(|run| run.last < all.first);
                let overlaps = runs[from..].iter().map_while(|run| run.overlap(all));
                overlaps.map(mask_within).fold(0, |word, mask| word | mask)
            }
            Form::Bits(bits) => bits.words.get(at).copied().unwrap_or(0),
        }
    }

    /// The lowest run inside `window`, cut at its ends and after `most` numbers.
    pub(super) fn run_from(&self, window: Span, most: u32) -> Option<Span> {
        let run = match &self.0 {
            Form::Runs(runs) => {
                let at = runs.partition_point(|run| run.last < window.first);
                runs.get(at)?.overlap(window)?
            }
            Form::Bits(bits) => bits.run_from(window, most)?,
        };
        let last = u32::from(run.first).saturating_add(most - 1);
        let last = u16::try_from(last).map_or(run.last, |last| last.min(run.last));
        Span::new(run.first, last)
    }

    /// The runs inside `window`, ascending, cut at its ends.
    pub(super) fn runs_in(&self, window: Span) -> impl Iterator<Item = Span> + '_ {
        let mut rest = Some(window);
        std::iter::from_fn(move || {
            let window = rest?;
            let run = self.run_from(window, u32::from(u16::MAX))?;
            let after = run.last.checked_add(1);
            rest = after.and_then(|first| Span::new(first, window.last));
            Some(run)
        })
    }

    /// Adds the numbers of `span`. Returns how many are new.
    pub(super) fn insert(&mut self, span: Span) -> u32 {
        match &mut self.0 {
            Form::Runs(runs) => {
                // Runs that touch the span become one with it.
                let below = span.first - 1;
                let from = runs.partition_point(|run| run.last < below);
                let above = span.last.saturating_add(1);
                let touching = runs[from..].iter().take_while(|run| run.first <= above);
                let (mut merged, mut known, mut to) = (span, 0, from);
                for run in touching {
                    known += run.overlap(span).map_or(0, Span::count);
                    merged.first = merged.first.min(run.first);
                    merged.last = merged.last.max(run.last);
                    to += 1;
                }
                if to > from {
                    runs[from] = merged;
                    runs.drain(from + 1..to);
                } else if runs.len() < MOST_RUNS {
                    runs.insert(from, merged);
                } else {
                    return self.as_bits().insert(span);
                }
                span.count() - known
            }
            Form::Bits(bits) => bits.insert(span),
        }
    }

    /// Takes the numbers of `span` out. Returns how many were there.
    pub(super) fn remove(&mut self, span: Span) -> u32 {
        match &mut self.0 {
            Form::Runs(runs) => {
                let from = runs.partition_point(|run| run.last < span.first);
                let inside = runs[from..].iter().map_while(|run| run.overlap(span));
                let (gone, runs_concerned) =
                    inside.fold((0, 0), |(gone, n), part| (gone + part.count(), n + 1));
                if runs_concerned == 0 {
                    return 0;
                }
                let to = from + runs_concerned;
                let below = Span::new(runs[from].first, span.first - 1);
                let above = span.last.checked_add(1);
                let above = above.and_then(|first| Span::new(first, runs[to - 1].last));
                match (below, above) {
                    (Some(below), Some(above)) => {
                        if runs_concerned == 1 && runs.len() == MOST_RUNS {
                            return self.as_bits().remove(span);
                        }
                        runs[from] = below;
                        if runs_concerned == 1 {
                            runs.insert(from + 1, above);
                        } else {
                            runs[from + 1] = above;
                            runs.drain(from + 2..to);
                        }
                    }
                    (Some(rest), None) | (None, Some(rest)) => {
                        runs[from] = rest;
                        runs.drain(from + 1..to);
                    }
                    (None, None) => {
                        runs.drain(from..to);
                    }
                }
                gone
            }
            Form::Bits(bits) => bits.remove(span),
        }
    }

    /// Goes back to runs where few are left, and gives spare memory back.
    pub(super) fn compact(&mut self) {
        if let Form::Bits(_) = &self.0 {
            let few = self.runs_in(Span::ALL).take(FEW_RUNS + 1).count() <= FEW_RUNS;
            if !few {
                return;
            }
            let runs = self.runs_in(Span::ALL).collect();
            self.0 = Form::Runs(runs);
        }
        if let Form::Runs(runs) = &mut self.0 {
            runs.shrink_to_fit();
        }
    }

    /// Becomes a bitmap, if it is none.
    fn as_bits(&mut self) -> &mut Bits {
        if let Form::Runs(runs) = &self.0 {
            let mut bits = Box::new(Bits {
                words: [0; WORDS],
                filled: [0; WORDS / 64],
            });
            for run in runs {
                bits.insert(*run);
            }
            self.0 = Form::Bits(bits);
        }
        match &mut self.0 {
            Form::Bits(bits) => bits,
            Form::Runs(_) => unreachable!("it became a bitmap above"),
        }
    }
}

impl Bits {
    fn insert(&mut self, span: Span) -> u32 {
        let mut new = 0;
        for (at, mask) in masks(span) {
            new += count(!self.words[at] & mask, mask);
            self.words[at] |= mask;
            self.filled[at / 64] |= 1 << (at % 64);
        }
        new
    }

    fn remove(&mut self, span: Span) -> u32 {
        let mut gone = 0;
        for (at, mask) in masks(span) {
            gone += count(self.words[at] & mask, mask);
            self.words[at] &= !mask;
            if self.words[at] == 0 {
                self.filled[at / 64] &= !(1 << (at % 64));
            }
        }
        gone
    }

    /// The lowest run inside `window`, looked at for `most` numbers at least.
    fn run_from(&self, window: Span, most: u32) -> Option<Span> {
        let first = self.next(window.first)?;
        if first > window.last {
            return None;
        }
        let limit = u32::from(first).saturating_add(most - 1);
        let limit = u16::try_from(limit).map_or(window.last, |limit| limit.min(window.last));
        // Ones from the first number on, word after word.
        let mut last = first;
        loop {
            let ones = (!(self.words[word_of(last)] >> (last % 64))).trailing_zeros();
            let more = ones.min(64 - u32::from(last % 64));
            let end = u32::from(last) + more - 1;
            if end >= u32::from(limit) {
                return Span::new(first, limit);
            }
            let end = u16::try_from(end).ok()?;
            if u32::from(last % 64) + more < 64 || self.words[word_of(end + 1)] & 1 == 0 {
                return Span::new(first, end);
            }
            last = end + 1;
        }
    }

    /// The lowest number from `start` on.
    fn next(&self, start: u16) -> Option<u16> {
        let at = word_of(start);
        let here = self.words[at] & (u64::MAX << (start % 64));
        if here != 0 {
            return number(at, here);
        }
        let (group, place) = (at / 64, at % 64);
        let later = self.filled[group] & (u64::MAX << place) & !(1 << place);
        let (group, filled) = if later != 0 {
            (group, later)
        } else {
            let beyond = self.filled[group + 1..]
                .iter()
                .position(|word| *word != 0)?;
            let group = group + 1 + beyond;
            (group, self.filled[group])
        };
        let at = group * 64 + filled.trailing_zeros() as usize;
        number(at, self.words[at])
    }
}

/// The lowest number of a word that is not zero.
fn number(at: usize, word: u64) -> Option<u16> {
    u16::try_from(at * 64 + word.trailing_zeros() as usize).ok()
}

/// The word that holds a number.
pub(super) const fn word_of(number: u16) -> usize {
    number as usize / 64
}

/// How many bits of `mask` are set in `word`, which has no others: all or one of them, mostly.
const fn count(word: u64, mask: u64) -> u32 {
    if word == 0 {
        0
    } else if word == mask {
        64 - mask.leading_zeros() - mask.trailing_zeros()
    } else {
        word.count_ones()
    }
}

/// The words of `span`, each with the bits that lie inside.
pub(super) fn masks(span: Span) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (word_of(span.first), word_of(span.last));
    (first..=last).map(move |at| {
        let mut mask = u64::MAX;
        if at == first {
            mask &= u64::MAX << (span.first % 64);
        }
        if at == last {
            mask &= u64::MAX >> (63 - span.last % 64);
        }
        (at, mask)
    })
}

/// The bits of a span that lies inside one word.
pub(super) const fn mask_within(span: Span) -> u64 {
    (u64::MAX << (span.first % 64)) & (u64::MAX >> (63 - span.last % 64))
}

/// The numbers of a word; the first word has one less, for 0 is none.
pub(super) fn whole_word(at: usize) -> Option<Span> {
    let first = u16::try_from(at * 64).ok()?;
    Span::new(first.max(1), first | 63)
}

impl Default for NumberSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FromIterator<Span> for NumberSet {
    fn from_iter<I: IntoIterator<Item = Span>>(spans: I) -> Self {
        let mut set = Self::EMPTY;
        for span in spans {
            set.insert(span);
        }
        set
    }
}

impl PartialEq for NumberSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Runs(ours), Form::Runs(theirs)) => ours == theirs,
            _ => (0..WORDS).all(|at| self.word(at) == other.word(at)),
        }
    }
}

impl Eq for NumberSet {}

/// As its runs.
impl std::fmt::Debug for NumberSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self.runs_in(Span::ALL).map(|run| (run.first, run.last));
        f.debug_list().entries(runs).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn is_bits(set: &NumberSet) -> bool {
        matches!(set.0, Form::Bits(_))
    }

    fn check(set: &NumberSet, model: &BTreeSet<u16>) {
        let held: Vec<u16> = set.runs_in(Span::ALL).flat_map(Span::numbers).collect();
        assert_eq!(held, model.iter().copied().collect::<Vec<_>>());
        assert_eq!(set.is_empty(), model.is_empty());
        let counted = usize::try_from(set.count_in(Span::ALL));
        assert_eq!(counted, Ok(model.len()));
        if let Form::Bits(bits) = &set.0 {
            for at in 0..WORDS {
                let filled = bits.filled[at / 64] >> (at % 64) & 1 == 1;
                assert_eq!(filled, bits.words[at] != 0, "word {at}");
            }
        }
        if let Form::Runs(runs) = &set.0 {
            assert!(runs.len() <= MOST_RUNS);
            let apart = |pair: &[Span]| pair[0].last < u16::MAX && pair[0].last + 1 < pair[1].first;
            assert!(runs.windows(2).all(apart), "{runs:?}");
        }
    }

    #[test]
    fn a_set_of_many_runs_becomes_a_bitmap_and_returns_only_when_compacted() {
        let mut set = NumberSet::EMPTY;
        let mut model = BTreeSet::new();
        for number in (1..=2 * u16::try_from(MOST_RUNS).unwrap()).step_by(2) {
            assert_eq!(set.insert(Span::single(number)), 1);
            model.insert(number);
        }
        assert!(!is_bits(&set));
        assert_eq!(set.insert(Span::single(40_000)), 1);
        model.insert(40_000);
        assert!(is_bits(&set));
        check(&set, &model);
        assert_eq!(set.remove(Span::new(1, 30_000).unwrap()), 256);
        model.retain(|number| *number > 30_000);
        assert!(is_bits(&set), "no hot call converts it back");
        check(&set, &model);
        set.compact();
        assert!(!is_bits(&set));
        check(&set, &model);
    }

    #[test]
    fn taking_the_middle_of_the_last_run_that_fits_makes_a_bitmap_of_it() {
        let mut set: NumberSet = (0..256u16)
            .map(|at| Span::new(at * 100 + 1, at * 100 + 50).unwrap())
            .collect();
        let before = set.count_in(Span::ALL);
        assert!(!is_bits(&set));
        assert_eq!(set.remove(Span::new(120, 129).unwrap()), 10);
        assert!(is_bits(&set));
        assert_eq!(set.count_in(Span::ALL), before - 10);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Span),
        Remove(Span),
        Comb(u16, u16),
        Compact,
        Clear,
    }

    fn span() -> impl Strategy<Value = Span> {
        let first = prop_oneof![1u16..200, 30_000u16..30_200, 65_300u16..=65_535];
        let length = prop_oneof![4 => 0u16..3, 3 => 0u16..70, 1 => 0u16..40_000];
        (first, length).prop_map(|(first, more)| Span {
            first,
            last: first.saturating_add(more),
        })
    }

    fn operation() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => span().prop_map(Op::Insert),
            8 => span().prop_map(Op::Remove),
            // Every second or third number of a stretch: many runs at once.
            2 => (1u16..65_000, 2u16..4).prop_map(|(first, step)| Op::Comb(first, step)),
            1 => Just(Op::Compact),
            1 => Just(Op::Clear),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]

        #[test]
        fn a_set_of_numbers_agrees_with_a_plain_one_in_both_forms(
            ops in proptest::collection::vec((operation(), span(), 1u32..80), 1..40)
        ) {
            let mut set = NumberSet::EMPTY;
            let mut model: BTreeSet<u16> = BTreeSet::new();
            for (op, window, most) in ops {
                match op {
                    Op::Insert(span) => {
                        let new = span.numbers().filter(|n| model.insert(*n)).count();
                        prop_assert_eq!(usize::try_from(set.insert(span)), Ok(new));
                    }
                    Op::Remove(span) => {
                        let gone = span.numbers().filter(|n| model.remove(n)).count();
                        prop_assert_eq!(usize::try_from(set.remove(span)), Ok(gone));
                    }
                    Op::Comb(first, step) => {
                        for number in (first..=first.saturating_add(900)).step_by(step.into()) {
                            let new = model.insert(number);
                            prop_assert_eq!(set.insert(Span::single(number)), u32::from(new));
                        }
                    }
                    Op::Compact => set.compact(),
                    Op::Clear => {
                        set.clear();
                        model.clear();
                    }
                }
                let inside: Vec<u16> = model.range(window.numbers()).copied().collect();
                prop_assert_eq!(usize::try_from(set.count_in(window)), Ok(inside.len()));
                prop_assert_eq!(set.touches(window), !inside.is_empty());
                prop_assert_eq!(set.contains(window.first), model.contains(&window.first));
                let run = set.run_from(window, most);
                prop_assert_eq!(run.map(|run| run.first), inside.first().copied());
                if let Some(run) = run {
                    let length = inside
                        .iter()
                        .zip(u32::from(run.first)..)
                        .take_while(|(number, expected)| u32::from(**number) == *expected)
                        .count();
                    prop_assert_eq!(run.count(), u32::try_from(length).unwrap().min(most));
                }
                let word = word_of(window.first);
                for bit in 0..64u16 {
                    let number = u16::try_from(word * 64).unwrap() + bit;
                    prop_assert_eq!(set.word(word) >> bit & 1 == 1, model.contains(&number));
                }
                let again: NumberSet = set.runs_in(Span::ALL).collect();
                prop_assert_eq!(&again, &set);
            }
            check(&set, &model);
        }
    }
}
