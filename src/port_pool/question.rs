//! Questions to one pool that are not a request: how a number stands, how many could be had.

use crate::identity::ServiceId;
use crate::port::{Port, Protocol};

use super::choice::Chooser;
use super::{Ask, Awaited, Causes, Choice, PortPool, Side};

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
        if !self.ranges.fixed.contains(port) {
            return FixedStatus::Busy;
        }
        let number = port.number();
        if self.is_free(side, number) {
            return FixedStatus::Free;
        }
        let cooled = self.numbers(side).and_then(|n| n.cooling.at(number));
        match cooled {
            Some(cooled)
                if self.strangers.at(side, number).is_none() && !self.is_reserved(number) =>
            {
                FixedStatus::CoolsFor(cooled.service)
            }
            _ => FixedStatus::Busy,
        }
    }

    /// How many numbers of the dynamic range a single "any" of `protocol` could be answered with:
    /// those that are free or only cool, but for what is awaited. Cost: linear in the awaited
    /// numbers.
    #[must_use]
    pub fn usable_count(&self, protocol: Protocol, awaited: [&Awaited; 2]) -> u32 {
        let mut count = 0;
        for port in self.ranges.dynamic.iter() {
            let usable = Side::of(protocol).all(|side| {
                let number = port.number();
                let cools = || self.numbers(side)?.cooling.at(number);
                let awaited = awaited.iter().any(|awaited| awaited.contains(side, number));
                !awaited
                    && (self.is_free(side, number)
                        || cools().is_some()
                            && !self.is_reserved(number)
                            && self.strangers.at(side, number).is_none())
            });
            count += u32::from(usable);
        }
        count
    }

    /// How many replicas in a row could get what `ask` wants, `most` at most: exactly as many as
    /// takes of it one after the other would succeed. Former numbers play no part. `choice` is left
    /// without a choice.
    ///
    /// Cost: for a request that is [plain](super::PortRequest::plain) a division, else one search
    /// for each.
    pub fn fits_times(&self, ask: &Ask<'_>, choice: &mut Choice, most: u32) -> u32 {
        if let Some(protocol) = ask.request.plain() {
            let usable = self.usable_count(protocol, ask.awaited);
            return (usable / ask.request.single_any(protocol)).min(most);
        }
        let ask = Ask {
            former: None,
            ..*ask
        };
        if ask.request.is_empty() {
            return most;
        }
        let mut times = 0;
        let mut chooser = Chooser::new(self, &ask, &[], choice, Causes::Untold);
        while times < most && chooser.again() {
            times += 1;
        }
        choice.clear();
        times
    }
}
