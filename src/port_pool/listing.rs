//! Every number that is not free, with its state.

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{Port, PortRange, Protocol};
use crate::time::Monotonic;

use super::span::{Span, gaps, unions};
use super::take::sides;
use super::{Phase, PortPool, Side, Stranger};

/// The shown state of a number: the first layer of those it carries, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortState {
    /// A replica has it.
    Held {
        /// Who.
        by: ReplicaId,
    },
    /// A replica has it until its last process is gone.
    Releasing {
        /// Who.
        by: ReplicaId,
    },
    /// It was released and rests.
    Cooling {
        /// When it is over.
        until: Monotonic,
        /// Whose it was.
        service: ServiceId,
    },
    /// A stranger listens there.
    Foreign(Stranger),
    /// Never given.
    Reserved,
    /// None of these.
    Free,
}

/// Consecutive numbers of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPorts {
    /// The numbers.
    pub numbers: PortRange,
    /// On which side or sides.
    pub protocol: Protocol,
    /// Their state; never [`PortState::Free`].
    pub state: PortState,
}

impl PortPool {
    /// The shown state of one number. What an open transaction took is not shown. Cost: linear in
    /// the host's grants.
    #[must_use]
    pub fn state(&self, side: Side, port: Port) -> PortState {
        let number = port.number();
        match self.holder(side, number, |phase| phase != Phase::Tentative) {
            Some((by, Phase::Releasing)) => PortState::Releasing { by },
            Some((by, _)) => PortState::Held { by },
            None => self.unheld_state(side, number),
        }
    }

    /// Every number that is not free, ascending by first number, TCP before UDP; equal runs on both
    /// sides are one entry of [`Protocol::TcpUdp`]. What an open transaction took is not shown.
    #[must_use]
    pub fn listed(&self) -> Vec<ListedPorts> {
        let mut all = self.listed_side(Side::Tcp);
        let tcp_only = all.len();
        for entry in self.listed_side(Side::Udp) {
            let twin = all[..tcp_only]
                .binary_search_by_key(&entry.numbers.first(), |tcp| tcp.numbers.first())
                .ok()
                .filter(|at| all[*at].numbers == entry.numbers && all[*at].state == entry.state);
            match twin {
                Some(at) => all[at].protocol = Protocol::TcpUdp,
                None => all.push(entry),
            }
        }
        all.sort_by_key(|entry| entry.numbers.first());
        all
    }

    fn listed_side(&self, side: Side) -> Vec<ListedPorts> {
        let mut held: Vec<(Span, ReplicaId, Phase)> = self
            .held_grants()
            .filter(|(_, _, phase)| *phase != Phase::Tentative)
            .flat_map(|(replica, grant, phase)| {
                sides(grant)
                    .filter(move |(taken, _)| *taken == side)
                    .map(move |(_, span)| (span, replica, phase))
            })
            .collect();
        held.sort_unstable_by_key(|(span, replica, _)| (*span, *replica));
        let mut entries: Vec<ListedPorts> = held
            .iter()
            .map(|(span, by, phase)| ListedPorts {
                numbers: (*span).into(),
                protocol: side.protocol(),
                state: match phase {
                    Phase::Releasing => PortState::Releasing { by: *by },
                    Phase::Held | Phase::Tentative => PortState::Held { by: *by },
                },
            })
            .collect();
        let held = unions(held.iter().map(|(span, _, _)| *span), std::iter::empty());
        let not_free = gaps(self.free_spans(side, Span::ALL), Span::ALL);
        // What neither is free nor held, number by number, with equal neighbours joined.
        let mut rest: Vec<ListedPorts> = Vec::new();
        for number in super::span::overlaps(not_free, gaps(held, Span::ALL)).flat_map(Span::numbers)
        {
            let state = self.unheld_state(side, number);
            if state == PortState::Free {
                continue;
            }
            let numbers = PortRange::from(Span::single(number));
            match rest.last_mut() {
                Some(last) if last.state == state && last.numbers.last().number() + 1 == number => {
                    last.numbers = PortRange::new(last.numbers.first(), numbers.last())
                        .unwrap_or(last.numbers);
                }
                _ => rest.push(ListedPorts {
                    numbers,
                    protocol: side.protocol(),
                    state,
                }),
            }
        }
        entries.append(&mut rest);
        entries.sort_by_key(|entry| entry.numbers.first());
        entries
    }

    fn unheld_state(&self, side: Side, number: u16) -> PortState {
        let cooled = self.numbers(side).and_then(|n| n.cooling.at(number));
        if let Some(cooled) = cooled {
            return PortState::Cooling {
                until: cooled.until,
                service: cooled.service,
            };
        }
        if let Some(stranger) = self.strangers.at(side, number) {
            return PortState::Foreign(stranger.clone());
        }
        if self.is_reserved(number) {
            return PortState::Reserved;
        }
        PortState::Free
    }
}
