//! The ports of one host: which are free, which are held, and by whom.
//!
//! A number of one [`Side`] carries any of these layers; it is free if it carries none, and shown as
//! the first that it carries: held, releasing, cooling, foreign, reserved. A number is never held
//! and cooling at once, and two replicas hold one number only if restored records say so.
//!
//! The free set of a side is over 1..=65535 with the reserved numbers taken out once, and beside it
//! stands the set of what only cools; each is a few runs or a bitmap. The dynamic and fixed ranges are
//! looked at when a request is; they do not cut the sets.
//!
//! * One procedure ([`PortPool::choose`]) is THE order in which a request finds its numbers. Whether it fits, why not,
//!   and what it takes are three readings of it.
//! * A take can be undone: numbers, cursor and cooling are then exactly as before.
//!
//! This module knows nothing of other hosts, of a host's state and of clocks; see
//! [`crate::allocator`] for whole requests.

mod awaited;
mod cause;
mod choice;
mod chooser;
mod contested;
mod cooling;
mod holdings;
mod layers;
mod listing;
mod network_set;
mod number_bits;
mod number_runs;
mod number_set;
mod numbers;
mod question;
mod replica_index;
mod request;
mod search;
mod side;
mod span;
mod spare_rooms;
mod strangers;
mod take;
mod walk;

#[cfg(test)]
mod agreement_test;
#[cfg(test)]
mod choice_test;
#[cfg(test)]
mod copy_test;
#[cfg(test)]
pub(crate) mod testing;

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{Port, PortRange, PortRanges, Protocol};
use crate::time::Monotonic;

pub use awaited::Awaited;
pub use cause::{Cause, CauseCode, Why, WhyPort};
pub use choice::{Ask, Causes, Choice};
pub(crate) use listing::Listing;
pub use listing::{ListedPorts, PortState};
pub use network_set::{NetworkNo, NetworkSet};
pub use question::FixedStatus;
pub use request::{
    FixedTwice, GrantedPort, PortGrant, PortRequest, PortRequestError, Want, WantedPort,
};
pub use side::Side;
pub(crate) use spare_rooms::{Room, SpareRooms};
pub use strangers::{Foreign, Stranger};
pub use take::{Clash, UndoLog};

use contested::Contested;
use holdings::Holdings;
use number_set::NumberSet;
use numbers::{Free, Numbers};
use span::{Span, spans_within};
use strangers::Strangers;

/// The ports of one host. Two are equal if nothing that can be asked tells them apart.
///
/// [`Clone::clone_from`] writes a copy into the memory of an earlier one, and allocates nothing once that is
/// enough.
#[derive(Debug)]
pub struct PortPool {
    ranges: PoolRanges,
    draw: Draw,
    /// Where the next "any" begins to look.
    cursor: u16,
    /// The state of [`Draw::Random`].
    random: u64,
    /// Every number that the ranges do not reserve.
    unreserved: NumberSet,
    tcp: Numbers,
    /// Nothing until a number is first taken from it: most hosts never use it.
    udp: Option<Box<Numbers>>,
    /// Memory for it that a copy of another pool left.
    spare_udp: Option<Box<Numbers>>,
    free: Free,
    strangers: Strangers,
    holdings: Holdings,
    contested: Contested,
    /// Numbers in grants, whatever their phase.
    held: u32,
}

/// A pool that offers nothing, to be written over.
impl Default for PortPool {
    fn default() -> Self {
        let nothing = PortRanges::default;
        let ranges = PoolRanges {
            dynamic: nothing(),
            fixed: nothing(),
            reserved: nothing(),
        };
        Self::new(ranges, Draw::default())
    }
}

