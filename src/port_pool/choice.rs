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
use super::number_set::NumberSet;
use super::search::Search;
use super::span::{Span, spans_within};
use super::take::Moved;
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
    /// For the time that a cooling number has left. What is due by then should have been ended: for a
    /// later moment, ask a copy that [`PortPool::end_due`] was called on.
    pub now: Monotonic,
}

/// The numbers chosen for one request. Kept by the caller and reused, so that asking again
/// allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// By place in the request; nothing where none was found yet.
    spans: Vec<Option<Span>>,
    /// The numbers of both sides that an "any" must leave alone because of an earlier port.
    picked: [NumberSet; 2],
    /// The order of choice, where it depends on a pool's ranges.
    order: Vec<u16>,
    pub(super) cursor: u16,
    pub(super) random: Moved<u64>,
}

impl Choice {
    /// The numbers of each port, in the order of the request.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().filter_map(|span| *span)
    }

    /// Forgets what was chosen.
    pub(super) fn clear(&mut self) {
        self.spans.clear();
        for picked in &mut self.picked {
            picked.clear();
        }
    }

    fn is_picked(&self, protocol: Protocol, span: Span) -> bool {
        Side::of(protocol).any(|side| self.picked[side.index()].touches(span))
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
        choose(self, ask, &[], choice, causes)
    }

    /// Finds the same numbers on each of `pools` for one request, each in its own surroundings: as
    /// [`Self::choose`], but an "any" takes what can be had on all of them, and of what cools the
    /// lowest rather than the oldest. Choices begin where the first pool's would. What is left in
    /// `choice` can be taken on each of them.
    ///
    /// The asks must be about one service and request; former numbers are looked for in the first
    /// one. Nothing fits on no pool. The cause of a fixed number is that of the first pool that has
    /// one; that of an "any" says how few numbers all of them have in common. Cost: linear in the
    /// pools.
    pub fn choose_same(
        pools: &[(&Self, Ask<'_>)],
        choice: &mut Choice,
        causes: Causes<'_>,
    ) -> bool {
        match pools.split_first() {
            Some(((pool, ask), others)) => choose(pool, ask, others, choice, causes),
            None => false,
        }
    }
}

fn choose<'a>(
    pool: &'a PortPool,
    ask: &Ask<'a>,
    others: &'a [(&'a PortPool, Ask<'a>)],
    choice: &mut Choice,
    causes: Causes<'_>,
) -> bool {
    if ask.former.is_some() {
        let preferring = Chooser::new(pool, *ask, others, choice, Causes::Untold).run();
        if preferring {
            return true;
        }
    }
    let plain = Ask {
        former: None,
        ..*ask
    };
    Chooser::new(pool, plain, others, choice, causes).run()
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
    fn new(
        pool: &'a PortPool,
        ask: Ask<'a>,
        others: &'a [(&'a PortPool, Ask<'a>)],
        choice: &'c mut Choice,
        causes: Causes<'c>,
    ) -> Self {
        choice.clear();
        choice.random = Moved {
            before: pool.random,
            after: pool.random,
        };
        choice.cursor = pool.cursor;
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

    /// Looks once. Whether everything was found.
    pub(super) fn run(&mut self) -> bool {
        let request = self.ask.request;
        let wanted = request.as_slice();
        let choice = &mut *self.choice;
        match self.pool.draw {
            Draw::NextFit => {}
            Draw::Lowest => choice.cursor = Span::ALL.first,
            Draw::Random { .. } => {
                choice.cursor = random_start(self.pool, &mut choice.random.after);
            }
        }
        choice.spans.clear();
        choice.spans.resize(wanted.len(), None);
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
            if !self.fixed(place, port, number) && !self.causes.are_all_told() {
                return false;
            }
            next += 1;
        }
        if let Some(former) = self.ask.former {
            self.former(former, next);
        }
        while let Some((place, port)) = self.at(next) {
            if self.choice.spans[usize::from(place)].is_some() {
                next += 1;
                continue;
            }
            let (found, looked_for) = match self.alike_from(next) {
                Some((side, alike)) => (self.singles(next, side, alike), alike),
                None => (usize::from(self.any(place, port)), 1),
            };
            if found < looked_for {
                self.fits = false;
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
        self.choice.spans[usize::from(place)] = Some(span);
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
            if !matches!(self.causes, Causes::Untold)
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
                && self.choice.spans[usize::from(*place)].is_none()
        };
        let alike = (next..).map_while(|next| self.at(next).filter(is_alike));
        let alike = alike.count();
        (alike > 0).then_some((side, alike))
    }

    /// Finds a number for each of `many` ports from `next` on: free ones from the cursor on, then
    /// what cools, oldest first. Returns how many were found.
    fn singles(&mut self, next: usize, side: Side, many: usize) -> usize {
        let pool = self.pool;
        let awaited = self.ask.awaited.map(|awaited| awaited.on(side));
        let spoken_for = [awaited[0], awaited[1]].iter().any(|set| !set.is_empty())
            || !self.choice.picked[side.index()].is_empty();
        let mut found = 0;
        let mut last = None;
        let after = Span::new(self.choice.cursor, Span::ALL.last);
        let before = Span::new(Span::ALL.first, self.choice.cursor.saturating_sub(1));
        let windows = after.into_iter().chain(before);
        let free = windows.flat_map(|window| spans_within(&pool.ranges.dynamic, window));
        let mut rest = (pool.free_count(side.protocol()) > 0).then_some(free);
        'free: for window in rest.iter_mut().flatten() {
            let mut window = Some(window);
            while let Some(here) = window {
                let missing = u32::try_from(many - found).unwrap_or(u32::MAX);
                let Some(run) = pool.free_on(side).run_from(here, missing) else {
                    break;
                };
                for number in run.numbers() {
                    if spoken_for && self.is_spoken_for(side, number) {
                        continue;
                    }
                    self.assign(next + found, number);
                    found += 1;
                    last = Some(number);
                }
                if found == many {
                    break 'free;
                }
                let after = run.last.checked_add(1);
                window = after.and_then(|first| Span::new(first, here.last));
            }
        }
        if found < many && !pool.resting_on(side).is_empty() {
            let oldest = pool.cooling_on(side).by_age();
            let runs = oldest.flat_map(|cooled| spans_within(&pool.ranges.dynamic, cooled.span));
            let resting = runs
                .flat_map(Span::numbers)
                .filter(|number| pool.resting_on(side).contains(*number));
            for number in resting {
                if found == many {
                    break;
                }
                if !(spoken_for && self.is_spoken_for(side, number)) {
                    self.assign(next + found, number);
                    found += 1;
                    last = Some(number);
                }
            }
        }
        if let Some(last) = last {
            self.move_on(last);
        }
        // Ports that come after these must leave their numbers alone, and who asks why not as well.
        let more_to_come = self.repeats || self.at(next + many).is_some();
        let is_told = found < many && !matches!(self.causes, Causes::Untold);
        for at in (next..next + found).filter(|_| more_to_come || is_told) {
            if let Some((place, port)) = self.at(at)
                && let Some(span) = self.choice.spans[usize::from(place)]
            {
                self.pick(place, port.protocol, span);
            }
        }
        found
    }

    fn assign(&mut self, next: usize, number: u16) {
        if let Some((place, _)) = self.at(next) {
            self.choice.spans[usize::from(place)] = Some(Span::single(number));
        }
    }

    /// Whether a waiting request or another port of this one names the number.
    fn is_spoken_for(&self, side: Side, number: u16) -> bool {
        let awaited = self.ask.awaited.iter();
        self.choice.picked[side.index()].contains(number)
            || awaited
                .into_iter()
                .any(|awaited| awaited.contains(side, number))
    }

    /// The next "any" begins to look after `last`.
    fn move_on(&mut self, last: u16) {
        if self.pool.draw != Draw::Lowest {
            self.choice.cursor = last.checked_add(1).unwrap_or(Span::ALL.first);
        }
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
        self.choice.spans[usize::from(place)].is_some()
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
    fn gives_fixed(&self, side: Side, number: u16, service: ServiceId) -> bool {
        self.free_on(side).contains(number)
            || self.resting_on(side).contains(number)
                && self
                    .cooling_on(side)
                    .at(number)
                    .is_some_and(|cooled| cooled.service == service)
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
