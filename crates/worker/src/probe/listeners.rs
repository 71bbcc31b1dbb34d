//! Who listens on a number: asked of the kernel by `sock_diag`, so that neither a connection nor a bind is made.
//!
//! Every listening socket is seen, also several that share a number by `SO_REUSEPORT`. Only the network
//! namespace of this process is looked at.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portreeve::port::{Port, Protocol};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A socket that takes what comes to a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Where it is bound; an IPv4-mapped address is shown as the IPv4 address it is.
    pub(crate) address: SocketAddr,
    /// Whether a wildcard of IPv6 leaves IPv4 alone.
    pub(crate) only_v6: bool,
    /// Its name in `/proc/PID/fd`.
    pub(crate) inode: u64,
    /// The user who made it.
    pub(crate) uid: u32,
}

impl Listener {
    /// Whether a client of `address` reaches it.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        match self.address.ip() {
            IpAddr::V4(own) => own == address || own.is_unspecified() && address.is_ipv4(),
            IpAddr::V6(own) if own.is_unspecified() => address.is_ipv6() || !self.only_v6,
            own @ IpAddr::V6(_) => own == address,
        }
    }
}

/// Everybody who listens on one side of `port`, on any address of this host.
///
/// # Errors
///
/// The kernel's refusal; who listens is then not known.
pub(crate) fn listeners(protocol: Side, port: Port) -> io::Result<Vec<Listener>> {
    ask(protocol, port.number())
}

/// Everybody who listens on any number.
///
/// # Errors
///
/// As [`listeners`].
pub(crate) fn all_listeners(protocol: Side) -> io::Result<Vec<Listener>> {
    ask(protocol, 0)
}

/// One side of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Tcp,
    Udp,
}

impl Side {
    /// The sides that a protocol takes.
    pub(crate) fn of(protocol: Protocol) -> impl Iterator<Item = Self> {
        let tcp = protocol.has_tcp().then_some(Self::Tcp);
        tcp.into_iter()
            .chain(protocol.has_udp().then_some(Self::Udp))
    }

    /// `IPPROTO_TCP` or `IPPROTO_UDP`, and the states of a socket that waits for anybody.
    const fn numbers(self) -> (u8, u32) {
        match self {
            Self::Tcp => (6, 1 << TCP_LISTEN),
            Self::Udp => (17, 1 << TCP_CLOSE),
        }
    }
}

fn ask(side: Side, port: u16) -> io::Result<Vec<Listener>> {
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(rustix::net::netlink::SOCK_DIAG),
        )?;
        rustix::net::send(&socket, &request(side, family, port), SendFlags::empty())?;
        // The kernel fills at most 32 KiB at a time.
        let mut buffer = vec![0_u8; 32 * 1024];
        loop {
            let (received, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            if take_messages(&buffer[..received], &mut found)? {
                break;
            }
        }
    }
    // A kernel without the filter sends them all.
    found.retain(|listener| port == 0 || listener.address.port() == port);
    Ok(found)
}

/// `struct nlmsghdr`, then `struct inet_diag_req_v2` with only the source port set.
fn request(side: Side, family: u8, port: u16) -> [u8; 72] {
    let (protocol, states) = side.numbers();
    let mut request = [0; 72];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &72_u32.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    put(16, &[family, protocol]);
    put(20, &states.to_ne_bytes());
    put(24, &port.to_be_bytes());
    request
}

/// Takes what one answer holds; `true` if it is the last.
fn take_messages(mut bytes: &[u8], found: &mut Vec<Listener>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(message) = bytes.get(16..length) else {
            break;
        };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let errno = u32_at(message, 0).map_or(0, u32::cast_signed);
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            SOCK_DIAG_BY_FAMILY => found.extend(listener(message)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Reads `struct inet_diag_msg` and its attributes.
fn listener(message: &[u8]) -> Option<Listener> {
    let port = u16::from_be_bytes(message.get(4..6)?.try_into().ok()?);
    let address: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    let ip = match message.first()? {
        &AF_INET => {
            let [a, b, c, d, ..] = address;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        _ => Ipv6Addr::from(address).to_canonical(),
    };
    Some(Listener {
        address: SocketAddr::new(ip, port),
        only_v6: attribute(message.get(72..)?, INET_DIAG_SKV6ONLY) == Some(1),
        inode: u64::from(u32_at(message, 68)?),
        uid: u32_at(message, 64)?,
    })
}

/// The first byte of this attribute.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<u8> {
    while let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) {
        if kind == wanted {
            return bytes.get(4).copied();
        }
        let step = usize::from(length).next_multiple_of(4).max(4);
        bytes = bytes.get(step..).unwrap_or_default();
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_SKV6ONLY: u16 = 11;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP_CLOSE: u32 = 7;
const TCP_LISTEN: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    fn number(address: io::Result<SocketAddr>) -> Port {
        Port::new(address.unwrap().port()).unwrap()
    }

    #[test]
    fn listeners_of_both_families_and_sides_are_found_and_connections_are_not() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = number(v4.local_addr());
        let client = std::net::TcpStream::connect(v4.local_addr().unwrap()).unwrap();
        let found = listeners(Side::Tcp, port).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].address, v4.local_addr().unwrap());
        assert!(found[0].inode > 0);
        let everybody = all_listeners(Side::Tcp).unwrap();
        assert!(everybody.contains(&found[0]));
        assert_eq!(listeners(Side::Udp, port).unwrap(), []);
        drop((v4, client));
        assert_eq!(listeners(Side::Tcp, port).unwrap(), []);

        let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
        let found = listeners(Side::Udp, number(udp.local_addr())).unwrap();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_wildcard_covers_its_families_and_a_literal_address_only_itself() {
        let host: IpAddr = "10.1.0.17".parse().unwrap();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let both = TcpListener::bind("[::]:0").unwrap();
        let found = listeners(Side::Tcp, number(both.local_addr())).unwrap();
        assert!(
            found[0].covers(host) && found[0].covers(loopback),
            "{found:?}"
        );

        let socket =
            socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        socket.set_only_v6(true).unwrap();
        let any: SocketAddr = "[::]:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        socket.listen(1).unwrap();
        let alone = TcpListener::from(socket);
        let found = listeners(Side::Tcp, number(alone.local_addr())).unwrap();
        assert!(!found[0].covers(host), "{found:?}");

        let literal = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listeners(Side::Tcp, number(literal.local_addr())).unwrap();
        assert!(found[0].covers(loopback) && !found[0].covers(host));
    }

    #[test]
    fn torn_answers_are_refused_or_ignored_without_panic() {
        let mut found = Vec::new();
        for bytes in [&[][..], &[0; 15], &[0xff; 64], &[0; 64]] {
            assert!(!take_messages(bytes, &mut found).unwrap_or(false));
        }
        assert_eq!(found, []);
    }
}