impl Clone for PortPool {
    fn clone(&self) -> Self {
        Self {
            ranges: self.ranges.clone(),
            draw: self.draw,
            cursor: self.cursor,
            random: self.random,
            unreserved: self.unreserved.clone(),
            tcp: self.tcp.clone(),
            udp: self.udp.clone(),
            spare_udp: None,
            free: self.free,
            strangers: self.strangers.clone(),
            holdings: self.holdings.clone(),
            contested: self.contested.clone(),
            held: self.held,
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.copy_numbers(source);
        self.holdings.clone_from(&source.holdings);
    }
}

impl PortPool {
    /// As [`Clone::clone_from`], but who holds what is not copied: for questions that name no holder, to a
    /// host of many.
    pub(crate) fn copy_numbers(&mut self, source: &Self) {
        // By name, so that nothing is forgotten that is added one day.
        let Self {
            ranges,
            draw,
            cursor,
            random,
            unreserved,
            tcp,
            udp,
            spare_udp: _,
            free,
            strangers,
            holdings: _,
            contested,
            held,
        } = source;
        self.ranges.clone_from(ranges);
        self.draw = *draw;
        self.cursor = *cursor;
        self.random = *random;
        self.unreserved.clone_from(unreserved);
        self.tcp.clone_from(tcp);
        self.spare_udp = self.udp.take().or_else(|| self.spare_udp.take());
        self.udp = udp.as_ref().map(|udp| match self.spare_udp.take() {
            Some(mut numbers) => {
                numbers.clone_from(udp);
                numbers
            }
            None => udp.clone(),
        });
        self.free = *free;
        self.strangers.clone_from(strangers);
        self.contested.clone_from(contested);
        self.held = *held;
    }
}

impl PartialEq for PortPool {
    fn eq(&self, other: &Self) -> bool {
        let places = |pool: &Self| (pool.cursor, pool.random, pool.draw, pool.free, pool.held);
        let side = |side| {
            self.free_on(side) == other.free_on(side)
                && self.resting_on(side) == other.resting_on(side)
                && self.cooling_on(side) == other.cooling_on(side)
        };
        places(self) == places(other)
            && self.ranges == other.ranges
            && Side::BOTH.into_iter().all(side)
            && self.strangers == other.strangers
            && self.holdings == other.holdings
            && self.contested == other.contested
    }
}

impl Eq for PortPool {}

impl PortPool {
    /// A pool in which everything is free that `ranges` does not reserve.
    #[must_use]
    pub fn new(ranges: PoolRanges, draw: Draw) -> Self {
        let unreserved = layers::unreserved(&ranges);
        let mut pool = Self {
            random: draw.seed(),
            ranges,
            draw,
            cursor: Span::ALL.first,
            tcp: Numbers::new(unreserved.clone()),
            udp: None,
            spare_udp: None,
            unreserved,
            free: Free::default(),
            strangers: Strangers::default(),
            holdings: Holdings::default(),
            contested: Contested::default(),
            held: 0,
        };
        pool.count_free();
        pool
    }

    /// The ranges in force.
    #[must_use]
    pub const fn ranges(&self) -> &PoolRanges {
        &self.ranges
    }

    /// How many numbers of the dynamic range are free; of [`Protocol::TcpUdp`] those free on both
    /// sides. Cooling numbers are not counted. Cost: a look at a counter.
    #[must_use]
    pub const fn free_count(&self, protocol: Protocol) -> u32 {
        match protocol {
            Protocol::Tcp => self.free.tcp,
            Protocol::Udp => self.free.udp,
            Protocol::TcpUdp => self.free.both,
        }
    }

    /// How many numbers are held, tentatively held or releasing; a number held on both sides
    /// counts once.
    #[must_use]
    pub const fn held_count(&self) -> u32 {
        self.held
    }

    /// How many numbers rest; one that rests on both sides counts once. Cost: linear in the runs, or
    /// in the words where both sides have many.
    #[must_use]
    pub fn resting_count(&self) -> u32 {
        let [tcp, udp] = Side::BOTH.map(|side| self.resting_on(side));
        match [tcp, udp].map(|side| side.count_in(Span::ALL)) {
            [one, 0] | [0, one] => one,
            _ => {
                let words = 0..=usize::from(u16::MAX) / 64;
                let either = words.map(|at| (tcp.word(at) | udp.word(at)).count_ones());
                either.sum()
            }
        }
    }

    /// Whether a replica holds anything here, be it tentatively.
    #[must_use]
    pub fn has_holders(&self) -> bool {
        !self.holdings.is_empty()
    }

