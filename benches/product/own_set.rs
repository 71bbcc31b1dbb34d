//! The product's own set of numbers without the pool around it: the same source files, built in here,
//! since the library shows the pool alone.

#[path = "../../src/port_pool/number_bits.rs"]
mod number_bits;
#[path = "../../src/port_pool/number_runs.rs"]
mod number_runs;
#[expect(dead_code, reason = "the pool uses more of it than this")]
#[expect(unused_imports, reason = "its tests are built here too, and not run")]
#[path = "../../src/port_pool/number_set.rs"]
mod number_set;
#[expect(dead_code, reason = "the pool uses more of it than this")]
#[path = "../../src/port_pool/span.rs"]
mod span;

use crate::churn::{DYNAMIC, Ports};

use number_set::NumberSet;
use span::Span;

/// One host's free numbers, next-fit, and nothing beside them.
pub(crate) struct OwnSet {
    free: NumberSet,
    cursor: u16,
    dynamic_free: u32,
}

impl OwnSet {
    /// Every number is free.
    pub(crate) fn new() -> Self {
        Self {
            free: NumberSet::full(),
            cursor: *DYNAMIC.start(),
            dynamic_free: DYNAMIC.len() as u32,
        }
    }

    /// Takes up to `most` neighbours.
    fn take_run(&mut self, most: u32) -> Option<Span> {
        let from = |first| Span::new(first, *DYNAMIC.end());
        let here = from(self.cursor).and_then(|window| self.free.run_from(window, most));
        let run = here.or_else(|| self.free.run_from(from(*DYNAMIC.start())?, most))?;
        self.free.remove(run);
        self.cursor = run.last + 1;
        self.dynamic_free -= run.count();
        Some(run)
    }
}

impl<const K: usize> Ports<K> for OwnSet {
    type Taken = [u16; K];

    fn take(&mut self) -> Option<[u16; K]> {
        if (self.dynamic_free as usize) < K {
            return None;
        }
        let mut taken = [0; K];
        let mut count = 0;
        while count < K {
            let run = self.take_run((K - count) as u32)?;
            for number in run.numbers() {
                taken[count] = number;
                count += 1;
            }
        }
        Some(taken)
    }

    fn give_back(&mut self, mut taken: [u16; K]) {
        // Only a replica whose numbers went round the end has them out of order.
        taken.sort_unstable();
        self.dynamic_free += K as u32;
        for run in taken.chunk_by(|a, b| a + 1 == *b) {
            if let Some(run) = Span::new(run[0], run[run.len() - 1]) {
                self.free.insert(run);
            }
        }
    }

    fn occupy(&mut self, number: u16) {
        self.dynamic_free -= self.free.remove(Span::single(number));
    }

    fn tidy(&mut self) {
        self.free.compact();
    }
}
