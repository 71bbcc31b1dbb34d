//! Questions to one pool that are not a request: how a number stands, how many could be had.

use crate::identity::ServiceId;
use crate::port::{Port, PortRanges, Protocol};

use super::chooser::Chooser;
use super::number_bits::masks;
use super::span::Span;
use super::{Ask, Awaited, Choice, PortPool, Side, offered};

/// How a number stands for requests that fix it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedStatus {
    /// Whoever asks gets it.
    Free,
    /// It cools, and carries nothing else: its former service alone gets it.
    CoolsFor(ServiceId),
    /// Nobody gets it: held, foreign, reserved, or outside the host's fixed ranges.
    Busy,
}

impl PortPool {
    /// How the number stands for a request that fixes it. Cost: a look at a set, and, where it
    /// cools, at the runs that do.
    #[must_use]
    pub fn fixed_status(&self, side: Side, port: Port) -> FixedStatus {
        let number = port.number();
        if !self.ranges.fixed.contains(port) {
            return FixedStatus::Busy;
        }
        if self.free_on(side).contains(number) {
            return FixedStatus::Free;
        }
        if !self.resting_on(side).contains(number) {
            return FixedStatus::Busy;
        }
        let cooled = self.cooling_on(side).at(number);
        cooled.map_or(FixedStatus::Busy, |cooled| {
            FixedStatus::CoolsFor(cooled.service)
        })
    }

    /// How many numbers of the dynamic range a single "any" of `protocol` could be answered with:
    /// those that are free or only cool, but for what is awaited. Cost: a counter while nothing cools
    /// and nobody waits, else a look at the range.
    #[must_use]
    pub fn usable_count(&self, protocol: Protocol, awaited: [&Awaited; 2]) -> u32 {
        self.usable_within(protocol, None, awaited)
    }

    /// The same for an "any" that is narrowed, which is always a look at its part of the range.
    fn usable_within(
        &self,
        protocol: Protocol,
        within: Option<&PortRanges>,
        awaited: [&Awaited; 2],
    ) -> u32 {
        let sides = || Side::of(protocol);
        let awaits = |side| awaited.iter().any(|awaited| !awaited.on(side).is_empty());
        let rests = |side| !self.resting_on(side).is_empty();
        if within.is_none() && !sides().any(|side| rests(side) || awaits(side)) {
            return self.free_count(protocol);
        }
        let words = offered(&self.ranges.dynamic, within, Span::ALL).flat_map(masks);
        words
            .map(|(at, mask)| {
                let usable = sides().fold(mask, |word, side| {
                    let usable = self.free_on(side).word(at) | self.resting_on(side).word(at);
                    let awaited = awaited.map(|awaited| awaited.on(side).word(at));
                    word & usable & !awaited[0] & !awaited[1]
                });
                usable.count_ones()
            })
            .sum()
    }

    /// How many replicas in a row could get what `ask` wants, `most` at most: exactly as many as
    /// takes of it one after the other would succeed. Former numbers play no part. `choice` is left
    /// without a choice.
    ///
    /// Cost: where all ports want single numbers, any, and no two of them compete for different ones
    /// (as one of TCP does with one of both protocols, or one of a narrower range), a count and a
    /// division; with fixed numbers one search; else one search for each.
    pub fn fits_times(&self, ask: &Ask<'_>, choice: &mut Choice, most: u32) -> u32 {
        if ask.request.is_empty() {
            return most;
        }
        let counted = ask.request.counted().iter().map(|alike| {
            let (protocol, within) = (alike.protocol, alike.within.as_ref());
            self.usable_within(protocol, within, ask.awaited) / alike.many
        });
        if let Some(times) = counted.min() {
            return times.min(most);
        }
        // One host has each number once.
        let most = if ask.request.fixed().is_empty() {
            most
        } else {
            most.min(1)
        };
        let ask = Ask {
            former: None,
            ..*ask
        };
        let mut chooser = Chooser::repeating(self, ask, choice);
        let mut times = 0;
        let mut fits = most > 0 && chooser.run();
        while fits {
            times += 1;
            fits = times < most && chooser.again();
        }
        choice.clear();
        times
    }
}
