//! The numbers of one side: the free set, what rests, and how many of the dynamic range are free.

use super::cooling::Cooling;
use super::number_bits::masks;
use super::number_set::NumberSet;
use super::span::{Span, spans_of, spans_within};
use super::{PortPool, Side};

/// One side of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Numbers that carry no layer at all, over 1..=65535.
    pub(super) free: NumberSet,
    /// Numbers that only cool.
    pub(super) rests: NumberSet,
    /// What cools, be it also foreign or reserved.
    pub(super) cooling: Cooling,
}

impl Numbers {
    /// These are free, and nothing rests.
    pub(super) const fn new(free: NumberSet) -> Self {
        Self {
            free,
            rests: NumberSet::EMPTY,
            cooling: Cooling::EMPTY,
        }
    }

    /// The memory beside the value itself.
    fn bytes(&self) -> usize {
        self.free.bytes() + self.rests.bytes() + self.cooling.bytes()
    }

    /// As [`Self::new`], in the memory that is there.
    fn renew(&mut self, free: &NumberSet) {
        self.free.clone_from(free);
        self.rests.clear();
        self.cooling.clear();
    }
}

impl Clone for Numbers {
    fn clone(&self) -> Self {
        Self {
            free: self.free.clone(),
            rests: self.rests.clone(),
            cooling: self.cooling.clone(),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.free.clone_from(&source.free);
        self.rests.clone_from(&source.rests);
        self.cooling.clone_from(&source.cooling);
    }
}

/// Free numbers of the dynamic range, counted as they come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) tcp: u32,
    pub(super) udp: u32,
    pub(super) both: u32,
}

/// Whether free numbers are added or taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    More,
    Less,
}

impl Sign {
    const fn count(self, count: &mut u32, moved: u32) {
        match self {
            Self::More => *count += moved,
            Self::Less => *count -= moved,
        }
    }
}

static NOTHING_COOLS: Cooling = Cooling::EMPTY;

impl PortPool {
    /// The memory that the pool takes beside the value itself, about. Cost: linear in its grants.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let udp = self.udp.as_deref();
        let udp = udp.map_or(0, |udp| size_of::<Numbers>() + udp.bytes());
        let sides = self.tcp.bytes() + udp + self.unreserved.bytes();
        sides + self.holdings.bytes() + self.strangers.bytes()
    }

    /// The free numbers of one side.
    pub(super) fn free_on(&self, side: Side) -> &NumberSet {
        match (side, &self.udp) {
            (Side::Tcp, _) => &self.tcp.free,
            (Side::Udp, Some(udp)) => &udp.free,
            (Side::Udp, None) => &self.unreserved,
        }
    }

    /// The numbers of one side that cool and carry nothing else.
    pub(super) fn resting_on(&self, side: Side) -> &NumberSet {
        match (side, &self.udp) {
            (Side::Tcp, _) => &self.tcp.rests,
            (Side::Udp, Some(udp)) => &udp.rests,
            (Side::Udp, None) => NumberSet::nothing(),
        }
    }

    /// What cools on one side.
    pub(super) fn cooling_on(&self, side: Side) -> &Cooling {
        match (side, &self.udp) {
            (Side::Tcp, _) => &self.tcp.cooling,
            (Side::Udp, Some(udp)) => &udp.cooling,
            (Side::Udp, None) => &NOTHING_COOLS,
        }
    }

    /// The numbers of one side, made if they were not needed yet.
    pub(super) fn numbers_mut(&mut self, side: Side) -> &mut Numbers {
        match side {
            Side::Tcp => &mut self.tcp,
            Side::Udp => {
                let (unreserved, spare) = (&self.unreserved, &mut self.spare_udp);
                self.udp.get_or_insert_with(|| match spare.take() {
                    Some(mut numbers) => {
                        numbers.renew(unreserved);
                        numbers
                    }
                    None => Box::new(Numbers::new(unreserved.clone())),
                })
            }
        }
    }

    /// Takes `span` out of the free set; numbers that are not free stay as they are. Returns how many
    /// were free.
    pub(super) fn seize(&mut self, side: Side, span: Span) -> u32 {
        self.change(side, span, Sign::Less)
    }

    /// Puts `span`, which carries no layer, into the free set.
    pub(super) fn give(&mut self, side: Side, span: Span) {
        self.change(side, span, Sign::More);
    }

    /// Moves `span` in or out of the free set, and counts the dynamic part of it.
    fn change(&mut self, side: Side, span: Span, sign: Sign) -> u32 {
        let part = spans_within(&self.ranges.dynamic, span).next();
        match part {
            None => apply(&mut self.numbers_mut(side).free, span, sign),
            Some(part) if part == span => self.change_counted(side, span, sign),
            Some(_) => {
                let mut moved = 0;
                let mut rest = Some(span);
                while let Some(window) = rest {
                    let next = spans_within(&self.ranges.dynamic, window).next();
                    let Some(part) = next else {
                        moved += apply(&mut self.numbers_mut(side).free, window, sign);
                        break;
                    };
                    if let Some(before) = Span::new(window.first, part.first - 1) {
                        moved += apply(&mut self.numbers_mut(side).free, before, sign);
                    }
                    moved += self.change_counted(side, part, sign);
                    let after = part.last.checked_add(1);
                    rest = after.and_then(|first| Span::new(first, window.last));
                }
                moved
            }
        }
    }

    /// Moves a part of the dynamic range.
    fn change_counted(&mut self, side: Side, part: Span, sign: Sign) -> u32 {
        let moved = apply(&mut self.numbers_mut(side).free, part, sign);
        if moved == 0 {
            return 0;
        }
        let one = match side {
            Side::Tcp => &mut self.free.tcp,
            Side::Udp => &mut self.free.udp,
        };
        sign.count(one, moved);
        if self.udp.is_none() {
            // What is or was free for TCP is not reserved, so it is free for UDP.
            sign.count(&mut self.free.both, moved);
        } else if moved == part.count() {
            let other = match side {
                Side::Tcp => self.free_on(Side::Udp),
                Side::Udp => self.free_on(Side::Tcp),
            };
            let both = other.count_in(part);
            sign.count(&mut self.free.both, both);
        } else {
            // Some of it was so already: a block of which a part cooled.
            self.free.both = self.count_both();
        }
        moved
    }

    /// Counts the whole dynamic range anew: after a change of the ranges.
    pub(super) fn count_free(&mut self) {
        let on = |side| {
            spans_of(&self.ranges.dynamic)
                .map(|part| self.free_on(side).count_in(part))
                .sum()
        };
        self.free = Free {
            tcp: on(Side::Tcp),
            udp: on(Side::Udp),
            both: self.count_both(),
        };
    }

    fn count_both(&self) -> u32 {
        let (tcp, udp) = (self.free_on(Side::Tcp), self.free_on(Side::Udp));
        spans_of(&self.ranges.dynamic)
            .flat_map(masks)
            .map(|(at, mask)| (tcp.word(at) & udp.word(at) & mask).count_ones())
            .sum()
    }

    /// The free sets byte for byte, to hold undo against.
    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> Vec<u8> {
        let runs = Side::BOTH
            .into_iter()
            .flat_map(|side| self.free_on(side).runs_in(Span::ALL));
        runs.flat_map(|run| [run.first, run.last])
            .flat_map(u16::to_le_bytes)
            .collect()
    }
}

fn apply(free: &mut NumberSet, span: Span, sign: Sign) -> u32 {
    match sign {
        Sign::More => free.insert(span),
        Sign::Less => free.remove(span),
    }
}
