//! Where a probe that connects goes, and why nobody answered there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portreeve::port::Port;
use portreeve::supervision::ProbeKind;
use portreeve_api::sockets::{self, Side};

use super::ProbeTarget;

/// Readiness asks where clients ask. The other kinds, and ports that need not be reached from elsewhere, are
/// asked where the service listens: that it chose the wrong address is no reason to restart it.
pub(super) fn of(port: Port, host: Option<IpAddr>, target: &ProbeTarget) -> SocketAddr {
    let here = |ip| SocketAddr::new(ip, port.number());
    if let Some(host) = host {
        return here(host);
    }
    let as_clients = target.kind == ProbeKind::Readiness && !target.accepts_loopback(port);
    let found = if as_clients {
        Vec::new()
    } else {
        sockets::listeners(Side::Tcp, port).unwrap_or_default()
    };
    let reached = found.iter().any(|one| one.covers(target.address));
    match found.first() {
        Some(first) if !reached => here(match first.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        }),
        _ => here(target.address),
    }
}

/// What to tell beside a refused connection, if somebody listens on the number after all.
pub(super) fn why_unreachable(port: Port, target: &ProbeTarget) -> Option<String> {
    let found = sockets::listeners(Side::Tcp, port).ok()?;
    let first = found.first()?;
    if found.iter().any(|one| one.covers(target.address)) {
        return None;
    }
    Some(wrong_address(first.address, target.address))
}

/// The service listens, but not where clients are sent.
pub(super) fn wrong_address(bound: SocketAddr, published: IpAddr) -> String {
    format!("listens on {bound} only; clients use {published}: bind ${{host.address}}")
}
