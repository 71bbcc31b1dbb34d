//! Taking chosen numbers, undoing that, giving them back, and holding what records say is held.

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{PortRange, Protocol};
use crate::time::Monotonic;

use super::choice::{Choice, Pick};
use super::cooling::Cooled;
use super::numbers::Numbers;
use super::span::Span;
use super::{GrantedPort, Holding, Phase, PortGrant, PortPool, PortRequest, Side};

/// Takes that can be undone, the last one first: one log for each open transaction, whatever hosts
/// it takes numbers on. Kept and reused by its owner, it allocates nothing once warm.
#[derive(Debug, Default)]
pub struct UndoLog {
    takes: Vec<Taken>,
    /// What was cut out of the cooling runs, take after take.
    cut: Vec<(Side, Cooled)>,
}

/// One take.
#[derive(Clone, Copy, Debug)]
struct Taken {
    replica: ReplicaId,
    /// Where its part of the cuts begins.
    cut_from: usize,
    cursor: Moved<u16>,
    random: Moved<u64>,
    udp_was_untouched: bool,
}

/// A value before and after a take.
#[derive(Clone, Copy, Debug)]
struct Moved<T> {
    before: T,
    after: T,
}

impl<T: Copy + PartialEq> Moved<T> {
    /// Puts the earlier value back, unless somebody else moved it on since.
    fn back(self, value: &mut T) {
        if *value == self.after {
            *value = self.before;
        }
    }
}

impl UndoLog {
    /// How many takes can be undone.
    #[must_use]
    pub fn len(&self) -> usize {
        self.takes.len()
    }

    /// Whether nothing is left to be undone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.takes.is_empty()
    }

    /// Forgets every take: they stay.
    pub fn clear(&mut self) {
        self.takes.clear();
        self.cut.clear();
    }
}

/// Numbers that a restored grant shares with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The numbers.
    pub numbers: PortRange,
    /// On which side.
    pub protocol: Protocol,
    /// Who held them already; the restored replica itself if its record names them twice.
    pub holder: ReplicaId,
}

impl PortPool {
    /// Takes what [`Self::choose`] chose for `request` on this very state, tentatively, and notes in
    /// `log` how to undo it.
    ///
    /// `replica` must hold nothing here yet.
    pub fn take(
        &mut self,
        replica: ReplicaId,
        request: &PortRequest,
        choice: &Choice,
        log: &mut UndoLog,
    ) {
        log.takes.push(Taken {
            replica,
            cut_from: log.cut.len(),
            cursor: Moved {
                before: self.cursor,
                after: choice.cursor,
            },
            random: Moved {
                before: self.random,
                after: choice.random,
            },
            udp_was_untouched: self.udp.is_none(),
        });
        let mut ports = Vec::with_capacity(choice.picks.len());
        for (place, wanted) in request.as_slice().iter().enumerate() {
            let picked = |pick: &&Pick| usize::from(pick.place) == place;
            let Some(pick) = choice.picks.iter().find(picked) else {
                debug_assert!(false, "a choice has a pick for each port");
                continue;
            };
            for side in Side::of(pick.protocol) {
                self.seize(side, pick.span);
                let cut = &mut log.cut;
                self.numbers_mut(side)
                    .cooling
                    .cut(pick.span, &mut |was| cut.push((side, was)));
            }
            self.held += pick.span.count();
            ports.push(GrantedPort {
                name: wanted.name.clone(),
                protocol: pick.protocol,
                numbers: pick.span.into(),
            });
        }
        self.cursor = choice.cursor;
        self.random = choice.random;
        let holding = Holding {
            grant: PortGrant { ports },
            phase: Phase::Tentative,
        };
        let other = self.holdings.insert(replica, holding);
        debug_assert!(other.is_none(), "{replica:?} took ports twice");
    }

