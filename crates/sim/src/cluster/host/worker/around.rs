//! What a worker asks of its host in the middle of a turn.

use portreeve::attendance::{Contact, Stranger, Surroundings, Token};
use portreeve::identity::Run;
use portreeve::port::{Port, PortName, Protocol};
use portreeve::profile::ListenerOwner;
use portreeve::registry::Desired;
use portreeve::residency::Pace;
use portreeve::time::Monotonic;

use super::super::Place;
use super::super::ports::{Holder, Listeners};
use super::super::probes;

/// What a worker asks of its host in the middle of a turn.
pub(super) struct Around<'a> {
    pub(super) place: Place,
    pub(super) desired: &'a Desired,
    pub(super) contact: Option<Contact>,
    pub(super) pace: &'a mut Pace,
    pub(super) listeners: &'a Listeners,
    /// Somebody is in the way of a replica without ports.
    pub(super) stands_before: bool,
}

impl Surroundings for Around<'_> {
    fn contact(&mut self) -> Option<Contact> {
        self.contact
    }

    fn restart_token(&mut self, now: Monotonic, _: Run) -> Token {
        Token::After(self.pace.restart(now))
    }

    fn stranger_after(&mut self, _: Run) -> Option<Stranger> {
        let ports = &self.desired.profile.ports;
        let place = self.place;
        let own = |name: &PortName, holder: Holder| {
            let declared = ports.iter().find(|port| port.name == *name);
            let owner = declared.map_or(ListenerOwner::Run, |port| port.owner);
            probes::counts(holder, owner, place)
        };
        stranger_on(self.desired, self.listeners, own, self.stands_before)
    }
}

/// Somebody in the way: on a granted number, or by name where there is none.
pub(super) fn stranger_on<'a>(
    desired: &'a Desired,
    listeners: &'a Listeners,
    own: impl Fn(&PortName, Holder) -> bool + 'a,
    stands_before: bool,
) -> Option<Stranger> {
    let nowhere = stands_before && desired.grant.ports.is_empty();
    let found = probes::others(&desired.grant, listeners, own);
    let found = found.or_else(|| nowhere.then_some((Port::MAX, Protocol::Tcp)));
    found.map(|(port, protocol)| Stranger {
        port,
        protocol,
        pid: None,
        comm: None,
    })
}
