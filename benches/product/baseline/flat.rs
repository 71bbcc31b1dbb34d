//! The limit: a flat bitset of free numbers with a summary, next-fit, and nothing beside it.
//!
//! No grants by replica, no protocols, no cooling: what is left when everything is left out.

use crate::churn::{DYNAMIC, Ports};

/// One bit per number, one summary bit per word that is not empty.
pub(crate) struct Flat {
    words: Box<[u64; 1024]>,
    summary: [u64; 16],
    cursor: u16,
    free: u32,
}

impl Flat {
    /// Every number is free.
    pub(crate) fn new() -> Self {
        let mut words = Box::new([u64::MAX; 1024]);
        // There is no port 0.
        words[0] = !1;
        Self {
            words,
            summary: [u64::MAX; 16],
            cursor: *DYNAMIC.start(),
            free: DYNAMIC.len() as u32,
        }
    }

    fn is_free(&self, number: u16) -> bool {
        self.words[usize::from(number / 64)] >> (number % 64) & 1 == 1
    }

    fn take_number(&mut self, number: u16) {
        let at = usize::from(number / 64);
        self.words[at] &= !(1 << (number % 64));
        if self.words[at] == 0 {
            self.summary[at / 64] &= !(1 << (at % 64));
        }
        self.free -= 1;
    }

    fn give_number(&mut self, number: u16) {
        let at = usize::from(number / 64);
        self.words[at] |= 1 << (number % 64);
        self.summary[at / 64] |= 1 << (at % 64);
        self.free += 1;
    }

    /// The first free number from `from` on, wherever that is.
    fn next_free(&self, from: u16) -> Option<u16> {
        let at = usize::from(from / 64);
        let here = self.words[at] & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(from / 64 * 64 + here.trailing_zeros() as u16);
        }
        let mut group = (at + 1) / 64;
        let mut words = *self.summary.get(group)? & (u64::MAX << ((at + 1) % 64));
        while words == 0 {
            group += 1;
            words = *self.summary.get(group)?;
        }
        let at = group * 64 + words.trailing_zeros() as usize;
        Some((at * 64) as u16 + self.words[at].trailing_zeros() as u16)
    }

    fn take_any(&mut self) -> Option<u16> {
        if self.free == 0 {
            return None;
        }
        let offered = |number: &u16| number <= DYNAMIC.end();
        let number = self
            .next_free(self.cursor)
            .filter(offered)
            .or_else(|| self.next_free(*DYNAMIC.start()).filter(offered))?;
        self.take_number(number);
        self.cursor = number + 1;
        Some(number)
    }
}

impl<const K: usize> Ports<K> for Flat {
    type Taken = [u16; K];

    fn take(&mut self) -> Option<[u16; K]> {
        if (self.free as usize) < K {
            return None;
        }
        let mut taken = [0; K];
        for number in &mut taken {
            *number = self.take_any()?;
        }
        Some(taken)
    }

    fn give_back(&mut self, taken: [u16; K]) {
        taken
            .into_iter()
            .for_each(|number| self.give_number(number));
    }

    fn occupy(&mut self, number: u16) {
        debug_assert!(self.is_free(number), "{number} is held twice");
        self.take_number(number);
    }
}
