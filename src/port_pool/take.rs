//! Taking chosen numbers, undoing that, giving them back, and holding what records say is held.

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{PortRange, Protocol};
use crate::time::Monotonic;

use super::choice::{Choice, Pick};
use super::cooling::Cooled;
use super::numbers::Numbers;
use super::span::Span;
use super::{GrantedPort, Holding, Phase, PortGrant, PortPool, PortRequest, Side};

/// What it takes to undo a take.
#[derive(Debug)]
pub struct Undo {
    replica: ReplicaId,
    cut: Vec<(Side, Cooled)>,
    cursor: u16,
    random: u64,
    udp_was_untouched: bool,
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
    /// Takes what [`Self::choose`] chose for `request` on this very state, tentatively.
    ///
    /// `replica` must hold nothing here yet.
    pub fn take(&mut self, replica: ReplicaId, request: &PortRequest, choice: &Choice) -> Undo {
        let mut undo = Undo {
            replica,
            cut: Vec::new(),
            cursor: self.cursor,
            random: self.random,
            udp_was_untouched: self.udp.is_none(),
        };
        let mut ports = Vec::with_capacity(choice.picks.len());
        for (place, wanted) in request.as_slice().iter().enumerate() {
            let picked = |pick: &&Pick| usize::from(pick.place) == place;
            let Some(pick) = choice.picks.iter().find(picked) else {
                debug_assert!(false, "a choice has a pick for each port");
                continue;
            };
            for side in Side::of(pick.protocol) {
                self.seize(side, pick.span);
                let cut = &mut undo.cut;
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
        undo
    }

    /// Undoes a take. Takes are undone in reverse order; the pool is then exactly as it was.
    pub fn undo(&mut self, undo: Undo) {
        let Some(holding) = self.holdings.remove(&undo.replica) else {
            debug_assert!(false, "{:?} holds what is undone", undo.replica);
            return;
        };
        for (side, was) in undo.cut.into_iter().rev() {
            self.numbers_mut(side).cooling.uncut(was);
        }
        for (side, span) in sides(&holding.grant) {
            self.settle(side, span);
        }
        self.held -= holding.grant.count();
        self.cursor = undo.cursor;
        self.random = undo.random;
        // Unless a report of a stranger touched it meanwhile.
        let untouched = |udp: &Numbers| *udp == Numbers::unreserved(&self.ranges.reserved);
        if undo.udp_was_untouched && self.udp.as_deref().is_some_and(untouched) {
            self.udp = None;
        }
    }

    /// Gives back what `replica` holds: to rest for its service until `cool`, or at once if that is
    /// `None`. Numbers that another restored record names as well stay held by that one.
    ///
    /// Returns the grant, or `None` if it held nothing; the pool is then unchanged.
    pub fn release(&mut self, replica: ReplicaId, cool: Option<Monotonic>) -> Option<PortGrant> {
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
        Some(holding.grant)
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
        for (holder, grant, _) in self.holdings() {
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
