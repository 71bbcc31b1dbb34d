//! What a replica asks for, and what it got.

use std::num::NonZeroU16;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::port::{Port, PortName, PortRange, PortRanges, Protocol};

use super::{NetworkNo, NetworkSet, Side};

/// The named ports one replica asks for. Names differ; no fixed number is asked twice on one side.
///
/// A clone shares the ports. What every search wants to know of them is worked out once, when the
/// request is made.
#[derive(Clone, Debug, Default)]
pub struct PortRequest(Arc<Asked>);

/// The ports of a request, and what follows from them alone.
#[derive(Debug, Default)]
struct Asked {
    wanted: Vec<WantedPort>,
    /// Places in the order of choice, as far as it does not depend on a pool's ranges.
    order: Vec<u16>,
    fixed: Vec<(Side, Port)>,
    /// Numbers asked for, blocks counted by their size.
    numbers: u32,
    /// Ports that want one number, any: by protocol.
    singles: [u32; 3],
    has_blocks: bool,
    is_narrowed: bool,
    plain: Option<Protocol>,
    /// See [`PortRequest::counted`].
    counted: Vec<Alike>,
    /// Ports, by their places, that are to be reached in a named network.
    networks: Vec<(u16, NetworkNo)>,
    network_set: NetworkSet,
}

impl PortRequest {
    /// The most numbers one replica may ask for, blocks counted by their size.
    pub const MAX_NUMBERS: u32 = 256;

    /// The request for these ports, in the order of the profile.
    ///
    /// # Errors
    ///
    /// [`PortRequestError`] names the ports that cannot stand together.
    pub fn new(wanted: Vec<WantedPort>) -> Result<Self, PortRequestError> {
        let counts = wanted.iter().map(|port| u32::from(port.count().get()));
        let numbers = counts.fold(0, u32::saturating_add);
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
        Ok(Self(Arc::new(Asked::new(wanted, numbers))))
    }

