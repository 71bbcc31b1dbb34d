//! Who listens on this host, from `/proc/net`.
//!
//! A listener on any address counts, loopback too: a later bind to the wildcard address would fail (P13).

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};

use portreeve::port::{Port, Protocol};

/// One socket that takes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Socket {
    pub(super) port: Port,
    pub(super) protocol: Protocol,
    pub(super) inode: u64,
}

/// Every listening TCP socket and every bound UDP socket without a peer, of both families, on a number
/// that `matters`.
///
/// # Errors
///
/// The system's.
pub(super) fn all(matters: impl Fn(Port) -> bool) -> io::Result<Vec<Socket>> {
    const TABLES: [(&str, Protocol); 4] = [
        ("/proc/net/tcp", Protocol::Tcp),
        ("/proc/net/tcp6", Protocol::Tcp),
        ("/proc/net/udp", Protocol::Udp),
        ("/proc/net/udp6", Protocol::Udp),
    ];
    let mut found = Vec::new();
    for (path, protocol) in TABLES {
        let table = match File::open(path) {
            Ok(table) => BufReader::new(table),
            // A kernel without IPv6 has no such table.
            Err(cause) if cause.kind() == ErrorKind::NotFound => continue,
            Err(cause) => return Err(cause),
        };
        for line in table.lines() {
            found.extend(socket(&line?, protocol).filter(|socket| matters(socket.port)));
        }
    }
    Ok(found)
}

/// The socket of one line of a table; `None` for the title and for sockets that do not matter.
fn socket(line: &str, protocol: Protocol) -> Option<Socket> {
    // As include/net/tcp_states.h numbers them. A UDP socket with a peer is the end of a conversation.
    const LISTEN: &str = "0A";
    const NO_PEER: &str = "07";
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let taken = match protocol {
        Protocol::Tcp => state == LISTEN,
        Protocol::Udp => state == NO_PEER,
        Protocol::TcpUdp => false,
    };
    let (_, port) = local.rsplit_once(':')?;
    let port = Port::new(u16::from_str_radix(port, 16).ok()?)?;
    taken.then_some(Socket {
        port,
        protocol,
        inode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    const LISTENING: &str = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 00000000ff034d57 100 0 0 10 0";

    #[test]
    fn a_listening_line_is_read_and_others_are_passed_over() {
        let found = socket(LISTENING, Protocol::Tcp).unwrap();
        assert_eq!((found.port.number(), found.inode), (8080, 4711));
        let established = LISTENING.replace(" 0A ", " 01 ");
        for line in [
            established.as_str(),
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            "",
            "garbage",
            &LISTENING.replace("1F90", "0000"),
            &LISTENING.replace("1F90", "FFFFF"),
        ] {
            assert_eq!(socket(line, Protocol::Tcp), None, "{line:?}");
        }
    }

    #[test]
    fn listeners_of_both_sides_and_families_are_found_on_any_address() {
        // P13
        let tcp = ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"].map(TcpListener::bind);
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(udp.local_addr().unwrap()).unwrap();
        let found = all(|_| true).unwrap();
        let holds = |port: u16, protocol| {
            let mut all = found.iter();
            all.any(|socket| socket.port.number() == port && socket.protocol == protocol)
        };
        for listener in tcp.iter().flatten() {
            assert!(
                holds(listener.local_addr().unwrap().port(), Protocol::Tcp),
                "{listener:?}"
            );
        }
        assert!(holds(udp.local_addr().unwrap().port(), Protocol::Udp));
        assert!(!holds(
            connected.local_addr().unwrap().port(),
            Protocol::Udp
        ));
    }
}
