//! Where numbers for one "any" can be had: in the free set from the cursor on, then in what cools.

use crate::identity::ServiceId;
use crate::port::{Port, PortRanges, Protocol};

use super::choice::Pick;
use super::span::{Span, overlaps, unions};
use super::{Ask, Awaited, PortPool, Side, offered};

/// A look for the numbers of one port, beside those that the request has picked already.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) pool: &'a PortPool,
    pub(super) protocol: Protocol,
    pub(super) within: Option<&'a PortRanges>,
    pub(super) picks: &'a [Pick],
    pub(super) awaited: [&'a Awaited; 2],
    pub(super) others: &'a [(&'a PortPool, Ask<'a>)],
}

impl<'a> Search<'a> {
    /// `count` consecutive free numbers: the first at or after `start`, else the first of all.
    pub(super) fn free(&self, count: u16, start: u16) -> Option<Span> {
        if self.pool.free_count(self.protocol) < u32::from(count) {
            return None;
        }
        let after = Span::new(start, Span::ALL.last);
        // Blocks may reach over the cursor when the search comes round.
        let before = Span::new(1, start.saturating_add(count - 1).saturating_sub(1));
        after
            .into_iter()
            .chain(before)
            .find_map(|window| self.first(count, window, false, true))
    }

    /// Numbers of which some or all cool: a single one oldest first, else the lowest run.
    pub(super) fn cooling(&self, count: u16) -> Option<Span> {
        let cools = |side| {
            self.pool
                .numbers(side)
                .is_some_and(|n| !n.cooling.is_empty())
        };
        if !Side::of(self.protocol).any(cools) {
            return None;
        }
        let side = match (self.protocol, count) {
            (Protocol::Tcp, 1) => Side::Tcp,
            (Protocol::Udp, 1) => Side::Udp,
            _ => return self.first(count, Span::ALL, true, true),
        };
        self.oldest(side)
    }

    /// What would be found if nobody waited for a number.
    pub(super) fn but_for_waiting(&self, count: u16) -> Option<Span> {
        self.first(count, Span::ALL, true, false)
    }

    /// Whether `span` is all free or cooling for `service`, and left alone by nobody's wish.
    pub(super) fn may_return(&self, span: Span, service: ServiceId) -> bool {
        span.numbers().all(|number| {
            !self.is_blocked(number, true, true)
                && Side::of(self.protocol).all(|side| {
                    let cools = || {
                        let numbers = self.pool.numbers(side)?;
                        Some(numbers.cooling.at(number)?.service == service)
                    };
                    self.pool.is_free(side, number) || cools() == Some(true)
                })
        })
    }

    /// Whether a waiting request names the number.
    pub(super) fn is_awaited(&self, number: u16) -> bool {
        Side::of(self.protocol).any(|side| {
            self.awaited
                .iter()
                .any(|awaited| awaited.contains(side, number))
        })
    }

    fn oldest(&self, side: Side) -> Option<Span> {
        let cooling = &self.pool.numbers(side)?.cooling;
        cooling.by_age().find_map(|cooled| {
            overlaps(self.offered(), std::iter::once(cooled.span))
                .flat_map(Span::numbers)
                .find(|number| !self.is_blocked(*number, true, true))
                .map(Span::single)
        })
    }

    /// The first `count` consecutive numbers inside `window`.
    fn first(&self, count: u16, window: Span, cooling: bool, mind_waiting: bool) -> Option<Span> {
        let blocked = |number| self.is_blocked(number, cooling, mind_waiting);
        let windows = overlaps(self.offered(), std::iter::once(window));
        let (pool, protocol) = (self.pool, self.protocol);
        for window in windows {
            let found = match (protocol, cooling) {
                (Protocol::Tcp, false) => {
                    first_clear(pool.free_spans(Side::Tcp, window), count, blocked)
                }
                (Protocol::Udp, false) => {
                    first_clear(pool.free_spans(Side::Udp, window), count, blocked)
                }
                (Protocol::TcpUdp, false) => {
                    let tcp = pool.free_spans(Side::Tcp, window);
                    let udp = pool.free_spans(Side::Udp, window);
                    first_clear(overlaps(tcp, udp), count, blocked)
                }
                (Protocol::Tcp, true) => {
                    first_clear(pool.usable_spans(Side::Tcp, window), count, blocked)
                }
                (Protocol::Udp, true) => {
                    first_clear(pool.usable_spans(Side::Udp, window), count, blocked)
                }
                (Protocol::TcpUdp, true) => {
                    let tcp = pool.usable_spans(Side::Tcp, window);
                    let udp = pool.usable_spans(Side::Udp, window);
                    first_clear(overlaps(tcp, udp), count, blocked)
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn offered(&self) -> impl Iterator<Item = Span> + 'a {
        offered(&self.pool.ranges.dynamic, self.within)
    }

    /// Whether another port of the request has picked the number.
    pub(super) fn is_picked(&self, number: u16) -> bool {
        self.picks
            .iter()
            .any(|pick| pick.span.contains(number) && pick.protocol.overlaps(self.protocol))
    }

    /// Whether something other than a holder keeps the number from this port. What cools can be
    /// foreign or reserved as well; what is free cannot.
    fn is_blocked(&self, number: u16, cooling: bool, mind_waiting: bool) -> bool {
        let elsewhere = self.others.iter().any(|(pool, ask)| {
            let search = Search {
                pool,
                awaited: ask.awaited,
                others: &[],
                ..*self
            };
            Port::new(number).is_none_or(|port| !pool.ranges.dynamic.contains(port))
                || search.is_blocked(number, cooling, mind_waiting)
                || Side::of(self.protocol).any(|side| {
                    let cools = || pool.numbers(side)?.cooling.at(number);
                    !pool.is_free(side, number) && !(cooling && cools().is_some())
                })
        });
        self.is_picked(number)
            || elsewhere
            || mind_waiting && self.is_awaited(number)
            || cooling
                && (self.pool.is_reserved(number)
                    || Side::of(self.protocol)
                        .any(|side| self.pool.strangers.at(side, number).is_some()))
    }
}

impl PortPool {
    /// Runs of one side inside `window` that are free or cooling, ascending.
    fn usable_spans(&self, side: Side, window: Span) -> impl Iterator<Item = Span> + '_ {
        let cooling = self
            .numbers(side)
            .into_iter()
            .flat_map(move |numbers| numbers.cooling.within(window))
            .filter_map(move |cooled| cooled.span.overlap(window));
        unions(self.free_spans(side, window), cooling)
    }
}

/// The first `count` consecutive numbers of one of `spans` that are not `blocked`.
fn first_clear(
    mut spans: impl Iterator<Item = Span>,
    count: u16,
    blocked: impl Fn(u16) -> bool,
) -> Option<Span> {
    spans.find_map(|span| {
        let mut start = span.first;
        loop {
            let window = Span::new(start, start.checked_add(count - 1)?)?;
            if window.last > span.last {
                return None;
            }
            match window.numbers().rev().find(|number| blocked(*number)) {
                None => return Some(window),
                Some(number) => start = number.checked_add(1)?,
            }
        }
    })
}
