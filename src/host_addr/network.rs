//! Named networks: a port may ask for an address in one of them in place of the published one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::identity::NetworkName;
use crate::port::excerpt;

use super::candidate::Candidate;
use super::rule::{AddressRule, Selector};

/// The networks of a site by name. The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(BTreeMap<NetworkName, Vec<Prefix>>);

/// One name with what it stands for, written `data=10.20.0.0/16` or `data=10.20.0.0/16,fd00:20::/64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNetwork {
    /// The name.
    pub name: NetworkName,
    /// Never empty; an address in an earlier one is preferred.
    pub prefixes: Vec<Prefix>,
}

/// The addresses that begin with the same bits, written `10.20.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    /// The first address.
    first: IpAddr,
    /// How many bits are the same, at most those of an address.
    bits: u8,
}

impl Networks {
    /// The most networks of a site.
    pub const MOST: usize = 64;

    /// All of these.
    ///
    /// # Errors
    ///
    /// [`NetworksError`] if a name comes twice or there are too many.
    pub fn new(all: impl IntoIterator<Item = NamedNetwork>) -> Result<Self, NetworksError> {
        let mut networks = BTreeMap::new();
        for NamedNetwork { name, prefixes } in all {
            if networks.insert(name.clone(), prefixes).is_some() {
                return Err(NetworksError::Twice { name });
            }
            if networks.len() > Self::MOST {
                return Err(NetworksError::TooMany);
            }
        }
        Ok(Self(networks))
    }

    /// The names with what they stand for, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&NetworkName, &[Prefix])> {
        self.0
            .iter()
            .map(|(name, prefixes)| (name, prefixes.as_slice()))
    }

    /// What the name stands for; `None`: there is no such network.
    #[must_use]
    pub fn find(&self, name: &NetworkName) -> Option<&[Prefix]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The address in each network among a host's usable ones, by the order of the default choice. It depends on the
    /// set of candidates alone, never on their order. Networks in which there is none are left out.
    ///
    /// Cost: one look at each candidate for each prefix.
    #[must_use]
    pub fn choose(&self, usable: &[Candidate]) -> BTreeMap<NetworkName, IpAddr> {
        let chosen = self.0.iter().filter_map(|(name, prefixes)| {
            let found = prefixes.iter().find_map(|prefix| {
                let selector = prefix.selector();
                let there = usable.iter().filter(|one| selector.holds(one));
                AddressRule::default().best(there)
            });
            Some((name.clone(), found?.address))
        });
        chosen.collect()
    }
}

impl Prefix {
    /// The addresses whose first `bits` bits are those of `address`; `None` if an address has not so many.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let first = match address {
            IpAddr::V4(address) if bits <= 32 => {
                let kept = u32::MAX.checked_shl(u32::from(32 - bits)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & kept).into())
            }
            IpAddr::V6(address) if bits <= 128 => {
                let kept = u128::MAX.checked_shl(u32::from(128 - bits)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & kept).into())
            }
            _ => return None,
        };
        Some(Self { first, bits })
    }

    /// The first of its addresses.
    #[must_use]
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// Whether `address` is one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_family = address.is_ipv4() == self.first.is_ipv4();
        same_family
            && Self::new(address, self.bits).is_some_and(|prefix| prefix.first == self.first)
    }

    /// `10.20.0.0/16 or fd00:20::/64`.
    #[must_use]
    pub fn alternatives(prefixes: &[Self]) -> String {
        let all: Vec<String> = prefixes.iter().map(Self::to_string).collect();
        all.join(" or ")
    }

    const fn selector(self) -> Selector {
        Selector::Network {
            address: self.first,
            prefix: self.bits,
        }
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let refuse = || ParsePrefixError {
            text: excerpt(text),
        };
        let (address, bits) = text.split_once('/').ok_or_else(refuse)?;
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let bits: u8 = bits.parse().map_err(|_| refuse())?;
        Self::new(address, bits).ok_or_else(refuse)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

impl TryFrom<String> for Prefix {
    type Error = ParsePrefixError;

    fn try_from(text: String) -> Result<Self, ParsePrefixError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl FromStr for NamedNetwork {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let (name, prefixes) = text
            .split_once('=')
            .ok_or_else(|| ParseNetworkError::Form {
                text: excerpt(text),
            })?;
        let name = name.trim().parse()?;
        let mut read = Vec::new();
        for prefix in prefixes.split(',').map(str::trim) {
            if read.len() == Self::MOST_PREFIXES {
                return Err(ParseNetworkError::TooMany { name });
            }
            read.push(prefix.parse()?);
        }
        Ok(Self {
            name,
            prefixes: read,
        })
    }
}

impl NamedNetwork {
    /// The most prefixes of one name.
    pub const MOST_PREFIXES: usize = 16;
}

/// Not the addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no network; write an address and how many of its bits count, such as 10.20.0.0/16"
)]
pub struct ParsePrefixError {
    text: String,
}

