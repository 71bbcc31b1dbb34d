//! Whether a stranger has one of the granted numbers: looked at before each start, and at an exit before READY.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use portreeve::attendance::Stranger;
use portreeve::port::{Port, PortName, Protocol};
use portreeve::port_pool::{GrantedPort, PortGrant};
use portreeve::profile::{DeclaredPort, ListenerOwner};
use portreeve_api::sockets::{self, Listener, Side};
use socket2::{Domain, Socket, Type};

use crate::probe::owner::{Ownership, Root, holder, ownership};

/// A granted number and who has it.
fn stranger(port: Port, side: Side, listener: Option<&Listener>) -> Stranger {
    let holder = listener.and_then(|one| holder(one.inode));
    Stranger {
        port,
        protocol: match side {
            Side::Tcp => Protocol::Tcp,
            Side::Udp => Protocol::Udp,
        },
        pid: holder.as_ref().map(|one| one.pid),
        comm: holder.and_then(|one| one.comm),
    }
}

/// Looks at every granted number while no process of the replica is left: whoever listens is a stranger.
pub(crate) fn before_start(grant: &PortGrant) -> Option<Stranger> {
    let listeners = Listeners::on(grant);
    numbers(grant).find_map(|(number, side)| {
        // Who shares a number by SO_REUSEPORT is no hindrance to a bind, but takes half of what comes.
        let listener = listeners.of(side, number).into_iter().next();
        if listener.is_none() && is_bindable(number, side) {
            return None;
        }
        Some(stranger(number, side, listener.as_ref()))
    })
}

/// Looks at every granted number after an exit: whoever listens and does not live at `root` is a stranger.
pub(crate) fn at_exit(
    grant: &PortGrant,
    ports: &[DeclaredPort],
    root: Option<&Root>,
) -> Option<Stranger> {
    let owner = |name: &PortName| {
        let declared = ports.iter().find(|port| port.name == *name);
        declared.map_or(ListenerOwner::Run, |port| port.owner)
    };
    let listeners = Listeners::on(grant);
    grant.ports.iter().find_map(|granted| {
        let owner = owner(&granted.name);
        sides(granted).find_map(|(number, side)| {
            let found = listeners.of(side, number);
            let other = found.into_iter().find(|one| match (owner, root) {
                // Nothing of the run is left, so nothing of it listens.
                (ListenerOwner::Run, None) => true,
                _ => matches!(ownership(one, owner, root), Ownership::Stranger(_)),
            });
            other.map(|one| stranger(number, side, Some(&one)))
        })
    })
}

/// Who listens: asked number by number, or for large blocks once for all, so that a look never takes long.
enum Listeners {
    AskedEach,
    Known(BTreeMap<(Side, u16), Vec<Listener>>),
}

impl Listeners {
    /// Above so many numbers the whole list is read once, at about 1 ms for 1,000 listeners.
    const FEW: usize = 16;

    fn on(grant: &PortGrant) -> Self {
        if numbers(grant).nth(Self::FEW).is_none() {
            return Self::AskedEach;
        }
        let mut known: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for side in [Side::Tcp, Side::Udp] {
            for listener in sockets::all_listeners(side).unwrap_or_default() {
                let place = (side, listener.address.port());
                known.entry(place).or_default().push(listener);
            }
        }
        Self::Known(known)
    }

    /// Everybody on this number; nobody where that cannot be asked.
    fn of(&self, side: Side, number: Port) -> Vec<Listener> {
        match self {
            Self::AskedEach => sockets::listeners(side, number).unwrap_or_default(),
            Self::Known(known) => known
                .get(&(side, number.number()))
                .cloned()
                .unwrap_or_default(),
        }
    }
}

/// Every granted number, each side by itself.
fn numbers(grant: &PortGrant) -> impl Iterator<Item = (Port, Side)> {
    grant.ports.iter().flat_map(sides)
}

fn sides(granted: &GrantedPort) -> impl Iterator<Item = (Port, Side)> {
    Side::of(granted.protocol)
        .flat_map(|side| granted.numbers.iter().map(move |number| (number, side)))
}

/// Whether a server could bind the number on the wildcard of both families, as servers do. Never connects.
fn is_bindable(port: Port, side: Side) -> bool {
    let tcp = side == Side::Tcp;
    let wildcards = [
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port.number())),
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port.number())),
    ];
    wildcards.into_iter().all(|address| {
        let kind = if tcp { Type::STREAM } else { Type::DGRAM };
        let bound = Socket::new(Domain::for_address(address), kind, None).and_then(|socket| {
            // Each family by itself, or the second would meet the first.
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            // Remains of closed connections stop no server. With datagrams it would share the number instead.
            socket.set_reuse_address(tcp)?;
            socket.bind(&address.into())
        });
        // Only that it is taken is a conflict; a family that this host has not cannot be.
        !matches!(bound, Err(cause) if cause.kind() == std::io::ErrorKind::AddrInUse)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::port::PortRange;
    use std::net::{TcpListener, UdpSocket};

    fn port(address: std::io::Result<SocketAddr>) -> Port {
        Port::new(address.unwrap().port()).unwrap()
    }

    #[test]
    fn a_number_is_free_only_if_no_family_has_a_listener() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let number = port(listener.local_addr());
            assert!(!is_bindable(number, Side::Tcp), "{address}");
            assert!(is_bindable(number, Side::Udp), "{address}");
            drop(listener);
            assert!(is_bindable(number, Side::Tcp), "{address}");
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = port(socket.local_addr());
        assert!(!is_bindable(number, Side::Udp));
    }

    #[test]
    fn a_stranger_in_a_large_block_is_found_as_in_a_small_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = port(listener.local_addr());
        let last = Port::new(number.number().saturating_add(999)).unwrap_or(Port::MAX);
        for last in [number, last] {
            let grant = PortGrant {
                ports: vec![GrantedPort {
                    name: "block".parse().unwrap(),
                    protocol: Protocol::Tcp,
                    numbers: PortRange::new(number, last).unwrap(),
                }],
            };
            let found = before_start(&grant).unwrap();
            assert_eq!((found.port, found.pid), (number, Some(std::process::id())));
            let found = at_exit(&grant, &[], None).unwrap();
            assert_eq!(found.port, number);
        }
    }

    #[test]
    fn closed_connections_do_not_make_a_number_foreign() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = port(listener.local_addr());
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        // The side that closes first keeps the number in TIME_WAIT.
        drop(server);
        drop(client);
        drop(listener);
        assert!(is_bindable(number, Side::Tcp));
    }
}
