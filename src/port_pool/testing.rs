//! What the tests of ports share: requests, grants and ranges from text.

use std::num::NonZeroU16;

use crate::port::{Port, PortRanges};

use super::{GrantedPort, PoolRanges, PortGrant, PortPool, PortRequest, Side, Want, WantedPort};

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

impl PortPool {
    /// Turns every set into a bitmap, as many runs would.
    pub(super) fn flatten(&mut self) {
        for side in Side::BOTH {
            let numbers = self.numbers_mut(side);
            numbers.free.flatten();
            numbers.rests.flatten();
        }
        self.unreserved.flatten();
    }

    /// Panics unless the sets and counters follow from grants, cooling, strangers and ranges.
    pub(super) fn assert_consistent(&self) {
        let mut held_once = 0;
        let mut free = [0, 0, 0];
        for holding in self.holdings.iter() {
            held_once += holding.count();
        }
        assert_eq!(self.held, held_once);
        for dynamic in self.ranges.dynamic.iter() {
            let is_free = Side::BOTH.map(|side| self.free_on(side).contains(dynamic.number()));
            free[0] += u32::from(is_free[0]);
            free[1] += u32::from(is_free[1]);
            free[2] += u32::from(is_free[0] && is_free[1]);
        }
        // Everything happens there.
        for number in 90..=160 {
            for side in Side::BOTH {
                let layered = self.is_reserved(number) || self.strangers.at(side, number).is_some();
                let cools = self.cooling_on(side).at(number).is_some();
                let held = self.holder(side, number, |_| true).is_some();
                assert!(!(cools && held), "{number} is held and cools");
                let [is_free, rests] =
                    [self.free_on(side), self.resting_on(side)].map(|set| set.contains(number));
                assert_eq!(is_free, !layered && !cools && !held, "{number} {side:?}");
                assert_eq!(rests, cools && !layered, "{number} {side:?}");
            }
        }
        let counted = [self.free.tcp, self.free.udp, self.free.both];
        assert_eq!(counted, free);
    }
}
