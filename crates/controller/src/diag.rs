//! `sock_diag` asked for one TCP connection: its cost does not grow with the connections of the machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The uid of the socket that is bound to `own` and connected to `remote`; `None` if no process has it.
///
/// # Errors
///
/// The kernel does not answer such questions; who owns the socket is then not known.
pub(crate) fn owner(own: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    rustix::net::send(&socket, &request(own, remote), SendFlags::empty())?;
    let mut buffer = [0_u8; 4096];
    let (received, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
    match read(&buffer[..received], own, remote) {
        // Also what a kernel says that cannot answer; one that answered once can.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound && ANSWERS.load(Relaxed) => Ok(None),
        Err(cause) => Err(cause),
        Ok(uid) => {
            ANSWERS.store(true, Relaxed);
            Ok(uid)
        }
    }
}

/// Whether this kernel has answered such a question.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// `struct nlmsghdr`, then `struct inet_diag_req_v2` with the whole connection set.
fn request(own: SocketAddr, remote: SocketAddr) -> [u8; 72] {
    let mut request = [0; 72];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    let family = match own {
        SocketAddr::V4(_) => AF_INET,
        SocketAddr::V6(_) => AF_INET6,
    };
    put(0, &72_u32.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    put(16, &[family, IPPROTO_TCP]);
    put(20, &u32::MAX.to_ne_bytes());
    put(24, &own.port().to_be_bytes());
    put(26, &remote.port().to_be_bytes());
    for (at, ip) in [(28, own.ip()), (44, remote.ip())] {
        match ip {
            IpAddr::V4(ip) => put(at, &ip.octets()),
            IpAddr::V6(ip) => put(at, &ip.octets()),
        }
    }
    // No cookie: whichever socket it is.
    put(64, &[0xFF; 8]);
    request
}

/// Reads the one answer: an errno, or `struct inet_diag_msg`.
fn read(bytes: &[u8], own: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = u16_at(bytes, 4).ok_or_else(malformed)?;
    let message = bytes.get(16..).ok_or_else(malformed)?;
    if kind == NLMSG_ERROR {
        let errno = u32_at(message, 0).ok_or_else(malformed)?.cast_signed();
        return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
    }
    if kind != SOCK_DIAG_BY_FAMILY {
        return Err(malformed());
    }
    let state = *message.get(1).ok_or_else(malformed)?;
    let port = |at| u16_at(message, at).map(u16::from_be);
    let uid = u32_at(message, 64).ok_or_else(malformed)?;
    let inode = u32_at(message, 68).ok_or_else(malformed)?;
    // Where no connection fits the kernel names the listener. A socket that its process closed shows uid 0:
    // only one with a file (an inode) has an owner.
    let is_it = (port(4), port(6)) == (Some(own.port()), Some(remote.port()));
    let owned = inode != 0 && OPEN.contains(&state);
    Ok((is_it && owned).then_some(uid))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// Established and half closed; a socket that still connects is somebody else's.
const OPEN: [u8; 3] = [1, 4, 5];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_answers_are_refused_and_found_to_be_nobodys() {
        let own = "127.0.0.1:1".parse().unwrap();
        for length in 0..88 {
            assert!(read(&vec![0; length], own, own).is_err());
            let mut answer = vec![0; length];
            if let Some(kind) = answer.get_mut(4..6) {
                kind.copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            assert!(read(&answer, own, own).is_err());
        }
        let mut answer = vec![0; 88];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        assert_eq!(read(&answer, own, own).unwrap(), None);
    }

    #[test]
    fn a_connection_that_never_was_is_nobodys() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(local).unwrap();
        assert_eq!(
            owner(client.local_addr().unwrap(), local).unwrap(),
            Some(nix::unistd::geteuid().as_raw())
        );
        let other = SocketAddr::new(local.ip(), 1);
        assert_eq!(owner(other, local).unwrap(), None);
    }
}
