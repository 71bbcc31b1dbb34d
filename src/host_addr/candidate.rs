//! One address of a host as the host found it, and whether others may be sent there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::Reach;

/// One address on one interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Candidate {
    /// The interface, an alias as `eth0:1`.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Bits of the network part.
    pub prefix: u8,
    /// Whether the interface is up.
    pub up: bool,
    /// Whether the interface carries the default route of the address's family.
    pub default_route: bool,
    /// Whether it will not stay, or may not be used yet: temporary, deprecated or still being checked by IPv6.
    #[serde(default)]
    pub passing: bool,
}

impl Candidate {
    /// How far the address is known.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::of(self.address)
    }

    /// Whether others may be sent there.
    ///
    /// # Errors
    ///
    /// [`Unfit`] tells why not.
    pub fn fitness(&self, reach: Reach) -> Result<(), Unfit> {
        let longest = if self.address.is_ipv4() { 32 } else { 128 };
        if self.interface.is_empty() {
            return Err(Unfit::NoInterface);
        }
        if self.prefix > longest {
            return Err(Unfit::Prefix);
        }
        if !self.up {
            return Err(Unfit::Down);
        }
        self.scope().fitness(reach)?;
        if self.passing {
            return Err(Unfit::Passing);
        }
        Ok(())
    }

    /// The same with an IPv4 address inside IPv6 written as what it is.
    pub(super) fn canonical(&self) -> Self {
        Self {
            address: self.address.to_canonical(),
            ..self.clone()
        }
    }
}

/// How far an address is known. The order is that of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everywhere.
    Global,
    /// Inside a site: RFC 1918, RFC 6598 and unique local addresses.
    Site,
    /// On one link.
    Link,
    /// Inside one host.
    Loopback,
    /// It names no single host: wildcard, multicast, broadcast or reserved.
    Nobody,
}

impl Scope {
    /// The scope of this address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, second, ..] = address.octets();
        // 0.0.0.0/8 means "this network"; 240.0.0.0/4 is reserved and holds the broadcast address.
        if first == 0 || first >= 240 || address.is_multicast() {
            Self::Nobody
        } else if address.is_loopback() {
            Self::Loopback
        } else if address.is_link_local() {
            Self::Link
        } else if address.is_private() || (first == 100 && second & 0xc0 == 64) {
            Self::Site
        } else {
            Self::Global
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if address.is_unspecified() || address.is_multicast() {
            Self::Nobody
        } else if address.is_loopback() {
            Self::Loopback
        } else if address.is_unicast_link_local() {
            Self::Link
        } else if address.is_unique_local() {
            Self::Site
        } else {
            Self::Global
        }
    }

    pub(super) const fn fitness(self, reach: Reach) -> Result<(), Unfit> {
        match (self, reach) {
            (Self::Global | Self::Site, _) | (Self::Loopback, Reach::SingleHost) => Ok(()),
            (Self::Loopback, Reach::Network) => Err(Unfit::Loopback),
            (Self::Link, _) => Err(Unfit::LinkLocal),
            (Self::Nobody, _) => Err(Unfit::Nobody),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Site => "site",
            Self::Link => "link",
            Self::Loopback => "loopback",
            Self::Nobody => "nobody",
        })
    }
}

/// Why an address is not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// It was reported without an interface.
    #[error("it belongs to no interface")]
    NoInterface,
    /// The network part is longer than the address.
    #[error("its prefix is longer than the address")]
    Prefix,
    /// The interface is down.
    #[error("its interface is down")]
    Down,
    /// IPv6 will not keep it, or may not use it yet.
    #[error("it is temporary, deprecated or still being checked")]
    Passing,
    /// Only this host can reach it.
    #[error("loopback is reachable from this host only")]
    Loopback,
    /// Only this link can reach it.
    #[error("it is link-local")]
    LinkLocal,
    /// It names no single host.
    #[error("it is a wildcard, multicast or reserved address")]
    Nobody,
}
