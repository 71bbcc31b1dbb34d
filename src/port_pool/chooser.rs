//! The order in which a request finds its numbers: one procedure for "fits", "why not" and "take".
//!
//! Fixed numbers; former numbers of the replica; blocks on both sides; blocks, longest first; any on
//! both sides; any, by the lowest upper bound of its range. Within each, free before cooling.
//! Exactness over all assignments would be packing; this order refuses hardly any fit. Former
//! numbers are a preference: if the request fails with them, it is tried once without.

use crate::identity::ServiceId;
use crate::port::{Port, Protocol};

use super::cause::{Cause, CauseCode, Why, WhyPort};
use super::choice::{Ask, Causes, Choice};
use super::search::Search;
use super::span::Span;
use super::walk::Walk;
use super::{PortGrant, PortPool, Side, Want, WantedPort, offered};

/// One look for the numbers of a request.
pub(super) struct Chooser<'a, 'c> {
    pool: &'a PortPool,
    ask: Ask<'a>,
    /// Pools that must have the same numbers.
    others: &'a [(&'a PortPool, Ask<'a>)],
    choice: &'c mut Choice,
    causes: Causes<'c>,
    /// Whether the same is looked for several times over.
    repeats: bool,
    fits: bool,
}

impl<'a, 'c> Chooser<'a, 'c> {
    pub(super) fn new(
        pool: &'a PortPool,
        ask: Ask<'a>,
        others: &'a [(&'a PortPool, Ask<'a>)],
        choice: &'c mut Choice,
        causes: Causes<'c>,
    ) -> Self {
        choice.clear();
        choice.begin(pool, ask.request.as_slice().len());
        Self {
            pool,
            ask,
            others,
            choice,
            causes,
            repeats: false,
            fits: true,
        }
    }

    /// Looks for the same again and again, each time beside what was found before.
    pub(super) fn repeating(pool: &'a PortPool, ask: Ask<'a>, choice: &'c mut Choice) -> Self {
        let mut chooser = Self::new(pool, ask, &[], choice, Causes::Untold);
        chooser.repeats = true;
        chooser
    }

    /// Looks once more. Whether everything was found.
    pub(super) fn again(&mut self) -> bool {
        let many = self.ask.request.as_slice().len();
        self.choice.again(self.pool, many);
        self.run()
    }

    /// Looks once. Whether everything was found.
    pub(super) fn run(&mut self) -> bool {
        let request = self.ask.request;
        let wanted = request.as_slice();
        let choice = &mut *self.choice;
        if request.is_narrowed() {
            choice.order.clear();
            choice.order.extend_from_slice(request.order());
            let rank = |place: &u16| (rank(self.pool, &wanted[usize::from(*place)]), *place);
            choice.order.sort_unstable_by_key(rank);
        }
        // The fixed ones first, then the former numbers, so that neither falls to an "any".
        let mut next = 0;
        while let Some((place, port)) = self.at(next) {
            let Want::Fixed(number) = port.want else {
                break;
            };
            if !self.fixed(place, port, number) {
                self.choice.failed.get_or_insert(place);
                if !self.causes.are_all_told() {
                    return false;
                }
            }
            next += 1;
        }
        if let Some(former) = self.ask.former {
            self.former(former, next);
        }
        while let Some((place, port)) = self.at(next) {
            if self.has_pick(place) {
                next += 1;
                continue;
            }
            let (found, looked_for) = match self.alike_from(next) {
                Some((side, alike)) => (self.singles(next, side, alike), alike),
                None => (usize::from(self.any(place, port)), 1),
            };
            if found < looked_for {
                self.fits = false;
                if let Some((place, _)) = self.at(next + found) {
                    self.choice.failed.get_or_insert(place);
                }
                if matches!(self.causes, Causes::Untold) {
                    return false;
                }
                for missing in next + found..next + looked_for {
                    self.explain_any(missing);
                    if !self.causes.are_all_told() {
                        return false;
                    }
                }
            }
            next += looked_for;
        }
        self.fits
    }

