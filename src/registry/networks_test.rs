//! Ports in named networks: where they are placed, where clients are sent, and what moves them.

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::rig::{Rig, alice, facts, name, now, web, with_port};
use super::{
    Config, Effect, Explain, HostFacts, HostView, Input, MemoryStore, Refusal, ReportedAddress,
};
use crate::endpoints::EndpointState;
use crate::host_addr::Networks;
use crate::identity::NetworkName;
use crate::profile::Profile;

/// A port in the network `data`.
const IN_DATA: &str = "{ any = 1, network = \"data\" }";

fn config(networks: &[&str]) -> Config {
    let networks = networks.iter().map(|one| one.parse().unwrap());
    Config {
        networks: Networks::new(networks).unwrap(),
        ..super::rig::config()
    }
}

/// A controller with these networks.
fn rig(networks: &[&str]) -> Rig {
    Rig::at(MemoryStore::default(), now(0), config(networks))
}

/// The same truth under other networks.
fn restarted(rig: Rig, networks: &[&str]) -> Rig {
    Rig::at(rig.store, now(5), config(networks))
}

/// A host with its published address and these further ones.
fn at(host: &str, addresses: &[&str]) -> HostFacts {
    let plain = facts(host);
    let published = plain.published.unwrap().to_string();
    let all = [published.as_str()]
        .into_iter()
        .chain(addresses.iter().copied());
    let address = |(nth, address): (usize, &str)| ReportedAddress {
        interface: format!("eth{nth}"),
        address: address.parse().unwrap(),
        prefix: 24,
        default_route: nth == 0,
    };
    HostFacts {
        boot_id: format!("boot of {host}"),
        addresses: all.enumerate().map(address).collect(),
        ..plain
    }
}

fn joins(rig: &mut Rig, host: &str, addresses: &[&str]) {
    rig.tell(Input::HostReport(at(host, addresses)));
}

/// `host:address` of the port `http` of a replica.
fn place(rig: &Rig, index: u32) -> Option<(String, Option<IpAddr>)> {
    let endpoint = rig.endpoint("web", index)?;
    let address = endpoint.address_of(&endpoint.ports[0]);
    Some((endpoint.host.to_string(), address))
}

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn view(rig: &Rig, host: &str) -> std::sync::Arc<HostView> {
    rig.registry.view().hosts[&host.parse().unwrap()].clone()
}

/// What the host is told of the addresses of its only replica.
fn told(rig: &Rig, host: &str) -> Vec<(String, IpAddr)> {
    let (_, _, wanted) = rig.registry.desired(&host.parse().unwrap()).unwrap();
    let addresses = wanted[0].addresses.iter();
    addresses
        .map(|(port, address)| (port.to_string(), *address))
        .collect()
}

#[test]
fn an_unknown_network_is_refused_with_its_name_and_those_there_are() {
    let mut rig = rig(&["data=10.20.0.0/16", "store=fd00:20::/64"]);
    joins(&mut rig, "n1", &["10.20.0.7"]);
    let before = rig.everything();
    let unknown = with_port("web", 1, "{ any = 1, network = \"dta\" }");
    let refused = rig.submit(&unknown).unwrap_err();
    assert!(matches!(refused, Refusal::Unfit { .. }));
    let words = refused.to_string();
    assert!(
        words.contains(
            "port http names the network \"dta\", which is unknown; there are: data, store"
        ),
        "{words}"
    );
    assert_eq!(rig.everything(), before);
    let explained = Explain::Profile {
        service: name("web"),
        profile: Box::new(Profile::from_toml(&unknown).unwrap().profile),
    };
    assert!(rig.registry.explain(rig.now, &alice(), &explained).is_err());
}

#[test]
fn clients_of_the_port_are_sent_to_the_hosts_address_in_its_network_and_of_others_to_the_published_one()
 {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    joins(&mut rig, "n1", &["10.20.0.7", "10.20.0.8"]);
    let two = format!("{}admin = \"any\"\n", with_port("web", 1, IN_DATA));
    rig.submit(&two).unwrap();
    rig.ready("web", 0);
    let endpoint = rig.endpoint("web", 0).unwrap();
    assert_eq!(endpoint.state, EndpointState::Ready);
    let port = |name: &str| {
        let mut ports = endpoint.ports.iter();
        let port = ports.find(|port| port.name.as_str() == name).unwrap();
        endpoint.address_of(port)
    };
    assert_eq!(port("http"), address("10.20.0.7"));
    assert_eq!(port("admin"), facts("n1").published);
    // The job and its worker hear of it with what is wanted.
    assert_eq!(
        told(&rig, "n1"),
        [("http".to_owned(), "10.20.0.7".parse().unwrap())]
    );
    assert_eq!(rig.replica("web", 0).addresses.len(), 1);
    let network: NetworkName = "data".parse().unwrap();
    assert_eq!(
        view(&rig, "n1").networks[&network].address,
        address("10.20.0.7")
    );
}

