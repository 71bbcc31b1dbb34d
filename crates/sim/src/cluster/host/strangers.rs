//! Others than us who want numbers of the host: each takes its number as soon as it is free.

use std::collections::BTreeMap;

use portreeve::port::{PortRange, Protocol};

use super::ports::{Bound, Holder, Listeners};
use crate::cluster::act::{StrangerPort, Whom};

/// Who wants what, and has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers {
    wanted: BTreeMap<StrangerPort, Option<Bound>>,
}

impl Strangers {
    /// One more; it has what it wants from [`Strangers::take`] on.
    pub(crate) fn come(&mut self, wanted: StrangerPort) {
        self.wanted.entry(wanted).or_default();
    }

    /// One less.
    pub(crate) fn leave(&mut self, wanted: StrangerPort, listeners: &mut Listeners) {
        if let Some(Some(bound)) = self.wanted.remove(&wanted) {
            listeners.unbind(bound);
        }
    }

    /// All of them are gone.
    pub(crate) fn leave_all(&mut self, listeners: &mut Listeners) {
        for bound in std::mem::take(&mut self.wanted).into_values().flatten() {
            listeners.unbind(bound);
        }
    }

    /// The machine is off: they come again with it.
    pub(crate) fn lose_all(&mut self) {
        self.wanted.values_mut().for_each(|bound| *bound = None);
    }

    /// Whether somebody waits for a replica's port. One without ports then finds a stranger in its way all the same.
    pub(crate) fn stands_before(&self, whom: Whom) -> bool {
        self.wanted.contains_key(&StrangerPort::Of(whom))
    }

    /// Each that has not what it wants takes it, if it is free; `first_of` says the first granted number of a replica
    /// that lives here. Whether one did. Cost: none where everybody has what is wanted.
    pub(crate) fn take(
        &mut self,
        listeners: &mut Listeners,
        first_of: impl Fn(Whom) -> Option<Bound>,
    ) -> bool {
        let mut taken = false;
        for (wanted, bound) in &mut self.wanted {
            if bound.is_some() {
                continue;
            }
            let number = match *wanted {
                StrangerPort::Number(port, protocol) => Some(Bound {
                    numbers: PortRange::single(port),
                    protocol,
                }),
                StrangerPort::Of(whom) => first_of(whom).map(|first| Bound {
                    numbers: PortRange::single(first.numbers.first()),
                    protocol: one_side(first.protocol),
                }),
            };
            let got = number.filter(|one| listeners.bind(*one, Holder::Stranger).is_ok());
            taken |= got.is_some();
            *bound = got;
        }
        taken
    }
}

/// A server that is in the way needs one side only.
const fn one_side(protocol: Protocol) -> Protocol {
    match protocol {
        Protocol::Tcp | Protocol::TcpUdp => Protocol::Tcp,
        Protocol::Udp => Protocol::Udp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::host::Place;
    use portreeve::identity::Run;
    use portreeve::port::Port;

    #[test]
    fn a_stranger_waits_until_its_number_is_free_and_gives_it_back_when_it_leaves() {
        let port = |number| Port::new(number).unwrap();
        let ours = Bound {
            numbers: PortRange::new(port(80), port(89)).unwrap(),
            protocol: Protocol::TcpUdp,
        };
        let whom = Whom {
            service: 0,
            index: 0,
        };
        let mut listeners = Listeners::default();
        listeners
            .bind(ours, Holder::Process(Place(0), Run(1)))
            .unwrap();
        let mut strangers = Strangers::default();
        let fixed = StrangerPort::Number(port(85), Protocol::Udp);
        strangers.come(StrangerPort::Of(whom));
        strangers.come(fixed);
        assert!(!strangers.take(&mut listeners, |_| Some(ours)));
        assert!(strangers.stands_before(whom));
        listeners.unbind(ours);
        assert!(strangers.take(&mut listeners, |_| Some(ours)));
        let holder = |side, number| listeners.of(side, port(number));
        assert_eq!(holder(Protocol::Tcp, 80), Some(Holder::Stranger));
        assert_eq!(holder(Protocol::Udp, 85), Some(Holder::Stranger));
        assert_eq!(holder(Protocol::Udp, 80), None);
        strangers.leave(fixed, &mut listeners);
        strangers.leave_all(&mut listeners);
        assert_eq!(listeners.iter().count(), 0);
    }
}
