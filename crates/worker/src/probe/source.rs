//! Where a probe's own connection begins: on a number that no replica is given.
//!
//! Left to itself the kernel may choose the very number that is probed, and connects the socket to itself where
//! nobody listens; or a number that the service is about to bind, which then fails. The socket option that keeps
//! the choice in a range (`IP_LOCAL_PORT_RANGE`, Linux 6.3) has no safe wrapper, so the number is chosen here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use portreeve::port::{Port, PortRange, PortRanges};
use portreeve_api::sockets;
use socket2::SockRef;
use tokio::net::TcpSocket;

/// The numbers that connections of ours may begin on. A copy costs a count.
#[derive(Clone, Debug, Default)]
pub struct SourcePorts(Arc<PortRanges>);

impl SourcePorts {
    /// What the kernel takes for outgoing connections, without `pool`; where that leaves nothing, every number that
    /// needs no right, without `pool`. Cost: two reads below `/proc`.
    ///
    /// If nothing is left even then, the kernel chooses.
    #[must_use]
    pub fn beside(pool: &PortRanges) -> Self {
        Self::of(&sockets::ephemeral().unwrap_or_default(), pool)
    }

    fn of(kernel: &PortRanges, pool: &PortRanges) -> Self {
        let mut left = kernel.difference(pool);
        if left.is_empty() {
            let all =
                Port::new(FIRST_WITHOUT_RIGHT).and_then(|first| PortRange::new(first, Port::MAX));
            left = PortRanges::new(all).difference(pool);
        }
        Self(Arc::new(left))
    }

    /// Binds `socket` to one of them that is free and is not the number it is to connect to.
    pub(super) fn bind(&self, socket: &TcpSocket, to: SocketAddr) -> io::Result<()> {
        let unspecified: IpAddr = if to.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            // Else a number that is taken on IPv4 would be refused.
            SockRef::from(socket).set_only_v6(true)?;
            Ipv6Addr::UNSPECIFIED.into()
        };
        for _ in 0..TRIES {
            let Some(number) = self.any(random(), to.port()) else {
                break;
            };
            match socket.bind(SocketAddr::new(unspecified, number.number())) {
                Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        // So full that the kernel may choose better; that it did not connect to itself is looked at.
        Ok(())
    }

    /// The `chance`-th of them, counted around, unless it is `not`.
    fn any(&self, chance: u32, not: u16) -> Option<Port> {
        let count = self.0.count();
        if count == 0 {
            return None;
        }
        let mut nth = chance % count;
        let mut chosen = None;
        for range in self.0.as_slice() {
            if nth < range.count() {
                let number = u32::from(range.first().number()) + nth;
                chosen = u16::try_from(number).ok().and_then(Port::new);
                break;
            }
            nth -= range.count();
        }
        match chosen {
            Some(port) if port.number() == not && count > 1 => {
                self.any(chance.wrapping_add(1), not)
            }
            Some(port) if port.number() == not => None,
            chosen => chosen,
        }
    }
}

/// Good enough not to try the same numbers as other workers; nothing secret hangs on it.
fn random() -> u32 {
    getrandom::u32().unwrap_or_else(|_| std::process::id())
}

const FIRST_WITHOUT_RIGHT: u16 = 1024;
/// How many numbers are tried; with every second one taken, one in 65,536 probes finds none.
const TRIES: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> PortRanges {
        PortRanges::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_source_is_outside_the_pool_and_never_the_number_probed() {
        let sources = SourcePorts::of(&ranges("40000-40009"), &ranges("40002-40007"));
        let mut seen = std::collections::BTreeSet::new();
        for chance in 0..100 {
            seen.insert(sources.any(chance, 40001).unwrap().number());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [40000, 40008, 40009]);
        // Counted around the end too.
        assert_eq!(sources.any(u32::MAX, 40009).unwrap().number(), 40000);
    }

    #[test]
    fn a_pool_that_is_all_the_kernel_takes_is_left_alone_all_the_same() {
        // P03
        let sources = SourcePorts::of(&ranges("40000-40009"), &ranges("40000-40009"));
        assert_eq!(sources.any(7, 1).unwrap().number(), 1031);
        assert_eq!(sources.0.count(), 64_512 - 10);
        let none = SourcePorts::of(&ranges("40000"), &ranges("1-65535"));
        assert_eq!(none.any(7, 1), None);
        let one = SourcePorts::of(&ranges("40000"), &ranges(""));
        assert_eq!(one.any(7, 40000), None);
        assert_eq!(one.any(7, 1).unwrap().number(), 40000);
    }
}
