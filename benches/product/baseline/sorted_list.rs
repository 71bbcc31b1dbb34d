//! The smallest: the used numbers of a host in an ascending list.

use crate::churn::{DYNAMIC, Ports};

/// One host's used numbers, next-fit.
pub(crate) struct SortedList {
    used: Vec<u16>,
    cursor: u16,
}

impl SortedList {
    /// Nothing is used.
    pub(crate) const fn new() -> Self {
        Self {
            used: Vec::new(),
            cursor: *DYNAMIC.start(),
        }
    }

    /// The first number from `from` on that is not used, and where it belongs in the list.
    fn next_free(&self, from: u16) -> Option<(usize, u16)> {
        let mut at = self.used.partition_point(|used| *used < from);
        let mut number = from;
        while self.used.get(at) == Some(&number) {
            at += 1;
            number += 1;
        }
        (number <= *DYNAMIC.end()).then_some((at, number))
    }
}

impl<const K: usize> Ports<K> for SortedList {
    type Taken = [u16; K];

    fn take(&mut self) -> Option<[u16; K]> {
        let mut taken = [0; K];
        for number in &mut taken {
            let found = self.next_free(self.cursor);
            let (at, free) = found.or_else(|| self.next_free(*DYNAMIC.start()))?;
            self.used.insert(at, free);
            self.cursor = free + 1;
            *number = free;
        }
        Some(taken)
    }

    fn give_back(&mut self, taken: [u16; K]) {
        for number in taken {
            if let Ok(at) = self.used.binary_search(&number) {
                self.used.remove(at);
            }
        }
    }

    fn occupy(&mut self, number: u16) {
        if let Err(at) = self.used.binary_search(&number) {
            self.used.insert(at, number);
        }
    }
}