    /// The port that is `next` in the order.
    fn at(&self, next: usize) -> Option<(u16, &'a WantedPort)> {
        let request = self.ask.request;
        let place = if request.is_narrowed() {
            *self.choice.order.get(next)?
        } else {
            *request.order().get(next)?
        };
        Some((place, &request.as_slice()[usize::from(place)]))
    }

    fn pick(&mut self, place: u16, protocol: Protocol, span: Span) {
        self.choice.spans[usize::from(place)] = span;
        for side in Side::of(protocol) {
            self.choice.picked[side.index()].insert(span);
        }
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
            Causes::Code(first) => {
                first.get_or_insert_with(|| why().cause.code());
            }
            Causes::All(all) => all.push(why()),
        }
    }

    fn fixed(&mut self, place: u16, port: &WantedPort, number: Port) -> bool {
        let span = Span::single(number.number());
        let again = self.repeats && self.choice.is_picked(port.protocol, span);
        // Also if it is refused: no "any" of this request may answer with it.
        self.pick(place, port.protocol, span);
        let mut pools = std::iter::once((self.pool, self.ask)).chain(self.others.iter().copied());
        if !pools.all(|(pool, _)| pool.ranges.fixed.contains(number)) {
            self.refuse(port, port.protocol, Some(number.number()), Cause::NotInPool);
            return false;
        }
        let mut fits = !again;
        for side in Side::of(port.protocol) {
            let number = number.number();
            let mut pools =
                std::iter::once((self.pool, self.ask)).chain(self.others.iter().copied());
            let against = pools.find(|(pool, ask)| !pool.gives_fixed(side, number, ask.service));
            let Some((pool, ask)) = against else {
                continue;
            };
            fits = false;
            if let Causes::Code(first) = &mut self.causes
                && pool.is_surely_held(side, number)
            {
                first.get_or_insert(CauseCode::Held);
            } else if !matches!(self.causes, Causes::Untold)
                && let Some(cause) = pool.against_fixed(side, number, &ask)
            {
                self.refuse(port, side.protocol(), Some(number), cause);
            }
        }
        self.fits &= fits;
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
            let inside = offered(&self.pool.ranges.dynamic, port.within.as_ref(), span)
                .any(|offered| offered == span);
            if alike && inside && self.search(port).may_return(span) {
                self.pick(place, port.protocol, span);
            }
        }
    }

    /// How many ports from `next` on want any one number of the same one side, not narrowed: a walk
    /// over the free runs answers them together.
    fn alike_from(&self, next: usize) -> Option<(Side, usize)> {
        if !self.others.is_empty() {
            return None;
        }
        let (_, first) = self.at(next)?;
        let side = match first.protocol {
            Protocol::Tcp => Side::Tcp,
            Protocol::Udp => Side::Udp,
            Protocol::TcpUdp => return None,
        };
        if self.ask.former.is_none() && self.ask.request.plain().is_some() {
            return Some((side, self.ask.request.as_slice().len()));
        }
        let is_alike = |(place, port): &(u16, &WantedPort)| {
            port.protocol == first.protocol
                && port.within.is_none()
                && matches!(port.want, Want::Any { count } if count.get() == 1)
                && !self.has_pick(*place)
        };
        let alike = (next..).map_while(|next| self.at(next).filter(is_alike));
        let alike = alike.count();
        (alike > 0).then_some((side, alike))
    }

    /// Finds a number for each of `many` ports from `next` on. Returns how many were found.
    fn singles(&mut self, next: usize, side: Side, many: usize) -> usize {
        let (request, is_narrowed) = (self.ask.request, self.ask.request.is_narrowed());
        let Choice {
            spans,
            picked,
            order,
            cursor,
            ..
        } = &mut *self.choice;
        let places = if is_narrowed { order } else { request.order() };
        let places = &places[next..];
        let walk = Walk {
            pool: self.pool,
            side,
            awaited: self.ask.awaited.map(|awaited| awaited.on(side)),
            picked: &picked[side.index()],
        };
        let found = walk.singles(*cursor, many, |nth, number| {
            spans[usize::from(places[nth])] = Span::single(number);
        });
        let places = &places[..found];
        let last = places.last().map(|last| spans[usize::from(*last)].last);
        // Ports that come after these must leave their numbers alone, and who asks why not as well.
        let more_to_come = self.repeats || next + many < request.as_slice().len();
        let is_told = found < many && !matches!(self.causes, Causes::Untold);
        if more_to_come || is_told {
            for place in places {
                picked[side.index()].insert(spans[usize::from(*place)]);
            }
        }
        if let Some(last) = last {
            self.move_on(last);
        }
        found
    }

    /// The next "any" begins to look after `last`.
    fn move_on(&mut self, last: u16) {
        self.choice.cursor = self.pool.draw.after(last, self.choice.cursor);
    }

    fn any(&mut self, place: u16, port: &'a WantedPort) -> bool {
        let count = port.count().get();
        let search = self.search(port);
        let found = search
            .free(count, self.choice.cursor)
            .or_else(|| search.cooling(count));
        let Some(span) = found else {
            return false;
        };
        self.move_on(span.last);
        self.pick(place, port.protocol, span);
        true
    }

    /// Says why no number was found for the port that is `next` in the order.
    fn explain_any(&mut self, next: usize) {
        let Some((_, port)) = self.at(next) else {
            return;
        };
        let (protocol, count) = (port.protocol, port.count().get());
        if offered(&self.pool.ranges.dynamic, port.within.as_ref(), Span::ALL)
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
        let group = (0..).zip(self.ask.request.as_slice());
        let (mut have, mut want) = (0, 0);
        for (place, _) in group.filter(|(_, other)| alike(other)) {
            want += 1;
            have += u32::from(self.has_pick(place));
        }
        self.refuse(port, protocol, None, Cause::TooFew { have, want });
    }

    fn has_pick(&self, place: u16) -> bool {
        !self.choice.spans[usize::from(place)].is_missing()
    }

    fn search<'s>(&'s self, port: &'s WantedPort) -> Search<'s> {
        Search {
            pool: self.pool,
            ask: self.ask,
            others: self.others,
            protocol: port.protocol,
            within: port.within.as_ref(),
            picked: &self.choice.picked,
        }
    }
}

