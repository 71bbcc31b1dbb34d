//! What a replica asks for, and what it got.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use crate::port::{Port, PortName, PortRange, PortRanges, Protocol};

/// The named ports one replica asks for. Names differ; no fixed number is asked twice on one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PortRequest(Vec<WantedPort>);

impl PortRequest {
    /// The most numbers one replica may ask for, blocks counted by their size.
    pub const MAX_NUMBERS: u32 = 256;

    /// The request for these ports, in the order of the profile.
    ///
    /// # Errors
    ///
    /// [`PortRequestError`] names the ports that cannot stand together.
    pub fn new(wanted: Vec<WantedPort>) -> Result<Self, PortRequestError> {
        let numbers: u32 = wanted
            .iter()
            .map(|port| u32::from(port.count().get()))
            .sum();
        if numbers > Self::MAX_NUMBERS {
            return Err(PortRequestError::TooMany { numbers });
        }
        for (place, port) in wanted.iter().enumerate() {
            for earlier in &wanted[..place] {
                if earlier.name == port.name {
                    return Err(PortRequestError::SameName {
                        name: port.name.clone(),
                    });
                }
                if let (Want::Fixed(a), Want::Fixed(b)) = (&earlier.want, &port.want)
                    && a == b
                    && earlier.protocol.overlaps(port.protocol)
                {
                    return Err(PortRequestError::FixedTwice(FixedTwice {
                        port: *a,
                        first: earlier.name.clone(),
                        second: port.name.clone(),
                    }));
                }
            }
        }
        Ok(Self(wanted))
    }

    /// The ports, in the order of the profile.
    #[must_use]
    pub fn as_slice(&self) -> &[WantedPort] {
        &self.0
    }

    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One named port of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WantedPort {
    /// Its name in the profile.
    pub name: PortName,
    /// The side or sides it is held on.
    pub protocol: Protocol,
    /// Which number or how many.
    pub want: Want,
    /// Narrows an "any" to these numbers, beside the pool's dynamic range.
    pub within: Option<PortRanges>,
}

impl WantedPort {
    /// How many numbers it takes: 1, or the size of the block.
    #[must_use]
    pub const fn count(&self) -> NonZeroU16 {
        match self.want {
            Want::Fixed(_) => NonZeroU16::MIN,
            Want::Any { count } => count,
        }
    }
}

/// Which number a port wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Want {
    /// This number and no other.
    Fixed(Port),
    /// Any free number, or that many consecutive ones.
    Any {
        /// The size of the block; 1 for a single number.
        count: NonZeroU16,
    },
}

/// Why ports cannot stand in one request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortRequestError {
    /// Two ports of one name.
    #[error("two ports are called {name}")]
    SameName {
        /// The name.
        name: PortName,
    },
    /// One number twice.
    #[error(transparent)]
    FixedTwice(#[from] FixedTwice),
    /// More than [`PortRequest::MAX_NUMBERS`].
    #[error(
        "{numbers} ports are asked for; one replica may hold at most {}",
        PortRequest::MAX_NUMBERS
    )]
    TooMany {
        /// How many were asked for.
        numbers: u32,
    },
}

/// One number asked for twice on one side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ports {first} and {second} both fix {port}")]
pub struct FixedTwice {
    /// The number.
    pub port: Port,
    /// The port that asked first.
    pub first: PortName,
    /// The port that asked again.
    pub second: PortName,
}

/// The numbers a replica got, in the order of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortGrant {
    /// One entry per named port.
    pub ports: Vec<GrantedPort>,
}

impl PortGrant {
    /// The port of this name.
    #[must_use]
    pub fn port(&self, name: &PortName) -> Option<&GrantedPort> {
        self.ports.iter().find(|port| port.name == *name)
    }

    /// How many numbers it holds, blocks counted by their size; one that is held on both sides once.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.ports.iter().map(|port| port.numbers.count()).sum()
    }
}

/// One named port of a grant: a single number, or a block of consecutive ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedPort {
    /// Its name in the profile.
    pub name: PortName,
    /// The side or sides it is held on.
    pub protocol: Protocol,
    /// The number or numbers.
    pub numbers: PortRange,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, protocol: Protocol, want: Want) -> WantedPort {
        WantedPort {
            name: name.parse().unwrap(),
            protocol,
            want,
            within: None,
        }
    }

    fn fixed(number: u16) -> Want {
        Want::Fixed(Port::new(number).unwrap())
    }

    #[test]
    fn one_number_may_be_fixed_on_both_sides_but_not_twice_on_one() {
        // ports 14
        use Protocol::{Tcp, TcpUdp, Udp};
        let two =
            |a, b| PortRequest::new(vec![wanted("a", a, fixed(53)), wanted("b", b, fixed(53))]);
        assert!(two(Tcp, Udp).is_ok());
        let refused = two(Udp, TcpUdp).unwrap_err();
        assert_eq!(refused.to_string(), "ports a and b both fix 53");
    }

    #[test]
    fn a_request_is_bounded() {
        let block = |count| Want::Any {
            count: NonZeroU16::new(count).unwrap(),
        };
        let ask = |count| PortRequest::new(vec![wanted("a", Protocol::Tcp, block(count))]);
        assert!(ask(256).is_ok());
        assert_eq!(ask(257), Err(PortRequestError::TooMany { numbers: 257 }));
    }
}