    /// Every replica with a grant here, ascending, with its grant and phase. Cost: sorts and copies
    /// all of them; not for the loop of decisions.
    pub fn holdings(&self) -> impl Iterator<Item = (ReplicaId, PortGrant, Phase)> {
        let all = self.holdings.by_replica().into_iter();
        all.map(|holding| (holding.replica, holding.grant(), holding.phase))
    }

    /// Every replica with a grant here, ascending, with its phase. Cost: sorts all of them.
    #[must_use]
    pub fn holders(&self) -> Vec<(ReplicaId, Phase)> {
        let all = self.holdings.by_replica().into_iter();
        all.map(|holding| (holding.replica, holding.phase))
            .collect()
    }

    /// What `replica` holds here, be it tentatively, as an owned record.
    #[must_use]
    pub fn grant(&self, replica: ReplicaId) -> Option<PortGrant> {
        self.holdings.get(replica).map(holdings::Holding::grant)
    }

    /// Whether `replica` holds a number here that another holds too, as records said. Cost: one look-up where no
    /// number has two holders, else one for each of its numbers. Allocates nothing.
    #[must_use]
    pub fn shares_numbers(&self, replica: ReplicaId) -> bool {
        let shared = |side, range: PortRange| {
            let mut numbers = range.iter();
            numbers.any(|port| self.contested.contains(side, port.number()))
        };
        !self.contested.is_empty()
            && self
                .numbers_of(replica)
                .any(|(side, range)| shared(side, range))
    }

    /// How firm the grant of `replica` is; `None` if it has none here. Cost: one look-up.
    #[must_use]
    pub fn phase(&self, replica: ReplicaId) -> Option<Phase> {
        self.holdings.get(replica).map(|holding| holding.phase)
    }

    /// The numbers that `replica` holds here, be it tentatively, in the order of its request; those
    /// held on both sides come twice. Nothing if it has no grant here. Allocates nothing.
    pub fn numbers_of(&self, replica: ReplicaId) -> impl Iterator<Item = (Side, PortRange)> + '_ {
        let holding = self.holdings.get(replica).into_iter();
        holding
            .flat_map(holdings::Holding::sides)
            .map(|(side, span)| (side, span.into()))
    }

    /// The numbers of each port that `replica` holds here, in the order of its request, once each.
    /// Nothing if it has no grant here. Allocates nothing.
    pub fn ports_of(&self, replica: ReplicaId) -> impl Iterator<Item = PortRange> + '_ {
        let holding = self.holdings.get(replica).into_iter();
        holding.flat_map(|holding| holding.spans.iter().map(|span| (*span).into()))
    }

    /// Whether what `replica` holds here could be the answer to `request`; `None` if it holds
    /// nothing. Allocates nothing.
    #[must_use]
    pub fn answers(&self, replica: ReplicaId, request: &PortRequest) -> Option<bool> {
        let holding = self.holdings.get(replica)?;
        if holding.request().is_same(request) {
            return Some(true);
        }
        let (wanted, held) = (request.as_slice(), holding.request().as_slice());
        let ports = held.iter().zip(&holding.spans);
        let each = wanted.iter().zip(ports).all(|(wanted, (held, span))| {
            wanted.name == held.name && wanted.is_answered(held.protocol, (*span).into())
        });
        Some(held.len() == wanted.len() && each)
    }

    /// Moves the grant of `replica` to another phase; a replica without one is left alone.
    pub fn set_phase(&mut self, replica: ReplicaId, phase: Phase) {
        self.holdings.set_phase(replica, phase);
    }

    /// Every run that cools, ascending, TCP before UDP. Cost: sorts them.
    pub fn cooling(&self) -> impl Iterator<Item = (Side, PortRange, Monotonic, ServiceId)> + '_ {
        Side::BOTH.into_iter().flat_map(move |side| {
            let all = self.cooling_on(side).by_number().into_iter();
            all.map(move |cooled| (side, cooled.span.into(), cooled.until, cooled.service))
        })
    }

    /// Gives back memory that was needed once and is not now. Changes nothing that can be asked.
    /// Cost: linear in the host's numbers and grants; for between the cycles, never inside one.
    pub fn compact(&mut self) {
        let sides = std::iter::once(&mut self.tcp).chain(self.udp.as_deref_mut());
        for numbers in sides {
            numbers.free.compact();
            numbers.rests.compact();
            numbers.cooling.compact();
        }
        self.holdings.compact();
        let unused =
            |udp: &Numbers| udp.free == self.unreserved && udp.cooling.next_deadline().is_none();
        // A reserved number may be held or foreign too, and be free of its reservation one day.
        if self.udp.as_deref().is_some_and(unused)
            && self.strangers.on(Side::Udp).is_empty()
            && self.held_on(Side::Udp).is_empty()
        {
            self.udp = None;
        }
        self.spare_udp = None;
    }

    /// When cooling, or the rest after a refused bind, next ends; `None` if nothing rests.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        [
            self.cooling_on(Side::Tcp).next_deadline(),
            self.cooling_on(Side::Udp).next_deadline(),
            self.strangers.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether a refused bind has been waited out at `now` that still counts.
    pub(crate) fn ends_strangers(&self, now: Monotonic) -> bool {
        self.strangers.next_deadline().is_some_and(|due| due <= now)
    }

    fn is_reserved(&self, number: u16) -> bool {
        Port::new(number).is_none_or(|port| self.ranges.reserved.contains(port))
    }
}

