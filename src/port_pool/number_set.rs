//! A set of numbers in 1..=65535: sorted runs while they are few, else one bit for each.
//!
//! Few runs are small and quick; many would make every change a long move in memory, so past
//! [`MOST_RUNS`] the set becomes a bitmap of 8 KiB, in which every change costs the same. It goes
//! back to runs only in [`NumberSet::compact`]: a hot call never pays for that twice, however the
//! content swings.

use super::number_bits::{Bits, WORDS, mask_within, masks, whole_word};
use super::number_runs::{MOST_RUNS, Runs};
use super::span::Span;

/// Numbers, in whichever of the two forms. Equal if it holds the same numbers.
pub(super) struct NumberSet(Form);

enum Form {
    Runs(Runs),
    Bits(Box<Bits>),
}

/// How few runs must be left for [`NumberSet::compact`] to go back to them.
const FEW_RUNS: usize = MOST_RUNS / 4;

impl NumberSet {
    /// No number. Allocates nothing.
    pub(super) const EMPTY: Self = Self(Form::Runs(Runs::new(Vec::new())));

    /// No number, to lend.
    pub(super) const fn nothing() -> &'static Self {
        static NOTHING: NumberSet = NumberSet::EMPTY;
        &NOTHING
    }

    /// Every number.
    pub(super) fn full() -> Self {
        Self(Form::Runs(Runs::new(vec![Span::ALL])))
    }

    /// The memory beside the value itself.
    pub(super) fn bytes(&self) -> usize {
        match &self.0 {
            Form::Runs(list) => list.runs.capacity() * size_of::<Span>(),
            Form::Bits(_) => size_of::<Bits>(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.0 {
            Form::Runs(list) => list.runs.is_empty(),
            Form::Bits(bits) => bits.filled.iter().all(|word| *word == 0),
        }
    }

    /// Takes every number out and keeps the memory.
    pub(super) fn clear(&mut self) {
        match &mut self.0 {
            Form::Runs(list) => list.runs.clear(),
            Form::Bits(bits) => bits.clear(),
        }
    }

    pub(super) fn contains(&self, number: u16) -> bool {
        match &self.0 {
            Form::Runs(list) => {
                let run = list.runs.get(list.seek(number));
                run.is_some_and(|run| run.first <= number)
            }
            Form::Bits(bits) => bits.contains(number),
        }
    }

    /// Whether it holds one number of `span` at least.
    pub(super) fn touches(&self, span: Span) -> bool {
        self.run_from(span, 1).is_some()
    }

    /// Whether it holds every number of `span`.
    pub(super) fn covers(&self, span: Span) -> bool {
        match &self.0 {
            Form::Runs(list) => {
                let run = list.runs.get(list.seek(span.first));
                run.is_some_and(|run| run.first <= span.first && span.last <= run.last)
            }
            Form::Bits(bits) => masks(span).all(|(at, mask)| bits.words[at] & mask == mask),
        }
    }

    /// How many numbers of `span` it holds.
    pub(super) fn count_in(&self, span: Span) -> u32 {
        match &self.0 {
            Form::Runs(list) => list.overlaps(span).map(Span::count).sum(),
            Form::Bits(bits) => bits.count_in(span),
        }
    }

    /// The numbers of the word `at`: bit `b` is the number `64 * at + b`.
    pub(super) fn word(&self, at: usize) -> u64 {
        match &self.0 {
            Form::Runs(list) if list.runs.is_empty() => 0,
            Form::Runs(list) => {
                let Some(all) = whole_word(at) else { return 0 };
                let masks = list.overlaps(all).map(mask_within);
                masks.fold(0, |word, mask| word | mask)
            }
            Form::Bits(bits) => bits.words.get(at).copied().unwrap_or(0),
        }
    }

    /// The lowest run inside `window`, cut at its ends and after `most` numbers.
    pub(super) fn run_from(&self, window: Span, most: u32) -> Option<Span> {
        let run = match &self.0 {
            Form::Runs(list) => {
                let run = list.runs.get(list.seek(window.first))?;
                run.overlap(window)?
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

    /// Makes room for so many runs more: as many as that many numbers that go can leave.
    pub(super) fn make_room(&mut self, more: usize) {
        if let Form::Runs(list) = &mut self.0 {
            if list.runs.len() + more > MOST_RUNS {
                self.as_bits();
            } else {
                list.runs.reserve(more);
            }
        }
    }

    /// Adds the numbers of `span`. Returns how many are new.
    pub(super) fn insert(&mut self, span: Span) -> u32 {
        match &mut self.0 {
            Form::Runs(list) => match list.insert(span) {
                Some(new) => new,
                None => self.as_bits().insert(span),
            },
            Form::Bits(bits) => bits.insert(span),
        }
    }

    /// Takes the numbers of `span` out. Returns how many were there.
    pub(super) fn remove(&mut self, span: Span) -> u32 {
        match &mut self.0 {
            Form::Runs(list) => match list.remove(span) {
                Some(gone) => gone,
                None => self.as_bits().remove(span),
            },
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
            self.0 = Form::Runs(Runs::new(runs));
        }
        if let Form::Runs(list) = &mut self.0 {
            list.runs.shrink_to_fit();
        }
    }

    /// Becomes a bitmap, as many runs would make it: one that never needs more memory.
    pub(super) fn flatten(&mut self) {
        self.as_bits();
    }

    /// Becomes a bitmap, if it is none.
    fn as_bits(&mut self) -> &mut Bits {
        if let Form::Runs(list) = &self.0 {
            let mut bits = Bits::empty();
            for run in &list.runs {
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

impl Clone for NumberSet {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Form::Runs(list) => Form::Runs(list.clone()),
            Form::Bits(bits) => Form::Bits(bits.clone()),
        })
    }

    /// Into the memory that is there. A bitmap stays one, so that copies which come and go allocate
    /// nothing once one of them had as many runs.
    fn clone_from(&mut self, source: &Self) {
        match (&mut self.0, &source.0) {
            (Form::Runs(ours), Form::Runs(theirs)) => ours.clone_from(theirs),
            (Form::Bits(ours), Form::Bits(theirs)) => ours.clone_from(theirs),
            (Form::Bits(ours), Form::Runs(theirs)) => {
                ours.clear();
                for run in &theirs.runs {
                    ours.insert(*run);
                }
            }
            (Form::Runs(_), Form::Bits(theirs)) => self.0 = Form::Bits(theirs.clone()),
        }
    }
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
            (Form::Runs(ours), Form::Runs(theirs)) => ours.runs == theirs.runs,
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
    use super::super::number_bits::word_of;
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
        if let Form::Runs(list) = &set.0 {
            let runs = &list.runs;
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
                let all = u32::try_from(inside.len()) == Ok(window.count());
                prop_assert_eq!(set.covers(window), all);
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
