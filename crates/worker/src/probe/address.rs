//! Where a probe that connects goes, and why nobody answered there.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portreeve::port::{Port, PortRange};
use portreeve::supervision::ProbeKind;
use portreeve_api::sockets::{self, Listener, Side};

use super::{ProbeTarget, owner};

/// Who listens on the number, for a probe that connects; `None` where that cannot be asked, or is no matter because
/// the profile chose the address.
pub(super) fn listeners(port: Port, host: Option<IpAddr>) -> Option<Vec<Listener>> {
    match host {
        None => sockets::listeners(Side::Tcp, port).ok(),
        Some(_) => None,
    }
}

/// Readiness asks where clients ask. The other kinds, and ports that need not be reached from elsewhere, are
/// asked where the service listens: that it chose the wrong address is no reason to restart it.
pub(super) fn of(
    port: Port,
    host: Option<IpAddr>,
    found: Option<&[Listener]>,
    target: &ProbeTarget,
) -> SocketAddr {
    let here = |ip| SocketAddr::new(ip, port.number());
    if let Some(host) = host {
        return here(host);
    }
    let as_clients = target.kind == ProbeKind::Readiness && !target.accepts_loopback(port);
    let found = found.filter(|_| !as_clients).unwrap_or_default();
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

/// What to tell in place of a refused connection: where the service listens instead, or that it does not.
pub(super) fn why_refused(number: u16, target: &ProbeTarget) -> Option<String> {
    let port = Port::new(number)?;
    let found = sockets::listeners(Side::Tcp, port).ok()?;
    let Some(first) = found.first() else {
        return Some(nothing_listens(PortRange::single(port), target));
    };
    // It came just now, or somebody between us and it refuses.
    if found.iter().any(|one| one.covers(target.address)) {
        return None;
    }
    Some(wrong_address(first.address, target.address))
}

/// Nobody listens on any of these numbers. The usual cause is a service that ignores its variables, so what it
/// listens on instead is told.
pub(super) fn nothing_listens(numbers: PortRange, target: &ProbeTarget) -> String {
    const SHOWN: usize = 5;
    let (first, last) = (numbers.first(), numbers.last());
    let mut text = format!("nothing listens on {first}");
    if last > first {
        text = format!("nothing listens on any of {first}-{last}");
    }
    let all = sockets::all_listeners(Side::Tcp).unwrap_or_default();
    let roots = target.root.iter();
    let members = roots.flat_map(|root| owner::members(root.pid));
    let own: BTreeSet<u64> = members
        .filter_map(|pid| owner::sockets(pid).ok())
        .flatten()
        .collect();
    let own = all.iter().filter(|one| own.contains(&one.inode));
    let numbers: BTreeSet<u16> = own.map(|one| one.address.port()).collect();
    if !numbers.is_empty() {
        let shown: Vec<_> = numbers.iter().take(SHOWN).map(u16::to_string).collect();
        let more = if numbers.len() > SHOWN { ", …" } else { "" };
        text += &format!(
            "; processes of this replica listen on {}{more}",
            shown.join(", ")
        );
    }
    text
}

/// The service listens, but not where clients are sent.
pub(super) fn wrong_address(bound: SocketAddr, published: IpAddr) -> String {
    format!("listens on {bound} only; clients use {published}: bind ${{host.address}}")
}