/// Which numbers a host offers.
#[derive(Debug, PartialEq, Eq)]
pub struct PoolRanges {
    /// Numbers that "any" draws from.
    pub dynamic: PortRanges,
    /// Numbers that a fixed request may name.
    pub fixed: PortRanges,
    /// Numbers never given.
    pub reserved: PortRanges,
}

impl Clone for PoolRanges {
    fn clone(&self) -> Self {
        Self {
            dynamic: self.dynamic.clone(),
            fixed: self.fixed.clone(),
            reserved: self.reserved.clone(),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.dynamic.clone_from(&source.dynamic);
        self.fixed.clone_from(&source.fixed);
        self.reserved.clone_from(&source.reserved);
    }
}

impl Default for PoolRanges {
    /// Dynamic 20000-32767, below the kernel's usual ephemeral range; fixed 1024-65535; none reserved.
    fn default() -> Self {
        let range = |first, last| {
            let range = Port::new(first).zip(Port::new(last));
            PortRanges::new(range.and_then(|(first, last)| PortRange::new(first, last)))
        };
        Self {
            dynamic: range(20_000, 32_767),
            fixed: range(1024, 65_535),
            reserved: PortRanges::default(),
        }
    }
}

/// Where "any" begins to look. Each is reproducible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// After the number taken last, so that numbers come round late.
    #[default]
    NextFit,
    /// At the lowest number.
    Lowest,
    /// Somewhere, by a generator that begins with this seed.
    Random {
        /// The seed.
        seed: u64,
    },
}

impl Draw {
    /// Where to begin after `last` was taken and the search had begun at `cursor`.
    fn after(self, last: u16, cursor: u16) -> u16 {
        match self {
            Self::Lowest => cursor,
            Self::NextFit | Self::Random { .. } => last.checked_add(1).unwrap_or(Span::ALL.first),
        }
    }

    const fn seed(self) -> u64 {
        match self {
            Self::Random { seed } => seed,
            Self::NextFit | Self::Lowest => 0,
        }
    }
}

/// How firm a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Taken by a transaction that is still open: free for nobody, shown to no reader.
    Tentative,
    /// Held.
    Held,
    /// Its stop is ordered; still the holder's until its last process is gone.
    Releasing,
}

/// The dynamic ranges inside `window`, narrowed to `within` where a request narrows them.
fn offered<'a>(
    dynamic: &'a PortRanges,
    within: Option<&'a PortRanges>,
    window: Span,
) -> impl Iterator<Item = Span> + 'a {
    let everything = within.is_none().then_some(window).into_iter();
    let narrowed = within
        .into_iter()
        .flat_map(move |within| spans_within(within, window));
    span::overlaps(spans_within(dynamic, window), narrowed.chain(everything))
}