    /// The ports, in the order of the profile.
    #[must_use]
    pub fn as_slice(&self) -> &[WantedPort] {
        &self.0.wanted
    }

    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.wanted.is_empty()
    }

    /// How many numbers it asks for, blocks counted by their size; at most [`Self::MAX_NUMBERS`].
    #[must_use]
    pub fn numbers(&self) -> u32 {
        self.0.numbers
    }

    /// The numbers it fixes, one entry for each side.
    #[must_use]
    pub fn fixed(&self) -> &[(Side, Port)] {
        &self.0.fixed
    }

    /// How many of its ports want one number, any, of this very protocol, narrowed or not.
    #[must_use]
    pub fn single_any(&self, protocol: Protocol) -> u32 {
        self.0.singles[at(protocol)]
    }

    /// Whether it asks for a block of consecutive numbers.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.0.has_blocks
    }

    /// Whether one of its "any" is narrowed to a range of its own.
    #[must_use]
    pub fn is_narrowed(&self) -> bool {
        self.0.is_narrowed
    }

    /// The protocol, if every port wants one number, any, of this one protocol and none is
    /// narrowed: whether that fits is a matter of counting.
    #[must_use]
    pub fn plain(&self) -> Option<Protocol> {
        self.0.plain
    }

    /// All its ports, if each wants one number, any, and those that ask differently never want the same
    /// number: how often that fits is a matter of counting. Nothing for any other request.
    pub(super) fn counted(&self) -> &[Alike] {
        &self.0.counted
    }

    /// Whether it is granted wherever it fits. Others are not always: the order of choice is no packing, so that one port
    /// may take what another one needs, and leave it where somebody else has taken a number. Cost: each port is held
    /// against each.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let any = |port: &&WantedPort| matches!(port.want, Want::Any { .. });
        let any: Vec<&WantedPort> = self.0.wanted.iter().filter(any).collect();
        any.iter().enumerate().all(|(place, one)| {
            any[..place].iter().all(|other| {
                let (one_of, other_of) = (one.numbers(), other.numbers());
                let are_singles = one.count() == other.count() && other.count() == NonZeroU16::MIN;
                !may_meet(one_of, other_of) || are_singles && one_of == other_of
            })
        })
    }

    /// Whether how many replicas fit beside each other is found out by trying one after the other.
    #[must_use]
    pub fn is_tried(&self) -> bool {
        self.0.counted.is_empty() && self.0.fixed.is_empty() && !self.is_empty()
    }

    /// The same ports, some of them to be reached in a named network: one entry for each port, in the
    /// order of the profile. Only hosts that have an address in all of these networks fit.
    #[must_use]
    pub fn in_networks(self, networks: impl IntoIterator<Item = Option<NetworkNo>>) -> Self {
        let named = (0..).zip(networks).take(self.0.wanted.len());
        let named: Vec<(u16, NetworkNo)> = named
            .filter_map(|(place, network)| Some((place, network?)))
            .collect();
        if named.is_empty() && self.0.networks.is_empty() {
            return self;
        }
        let wanted = self.0.wanted.clone();
        let mut asked = Asked::new(wanted, self.0.numbers);
        asked.network_set = named.iter().map(|(_, network)| *network).collect();
        asked.networks = named;
        Self(Arc::new(asked))
    }

    /// The named networks in which its host must have an address.
    #[must_use]
    pub fn networks(&self) -> NetworkSet {
        self.0.network_set
    }

    /// Each port that is to be reached in a named network, with that network.
    pub fn named_networks(&self) -> impl Iterator<Item = (&WantedPort, NetworkNo)> {
        let named = self.0.networks.iter();
        named.filter_map(|(place, network)| {
            let port = self.0.wanted.get(usize::from(*place))?;
            Some((port, *network))
        })
    }

    /// Whether a clone of this very request is meant; equal ones may say no.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The names and protocols of a record, which may be anything: no request to be asked with.
    pub(super) fn recorded(ports: &[GrantedPort]) -> Self {
        let wanted = ports.iter().map(|port| WantedPort {
            name: port.name.clone(),
            protocol: port.protocol,
            want: Want::Fixed(port.numbers.first()),
            within: None,
        });
        Self(Arc::new(Asked {
            wanted: wanted.collect(),
            ..Asked::default()
        }))
    }

    /// Places in the order of choice; narrowed single ones are ordered among themselves by each
    /// pool.
    pub(super) fn order(&self) -> &[u16] {
        &self.0.order
    }
}

impl Asked {
    fn new(wanted: Vec<WantedPort>, numbers: u32) -> Self {
        // At most 256 of them: each takes a number.
        let mut order: Vec<u16> = (0..).zip(&wanted).map(|(place, _)| place).collect();
        order.sort_by_key(|place| rank(&wanted[usize::from(*place)]));
        let mut singles = [0; 3];
        let (mut has_blocks, mut is_narrowed) = (false, false);
        let mut fixed = Vec::new();
        for port in &wanted {
            match port.want {
                Want::Fixed(number) => {
                    fixed.extend(Side::of(port.protocol).map(|side| (side, number)));
                }
                Want::Any { count } => {
                    has_blocks |= count.get() > 1;
                    is_narrowed |= port.within.is_some();
                    singles[at(port.protocol)] += u32::from(count.get() == 1);
                }
            }
        }
        let plain = wanted.first().map(|port| port.protocol).filter(|protocol| {
            !is_narrowed && u32::try_from(wanted.len()) == Ok(singles[at(*protocol)])
        });
        let counted = Alike::all(&wanted).unwrap_or_default();
        Self {
            wanted,
            order,
            fixed,
            numbers,
            singles,
            has_blocks,
            is_narrowed,
            plain,
            counted,
            networks: Vec::new(),
            network_set: NetworkSet::default(),
        }
    }
}

/// So many ports of a request that each want one number, any, of the same ones.
#[derive(Debug)]
pub(super) struct Alike {
    pub(super) protocol: Protocol,
    pub(super) within: Option<PortRanges>,
    pub(super) many: u32,
}

