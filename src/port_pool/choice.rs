//! The order in which a request finds its numbers: one procedure for "fits", "why not" and "take".
//!
//! Fixed numbers; former numbers of the replica; blocks on both sides; blocks, longest first; any on
//! both sides; any, by the lowest upper bound of its range. Within each, free before cooling.
//! Exactness over all assignments would be packing; this order refuses hardly any fit. Former
//! numbers are a preference: if the request fails with them, it is tried once without.

use crate::identity::ServiceId;
use crate::port::{Port, PortRange, Protocol};
use crate::time::Monotonic;

use super::cause::{Cause, Why, WhyPort};
use super::search::Search;
use super::span::Span;
use super::{Awaited, Draw, PortGrant, PortPool, PortRequest, Side, Want, WantedPort, offered};

/// What is asked of one host's pool.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Whose ports they will be: a fixed number that cools for this service is given at once.
    pub service: ServiceId,
    /// The named ports.
    pub request: &'a PortRequest,
    /// What this replica held before: preferred by name where it is free or cools for the service.
    pub former: Option<&'a PortGrant>,
    /// Numbers that "any" leaves alone, in this order of lists: each is looked at.
    pub awaited: [&'a Awaited; 2],
    /// For the time that a cooling number has left.
    pub now: Monotonic,
}

/// The numbers chosen for one request. Kept by the caller and reused, so that asking again
/// allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub(super) picks: Vec<Pick>,
    pub(super) cursor: u16,
    pub(super) random: u64,
    order: Vec<u16>,
}

/// The numbers for one port of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    /// Its place in the request.
    pub(super) place: u16,
    pub(super) protocol: Protocol,
    pub(super) span: Span,
}

impl Choice {
    pub(super) fn clear(&mut self) {
        self.picks.clear();
        self.order.clear();
    }
}

impl PortPool {
    /// Finds numbers for `ask` and leaves them in `choice`. Nothing is taken. What is against it goes
    /// to `causes`.
    ///
    /// Returns whether it fits. Cost: bounded whatever the layout; no allocation once `choice` is
    /// warm, unless all causes are told. A cause that names a holder costs a look at every grant of
    /// the host.
    pub fn choose(&self, ask: &Ask<'_>, choice: &mut Choice, causes: Causes<'_>) -> bool {
        Self::choose_same(&[(self, *ask)], choice, causes)
    }

