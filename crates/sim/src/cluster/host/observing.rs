//! What the agent sees when it looks at its host.

use std::net::IpAddr;
use std::sync::Arc;

use portreeve::port::{PortRange, Protocol};
use portreeve::port_pool::Foreign;
use portreeve::registry::Desired;

use super::Host;
use super::ports::sides;

/// What a report says of the host itself, as far as it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) published: Option<IpAddr>,
    pub(crate) foreign: Arc<Vec<Foreign>>,
}

impl Host {
    /// What is seen now, where these orders name the numbers that are ours.
    pub(crate) fn observe<'a>(&self, held: impl Iterator<Item = &'a Desired>) -> Observed {
        let mut ours: Vec<(Protocol, PortRange)> = held
            .flat_map(|desired| &desired.grant.ports)
            .flat_map(|port| sides(port.protocol).map(|side| (side, port.numbers)))
            .collect();
        ours.sort_by_key(|(side, numbers)| (*side, numbers.first()));
        let spec = &self.spec.hosts[self.no];
        let mut foreign = Vec::new();
        for (bound, _) in self.listeners.iter() {
            let side = bound.protocol;
            let strange = bound.numbers.iter().filter(|number| {
                let pooled = spec.dynamic.contains(*number) || spec.fixed.contains(*number);
                let own = |(of, numbers): &(Protocol, PortRange)| {
                    *of == side && numbers.contains(*number)
                };
                pooled && !spec.reserved.contains(*number) && !ours.iter().any(own)
            });
            foreign.extend(strange.map(|port| Foreign {
                port,
                protocol: side,
                pid: None,
                comm: None,
            }));
        }
        foreign.sort();
        Observed {
            published: self.address,
            foreign: Arc::new(foreign),
        }
    }
}
