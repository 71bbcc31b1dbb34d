//! Numbers that more than one restored record names.

use super::Side;

/// How many holders each number has beside the first, ascending by number. Mostly nothing: only records that
/// contradict each other come here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contested(Vec<((Side, u16), u32)>);

impl Contested {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, side: Side, number: u16) -> bool {
        self.place(side, number).is_ok()
    }

    /// One holder more.
    pub(super) fn add(&mut self, side: Side, number: u16) {
        match self.place(side, number) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, ((side, number), 1)),
        }
    }

    /// Takes one holder off a number that several have. Whether there was more than one.
    pub(super) fn take(&mut self, side: Side, number: u16) -> bool {
        let Ok(at) = self.place(side, number) else {
            return false;
        };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
        true
    }

    fn place(&self, side: Side, number: u16) -> Result<usize, usize> {
        self.0.binary_search_by_key(&(side, number), |(of, _)| *of)
    }
}

impl Clone for Contested {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}