impl Alike {
    /// See [`PortRequest::counted`].
    fn all(wanted: &[WantedPort]) -> Option<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        for port in wanted {
            let Want::Any {
                count: NonZeroU16::MIN,
            } = port.want
            else {
                return None;
            };
            let alike = |it: &&mut Self| it.protocol == port.protocol && it.within == port.within;
            if let Some(alike) = all.iter_mut().find(alike) {
                alike.many += 1;
                continue;
            }
            let new = Self {
                protocol: port.protocol,
                within: port.within.clone(),
                many: 1,
            };
            if all
                .iter()
                .any(|other| may_meet(other.numbers(), new.numbers()))
            {
                return None;
            }
            all.push(new);
        }
        Some(all)
    }

    fn numbers(&self) -> Numbers<'_> {
        (self.protocol, self.within.as_ref())
    }
}

/// Of which numbers a port wants one, or a block; without a range, of all that a pool gives.
type Numbers<'a> = (Protocol, Option<&'a PortRanges>);

/// Whether both may want the same number of the same side.
fn may_meet(one: Numbers<'_>, other: Numbers<'_>) -> bool {
    let apart = match (one.1, other.1) {
        (Some(one), Some(other)) => one.intersection(other).is_empty(),
        _ => false,
    };
    one.0.overlaps(other.0) && !apart
}

const fn at(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
        Protocol::TcpUdp => 2,
    }
}

/// The class of a port in the order of choice, then, among blocks, the longest first.
const fn rank(port: &WantedPort) -> (u8, u16) {
    let both = matches!(port.protocol, Protocol::TcpUdp);
    match port.want {
        Want::Fixed(_) => (0, 0),
        Want::Any { count } if count.get() > 1 => {
            (if both { 1 } else { 2 }, u16::MAX - count.get())
        }
        Want::Any { .. } => (if both { 3 } else { 4 }, 0),
    }
}

impl PartialEq for PortRequest {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
            || self.as_slice() == other.as_slice() && self.0.networks == other.0.networks
    }
}

impl Eq for PortRequest {}

/// As the list of its ports.
impl Serialize for PortRequest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
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

    fn numbers(&self) -> Numbers<'_> {
        (self.protocol, self.within.as_ref())
    }

    /// Whether `numbers` on `protocol` could be the answer to it.
    #[must_use]
    pub fn is_answered(&self, protocol: Protocol, numbers: PortRange) -> bool {
        let fits = match (self.want, &self.within) {
            (Want::Fixed(port), _) => numbers.first() == port,
            (Want::Any { .. }, Some(within)) => numbers.iter().all(|n| within.contains(n)),
            (Want::Any { .. }, None) => true,
        };
        fits && protocol == self.protocol && numbers.count() == u32::from(self.count().get())
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
        // More than 32 bits count.
        let huge = vec![wanted("a", Protocol::Tcp, block(u16::MAX)); 65_540];
        let numbers = u32::MAX;
        assert_eq!(
            PortRequest::new(huge),
            Err(PortRequestError::TooMany { numbers })
        );
    }

    /// Two blocks of the two protocols apart left no number that was free on both.
    #[test]
    fn ports_that_may_take_from_each_other_what_they_need_are_not_always_granted_where_they_fit() {
        use Protocol::{Tcp, TcpUdp, Udp};
        let any = |count| Want::Any {
            count: NonZeroU16::new(count).unwrap(),
        };
        let is_exact = |ports: &[(Protocol, Want)]| {
            let names = ["a", "b", "c"];
            let ports = names.iter().zip(ports);
            let ports = ports.map(|(name, (protocol, want))| wanted(name, *protocol, *want));
            PortRequest::new(ports.collect()).unwrap().is_exact()
        };
        assert!(is_exact(&[(Tcp, any(3))]));
        assert!(is_exact(&[(Tcp, fixed(53)), (TcpUdp, any(1))]));
        assert!(is_exact(&[(Tcp, any(1)), (Udp, any(2)), (Tcp, any(1))]));
        assert!(!is_exact(&[(Tcp, any(2)), (Udp, any(2)), (TcpUdp, any(1))]));
        assert!(!is_exact(&[(Tcp, any(1)), (Tcp, any(2))]));
    }
}