#[test]
fn a_host_without_an_address_in_the_network_is_no_place_and_says_so() {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    joins(&mut rig, "n1", &["10.21.0.7"]);
    rig.submit(&with_port("web", 1, IN_DATA)).unwrap();
    let replica = rig.replica("web", 0);
    assert_eq!(replica.state, "pending");
    let words = "host n1 has no address in network data (10.20.0.0/16) for port http; \
                 `portreeve host n1` shows those it has";
    assert_eq!(replica.reason.as_deref(), Some(words));
    let reason = &replica.reasons[0];
    assert_eq!(reason.code, "NO ADDRESS");
    assert_eq!(reason.network, Some("data".parse().unwrap()));
    assert_eq!(reason.port.as_ref().unwrap().as_str(), "http");
    let asked = Explain::Service {
        service: name("web"),
        replica: Some(0),
    };
    let fit = rig.registry.explain(rig.now, &alice(), &asked).unwrap();
    assert_eq!(fit.sentence, "0 of 1 host fits; 1 NO ADDRESS");
    assert_eq!(fit.hosts[0].reasons[0].sentence, words);
    // A host that has one is taken as soon as it is there; so would this one be.
    joins(&mut rig, "n2", &["10.20.3.4"]);
    assert_eq!(
        place(&rig, 0).unwrap(),
        ("n2".to_owned(), address("10.20.3.4"))
    );
}

#[test]
fn an_unpublished_port_needs_its_network_too() {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    joins(&mut rig, "n1", &[]);
    let hidden = "{ any = 1, network = \"data\", publish = false }";
    rig.submit(&with_port("web", 1, hidden)).unwrap();
    assert_eq!(rig.states("web"), ["pending"]);
    joins(&mut rig, "n1", &["10.20.0.7"]);
    assert_eq!(told(&rig, "n1").len(), 1);
}

#[test]
fn many_hosts_without_the_network_are_summed_by_the_word() {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    for nth in 1..=6 {
        joins(&mut rig, &format!("n{nth}"), &[]);
    }
    rig.submit(&with_port("web", 1, IN_DATA)).unwrap();
    let sums = rig.replica("web", 0).reason_sums.unwrap();
    assert_eq!((sums.hosts, sums.fitting), (6, 0));
    assert_eq!(
        (sums.causes[0].code.as_str(), sums.causes[0].hosts),
        ("NO ADDRESS", 6)
    );
}

#[test]
fn another_address_in_the_network_moves_the_port_in_one_revision_and_restarts_nothing() {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    joins(&mut rig, "n1", &["10.20.0.7"]);
    rig.submit(&with_port("web", 2, IN_DATA)).unwrap();
    for index in 0..2 {
        rig.ready("web", index);
    }
    let (before, commits) = (rig.replica("web", 0), rig.commits);
    let order = rig.registry.desired(&"n1".parse().unwrap()).unwrap().0;
    rig.effects.clear();
    joins(&mut rig, "n1", &["10.20.0.9"]);
    let published = rig.effects.iter();
    let published = published.filter(|it| matches!(it, Effect::Publish { .. }));
    assert_eq!(published.count(), 1);
    for index in 0..2 {
        assert_eq!(place(&rig, index).unwrap().1, address("10.20.0.9"));
        assert_eq!(rig.condition("web", index), Some(EndpointState::Ready));
    }
    let after = rig.replica("web", 0);
    assert_eq!(
        (after.incarnation, after.run, after.ports),
        (before.incarnation, before.run, before.ports)
    );
    // News alone: nothing waits for the store, and the host hears of it.
    assert_eq!(rig.commits, commits);
    assert!(rig.registry.desired(&"n1".parse().unwrap()).unwrap().0 > order);
    assert_eq!(told(&rig, "n1")[0].1, address("10.20.0.9").unwrap());
    // The same told again is nothing.
    rig.effects.clear();
    joins(&mut rig, "n1", &["10.20.0.9"]);
    assert!(rig.effects.is_empty(), "{:?}", rig.effects);
}

#[test]
fn a_host_that_loses_its_address_in_the_network_is_not_listed_until_it_is_back_and_its_replica_stays()
 {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    joins(&mut rig, "n1", &["10.20.0.7"]);
    rig.submit(&with_port("web", 1, IN_DATA)).unwrap();
    rig.ready("web", 0);
    joins(&mut rig, "n1", &[]);
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.state.as_str(), replica.ready),
        ("not ready", false)
    );
    assert_eq!(
        replica.reason.as_deref(),
        Some("its host has no address in network data for port http")
    );
    assert_eq!(place(&rig, 0).unwrap().1, None);
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run"]);
    assert!(told(&rig, "n1").is_empty());
    joins(&mut rig, "n1", &["10.20.0.7"]);
    assert_eq!(rig.states("web"), ["ready"]);
    assert_eq!(rig.replica("web", 0).restarts, 0);
}

