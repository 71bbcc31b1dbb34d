//! The other representation that was measured: free numbers as a roaring bitmap over all ports.
//!
//! Next-fit with the free run under the cursor kept beside the set, numbers of one replica taken and
//! given back by the run, a counter of its own. It keeps no grants by replica.

use std::ops::RangeInclusive;

use roaring::RoaringBitmap;

use crate::churn::{DYNAMIC, Ports};

const DYNAMIC_U32: RangeInclusive<u32> = *DYNAMIC.start() as u32..=*DYNAMIC.end() as u32;

/// Which containers the set may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Runs, made small between cycles.
    Runs,
    /// A bitmap: the numbers beyond the dynamic range are free and too many for an array.
    Plain,
    /// An array or a bitmap: of the dynamic range alone.
    Narrow,
}

/// One host's free numbers.
pub(crate) struct RoaringPool {
    free: RoaringBitmap,
    form: Form,
    /// Where the run under the cursor begins, and its end, itself not free; empty: not known.
    run: (u32, u32),
    dynamic_free: u32,
}

impl RoaringPool {
    /// Every number is free.
    pub(crate) fn new(form: Form) -> Self {
        let mut free = RoaringBitmap::new();
        match form {
            Form::Runs | Form::Plain => free.insert_range(1..=u32::from(u16::MAX)),
            Form::Narrow => free.insert_range(DYNAMIC_U32),
        };
        if form != Form::Runs {
            free.remove_run_compression();
        }
        let first = *DYNAMIC_U32.start();
        Self {
            free,
            form,
            run: (first, first),
            dynamic_free: DYNAMIC.len() as u32,
        }
    }

    /// The first of `size` free neighbours.
    pub(crate) fn find_block(&self, size: u32) -> Option<u32> {
        let mut runs = self.free.range(DYNAMIC_U32);
        while let Some(run) = runs.next_range() {
            if run.end() - run.start() + 1 >= size {
                return Some(*run.start());
            }
        }
        None
    }

    /// Takes up to `count` neighbours and says which.
    fn take_run(&mut self, count: u32) -> Option<(u32, u32)> {
        if self.run.0 == self.run.1 {
            self.run = self.next_run(self.run.0).or_else(|| self.next_run(0))?;
        }
        let first = self.run.0;
        let end = self.run.1.min(first + count);
        self.free.remove_range(first..end);
        self.run.0 = end;
        self.dynamic_free -= end - first;
        Some((first, end))
    }

    /// The first free run from `from` on that "any" draws from, and its end.
    fn next_run(&self, from: u32) -> Option<(u32, u32)> {
        let from = from.max(*DYNAMIC_U32.start());
        let end = *DYNAMIC_U32.end();
        if from > end {
            return None;
        }
        let run = self.free.range(from..=end).next_range()?;
        Some((*run.start(), run.end() + 1))
    }
}

impl<const K: usize> Ports<K> for RoaringPool {
    type Taken = [u16; K];

    fn take(&mut self) -> Option<[u16; K]> {
        if (self.dynamic_free as usize) < K {
            return None;
        }
        let mut taken = [0; K];
        let mut count = 0;
        while count < K {
            let (first, end) = self.take_run((K - count) as u32)?;
            for number in first..end {
                taken[count] = number as u16;
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
            let (first, last) = (run[0], run[run.len() - 1]);
            self.free.insert_range(u32::from(first)..=u32::from(last));
        }
    }

    fn occupy(&mut self, number: u16) {
        let number = u32::from(number);
        self.free.remove(number);
        self.dynamic_free -= 1;
        if (self.run.0..self.run.1).contains(&number) {
            self.run.1 = number;
        }
    }

    fn tidy(&mut self) {
        if self.form == Form::Runs {
            self.free.optimize();
        }
    }
}
