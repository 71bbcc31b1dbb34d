//! Who listens on which numbers of one host.

use std::collections::BTreeMap;

use portreeve::identity::Run;
use portreeve::port::{Port, PortRange, Protocol};

use super::Place;

/// Numbers of one side or both that are listened on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) numbers: PortRange,
    pub(crate) protocol: Protocol,
}

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A process of a run of the replica in this place.
    Process(Place, Run),
    /// Somebody who is not ours.
    Stranger,
}

/// All listeners of one host. Blocks are kept as a whole, so that a large one costs what a small one does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners {
    /// By side and first number; never overlapping.
    by_first: BTreeMap<(Protocol, Port), (Port, Holder)>,
}

impl Listeners {
    /// Takes all of it, or nothing.
    ///
    /// # Errors
    ///
    /// Who has one of the numbers, and which.
    pub(crate) fn bind(&mut self, wanted: Bound, holder: Holder) -> Result<(), (Port, Holder)> {
        for side in sides(wanted.protocol) {
            if let Some((number, other)) = self.within(side, wanted.numbers).next() {
                return Err((number, other));
            }
        }
        for side in sides(wanted.protocol) {
            let (first, last) = (wanted.numbers.first(), wanted.numbers.last());
            self.by_first.insert((side, first), (last, holder));
        }
        Ok(())
    }

    /// Nobody listens on what was bound as a whole any more.
    pub(crate) fn unbind(&mut self, bound: Bound) {
        for side in sides(bound.protocol) {
            self.by_first.remove(&(side, bound.numbers.first()));
        }
    }

    /// Who listens on this number of one side.
    pub(crate) fn of(&self, side: Protocol, number: Port) -> Option<Holder> {
        let only = PortRange::single(number);
        self.within(side, only).next().map(|(_, holder)| holder)
    }

    /// Who listens within these numbers of one side: the first number of theirs in it, and who, ascending.
    pub(crate) fn within(
        &self,
        side: Protocol,
        numbers: PortRange,
    ) -> impl Iterator<Item = (Port, Holder)> {
        let (first, last) = (numbers.first(), numbers.last());
        let mut before = self.by_first.range((side, Port::MIN)..(side, first));
        let before = before.next_back().filter(|(_, (end, _))| *end >= first);
        let begun = self.by_first.range((side, first)..=(side, last));
        let found = before.into_iter().chain(begun);
        found.map(move |((_, begin), (_, holder))| ((*begin).max(first), *holder))
    }

    /// Everybody: the numbers of one side, and whose they are, in order of side and number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Bound, Holder)> {
        self.by_first
            .iter()
            .filter_map(|((side, first), (last, holder))| {
                let bound = Bound {
                    numbers: PortRange::new(*first, *last)?,
                    protocol: *side,
                };
                Some((bound, *holder))
            })
    }

    /// The machine is off.
    pub(crate) fn clear(&mut self) {
        self.by_first.clear();
    }
}

/// The sides it takes, each by itself.
pub(crate) fn sides(protocol: Protocol) -> impl Iterator<Item = Protocol> {
    let both = [
        (Protocol::Tcp, protocol.has_tcp()),
        (Protocol::Udp, protocol.has_udp()),
    ];
    both.into_iter()
        .filter_map(|(side, taken)| taken.then_some(side))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(first: u16, last: u16, protocol: Protocol) -> Bound {
        let port = |number| Port::new(number).unwrap();
        Bound {
            numbers: PortRange::new(port(first), port(last)).unwrap(),
            protocol,
        }
    }

    #[test]
    fn a_number_is_bound_once_on_each_side_and_a_refused_bind_changes_nothing() {
        let mut listeners = Listeners::default();
        let (one, other) = (
            Holder::Process(Place(1), Run(1)),
            Holder::Process(Place(2), Run(1)),
        );
        let block = bound(100, 199, Protocol::Tcp);
        listeners.bind(block, one).unwrap();
        listeners
            .bind(bound(150, 150, Protocol::Udp), Holder::Stranger)
            .unwrap();
        let before: Vec<_> = listeners.iter().collect();
        for (wanted, found) in [
            (bound(199, 200, Protocol::Tcp), (199, one)),
            (bound(50, 100, Protocol::TcpUdp), (100, one)),
            (bound(120, 120, Protocol::Tcp), (120, one)),
            (bound(150, 150, Protocol::Udp), (150, Holder::Stranger)),
        ] {
            let (number, holder) = listeners.bind(wanted, other).unwrap_err();
            assert_eq!((number.number(), holder), found);
        }
        assert_eq!(listeners.iter().collect::<Vec<_>>(), before);
        listeners.unbind(block);
        listeners
            .bind(bound(199, 200, Protocol::Tcp), other)
            .unwrap();
        assert_eq!(
            listeners.of(Protocol::Tcp, Port::new(200).unwrap()),
            Some(other)
        );
        assert_eq!(listeners.of(Protocol::Tcp, Port::new(198).unwrap()), None);
    }
}
