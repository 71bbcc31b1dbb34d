//! One of the two sides a number is held on: TCP or UDP.

use crate::port::Protocol;

/// The transport of one number. A [`Protocol`] names one side or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Side {
    /// Both, in the order of every listing.
    pub const BOTH: [Self; 2] = [Self::Tcp, Self::Udp];

    /// The sides that `protocol` takes, TCP first.
    pub fn of(protocol: Protocol) -> impl Iterator<Item = Self> + Clone {
        Self::BOTH.into_iter().filter(move |side| match side {
            Self::Tcp => protocol.has_tcp(),
            Self::Udp => protocol.has_udp(),
        })
    }

    /// Its place in a pair of things kept for each side, in the order of [`Self::BOTH`].
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Tcp => 0,
            Self::Udp => 1,
        }
    }

    /// The protocol that takes this side alone.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Tcp => Protocol::Tcp,
            Self::Udp => Protocol::Udp,
        }
    }
}