#[test]
fn an_address_in_a_network_that_two_machines_claim_is_given_out_once() {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    joins(&mut rig, "n1", &["10.20.0.7"]);
    joins(&mut rig, "n2", &["10.20.0.7"]);
    let network: NetworkName = "data".parse().unwrap();
    assert_eq!(
        view(&rig, "n1").networks[&network].address,
        address("10.20.0.7")
    );
    assert_eq!(view(&rig, "n2").networks[&network].address, None);
    assert_eq!(view(&rig, "n2").address, facts("n2").published);
    let warnings = view(&rig, "n2").warnings.clone();
    assert_eq!(
        warnings,
        [
            "10.20.0.7 is published as an address of n1 already, so this host has none in that network"
        ]
    );
    rig.submit(&with_port("web", 3, IN_DATA)).unwrap();
    for index in 0..3 {
        assert_eq!(place(&rig, index).unwrap().0, "n1");
    }
    // What names no network goes there all the same.
    rig.submit(&web("plain", 1)).unwrap();
    assert_eq!(rig.endpoint("plain", 0).unwrap().host.as_str(), "n2");
    // The first one silent, the second has it.
    rig.pass(Duration::from_secs(21));
    joins(&mut rig, "n2", &["10.20.0.7"]);
    assert_eq!(
        view(&rig, "n2").networks[&network].address,
        address("10.20.0.7")
    );
}

#[test]
fn a_start_without_the_network_keeps_the_replica_and_says_what_is_missing() {
    let mut rig = rig(&["data=10.20.0.0/16"]);
    joins(&mut rig, "n1", &["10.20.0.7"]);
    rig.submit(&with_port("web", 1, IN_DATA)).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(1));
    // With the same it stands there at once, before any host has told anything.
    let again = restarted(rig, &["data=10.20.0.0/16"]);
    assert_eq!(place(&again, 0).unwrap().1, address("10.20.0.7"));
    let mut without = restarted(again, &[]);
    assert_eq!(place(&without, 0).unwrap().1, None);
    without.join("n1");
    assert_eq!(without.states("web"), ["not ready"]);
    assert_eq!(without.orders("n1"), ["web.alice 0 0 run"]);
    without
        .ask(super::Command::Scale {
            service: name("web"),
            replicas: 2,
        })
        .unwrap();
    assert_eq!(
        without.replica("web", 1).reason.as_deref(),
        Some("host n1 has no address for port http: the controller has no network data any more")
    );
}

proptest! {
    /// P17 for networks: whatever hosts report in whatever order, a listed port is at an address of its host that lies
    /// in the network, and two machines are never listed at one.
    #[test]
    fn a_listed_port_is_at_its_own_hosts_address_in_the_network(
        reports in proptest::collection::vec((0..4_u8, proptest::collection::vec((0..3_u8, 1..6_u8), 0..4)), 1..20),
    ) {
        let mut rig = rig(&["data=10.20.0.0/24,10.22.0.0/24"]);
        rig.submit(&with_port("web", 5, IN_DATA)).unwrap();
        for (host, addresses) in reports {
            let host = format!("n{host}");
            let addresses: Vec<String> = addresses
                .iter()
                .map(|(network, last)| format!("10.{}.0.{last}", 20 + network))
                .collect();
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            rig.tell(Input::HostReport(at(&host, &addresses)));
            for index in 0..5 {
                if rig.endpoint("web", index).is_some_and(|it| it.state == EndpointState::NotReady) {
                    rig.ready("web", index);
                }
            }
            let mut machines = std::collections::BTreeMap::new();
            let listed = rig.table[&name("web")].endpoints.iter();
            for endpoint in listed.filter(|it| it.state.is_listed()) {
                let address = endpoint.address_of(&endpoint.ports[0]).unwrap();
                let told = rig.registry.truth.hosts.iter();
                let mut told = told.map(|(_, host)| &host.facts);
                let facts = told.find(|facts| facts.host == endpoint.host).unwrap();
                prop_assert!(facts.addresses.iter().any(|it| it.address == address));
                let text = address.to_string();
                prop_assert!(text.starts_with("10.20.") || text.starts_with("10.22."));
                let first = machines.entry(address).or_insert(endpoint.host.clone());
                prop_assert_eq!(&*first, &endpoint.host);
            }
        }
    }
}
