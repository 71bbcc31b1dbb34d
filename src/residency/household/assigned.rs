//! What the household must know of an order and of an assignment; whatever else they hold is the driver's.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::port::PortName;
use crate::residency::Told;
use crate::supervision::Status;

/// What the controller wants of one replica.
pub trait Order: Clone {
    /// What its worker is to be told.
    fn told(&self) -> Told;

    /// From now on this is wanted.
    fn set_told(&mut self, told: Told);

    /// Where clients of those ports are sent that name a network.
    fn addresses(&self) -> &BTreeMap<PortName, IpAddr>;

    /// Adds to these, in place of what was told of the same ports.
    fn extend_addresses(&mut self, more: &BTreeMap<PortName, IpAddr>);

    /// The newest status the controller has.
    fn last_status(&self) -> Option<&Status>;

    /// In words, which address it cannot begin without and was not told.
    fn lacks(&self) -> Option<String>;
}

/// Shared until it is changed.
impl<O: Order> Order for Arc<O> {
    fn told(&self) -> Told {
        (**self).told()
    }

    fn set_told(&mut self, told: Told) {
        Self::make_mut(self).set_told(told);
    }

    fn addresses(&self) -> &BTreeMap<PortName, IpAddr> {
        (**self).addresses()
    }

    fn extend_addresses(&mut self, more: &BTreeMap<PortName, IpAddr>) {
        // Without news it stays shared.
        let known = self.addresses();
        if more.iter().any(|(port, at)| known.get(port) != Some(at)) {
            Self::make_mut(self).extend_addresses(more);
        }
    }

    fn last_status(&self) -> Option<&Status> {
        (**self).last_status()
    }

    fn lacks(&self) -> Option<String> {
        (**self).lacks()
    }
}

/// What a worker was given to begin with, as it is written down.
pub trait Assigned {
    /// What is wanted of it.
    type Order: Order;
    /// What it proves itself with.
    type Tokens: Clone + PartialEq;

    /// What was wanted when it was written.
    fn order(&self) -> &Self::Order;

    /// The same, to be changed.
    fn order_mut(&mut self) -> &mut Self::Order;

    /// What the controller knows it by.
    fn tokens(&self) -> &Self::Tokens;

    /// From now on it is known by these.
    fn set_tokens(&mut self, tokens: Self::Tokens);

    /// The host's published address when it was written.
    fn host_address(&self) -> IpAddr;
}