    /// Undoes the last take of `log`, which must have been made on this pool. Returns whose it was;
    /// `None` if the log is empty.
    ///
    /// If nothing else happened here since, everything is exactly as it was. If it did, the numbers
    /// of the take alone are as they would be without it. Cooling that became due meanwhile ends
    /// at the next [`Self::end_due`]: ask [`Self::next_deadline`] again.
    pub fn undo(&mut self, log: &mut UndoLog) -> Option<ReplicaId> {
        let taken = log.takes.pop()?;
        let Some(holding) = self.holdings.remove(&taken.replica) else {
            debug_assert!(false, "{:?} holds what is undone", taken.replica);
            return None;
        };
        for (side, was) in log.cut.drain(taken.cut_from..).rev() {
            self.numbers_mut(side).cooling.uncut(was);
        }
        for (side, span) in sides(&holding.grant) {
            self.settle(side, span);
        }
        self.held -= holding.grant.count();
        taken.cursor.back(&mut self.cursor);
        taken.random.back(&mut self.random);
        // Unless a report of a stranger touched it meanwhile.
        let untouched = |udp: &Numbers| *udp == Numbers::unreserved(&self.ranges.reserved);
        if taken.udp_was_untouched && self.udp.as_deref().is_some_and(untouched) {
            self.udp = None;
        }
        Some(taken.replica)
    }

    /// Gives back what `replica` holds: to rest for its service until `cool`, or at once if that is
    /// `None`. Numbers that another restored record names as well stay held by that one.
    ///
    /// Returns how many numbers that were, or `None` if it held nothing; the pool is then unchanged.
    pub fn release(&mut self, replica: ReplicaId, cool: Option<Monotonic>) -> Option<u32> {
        let holding = self.holdings.remove(&replica)?;
        self.held -= holding.grant.count();
        for (side, span) in sides(&holding.grant) {
            if self.contested.is_empty() {
                self.let_go(side, span, replica.service, cool);
                continue;
            }
            for number in span.numbers() {
                if !self.yield_contested(side, number) {
                    self.let_go(side, Span::single(number), replica.service, cool);
                }
            }
        }
        Some(holding.grant.count())
    }

    /// Holds `grant` for `replica` because a record says so, whatever the ranges say and whoever
    /// holds the numbers already: both keep them, and each clash is returned.
    pub fn restore(&mut self, replica: ReplicaId, grant: &PortGrant, phase: Phase) -> Vec<Clash> {
        let mut clashes = Vec::new();
        let held = self.holdings.entry(replica).or_insert_with(|| Holding {
            grant: PortGrant::default(),
            phase,
        });
        held.phase = phase;
        // A record that is restored again is the same record, not a second holder.
        let known = held.grant.ports.clone();
        for port in grant.ports.iter().filter(|port| !known.contains(port)) {
            for side in Side::of(port.protocol) {
                self.restore_span(side, port.numbers.into(), &mut clashes);
            }
            self.held += port.numbers.count();
            if let Some(holding) = self.holdings.get_mut(&replica) {
                holding.grant.ports.push(port.clone());
            }
        }
        clashes
    }

    fn restore_span(&mut self, side: Side, span: Span, clashes: &mut Vec<Clash>) {
        let mut twice = Vec::new();
        for (holder, grant, _) in self.held_grants() {
            for (_, taken) in sides(grant).filter(|(taken, _)| *taken == side) {
                if let Some(both) = taken.overlap(span) {
                    twice.push((holder, both));
                }
            }
        }
        let mut contested = std::collections::BTreeSet::new();
        for (holder, both) in twice {
            contested.extend(both.numbers());
            clashes.push(Clash {
                numbers: both.into(),
                protocol: side.protocol(),
                holder,
            });
        }
        for number in contested {
            *self.contested.entry((side, number)).or_default() += 1;
        }
        self.seize(side, span);
        self.numbers_mut(side).cooling.cut(span, &mut |_| {});
    }

    /// Takes one holder off a number that several have. Whether there was more than one.
    fn yield_contested(&mut self, side: Side, number: u16) -> bool {
        let place = (side, number);
        let Some(others) = self.contested.get_mut(&place) else {
            return false;
        };
        *others -= 1;
        if *others == 0 {
            self.contested.remove(&place);
        }
        true
    }

    fn let_go(&mut self, side: Side, span: Span, service: ServiceId, cool: Option<Monotonic>) {
        match cool {
            Some(until) => self.numbers_mut(side).cooling.put(Cooled {
                span,
                until,
                service,
            }),
            None => self.settle(side, span),
        }
    }
}

/// The runs of a grant, side by side.
pub(super) fn sides(grant: &PortGrant) -> impl Iterator<Item = (Side, Span)> + '_ {
    grant.ports.iter().flat_map(|port| {
        let span = Span::from(port.numbers);
        Side::of(port.protocol).map(move |side| (side, span))
    })
}
