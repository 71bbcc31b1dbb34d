//! What the tests of ports share: requests, grants and ranges from text.

use std::num::NonZeroU16;

use crate::port::{Port, PortRanges};

use super::{GrantedPort, PoolRanges, PortGrant, PortRequest, Want, WantedPort};

/// The ports of `a=any b=9100 c=any:4 d=53/tcp+udp e=any@20000-20999`.
pub(crate) fn ask(text: &str) -> PortRequest {
    let port = |text: &str| {
        let (name, want) = text.split_once('=').unwrap();
        let (want, within) = want.split_once('@').map_or((want, None), |(want, within)| {
            (want, Some(within.parse().unwrap()))
        });
        let (want, protocol) = want.split_once('/').unwrap_or((want, "tcp"));
        let (want, count) = want.split_once(':').unwrap_or((want, "1"));
        let want = match want {
            "any" => Want::Any {
                count: NonZeroU16::new(count.parse().unwrap()).unwrap(),
            },
            number => Want::Fixed(number.parse().unwrap()),
        };
        WantedPort {
            name: name.parse().unwrap(),
            protocol: protocol.parse().unwrap(),
            want,
            within,
        }
    };
    PortRequest::new(text.split_whitespace().map(port).collect()).unwrap()
}

/// The grant of `a=9100 b=53/tcp+udp c=20000-20003`.
pub(crate) fn granted(text: &str) -> PortGrant {
    let port = |text: &str| {
        let (name, numbers) = text.split_once('=').unwrap();
        let (numbers, protocol) = numbers.split_once('/').unwrap_or((numbers, "tcp"));
        let ranges: PortRanges = numbers.parse().unwrap();
        GrantedPort {
            name: name.parse().unwrap(),
            protocol: protocol.parse().unwrap(),
            numbers: ranges.as_slice()[0],
        }
    };
    PortGrant {
        ports: text.split_whitespace().map(port).collect(),
    }
}

/// The numbers of a grant as text, in the order of the request: `20000 20001-20004`.
pub(crate) fn numbers(grant: &PortGrant) -> String {
    let texts: Vec<String> = grant
        .ports
        .iter()
        .map(|port| port.numbers.to_string())
        .collect();
    texts.join(" ")
}

pub(crate) fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

pub(crate) fn ranges(dynamic: &str, fixed: &str, reserved: &str) -> PoolRanges {
    PoolRanges {
        dynamic: dynamic.parse().unwrap(),
        fixed: fixed.parse().unwrap(),
        reserved: reserved.to_owned().try_into().unwrap(),
    }
}
