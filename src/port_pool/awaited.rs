//! Numbers that waiting requests name: "any" leaves them alone.

use std::collections::BTreeMap;

use super::number_set::NumberSet;
use super::span::Span;
use super::{PortRequest, Side};

/// A counted set of awaited numbers. A search looks at the set alone, which costs nothing while
/// nobody waits for a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    counts: BTreeMap<(Side, u16), u32>,
    /// How many numbers have a count.
    many: usize,
    numbers: [NumberSet; 2],
}

impl Awaited {
    /// Adds the fixed numbers of `request`.
    pub fn add(&mut self, request: &PortRequest) {
        for (side, port) in request.fixed() {
            let number = port.number();
            *self.counts.entry((*side, number)).or_default() += 1;
            self.numbers[side.index()].insert(Span::single(number));
        }
        self.many = self.counts.len();
        // Who stops waiting may leave a gap in a run.
        for numbers in &mut self.numbers {
            numbers.make_room(self.many);
        }
    }

    /// Takes the fixed numbers of `request`, which was added before, away again.
    pub fn remove(&mut self, request: &PortRequest) {
        for (side, port) in request.fixed() {
            let place = (*side, port.number());
            if let Some(count) = self.counts.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&place);
                    self.numbers[side.index()].remove(Span::single(port.number()));
                }
            }
        }
        self.many = self.counts.len();
    }

    /// No number, with room for any: it may become a copy of every other without more memory.
    pub(crate) fn roomy() -> Self {
        let mut roomy = Self::default();
        roomy.numbers.iter_mut().for_each(NumberSet::flatten);
        roomy
    }

    /// Becomes the same to who searches: the numbers, without how many wait for each. Allocates nothing once
    /// there is the room.
    pub(crate) fn copy_numbers(&mut self, from: &Self) {
        self.counts.clear();
        self.many = from.many;
        self.numbers.clone_from(&from.numbers);
    }

    /// Whether somebody waits for the number.
    #[must_use]
    pub fn contains(&self, side: Side, number: u16) -> bool {
        self.on(side).contains(number)
    }

    /// How many numbers are awaited, each side for itself.
    #[must_use]
    pub fn len(&self) -> usize {
        self.many
    }

    /// Whether nobody waits for a number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.many == 0
    }

    /// The awaited numbers of one side.
    pub(super) const fn on(&self, side: Side) -> &NumberSet {
        &self.numbers[side.index()]
    }
}