impl PortPool {
    /// Whether a fixed request of `service` gets the number. Names no holder, so that a refusal is
    /// a look at a bit.
    pub(super) fn gives_fixed(&self, side: Side, number: u16, service: ServiceId) -> bool {
        self.free_on(side).contains(number)
            || self.resting_on(side).contains(number)
                && self
                    .cooling_on(side)
                    .at(number)
                    .is_some_and(|cooled| cooled.service == service)
    }

    /// Whether the number, which is not free, carries nothing but a holder, who keeps it: known without a look
    /// at who that is. May say no.
    fn is_surely_held(&self, side: Side, number: u16) -> bool {
        !self.holdings.has_releasing()
            && !self.resting_on(side).contains(number)
            && self.unreserved.contains(number)
            && !self.strangers.on(side).contains(number)
    }

    /// What keeps a fixed request from this number, which it does not get.
    fn against_fixed(&self, side: Side, number: u16, ask: &Ask<'_>) -> Option<Cause> {
        if let Some(cause) = self.held_cause(side, number) {
            return Some(cause);
        }
        let cooled = self.cooling_on(side).at(number);
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
            let bound = offered(&pool.ranges.dynamic, port.within.as_ref(), Span::ALL)
                .last()
                .map_or(0, |span| span.last);
            (if both { 3 } else { 4 }, bound)
        }
    }
}
