//! What is asked of a pool, what was chosen for it, and what is told of the causes against it.

use crate::identity::ServiceId;
use crate::port::{Port, PortRange, Protocol};
use crate::time::Monotonic;

use super::cause::{CauseCode, Why};
use super::chooser::Chooser;
use super::number_set::NumberSet;
use super::span::Span;
use super::take::Moved;
use super::walk::Walk;
use super::{Awaited, Draw, PortGrant, PortPool, PortRequest, Side, Want, WantedPort};

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
    /// By place in the request; [`Span::MISSING`] where none was found yet.
    pub(super) spans: Vec<Span>,
    /// The numbers of both sides that an "any" must leave alone because of an earlier port.
    pub(super) picked: [NumberSet; 2],
    /// The order of choice, where it depends on a pool's ranges.
    pub(super) order: Vec<u16>,
    /// The place in the request of the first port for which nothing was found.
    pub(super) failed: Option<u16>,
    pub(super) cursor: u16,
    pub(super) random: Moved<u64>,
}

impl Choice {
    /// The place in the request of the first port for which nothing was found, after a search that
    /// failed.
    #[must_use]
    pub fn failed(&self) -> Option<usize> {
        self.failed.map(usize::from)
    }

    /// The numbers of each port, in the order of the request.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Begins for `many` ports where the next "any" of the pool would.
    pub(super) fn begin(&mut self, pool: &PortPool, many: usize) {
        self.random = Moved {
            before: pool.random,
            after: pool.random,
        };
        self.cursor = pool.cursor;
        self.again(pool, many);
    }

    /// Begins for another replica.
    pub(super) fn again(&mut self, pool: &PortPool, many: usize) {
        match pool.draw {
            Draw::NextFit => {}
            Draw::Lowest => self.cursor = Span::ALL.first,
            Draw::Random { .. } => self.cursor = random_start(pool, &mut self.random.after),
        }
        self.failed = None;
        self.spans.clear();
        self.spans.resize(many, Span::MISSING);
    }

    /// Forgets what was chosen.
    pub(super) fn clear(&mut self) {
        self.spans.clear();
        for picked in &mut self.picked {
            picked.clear();
        }
    }

    pub(super) fn is_picked(&self, protocol: Protocol, span: Span) -> bool {
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
    if others.is_empty()
        && let Some(fits) = choose_plain(pool, ask, choice)
        && (fits || matches!(causes, Causes::Untold))
    {
        return fits;
    }
    // A number that cannot be had is refused at a look.
    let may_have = |(side, port): &(Side, Port)| {
        pool.ranges.fixed.contains(*port) && pool.gives_fixed(*side, port.number(), ask.service)
    };
    if matches!(causes, Causes::Untold)
        && let Some((side, port)) = ask.request.fixed().iter().find(|fixed| !may_have(fixed))
    {
        let wanted = ask.request.as_slice().iter();
        let names = |wanted: &WantedPort| {
            wanted.want == Want::Fixed(*port) && Side::of(wanted.protocol).any(|of| of == *side)
        };
        let place = wanted.zip(0..).find(|(wanted, _)| names(wanted));
        choice.failed = place.map(|(_, place)| place);
        return false;
    }
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

/// Chooses for a request that wants nothing but single numbers of one side, any: most do, and a walk
/// is all it takes. `None` for any other.
fn choose_plain(pool: &PortPool, ask: &Ask<'_>, choice: &mut Choice) -> Option<bool> {
    let side = match ask.request.plain()? {
        Protocol::Tcp => Side::Tcp,
        Protocol::Udp => Side::Udp,
        Protocol::TcpUdp => return None,
    };
    if ask.former.is_some() {
        return None;
    }
    let many = ask.request.as_slice().len();
    choice.begin(pool, many);
    let Choice { spans, cursor, .. } = &mut *choice;
    let walk = Walk {
        pool,
        side,
        awaited: ask.awaited.map(|awaited| awaited.on(side)),
        picked: NumberSet::nothing(),
    };
    let found = walk.singles(*cursor, many, |nth, number| {
        spans[nth] = Span::single(number);
    });
    if let Some(last) = spans[..found].last() {
        *cursor = pool.draw.after(last.last, *cursor);
    }
    if found < many {
        choice.failed = u16::try_from(found).ok();
    }
    Some(found == many)
}

/// What is to be told of the causes against a request.
#[derive(Debug)]
pub enum Causes<'a> {
    /// Nothing: the first one ends the search.
    Untold,
    /// The first one, which ends the search. Allocates nothing.
    First(&'a mut Option<Why>),
    /// What kind the first one is, which ends the search: who holds a number is mostly not looked for.
    Code(&'a mut Option<CauseCode>),
    /// Every one, pushed here.
    All(&'a mut Vec<Why>),
}

impl Causes<'_> {
    pub(super) const fn are_all_told(&self) -> bool {
        matches!(self, Self::All(_))
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
