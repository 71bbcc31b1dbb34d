//! The sockets of this host as the kernel tells them by `sock_diag`: who listens on a number, and who made a
//! connection. Neither a connection nor a bind is made for it.
//!
//! Every listening socket is seen, also several that share a number by `SO_REUSEPORT`. Only the network
//! namespace of this process is looked at. Shared by all daemons, so that there is one reader of these answers.

mod diag;
mod ephemeral;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use portreeve::port::{Port, Protocol};

pub use ephemeral::ephemeral;

/// A socket that takes what comes to a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where it is bound; an IPv4-mapped address is shown as the IPv4 address it is.
    pub address: SocketAddr,
    /// Whether a wildcard of IPv6 leaves IPv4 alone.
    pub only_v6: bool,
    /// Its name in `/proc/PID/fd`.
    pub inode: u64,
    /// The user who made it.
    pub uid: u32,
    /// The inode of the version 2 control group in which it was made, where the kernel tells (5.9 and later).
    pub cgroup: Option<u64>,
}

impl Listener {
    /// Whether a client of `address` reaches it.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        match self.address.ip() {
            IpAddr::V4(own) => own == address || own.is_unspecified() && address.is_ipv4(),
            IpAddr::V6(own) if own.is_unspecified() => address.is_ipv6() || !self.only_v6,
            own @ IpAddr::V6(_) => own == address,
        }
    }

    /// How well it fits a client of `address`: the kernel gives a connection to the best.
    fn fit(&self, address: IpAddr) -> Option<Fit> {
        if !self.covers(address) {
            return None;
        }
        let own = self.address.ip();
        Some(if own == address {
            Fit::Exact
        } else if own.is_ipv4() == address.is_ipv4() {
            Fit::Wildcard
        } else {
            Fit::WildcardOfBoth
        })
    }
}

#[cfg(fuzzing)]
pub(crate) use diag::read_answer;

/// From the best to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Exact,
    Wildcard,
    WildcardOfBoth,
}

/// Those of the listeners of one number that answer a client of `address`: several only where they share it by
/// `SO_REUSEPORT`. A wildcard answers nobody whom a literal address takes.
#[must_use]
pub fn answering(found: &[Listener], address: IpAddr) -> Vec<&Listener> {
    let best = found.iter().filter_map(|one| one.fit(address)).min();
    let mut answering: Vec<_> = found.iter().collect();
    answering.retain(|one| best.is_some() && one.fit(address) == best);
    answering
}

/// One side of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Side {
    /// The sides that a protocol takes.
    pub fn of(protocol: Protocol) -> impl Iterator<Item = Self> {
        let tcp = protocol.has_tcp().then_some(Self::Tcp);
        tcp.into_iter()
            .chain(protocol.has_udp().then_some(Self::Udp))
    }
}

/// Everybody who listens on one side of `port`, on any address of this host. Cost: about 10 µs.
///
/// # Errors
///
/// The kernel's refusal; who listens is then not known.
pub fn listeners(side: Side, port: Port) -> io::Result<Vec<Listener>> {
    let mut found = diag::listeners(side, port.number())?;
    // A kernel without the filter sends them all.
    found.retain(|listener| listener.address.port() == port.number());
    Ok(found)
}

/// Everybody who listens on any number. Cost: about 1 ms for 1,000 listeners.
///
/// # Errors
///
/// As [`listeners`].
pub fn all_listeners(side: Side) -> io::Result<Vec<Listener>> {
    diag::listeners(side, 0)
}

/// The uid of the TCP socket that is bound to `own` and connected to `remote`; `None` if no process has it. Its
/// cost does not grow with the connections of the machine.
///
/// # Errors
///
/// The kernel does not answer such questions; who owns the socket is then not known.
pub fn connection_owner(own: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    /// Whether this kernel has answered such a question.
    static ANSWERS: AtomicBool = AtomicBool::new(false);
    match diag::connection(own, remote) {
        // Also what a kernel says that cannot answer; one that answered once can.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound && ANSWERS.load(Relaxed) => Ok(None),
        Err(cause) => Err(cause),
        Ok(uid) => {
            ANSWERS.store(true, Relaxed);
            Ok(uid)
        }
    }
}

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

        let v6_alone = Listener {
            only_v6: true,
            ..found[0].clone()
        };
        assert!(!v6_alone.covers(host) && v6_alone.covers("fd00::1".parse().unwrap()));

        let literal = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listeners(Side::Tcp, number(literal.local_addr())).unwrap();
        assert!(found[0].covers(loopback) && !found[0].covers(host));
    }

    #[test]
    fn a_literal_address_answers_before_a_wildcard_and_the_own_family_before_both() {
        let at = |address: &str| Listener {
            address: address.parse().unwrap(),
            only_v6: false,
            inode: 1,
            uid: 0,
            cgroup: None,
        };
        let all = [at("[::]:80"), at("0.0.0.0:80"), at("10.1.0.17:80")];
        let asked = |found: &[Listener], address: &str| {
            let answering = answering(found, address.parse().unwrap());
            let shown: Vec<_> = answering
                .iter()
                .map(|one| one.address.to_string())
                .collect();
            shown.join(" ")
        };
        assert_eq!(asked(&all, "10.1.0.17"), "10.1.0.17:80");
        assert_eq!(asked(&all, "10.1.0.18"), "0.0.0.0:80");
        assert_eq!(asked(&all[..1], "10.1.0.18"), "[::]:80");
        assert_eq!(asked(&all, "fd00::1"), "[::]:80");
        assert_eq!(asked(&all[2..], "10.1.0.18"), "");
        let shared = [at("0.0.0.0:80"), at("0.0.0.0:80")];
        assert_eq!(asked(&shared, "10.1.0.17"), "0.0.0.0:80 0.0.0.0:80");
    }

    #[test]
    fn a_connection_that_never_was_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(local).unwrap();
        assert_eq!(
            connection_owner(client.local_addr().unwrap(), local).unwrap(),
            Some(rustix::process::geteuid().as_raw())
        );
        let other = SocketAddr::new(local.ip(), 1);
        assert_eq!(connection_owner(other, local).unwrap(), None);
    }
}
