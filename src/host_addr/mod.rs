//! The addresses of one host, and which one of them is published.
//!
//! Invariant: the choice depends on the set of candidates and the rule alone, never on their order; and no
//! address is published that another host cannot use. One bad candidate never drops the rest.

mod candidate;
mod network;
mod rule;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::port::Port;

pub use candidate::{Candidate, Scope, Unfit};
pub use network::{
    NamedNetwork, Networks, NetworksError, ParseNetworkError, ParsePrefixError, Prefix,
};
pub use rule::{AddressRule, Family, ParseRuleError, Selector};

/// Chooses the published address of a host among `candidates`.
///
/// Cost: one sort of the candidates, of which a host has a few dozen at most.
#[must_use]
pub fn choose(candidates: &[Candidate], rule: &AddressRule, reach: Reach) -> Published {
    let (usable, unusable) = sorted(candidates, reach);
    let (address, rule) = rule::decide(&usable, rule, reach);
    Published {
        address,
        rule,
        usable,
        unusable,
    }
}

/// The same where a site's own `command` has said which address is published, or why it said none.
#[must_use]
pub fn choose_told(
    candidates: &[Candidate],
    command: &str,
    told: Result<IpAddr, &str>,
    reach: Reach,
) -> Published {
    let (usable, unusable) = sorted(candidates, reach);
    let by = format!("command {command:?}");
    let (address, rule) = match told {
        Ok(address) => rule::decide_literal(&by, &usable, address.to_canonical(), reach),
        Err(reason) => (None, format!("{by}: {reason}")),
    };
    Published {
        address,
        rule,
        usable,
        unusable,
    }
}

/// The usable candidates and the others, each in an order of their own.
fn sorted(candidates: &[Candidate], reach: Reach) -> (Vec<Candidate>, Vec<(Candidate, Unfit)>) {
    let mut candidates: Vec<Candidate> = candidates.iter().map(Candidate::canonical).collect();
    candidates.sort();
    candidates.dedup();
    let mut usable = Vec::new();
    let mut unusable = Vec::new();
    for candidate in candidates {
        match candidate.fitness(reach) {
            Ok(()) => usable.push(candidate),
            Err(unfit) => unusable.push((candidate, unfit)),
        }
    }
    (usable, unusable)
}

/// Who has to reach the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Other hosts: loopback is never published.
    Network,
    /// This host alone: loopback is what everybody here can reach.
    SingleHost,
}

impl Reach {
    /// What [`Reach::SingleHost`] publishes unless a rule names another loopback address.
    pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
}

/// The choice with everything that explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The published address; `None` if the rule found none: then nothing of the host is listed.
    pub address: Option<IpAddr>,
    /// Which rule won, or why none did, in words.
    pub rule: String,
    /// Every address the host may be reached at, in a fixed order.
    pub usable: Vec<Candidate>,
    /// Every other one, with the reason.
    pub unusable: Vec<(Candidate, Unfit)>,
}

