//! Every number that is not free, with its state.

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{Port, PortRange, Protocol};
use crate::time::Monotonic;

use super::cooling::Cooled;
use super::number_set::NumberSet;
use super::span::{Span, gaps, spans_of};
use super::{Phase, PortPool, Side, Stranger, UndoLog};

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

impl ListedPorts {
    /// Where it stands in a listing: several holders of one number are ordered by replica.
    fn place(&self) -> (Port, bool, Port, Option<ReplicaId>) {
        let holder = match self.state {
            PortState::Held { by } | PortState::Releasing { by } => Some(by),
            _ => None,
        };
        let (first, last) = (self.numbers.first(), self.numbers.last());
        (first, self.protocol == Protocol::Udp, last, holder)
    }

    fn is_foreign_to(&self, stranger: &Stranger) -> bool {
        matches!(&self.state, PortState::Foreign(known) if known == stranger)
    }
}

/// The list of one host, and room to make it in; kept by who asks often.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<ListedPorts>,
    cooled: Vec<Cooled>,
    /// The numbers of the layers so far.
    shown: NumberSet,
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
        let mut listing = Listing::default();
        self.list(&mut listing, &UndoLog::default(), |_| false);
        listing.entries
    }

    /// Leaves in `listing` what [`Self::listed`] would return if the takes of `log` had not been made: what
    /// they cut out of the cooling runs still rests. `is_here` says of the place of a take whether it was made
    /// on this pool. Allocates nothing once the listing is warm. Cost: sorts the runs.
    pub(crate) fn list(
        &self,
        listing: &mut Listing,
        log: &UndoLog,
        is_here: impl Fn(usize) -> bool,
    ) {
        listing.entries.clear();
        self.list_side(Side::Tcp, listing, log, &is_here);
        let tcp_only = listing.entries.len();
        self.list_side(Side::Udp, listing, log, &is_here);
        let all = &mut listing.entries;
        let mut kept = tcp_only;
        for at in tcp_only..all.len() {
            let (numbers, first) = (all[at].numbers, all[at].numbers.first());
            let twin = all[..tcp_only]
                .binary_search_by_key(&first, |tcp| tcp.numbers.first())
                .ok()
                .filter(|twin| all[*twin].numbers == numbers && all[*twin].state == all[at].state);
            match twin {
                Some(twin) => all[twin].protocol = Protocol::TcpUdp,
                None => {
                    all.swap(kept, at);
                    kept += 1;
                }
            }
        }
        all.truncate(kept);
        all.sort_unstable_by_key(ListedPorts::place);
    }

    /// Adds the entries of one side, ascending.
    fn list_side(
        &self,
        side: Side,
        listing: &mut Listing,
        log: &UndoLog,
        is_here: &impl Fn(usize) -> bool,
    ) {
        let protocol = side.protocol();
        let Listing {
            entries,
            cooled,
            shown,
        } = listing;
        let from = entries.len();
        let entry = |span: Span, state| ListedPorts {
            numbers: span.into(),
            protocol,
            state,
        };
        shown.clear();
        for holding in self.holdings.iter() {
            let by = holding.replica;
            let state = match holding.phase {
                Phase::Tentative => continue,
                Phase::Held => PortState::Held { by },
                Phase::Releasing => PortState::Releasing { by },
            };
            for (_, span) in holding.sides().filter(|(taken, _)| *taken == side) {
                shown.insert(span);
                entries.push(entry(span, state.clone()));
            }
        }
        // Then each layer, where none above it is shown.
        cooled.clear();
        cooled.extend(self.cooling_on(side).by_age());
        for place in (0..log.len()).filter(|place| is_here(*place)) {
            let cut = log.cut_by(place).iter();
            cooled.extend(cut.filter(|(of, _)| *of == side).map(|(_, cut)| *cut));
        }
        cooled.sort_unstable_by_key(|cooled| cooled.span);
        // What was cut and what was left of it are one run again.
        cooled.dedup_by(|next, run| {
            let joins = run.continues_as(*next);
            if joins {
                run.span.last = next.span.last;
            }
            joins
        });
        for cooled in cooled {
            shown.insert(cooled.span);
            let Cooled { until, service, .. } = *cooled;
            entries.push(entry(cooled.span, PortState::Cooling { until, service }));
        }
        let strangers = entries.len();
        for span in self.strangers.on(side).runs_in(Span::ALL) {
            for number in span.numbers().filter(|number| !shown.contains(*number)) {
                let Some(stranger) = self.strangers.at(side, number) else {
                    continue;
                };
                match entries[strangers..].last_mut() {
                    Some(last)
                        if last.numbers.last().number() + 1 == number
                            && last.is_foreign_to(stranger) =>
                    {
                        let joined = PortRange::from(Span::single(number)).last();
                        let joined = PortRange::new(last.numbers.first(), joined);
                        last.numbers = joined.unwrap_or(last.numbers);
                    }
                    _ => {
                        let state = PortState::Foreign(stranger.clone());
                        entries.push(entry(Span::single(number), state));
                    }
                }
            }
        }
        for span in self.strangers.on(side).runs_in(Span::ALL) {
            shown.insert(span);
        }
        for span in spans_of(&self.ranges.reserved) {
            for span in gaps(shown.runs_in(span), span) {
                entries.push(entry(span, PortState::Reserved));
            }
        }
        entries[from..].sort_unstable_by_key(ListedPorts::place);
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