    /// Finds the same numbers on each of `pools` for one request, each in its own surroundings: as
    /// [`Self::choose`], but an "any" takes what can be had on all of them. Choices begin
    /// where the first pool's would. What is left in `choice` can be taken on each of them.
    ///
    /// The asks must be about one service and request; former numbers are looked for in the first
    /// one. Nothing fits on no pool. A cause of a fixed number is that of the first pool that has
    /// one; of an "any", that of the first pool that could not answer alone, else it says how few
    /// all of them have in common.
    pub fn choose_same(
        pools: &[(&Self, Ask<'_>)],
        choice: &mut Choice,
        causes: Causes<'_>,
    ) -> bool {
        let Some(((pool, ask), others)) = pools.split_first() else {
            return false;
        };
        if ask.former.is_some() {
            let preferring = Chooser::new(pool, ask, others, choice, Causes::Untold).run();
            if preferring {
                return true;
            }
        }
        let plain = Ask {
            former: None,
            ..*ask
        };
        Chooser::new(pool, &plain, others, choice, causes).run()
    }
}

/// What is to be told of the causes against a request.
#[derive(Debug)]
pub enum Causes<'a> {
    /// Nothing: the first one ends the search.
    Untold,
    /// The first one, which ends the search. Allocates nothing.
    First(&'a mut Option<Why>),
    /// Every one, pushed here.
    All(&'a mut Vec<Why>),
}

impl Causes<'_> {
    const fn are_all_told(&self) -> bool {
        matches!(self, Self::All(_))
    }
}

pub(super) struct Chooser<'a, 'c> {
    pool: &'a PortPool,
    ask: &'a Ask<'a>,
    /// Pools that must have the same numbers.
    others: &'a [(&'a PortPool, Ask<'a>)],
    choice: &'c mut Choice,
    causes: Causes<'c>,
    fits: bool,
}

impl<'a, 'c> Chooser<'a, 'c> {
    pub(super) fn new(
        pool: &'a PortPool,
        ask: &'a Ask<'a>,
        others: &'a [(&'a PortPool, Ask<'a>)],
        choice: &'c mut Choice,
        causes: Causes<'c>,
    ) -> Self {
        choice.clear();
        choice.random = pool.random;
        choice.cursor = pool.cursor;
        Self {
            pool,
            ask,
            others,
            choice,
            causes,
            fits: true,
        }
    }

    fn run(&mut self) -> bool {
        let choice = &mut *self.choice;
        match self.pool.draw {
            Draw::NextFit => {}
            Draw::Lowest => choice.cursor = Span::ALL.first,
            Draw::Random { .. } => choice.cursor = random_start(self.pool, &mut choice.random),
        }
        let request = self.ask.request;
        let order = &mut self.choice.order;
        order.clear();
        order.extend_from_slice(request.order());
        if request.is_narrowed() {
            let (pool, wanted) = (self.pool, request.as_slice());
            order.sort_unstable_by_key(|place| (rank(pool, &wanted[usize::from(*place)]), *place));
        }
        // The fixed ones first, then the former numbers, so that neither falls to an "any".
        let mut next = 0;
        while let Some((place, port)) = self.at(next) {
            let Want::Fixed(number) = port.want else {
                break;
            };
            if !self.fixed(place, port, number) && !self.causes.are_all_told() {
                return false;
            }
            next += 1;
        }
        if let Some(former) = self.ask.former {
            self.former(former, next);
        }
        while let Some((place, port)) = self.at(next) {
            let count = port.count().get();
            if !self.is_picked(place)
                && !self.any(next, place, port, count)
                && !self.causes.are_all_told()
            {
                return false;
            }
            next += 1;
        }
        self.fits
    }

    /// Looks for the same once more, beside what was found already.
    pub(super) fn again(&mut self) -> bool {
        self.run()
    }

    /// The port that is `next` in the order.
    fn at(&self, next: usize) -> Option<(u16, &'a WantedPort)> {
        let place = *self.choice.order.get(next)?;
        Some((place, &self.ask.request.as_slice()[usize::from(place)]))
    }

    fn is_picked(&self, place: u16) -> bool {
        self.ask.former.is_some() && self.choice.picks.iter().any(|pick| pick.place == place)
    }

    fn pick(&mut self, place: u16, protocol: Protocol, span: Span) {
        self.choice.picks.push(Pick {
            place,
            protocol,
            span,
        });
    }

    fn refuse(&mut self, port: &WantedPort, protocol: Protocol, number: Option<u16>, cause: Cause) {
        self.fits = false;
        let why = || Why {
            port: Some(WhyPort {
                name: port.name.clone(),
                protocol,
                number: number.and_then(Port::new),
            }),
            cause,
        };
        match &mut self.causes {
            Causes::Untold => {}
            Causes::First(first) => {
                first.get_or_insert_with(why);
            }
            Causes::All(all) => all.push(why()),
        }
    }

    fn fixed(&mut self, place: u16, port: &WantedPort, number: Port) -> bool {
        let again = self.search(port).is_picked(number.number());
        // Also if it is refused: no "any" of this request may answer with it.
        self.pick(place, port.protocol, Span::single(number.number()));
        let offers = |(pool, _): &(&PortPool, Ask<'_>)| pool.ranges.fixed.contains(number);
        if !self.pool.ranges.fixed.contains(number) || !self.others.iter().all(offers) {
            self.refuse(port, port.protocol, Some(number.number()), Cause::NotInPool);
            return false;
        }
        let mut fits = !again;
        for side in Side::of(port.protocol) {
            let number = number.number();
            let pools = std::iter::once((self.pool, self.ask));
            let others = self.others.iter().map(|(pool, ask)| (*pool, ask));
            let cause = pools
                .chain(others)
                .find_map(|(pool, ask)| pool.against_fixed(side, number, ask));
            if let Some(cause) = cause {
                fits = false;
                self.refuse(port, side.protocol(), Some(number), cause);
            }
        }
        fits
    }

    /// Picks the former numbers of the ports from `next` on, where they can be had.
    fn former(&mut self, former: &PortGrant, next: usize) {
        let mut next = next;
        while let Some((place, port)) = self.at(next) {
            next += 1;
            let Some(granted) = former.port(&port.name) else {
                continue;
            };
            let span = Span::from(granted.numbers);
            let alike = granted.protocol == port.protocol
                && granted.numbers.count() == u32::from(port.count().get());
            let inside = offered(&self.pool.ranges.dynamic, port.within.as_ref())
                .any(|offered| offered.contains(span.first) && offered.contains(span.last));
            if alike && inside && self.search(port).may_return(span, self.ask.service) {
                self.pick(place, port.protocol, span);
            }
        }
    }

    fn any(&mut self, next: usize, place: u16, port: &'a WantedPort, count: u16) -> bool {
        let search = self.search(port);
        let found = search
            .free(count, self.choice.cursor)
            .or_else(|| search.cooling(count));
        if let Some(span) = found {
            if self.pool.draw != Draw::Lowest {
                self.choice.cursor = span.last.checked_add(1).unwrap_or(Span::ALL.first);
            }
            self.pick(place, port.protocol, span);
            return true;
        }
        self.fits = false;
        if !matches!(self.causes, Causes::Untold) {
            self.explain_any(next, port, count);
        }
        false
    }

    /// Says why no number was found for the port that is `next` in the order.
    fn explain_any(&mut self, next: usize, port: &'a WantedPort, count: u16) {
        let protocol = port.protocol;
        if offered(&self.pool.ranges.dynamic, port.within.as_ref())
            .next()
            .is_none()
        {
            return self.refuse(port, protocol, None, Cause::NotInPool);
        }
        let search = self.search(port);
        if let Some(span) = search.but_for_waiting(count) {
            let awaited = span.numbers().find(|number| search.is_awaited(*number));
            return self.refuse(port, protocol, awaited, Cause::Awaited);
        }
        if count > 1 {
            return self.refuse(port, protocol, None, Cause::NoBlock { size: count });
        }
        // Ports that ask alike fail together, and are told once.
        let alike = |other: &WantedPort| {
            other.want == port.want
                && other.protocol == port.protocol
                && other.within == port.within
        };
        let told = (0..next)
            .filter_map(|earlier| self.at(earlier))
            .any(|(place, other)| alike(other) && !self.has_pick(place));
        if told {
            return;
        }
        let group = self.ask.request.as_slice().iter().enumerate();
        let (mut have, mut want) = (0, 0);
        for (place, _) in group.filter(|(_, other)| alike(other)) {
            want += 1;
            have += u32::from(u16::try_from(place).is_ok_and(|place| self.has_pick(place)));
        }
        self.refuse(port, protocol, None, Cause::TooFew { have, want });
    }

    fn has_pick(&self, place: u16) -> bool {
        self.choice.picks.iter().any(|pick| pick.place == place)
    }

    fn search<'s>(&'s self, port: &'s WantedPort) -> Search<'s> {
        Search {
            pool: self.pool,
            protocol: port.protocol,
            within: port.within.as_ref(),
            picks: &self.choice.picks,
            awaited: self.ask.awaited,
            others: self.others,
        }
    }
}

impl PortPool {
    /// What keeps a fixed request from this number; nothing if it is free, or only cools for the
    /// service that asks.
    fn against_fixed(&self, side: Side, number: u16, ask: &Ask<'_>) -> Option<Cause> {
        if self.is_free(side, number) {
            return None;
        }
        if let Some(cause) = self.held_cause(side, number) {
            return Some(cause);
        }
        let cooled = self.numbers(side).and_then(|n| n.cooling.at(number));
        if let Some(cooled) = cooled.filter(|cooled| cooled.service != ask.service) {
            let left = cooled.until.since(ask.now);
            return Some(Cause::Cooling { left });
        }
        if let Some(stranger) = self.strangers.at(side, number) {
            return Some(Cause::Foreign(stranger.clone()));
        }
        self.is_reserved(number).then_some(Cause::Reserved)
    }

    /// Who holds the number, as a cause. Cost: linear in the host's grants.
    fn held_cause(&self, side: Side, number: u16) -> Option<Cause> {
        let (by, phase) = self.holder(side, number, |_| true)?;
        Some(match phase {
            super::Phase::Releasing => Cause::Releasing { by },
            super::Phase::Held | super::Phase::Tentative => Cause::Held { by },
        })
    }
}

/// The class of a port in the order of choice, then what orders it within the class.
fn rank(pool: &PortPool, port: &WantedPort) -> (u8, u16) {
    let both = port.protocol == Protocol::TcpUdp;
    match port.want {
        Want::Fixed(_) => (0, 0),
        Want::Any { count } if count.get() > 1 => {
            (if both { 1 } else { 2 }, u16::MAX - count.get())
        }
        Want::Any { .. } => {
            let bound = offered(&pool.ranges.dynamic, port.within.as_ref())
                .last()
                .map_or(0, |span| span.last);
            (if both { 3 } else { 4 }, bound)
        }
    }
}

/// A number of the dynamic range by the next step of the generator (splitmix64).
fn random_start(pool: &PortPool, state: &mut u64) -> u16 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let ranges: &[PortRange] = pool.ranges.dynamic.as_slice();
    let mut place = mixed % u64::from(pool.ranges.dynamic.count().max(1));
    for range in ranges {
        let count = u64::from(range.count());
        if place < count {
            let offset = u16::try_from(place).unwrap_or(0);
            return range.first().number().saturating_add(offset);
        }
        place -= count;
    }
    Span::ALL.first
}
