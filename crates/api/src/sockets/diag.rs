//! The messages of `sock_diag`: one question, and the kernel's answers read without trust in their lengths.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{Listener, Side};

/// Every listening socket of both families, on `port` only unless it is 0.
pub(super) fn listeners(side: Side, port: u16) -> io::Result<Vec<Listener>> {
    // The older question is answered for both families in one walk through the kernel's table; each probe asks it.
    if side == Side::Tcp
        && let Ok(found) = answers(&dump_of_both(port))
    {
        return Ok(found);
    }
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        found.append(&mut answers(&dump(side, family, port))?);
    }
    Ok(found)
}

fn answers(request: &[u8]) -> io::Result<Vec<Listener>> {
    let socket = ask(request)?;
    let mut found = Vec::new();
    // The kernel fills at most 32 KiB at a time.
    let mut buffer = Vec::with_capacity(32 * 1024);
    loop {
        buffer.clear();
        rustix::net::recv(&socket, spare_capacity(&mut buffer), RecvFlags::empty())?;
        if take_messages(&buffer, &mut found)? {
            return Ok(found);
        }
    }
}

/// The uid of the one TCP connection; [`io::ErrorKind::NotFound`] if there is none.
pub(super) fn connection(own: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let socket = ask(&exact(own, remote))?;
    let mut buffer = [0_u8; 4096];
    let (received, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
    owner(&buffer[..received], own, remote)
}

fn ask(request: &[u8]) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(rustix::net::netlink::SOCK_DIAG),
    )?;
    rustix::net::send(&socket, request, SendFlags::empty())?;
    Ok(socket)
}

/// `struct nlmsghdr`, then `struct inet_diag_req_v2` with only the source port set.
fn dump(side: Side, family: u8, port: u16) -> [u8; 72] {
    let (protocol, states) = match side {
        Side::Tcp => (IPPROTO_TCP, 1 << TCP_LISTEN),
        // A socket without a peer waits for anybody.
        Side::Udp => (IPPROTO_UDP, 1 << TCP_CLOSE),
    };
    let mut request = head(NLM_F_REQUEST | NLM_F_DUMP, family, protocol, states);
    request[24..26].copy_from_slice(&port.to_be_bytes());
    request
}

/// The same in the form from before `SOCK_DIAG_BY_FAMILY`, for every family: TCP only.
fn dump_of_both(port: u16) -> [u8; 76] {
    let mut request = [0; 76];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &76_u32.to_ne_bytes());
    put(4, &TCPDIAG_GETSOCK.to_ne_bytes());
    put(6, &(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    put(20, &port.to_be_bytes());
    put(68, &(1_u32 << TCP_LISTEN).to_ne_bytes());
    request
}

/// The same with the whole connection set.
fn exact(own: SocketAddr, remote: SocketAddr) -> [u8; 72] {
    let family = if own.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut request = head(NLM_F_REQUEST, family, IPPROTO_TCP, u32::MAX);
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
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

fn head(flags: u16, family: u8, protocol: u8, states: u32) -> [u8; 72] {
    let mut request = [0; 72];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &72_u32.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &flags.to_ne_bytes());
    put(16, &[family, protocol]);
    put(20, &states.to_ne_bytes());
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
            // It ends with the error number where the kernel has nobody to answer.
            NLMSG_DONE if u32_at(message, 0).is_some_and(|errno| errno.cast_signed() < 0) => {
                return Err(refusal(message));
            }
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(refusal(message)),
            SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK => found.extend(listener(message)),
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
    let attributes = message.get(72..)?;
    let cgroup = attribute(attributes, INET_DIAG_CGROUP_ID);
    Some(Listener {
        address: SocketAddr::new(ip, port),
        only_v6: attribute(attributes, INET_DIAG_SKV6ONLY).and_then(<[u8]>::first) == Some(&1),
        inode: u64::from(u32_at(message, 68)?),
        uid: u32_at(message, 64)?,
        cgroup: cgroup.and_then(|id| Some(u64::from_ne_bytes(id.get(..8)?.try_into().ok()?))),
    })
}

/// Reads the one answer: an errno, or `struct inet_diag_msg`.
fn owner(bytes: &[u8], own: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = u16_at(bytes, 4).ok_or_else(malformed)?;
    let message = bytes.get(16..).ok_or_else(malformed)?;
    if kind == NLMSG_ERROR && message.len() >= 4 {
        return Err(refusal(message));
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

/// Reads the bytes as either kind of answer.
#[cfg(fuzzing)]
pub(crate) fn read_answer(bytes: &[u8]) {
    let mut found = Vec::new();
    // Either may refuse them; what is found is never more than the bytes can hold.
    let _ = take_messages(bytes, &mut found);
    assert!(found.len() <= bytes.len() / 16);
    let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
    let _ = owner(bytes, here, here);
}

fn refusal(message: &[u8]) -> io::Error {
    let errno = u32_at(message, 0).map_or(0, u32::cast_signed);
    io::Error::from_raw_os_error(errno.saturating_neg())
}

/// What this attribute holds.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) {
        let length = usize::from(length);
        if kind == wanted {
            return bytes.get(4..length);
        }
        let step = length.next_multiple_of(4).max(4);
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
const TCPDIAG_GETSOCK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_SKV6ONLY: u16 = 11;
const INET_DIAG_CGROUP_ID: u16 = 21;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const TCP_CLOSE: u32 = 7;
const TCP_LISTEN: u32 = 10;
/// Established and half closed; a socket that still connects is somebody else's.
const OPEN: [u8; 3] = [1, 4, 5];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_questions_for_listeners_are_answered_the_same() {
        let v4 = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let v6 = std::net::TcpListener::bind("[::]:0").unwrap();
        for listener in [&v4, &v6] {
            let port = listener.local_addr().unwrap().port();
            let at_once = answers(&dump_of_both(port)).unwrap();
            let mut each = answers(&dump(Side::Tcp, AF_INET, port)).unwrap();
            each.append(&mut answers(&dump(Side::Tcp, AF_INET6, port)).unwrap());
            assert_eq!((at_once.len(), &at_once), (1, &each));
        }
    }

    #[test]
    fn torn_answers_are_refused_or_ignored_without_panic() {
        let mut found = Vec::new();
        // Nobody can answer: ENOENT.
        let mut nobody = [0; 20];
        nobody[0] = 20;
        nobody[4] = 3;
        nobody[16..].copy_from_slice(&(-2_i32).to_ne_bytes());
        let refused = take_messages(&nobody, &mut found).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        for bytes in [&[][..], &[0; 15], &[0xff; 64], &[0; 64]] {
            assert!(!take_messages(bytes, &mut found).unwrap_or(false));
        }
        for length in 0..100 {
            let mut answer = vec![0xff; length];
            if let Some(head) = answer.get_mut(..6) {
                head[..4].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
                head[4..].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            assert!(!take_messages(&answer, &mut found).unwrap());
            assert_eq!(found.len(), usize::from(length >= 88), "{length}");
            found.clear();
        }
    }

    #[test]
    fn malformed_answers_are_refused_and_found_to_be_nobodys() {
        let own = "127.0.0.1:1".parse().unwrap();
        for length in 0..88 {
            assert!(owner(&vec![0; length], own, own).is_err());
            let mut answer = vec![0; length];
            if let Some(kind) = answer.get_mut(4..6) {
                kind.copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            assert!(owner(&answer, own, own).is_err());
        }
        let mut answer = vec![0; 88];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        assert_eq!(owner(&answer, own, own).unwrap(), None);
    }
}
