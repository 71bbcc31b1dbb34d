//! Numbers as one bit each, and the words that such bits stand in.

use super::span::Span;

/// One bit for each number, and one for each word that is not zero.
pub(super) struct Bits {
    pub(super) words: [u64; WORDS],
    pub(super) filled: [u64; WORDS / 64],
}

impl Clone for Bits {
    fn clone(&self) -> Self {
        Self {
            words: self.words,
            filled: self.filled,
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.words = source.words;
        self.filled = source.filled;
    }
}

/// Words of 64 numbers each.
pub(super) const WORDS: usize = 1024;

impl Bits {
    /// No number.
    pub(super) fn empty() -> Box<Self> {
        Box::new(Self {
            words: [0; WORDS],
            filled: [0; WORDS / 64],
        })
    }

    pub(super) fn contains(&self, number: u16) -> bool {
        self.words[word_of(number)] >> (number % 64) & 1 == 1
    }

    pub(super) fn count_in(&self, span: Span) -> u32 {
        masks(span)
            .map(|(at, mask)| count(self.words[at] & mask, mask))
            .sum()
    }

    /// Takes every number out. Cost: linear in the words that are not zero.
    pub(super) fn clear(&mut self) {
        for (group, filled) in self.filled.iter_mut().enumerate() {
            while *filled != 0 {
                self.words[group * 64 + filled.trailing_zeros() as usize] = 0;
                *filled &= *filled - 1;
            }
        }
    }

    pub(super) fn insert(&mut self, span: Span) -> u32 {
        let mut new = 0;
        for (at, mask) in masks(span) {
            new += count(!self.words[at] & mask, mask);
            self.words[at] |= mask;
            self.filled[at / 64] |= 1 << (at % 64);
        }
        new
    }

    pub(super) fn remove(&mut self, span: Span) -> u32 {
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
    pub(super) fn run_from(&self, window: Span, most: u32) -> Option<Span> {
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
    pub(super) fn next(&self, start: u16) -> Option<u16> {
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