/// Not a named network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseNetworkError {
    /// There is no `=` in it.
    #[error("{text:?} names no network; write NAME=NETWORK, such as data=10.20.0.0/16")]
    Form {
        /// The beginning of what was written.
        text: String,
    },
    /// The name is none.
    #[error(transparent)]
    Name(#[from] crate::identity::ParseNetworkNameError),
    /// What stands behind `=` is no network.
    #[error(transparent)]
    Prefix(#[from] ParsePrefixError),
    /// More prefixes than a name may have.
    #[error("network {name} has more than {} parts", NamedNetwork::MOST_PREFIXES)]
    TooMany {
        /// The name.
        name: NetworkName,
    },
}

/// Why these are not the networks of a site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworksError {
    /// Which of the two was meant cannot be known.
    #[error(
        "network {name} is given twice; name it once, with its parts separated by commas, \
         such as {name}=10.20.0.0/16,fd00:20::/64"
    )]
    Twice {
        /// The name.
        name: NetworkName,
    },
    /// More than a site may have.
    #[error("there are more than {} networks", Networks::MOST)]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on(interface: &str, address: &str) -> Candidate {
        Candidate {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
            prefix: 24,
            up: true,
            default_route: false,
            passing: false,
        }
    }

    fn networks(all: &[&str]) -> Networks {
        Networks::new(all.iter().map(|one| one.parse().unwrap())).unwrap()
    }

    fn chosen(networks: &Networks, usable: &[Candidate], name: &str) -> Option<String> {
        let chosen = networks.choose(usable);
        let address = chosen.get(&name.parse().unwrap())?;
        Some(address.to_string())
    }

    #[test]
    fn a_host_has_the_first_of_its_addresses_that_lies_in_the_network() {
        let networks = networks(&[
            "data=10.20.0.0/16",
            "store=fd00:20::/64",
            "lab=192.0.2.0/24",
        ]);
        let usable = [
            on("eth0", "10.1.0.7"),
            on("ib1", "10.20.0.9"),
            on("ib0", "10.20.0.8"),
            on("ib0", "fd00:20::8"),
        ];
        assert_eq!(chosen(&networks, &usable, "data").unwrap(), "10.20.0.8");
        assert_eq!(chosen(&networks, &usable, "store").unwrap(), "fd00:20::8");
        assert_eq!(chosen(&networks, &usable, "lab"), None);
    }

    #[test]
    fn an_earlier_part_of_a_network_is_preferred() {
        let networks = networks(&["data=fd00:20::/64, 10.20.0.0/16"]);
        let usable = [on("a", "10.20.0.8"), on("b", "fd00:20::8")];
        assert_eq!(chosen(&networks, &usable, "data").unwrap(), "fd00:20::8");
        assert_eq!(
            chosen(&networks, &usable[..1], "data").unwrap(),
            "10.20.0.8"
        );
    }

    #[test]
    fn the_whole_of_a_family_and_one_address_are_networks() {
        let networks = networks(&["all=0.0.0.0/0", "one=10.20.0.8/32", "six=::/0"]);
        let usable = [on("a", "10.20.0.8")];
        assert_eq!(chosen(&networks, &usable, "all").unwrap(), "10.20.0.8");
        assert_eq!(chosen(&networks, &usable, "one").unwrap(), "10.20.0.8");
        assert_eq!(chosen(&networks, &usable, "six"), None);
    }

    #[test]
    fn a_network_is_shown_by_its_first_address() {
        for (written, shown) in [
            ("10.20.3.4/16", "10.20.0.0/16"),
            ("10.20.3.4/32", "10.20.3.4/32"),
            ("10.20.3.4/0", "0.0.0.0/0"),
            ("fd00:20::7/64", "fd00:20::/64"),
        ] {
            assert_eq!(written.parse::<Prefix>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_what_was_written() {
        for (text, word) in [
            ("10.20.0.0/16", "NAME=NETWORK"),
            ("data=", "\"\" is no network"),
            ("data=10.20.0.0", "\"10.20.0.0\" is no network"),
            ("data=10.20.0.0/33", "\"10.20.0.0/33\""),
            ("data=fd00::/129", "\"fd00::/129\""),
            ("data=10.20.0.0/-1", "\"10.20.0.0/-1\""),
            ("=10.20.0.0/16", "\"\" is not a network name"),
            ("Da ta=10.20.0.0/16", "\"Da ta\" is not a network name"),
        ] {
            let refused = text.parse::<NamedNetwork>().unwrap_err().to_string();
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }

    #[test]
    fn a_name_given_twice_and_too_many_names_are_refused() {
        let one = |text: String| text.parse::<NamedNetwork>().unwrap();
        let twice = ["data=10.1.0.0/16", "data=10.2.0.0/16"].map(|text| one(text.to_owned()));
        let refused = Networks::new(twice).unwrap_err().to_string();
        assert!(
            refused.starts_with("network data is given twice"),
            "{refused}"
        );
        let many = (0..=Networks::MOST).map(|nth| one(format!("n{nth}=10.0.0.0/8")));
        assert_eq!(Networks::new(many), Err(NetworksError::TooMany));
    }

    proptest! {
        #[test]
        fn the_choice_does_not_depend_on_the_order_and_lies_in_the_network(
            order in Just((0..12_u8).collect::<Vec<_>>()).prop_shuffle(),
            bits in 0..=32_u8,
        ) {
            let networks = networks(&[&format!("data=10.20.1.0/{bits}")]);
            let candidate = |nth: u8| on(&format!("e{}", nth % 5), &format!("10.{}.{}.7", 16 + nth, nth % 3));
            let sorted: Vec<Candidate> = (0..12).map(candidate).collect();
            let shuffled: Vec<Candidate> = order.into_iter().map(candidate).collect();
            let chosen = networks.choose(&sorted);
            prop_assert_eq!(&chosen, &networks.choose(&shuffled));
            let prefix = networks.find(&"data".parse().unwrap()).unwrap()[0];
            let inside = |one: &Candidate| prefix.selector().holds(one);
            prop_assert_eq!(chosen.is_empty(), !sorted.iter().any(inside));
            for address in chosen.values() {
                let it = sorted.iter().find(|one| one.address == *address).unwrap();
                prop_assert!(inside(it));
            }
        }
    }
}
