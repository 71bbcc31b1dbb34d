//! Who is at the other end of a connection, as the kernel tells it.
//!
//! A Unix socket carries its peer's credentials. On loopback TCP both ends are on this machine, so the
//! kernel knows the peer's own socket and the uid that made it: `sock_diag` finds that one, and where it
//! is missing the socket stands in `/proc/net/tcp`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portreeve_api::sockets;
use tokio::sync::OnceCell;

use crate::vital;

/// One connection's other end.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Told by the kernel when it connected.
    Unix { uid: u32 },
    /// Looked up once.
    Loopback {
        peer: SocketAddr,
        local: SocketAddr,
        uid: OnceCell<Option<u32>>,
    },
    /// Beyond this machine, or not known to be on it: the kernel says nothing of who that is, only a token does.
    Remote {
        address: SocketAddr,
        /// Whether nobody on the way reads or changes what is said. Without it no token is taken.
        tls: bool,
    },
}

/// Whose a connection is, as far as can be told before anything is said over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whose {
    /// An account's; all that cannot be found are one.
    Account(Option<u32>),
    /// Another machine's.
    Machine(IpAddr),
}

impl Peer {
    /// The peer's uid; `None` if its socket cannot be found.
    pub(crate) async fn uid(&self) -> Option<u32> {
        match self {
            Self::Unix { uid } => Some(*uid),
            Self::Loopback { peer, local, uid } => {
                let (peer, local) = (*peer, *local);
                let find = || vital::blocking("peer", move || find(peer, local));
                *uid.get_or_init(find).await
            }
            Self::Remote { .. } => None,
        }
    }

    /// Whose share of what is bounded it takes.
    pub(crate) async fn whose(&self) -> Whose {
        match self {
            Self::Remote { address, .. } => Whose::Machine(address.ip().to_canonical()),
            _ => Whose::Account(self.uid().await),
        }
    }
}

fn find(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    match sockets::connection_owner(canonical(peer), canonical(local)) {
        Ok(uid) => uid,
        // A kernel without it; the whole table costs as much as the machine has connections.
        Err(_) => find_in_table(peer, local),
    }
}

fn find_in_table(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    // A client may reach an IPv4 address through an IPv6 socket.
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .find_map(|table| uid_in(&table, peer, local))
}

/// The uid of the socket in `table` that is bound to `peer` and connected to `local`.
fn uid_in(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let wanted = (canonical(peer), canonical(local));
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let own = address(fields.next()?)?;
        let remote = address(fields.next()?)?;
        let state = fields.next()?;
        let uid = fields.nth(3)?.parse().ok()?;
        let inode: u64 = fields.nth(1)?.parse().ok()?;
        // A socket that its process closed shows uid 0: only one with a file (an inode) has an owner. The
        // states are established and half closed; a socket that still connects is somebody else's.
        let owned = inode != 0 && matches!(state, "01" | "04" | "05");
        (owned && (own, remote) == wanted).then_some(uid)
    })
}

/// An IPv4 address that is written in IPv6 is that IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads `0100007F:1CCD`: each 32-bit word of the address in the machine's byte order, the port plain.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    if !ip.is_ascii() {
        return None;
    }
    let words: Option<Vec<[u8; 4]>> = ip
        .as_bytes()
        .chunks(8)
        .map(|word| {
            let word = std::str::from_utf8(word).ok()?;
            Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
        })
        .collect();
    let ip = match words?.as_slice() {
        [v4] => IpAddr::V4(Ipv4Addr::from(*v4)),
        words => {
            let bytes: [u8; 16] = words.as_flattened().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1CCD 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 11 1 0000
   1: 0100007F:D431 0100007F:1CCD 06 00000000:00000000 03:00000a2b 00000000     0        0 0 3 0000
   2: 0100007F:D432 0100007F:1CCD 01 00000000:00000000 00:00000000 00000000  1000        0 17 1 0000
   3: 0100007F:D433 0100007F:1CCD 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0000
   4: 0100007F:D434 0100007F:1CCD 02 00000000:00000000 00:00000000 00000000     0        0 18 1 0000
   5: 0100007F:1CCD 0100007F:D432 01 00000000:00000000 00:00000000 00000000  1001        0 19 1 0000
";

    #[test]
    #[cfg(target_endian = "little")]
    fn only_a_living_socket_tells_whose_it_is() {
        let local = "127.0.0.1:7373".parse().unwrap();
        let of = |port: u16| {
            uid_in(
                TABLE,
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
                local,
            )
        };
        assert_eq!(of(0xD432), Some(1000));
        assert_eq!(of(0xD431), None, "in TIME_WAIT a socket shows uid 0");
        assert_eq!(of(0xD433), None, "a closed socket shows uid 0");
        assert_eq!(
            of(0xD434),
            None,
            "a socket that still connects is another one"
        );
        assert_eq!(of(1), None);
        let mapped = "[::ffff:127.0.0.1]:7373".parse().unwrap();
        let peer = "[::ffff:127.0.0.1]:54322".parse().unwrap();
        assert_eq!(uid_in(TABLE, peer, mapped), Some(1000));
    }

    #[test]
    fn malformed_tables_find_nobody() {
        let local = "127.0.0.1:7373".parse().unwrap();
        for table in [
            "",
            "x\ny",
            "h\n 0: ä:1 b:2 01",
            "h\n 0: 0100007F:D432 0100007F:1CCD 01 a b",
        ] {
            assert_eq!(uid_in(table, local, local), None);
        }
    }

    #[test]
    fn a_real_connection_is_found() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(listen) else {
                continue; // A machine without IPv6.
            };
            let local = listener.local_addr().unwrap();
            let client = std::net::TcpStream::connect(local).unwrap();
            let peer = client.local_addr().unwrap();
            let own = nix::unistd::geteuid().as_raw();
            assert_eq!(sockets::connection_owner(peer, local).unwrap(), Some(own));
            assert_eq!(find_in_table(peer, local), Some(own));
            drop(client);
            // Half closed, and soon gone: nobody's.
            assert_eq!(sockets::connection_owner(peer, local).unwrap(), None);
            assert_eq!(find_in_table(peer, local), None);
            assert_eq!(
                sockets::connection_owner(local, local).unwrap(),
                None,
                "a listener"
            );
        }
    }
}
