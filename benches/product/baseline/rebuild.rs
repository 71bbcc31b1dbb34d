//! The way of schedulers that keep no pool: each decision rebuilds the host's used ports.
//!
//! A bitmap is taken from a stock of one and cleared, every port of every replica of the host is
//! marked, then each wanted port is guessed at random, at most 20 times; if no guess is free, all
//! free ports are listed and one is drawn. It only finds: nothing is taken, recorded or released.

use crate::chance::Chance;
use crate::churn::DYNAMIC;

/// Guesses for one wanted port before the free ports are listed.
const GUESSES: u32 = 20;

/// The stock and what a decision writes to.
pub(crate) struct Rebuild {
    used: Box<[u64; 1024]>,
    listed: Vec<u16>,
    chance: Chance,
}

impl Rebuild {
    pub(crate) fn new() -> Self {
        Self {
            used: Box::new([0; 1024]),
            listed: Vec::new(),
            chance: Chance::new(7),
        }
    }

    /// Finds `K` ports beside those that the replicas of the host hold.
    pub(crate) fn find<const K: usize>(&mut self, held: &[[u16; K]]) -> Option<[u16; K]> {
        self.used.fill(0);
        for number in held.iter().flatten() {
            mark(&mut self.used, *number);
        }
        let mut found = [0; K];
        for number in &mut found {
            *number = self.guess().or_else(|| self.draw())?;
            mark(&mut self.used, *number);
        }
        Some(found)
    }

    fn guess(&mut self) -> Option<u16> {
        (0..GUESSES).find_map(|_| {
            let number = DYNAMIC.start() + self.chance.below(DYNAMIC.len() as u32) as u16;
            (!is_marked(&self.used, number)).then_some(number)
        })
    }

    fn draw(&mut self) -> Option<u16> {
        let used = self.used.clone();
        self.listed.clear();
        self.listed
            .extend(DYNAMIC.filter(|number| !is_marked(&used, *number)));
        if self.listed.is_empty() {
            return None;
        }
        Some(self.listed[self.chance.place(self.listed.len())])
    }
}

const fn mark(used: &mut [u64; 1024], number: u16) {
    used[number as usize / 64] |= 1 << (number % 64);
}

const fn is_marked(used: &[u64; 1024], number: u16) -> bool {
    used[number as usize / 64] >> (number % 64) & 1 == 1
}