/// `address:port` as people and URLs write it: an IPv6 address in brackets, without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: Port,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port.number()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on(interface: &str, address: &str, prefix: u8) -> Candidate {
        Candidate {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
            prefix,
            up: true,
            default_route: false,
            passing: false,
        }
    }

    fn on_default_route(interface: &str, address: &str, prefix: u8) -> Candidate {
        Candidate {
            default_route: true,
            ..on(interface, address, prefix)
        }
    }

    /// P17: lo, a bridge, a VPN and the cluster's network.
    fn cluster_host() -> Vec<Candidate> {
        vec![
            on("docker0", "172.17.0.1", 16),
            on("tun0", "10.8.0.5", 24),
            on("lo", "127.0.0.1", 8),
            on_default_route("eth0", "10.20.0.7", 16),
            on_default_route("eth0", "fe80::1", 64),
        ]
    }

    fn published(candidates: &[Candidate], rule: &str) -> (Option<String>, String) {
        let chosen = choose(candidates, &rule.parse().unwrap(), Reach::Network);
        (
            chosen.address.map(|address| address.to_string()),
            chosen.rule,
        )
    }

    #[test]
    fn without_a_rule_the_interface_of_the_default_route_wins() {
        let (address, rule) = published(&cluster_host(), "default");
        assert_eq!(address.as_deref(), Some("10.20.0.7"));
        assert_eq!(rule, "default: eth0 carries the default route");
    }

    #[test]
    fn an_interface_a_network_and_a_literal_override_the_default() {
        // P16, P17
        let hosts = cluster_host();
        assert_eq!(published(&hosts, "tun0").0.as_deref(), Some("10.8.0.5"));
        assert_eq!(
            published(&hosts, "172.16.0.0/12"),
            (
                Some("172.17.0.1".to_owned()),
                "network 172.16.0.0/12: docker0".to_owned()
            )
        );
        assert_eq!(
            published(&hosts, "10.20.0.7"),
            (
                Some("10.20.0.7".to_owned()),
                "literal 10.20.0.7: eth0".to_owned()
            )
        );
        // Behind a translation the published address is on no interface here.
        assert_eq!(
            published(&hosts, "192.0.2.9"),
            (
                Some("192.0.2.9".to_owned()),
                "literal 192.0.2.9: on no interface of this host".to_owned()
            )
        );
    }

    #[test]
    fn selectors_are_tried_in_order_and_an_excluded_one_is_never_chosen() {
        let hosts = cluster_host();
        assert_eq!(
            published(&hosts, "ib0,10.8.0.0/16").0.as_deref(),
            Some("10.8.0.5")
        );
        assert_eq!(
            published(&hosts, "!eth0,!docker0").0.as_deref(),
            Some("10.8.0.5")
        );
    }

    #[test]
    fn a_name_that_ends_in_a_star_selects_every_interface_that_begins_with_it() {
        // P17
        let hosts = cluster_host();
        assert_eq!(
            published(&hosts, "!eth*,!tun*").0.as_deref(),
            Some("172.17.0.1")
        );
        assert_eq!(published(&hosts, "tun*").0.as_deref(), Some("10.8.0.5"));
        assert_eq!(published(&hosts, "*").0.as_deref(), Some("10.20.0.7"));
        assert_eq!(published(&hosts, "eth").0, None);
    }

    #[test]
    fn what_a_command_says_is_published_if_others_can_use_it() {
        // P16
        let told = |told: Result<&str, &str>| {
            let told = told.map(|address| address.parse().unwrap());
            let chosen = choose_told(&cluster_host(), "where-am-i -4", told, Reach::Network);
            (
                chosen.address.map(|address| address.to_string()),
                chosen.rule,
            )
        };
        let (address, rule) = told(Ok("10.8.0.5"));
        assert_eq!(address.as_deref(), Some("10.8.0.5"));
        assert_eq!(rule, "command \"where-am-i -4\" 10.8.0.5: tun0");
        let (address, rule) = told(Ok("127.0.0.1"));
        assert_eq!(address, None);
        assert!(
            rule.ends_with("127.0.0.1 is not published: loopback is reachable from this host only")
        );
        let (address, rule) = told(Err("exit code 3"));
        assert_eq!(address, None);
        assert_eq!(rule, "command \"where-am-i -4\": exit code 3");
    }

    #[test]
    fn a_rule_that_finds_nothing_publishes_nothing_and_names_the_candidates() {
        // Another address in its place would send clients to the wrong network.
        let (address, rule) = published(&cluster_host(), "ib0");
        assert_eq!(address, None);
        assert_eq!(
            rule,
            "no usable address on interface ib0; usable here: 172.17.0.1 (docker0), 10.20.0.7 (eth0), 10.8.0.5 (tun0)"
        );
        assert_eq!(
            published(&[], "default").1,
            "no usable address on this host"
        );
    }

    #[test]
    fn addresses_that_others_cannot_use_are_never_published() {
        for address in [
            "0.0.0.0",
            "::",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.1.1",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "0.1.2.3",
        ] {
            let candidate = on_default_route("eth0", address, 8);
            let chosen = choose(
                std::slice::from_ref(&candidate),
                &AddressRule::default(),
                Reach::Network,
            );
            assert_eq!(chosen.address, None, "{address} was published");
            assert_eq!(chosen.unusable.len(), 1);
            let literal = choose(
                &[candidate],
                &address.parse::<AddressRule>().unwrap(),
                Reach::Network,
            );
            assert_eq!(literal.address, None, "{address} was published literally");
        }
    }

    #[test]
    fn an_interface_that_is_down_is_not_chosen() {
        let mut hosts = cluster_host();
        for host in &mut hosts {
            host.up = host.interface != "eth0";
        }
        assert_eq!(published(&hosts, "eth0").0, None);
        assert!(published(&hosts, "default").0.is_some());
    }

    #[test]
    fn an_ipv6_address_that_will_not_stay_is_not_chosen() {
        let hosts = [
            Candidate {
                passing: true,
                ..on_default_route("eth0", "2001:db8::a1b2", 64)
            },
            on_default_route("eth0", "2001:db8::7", 64),
        ];
        assert_eq!(
            published(&hosts, "default").0.as_deref(),
            Some("2001:db8::7")
        );
        assert_eq!(published(&hosts[..1], "default").0, None);
    }

    #[test]
    fn one_bad_entry_never_drops_the_rest() {
        let mut hosts = cluster_host();
        hosts.push(on("", "10.1.1.1", 8));
        hosts.push(on("eth1", "10.1.1.2", 77));
        let chosen = choose(&hosts, &AddressRule::default(), Reach::Network);
        assert_eq!(chosen.address, Some("10.20.0.7".parse().unwrap()));
        assert_eq!(chosen.usable.len(), 3);
        assert_eq!(chosen.unusable.len(), 4);
    }

    #[test]
    fn a_global_address_wins_over_a_site_one_unless_a_family_is_preferred() {
        let hosts = [
            on_default_route("eth0", "10.20.0.7", 16),
            on_default_route("eth0", "2001:db8::7", 64),
        ];
        assert_eq!(
            published(&hosts, "default").0.as_deref(),
            Some("2001:db8::7")
        );
        assert_eq!(published(&hosts, "ipv4").0.as_deref(), Some("10.20.0.7"));
        assert_eq!(
            published(&hosts[1..], "ipv4").0.as_deref(),
            Some("2001:db8::7")
        );
    }

    #[test]
    fn a_single_host_publishes_loopback_or_the_loopback_address_named() {
        let hosts = cluster_host();
        let chosen = choose(&hosts, &AddressRule::default(), Reach::SingleHost);
        assert_eq!(chosen.address, Some(Reach::LOOPBACK));
        assert_eq!(chosen.rule, "single host: loopback");
        let named = choose(&hosts, &"127.0.0.2".parse().unwrap(), Reach::SingleHost);
        assert_eq!(named.address, Some("127.0.0.2".parse().unwrap()));
    }

    #[test]
    fn an_ipv6_address_is_written_in_brackets_before_a_port() {
        let shown = |address: &str| {
            HostPort {
                address: address.parse().unwrap(),
                port: Port::new(8080).unwrap(),
            }
            .to_string()
        };
        assert_eq!(shown("10.20.0.7"), "10.20.0.7:8080");
        assert_eq!(shown("2001:db8::7"), "[2001:db8::7]:8080");
    }

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        let address = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
            (0u8..4, 0u8..4).prop_map(|(a, b)| IpAddr::from([10, 20, a, b])),
            (0u16..4).prop_map(|a| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, a])),
        ];
        let interface = prop_oneof![Just("eth0"), Just("ib0"), Just("lo"), Just("")];
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (interface, address, 0u8..=130, flags).prop_map(
            |(interface, address, prefix, (up, default_route, passing))| Candidate {
                interface: interface.to_owned(),
                address,
                prefix,
                up,
                default_route,
                passing,
            },
        )
    }

    proptest! {
        #[test]
        fn the_order_of_the_candidates_does_not_matter(
            (candidates, shuffled) in proptest::collection::vec(any_candidate(), 0..12)
                .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
            rule in prop_oneof![
                Just("default"), Just("ib0"), Just("10.20.0.0/16,eth0"), Just("!eth0,ipv6"), Just("10.20.1.1")
            ],
            single in any::<bool>(),
        ) {
            let rule: AddressRule = rule.parse().unwrap();
            let reach = if single { Reach::SingleHost } else { Reach::Network };
            let chosen = choose(&candidates, &rule, reach);
            prop_assert_eq!(&chosen, &choose(&shuffled, &rule, reach));
            if let (Some(address), Reach::Network) = (chosen.address, reach) {
                prop_assert!(!address.is_loopback() && !address.is_multicast() && !address.is_unspecified());
            }
        }

        #[test]
        fn any_text_is_a_rule_or_is_refused(text in ".{0,40}") {
            if let Ok(rule) = text.parse::<AddressRule>() {
                prop_assert_eq!(rule.to_string().parse::<AddressRule>(), Ok(rule));
            }
        }
    }
}
