//! The addresses of this host as the kernel tells them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use portreeve::host_addr::Candidate;

/// One address, and what the choice of today does not look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) candidate: Candidate,
    /// The interface is switched on and hears nobody: a cable is out, or what is at its other end is down.
    pub(super) is_cut: bool,
}

/// Every address of every interface.
///
/// # Errors
///
/// The system's, when it does not tell.
pub(super) fn all() -> io::Result<Vec<Found>> {
    // A host without one of the families has no such file, and no default route in it.
    let v4 = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    let (v4, v6) = (default_interfaces_v4(&v4), default_interfaces_v6(&v6));
    let passing = passing(&fs::read_to_string("/proc/net/if_inet6").unwrap_or_default());
    let addresses = getifaddrs()?.filter_map(|entry| {
        let mut found = found(&entry)?;
        let candidate = &mut found.candidate;
        candidate.passing = passing.contains(&candidate.address);
        let defaults = if candidate.address.is_ipv4() {
            &v4
        } else {
            &v6
        };
        let interface = candidate.interface.split(':').next().unwrap_or_default();
        candidate.default_route = defaults.contains(interface);
        Some(found)
    });
    Ok(addresses.collect())
}

fn found(entry: &InterfaceAddress) -> Option<Found> {
    let address = ip(entry.address.as_ref()?)?;
    let mask = entry.netmask.as_ref().and_then(ip);
    let prefix = match (mask, address) {
        (Some(IpAddr::V4(mask)), _) => mask.to_bits().count_ones(),
        (Some(IpAddr::V6(mask)), _) => mask.to_bits().count_ones(),
        (None, IpAddr::V4(_)) => 32,
        (None, IpAddr::V6(_)) => 128,
    };
    let is_on = entry.flags.contains(InterfaceFlags::IFF_UP);
    let runs = entry.flags.contains(InterfaceFlags::IFF_RUNNING);
    Some(Found {
        candidate: Candidate {
            interface: entry.interface_name.clone(),
            address,
            prefix: u8::try_from(prefix).unwrap_or(u8::MAX),
            up: is_on && runs,
            default_route: false,
            passing: false,
        },
        is_cut: is_on && !runs,
    })
}

/// The addresses that IPv6 will not keep or may not use yet, from `/proc/net/if_inet6`.
fn passing(addresses: &str) -> BTreeSet<IpAddr> {
    // As include/uapi/linux/if_addr.h numbers them: temporary, failed or running check, deprecated.
    const PASSING: u8 = 0x01 | 0x08 | 0x40 | 0x20;
    let passing = addresses.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let address = u128::from_str_radix(fields.next()?, 16).ok()?;
        let flags = u8::from_str_radix(fields.nth(3)?, 16).ok()?;
        (flags & PASSING != 0).then(|| IpAddr::V6(Ipv6Addr::from_bits(address)))
    });
    passing.collect()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// The interfaces of the IPv4 default routes with the lowest metric, from `/proc/net/route`.
fn default_interfaces_v4(routes: &str) -> BTreeSet<String> {
    const UP: u32 = 1;
    const REJECT: u32 = 0x200;
    lowest(routes.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [interface, destination, _, flags, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let default = destination == "00000000" && mask == "00000000";
        let usable = flags & UP != 0 && flags & REJECT == 0;
        Some((metric.parse().ok()?, interface)).filter(|_| default && usable)
    }))
}

/// The interfaces of the IPv6 default routes with the lowest metric, from `/proc/net/ipv6_route`.
fn default_interfaces_v6(routes: &str) -> BTreeSet<String> {
    const UP: u32 = 1;
    const REJECT: u32 = 0x200;
    lowest(routes.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [destination, length, _, _, _, metric, _, _, flags, interface] = fields[..] else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let default = length == "00" && destination.bytes().all(|byte| byte == b'0');
        let usable = flags & UP != 0 && flags & REJECT == 0;
        let metric = u32::from_str_radix(metric, 16).ok()?;
        Some((metric, interface)).filter(|_| default && usable)
    }))
}

fn lowest<'a>(defaults: impl Iterator<Item = (u32, &'a str)>) -> BTreeSet<String> {
    let all: Vec<_> = defaults.collect();
    let lowest = all.iter().map(|(metric, _)| *metric).min();
    all.into_iter()
        .filter(|(metric, _)| Some(*metric) == lowest)
        .map(|(_, interface)| interface.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_with_the_lowest_metric_names_the_interface() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
            eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
            broken\n";
        assert_eq!(
            default_interfaces_v4(routes),
            BTreeSet::from(["eth0".to_owned()])
        );
        let routes = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0\n\
            00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n\
            fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth1\n";
        assert_eq!(
            default_interfaces_v6(routes),
            BTreeSet::from(["eth0".to_owned()])
        );
    }

    #[test]
    fn addresses_that_ipv6_will_not_keep_are_told_apart() {
        let addresses = "20010db8000000000000000000000007 02 40 00 80     eth0\n\
            20010db800000000000000000000a1b2 02 40 00 01     eth0\n\
            fe800000000000000000000000000001 02 40 20 c0     eth0\n\
            broken\n";
        let passing: Vec<String> = passing(addresses).iter().map(ToString::to_string).collect();
        assert_eq!(passing, ["2001:db8::a1b2", "fe80::1"]);
    }

    #[test]
    fn loopback_is_found_with_its_prefix() {
        let all = all().unwrap();
        let loopback = all
            .iter()
            .map(|one| &one.candidate)
            .find(|one| one.address == IpAddr::from([127, 0, 0, 1]));
        assert!(
            loopback.is_some_and(|one| one.prefix == 8 && !one.default_route),
            "{all:?}"
        );
    }
}
