//! Every number that is not free, with its state.

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{Port, PortRange, Protocol};
use crate::time::Monotonic;

use super::number_set::NumberSet;
use super::span::{Span, gaps, spans_of};
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
            .holdings
            .iter()
            .filter(|holding| holding.phase != Phase::Tentative)
            .flat_map(|holding| {
                holding
                    .sides()
                    .filter(|(taken, _)| *taken == side)
                    .map(|(_, span)| (span, holding.replica, holding.phase))
            })
            .collect();
        held.sort_unstable_by_key(|(span, replica, _)| (*span, *replica));
        let protocol = side.protocol();
        let mut entries: Vec<ListedPorts> = held
            .iter()
            .map(|(span, by, phase)| ListedPorts {
                numbers: (*span).into(),
                protocol,
                state: match phase {
                    Phase::Releasing => PortState::Releasing { by: *by },
                    Phase::Held | Phase::Tentative => PortState::Held { by: *by },
                },
            })
            .collect();
        // Then each layer, where none above it is shown.
        let mut shown: NumberSet = held.iter().map(|(span, _, _)| *span).collect();
        for cooled in self.cooling_on(side).by_number() {
            shown.insert(cooled.span);
            entries.push(ListedPorts {
                numbers: cooled.span.into(),
                protocol,
                state: PortState::Cooling {
                    until: cooled.until,
                    service: cooled.service,
                },
            });
        }
        let foreign = self.strangers.on(side).runs_in(Span::ALL);
        let foreign: Vec<Span> = foreign.collect();
        for span in &foreign {
            for number in span.numbers().filter(|number| !shown.contains(*number)) {
                let Some(stranger) = self.strangers.at(side, number) else {
                    continue;
                };
                let state = PortState::Foreign(stranger.clone());
                let numbers = PortRange::from(Span::single(number));
                match entries.last_mut() {
                    Some(last)
                        if last.state == state && last.numbers.last().number() + 1 == number =>
                    {
                        let joined = PortRange::new(last.numbers.first(), numbers.last());
                        last.numbers = joined.unwrap_or(last.numbers);
                    }
                    _ => entries.push(ListedPorts {
                        numbers,
                        protocol,
                        state,
                    }),
                }
            }
        }
        for span in foreign {
            shown.insert(span);
        }
        for span in spans_of(&self.ranges.reserved) {
            for span in gaps(shown.runs_in(span), span) {
                entries.push(ListedPorts {
                    numbers: span.into(),
                    protocol,
                    state: PortState::Reserved,
                });
            }
        }
        entries.sort_by_key(|entry| entry.numbers.first());
        entries
    }

    fn unheld_state(&self, side: Side, number: u16) -> PortState {
        if let Some(cooled) = self.cooling_on(side).at(number) {
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
