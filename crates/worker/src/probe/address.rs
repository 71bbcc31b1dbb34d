//! Where a probe that connects goes, and why nobody answered there.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use portreeve::port::{Port, PortRange};
use portreeve::supervision::ProbeKind;
use portreeve_api::sockets::{self, Listener, Side};

use super::{ProbeTarget, owner};

/// Where a probe that connects goes.
pub(super) struct Way {
    pub(super) to: SocketAddr,
    /// The address that the profile chose.
    pub(super) host: Option<IpAddr>,
    /// Who listens on the number; `None` where that cannot be asked, or is no matter because the profile chose the
    /// address. Asked once for each probe.
    pub(super) found: Option<Vec<Listener>>,
}

impl Way {
    pub(super) fn of(port: Port, host: Option<IpAddr>, target: &ProbeTarget) -> Self {
        let found = match host {
            None => sockets::listeners(Side::Tcp, port).ok(),
            Some(_) => None,
        };
        let to = of(port, host, found.as_deref(), target);
        Self { to, host, found }
    }
}

/// Readiness asks where clients ask. The other kinds, and ports that need not be reached from elsewhere, are
/// asked where the service listens: that it chose the wrong address is no reason to restart it.
fn of(
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
    let clients = target.address_of(port);
    let reached = found.iter().any(|one| one.covers(clients));
    // What listens on the wildcard is there, whatever became of the published address.
    let lost = !as_clients && target.has_lost(clients);
    match found.first().map(|first| first.address.ip()) {
        Some(ip) if !reached || lost => here(match ip {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        }),
        None if lost => here(Ipv4Addr::LOCALHOST.into()),
        _ => here(clients),
    }
}

/// Whether this host has the address now. Cost: a socket that is bound and closed.
///
/// Where the kernel lets any address be bound (`ip_nonlocal_bind`), every address is.
pub(crate) fn is_here(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|cause| cause.kind() == io::ErrorKind::AddrNotAvailable)
}

/// What to tell in place of a refused connection: where the service listens instead, or that it does not.
pub(super) fn why_refused(number: u16, target: &ProbeTarget) -> Option<String> {
    let port = Port::new(number)?;
    let found = sockets::listeners(Side::Tcp, port).ok()?;
    let Some(first) = found.first() else {
        return Some(nothing_listens(PortRange::single(port), target));
    };
    // It came just now, or somebody between us and it refuses.
    let clients = target.address_of(port);
    if found.iter().any(|one| one.covers(clients)) {
        return None;
    }
    Some(wrong_address(first.address, port, target))
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
    let own = own.map(|one| one.address.port());
    // Since the first look it may have begun to listen where it should.
    let asked = u16::from(first)..=u16::from(last);
    let numbers: BTreeSet<u16> = own.filter(|number| !asked.contains(number)).collect();
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
pub(super) fn wrong_address(bound: SocketAddr, port: Port, target: &ProbeTarget) -> String {
    let own = target.port(port).and_then(|port| port.own.as_ref());
    let (published, bind) = match own {
        None => (target.address, "${host.address}".to_owned()),
        Some((name, address)) => (*address, format!("${{addr.{name}}}")),
    };
    format!("listens on {bound} only; clients use {published}: bind {bind}")
}
