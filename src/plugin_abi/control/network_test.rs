//! Ports that are reached in a named network, and hosts that have no address there.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::prelude::{ProptestConfig, Strategy, prop_assert_eq, proptest};

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::cycle::explain_test::need;
use crate::plugin_abi::types::*;

pub(crate) fn network(name: &'static str, ip: [u8; 4], prefix: u32) -> PrNetwork {
    PrNetwork {
        size: u32::try_from(size_of::<PrNetwork>()).unwrap(),
        flags: 0,
        name: text(name),
        ip: long(ip),
        family: 4,
        prefix,
    }
}

fn long(ip: [u8; 4]) -> [u8; 16] {
    let mut long = [0; 16];
    long[..4].copy_from_slice(&ip);
    long
}

pub(crate) fn inside(name: &str, network: &str) -> PrPort {
    PrPort {
        network: text(network),
        ..any(name)
    }
}

impl Caller {
    pub(crate) fn networks(&self, networks: &[PrNetwork]) -> i32 {
        let n = u32::try_from(networks.len()).unwrap();
        // SAFETY: `networks` has `n` elements.
        unsafe { (self.api.network_put)(self.ctx, networks.as_ptr(), n) }
    }

    pub(crate) fn addresses(&self, host: u32, seq: u64, list: &[([u8; 4], u32)]) -> i32 {
        let list: Vec<PrAddr> = list
            .iter()
            .map(|(ip, pref)| PrAddr {
                ip: long(*ip),
                family: 4,
                scope: 0,
                pref: *pref,
                flags: 0,
            })
            .collect();
        let n = u32::try_from(list.len()).unwrap();
        // SAFETY: `list` has `n` elements.
        unsafe { (self.api.report_addr)(self.ctx, host, seq, list.as_ptr(), n) }
    }

    fn reasons(&self, txn: PrTxn, profile: u32, host: u32) -> Vec<(u32, u32)> {
        let causes = self.explain(txn, need(profile), host);
        let reasons = causes.iter().map(|why| (why.reason, why.item));
        reasons.collect()
    }
}

/// Where each port of a service is reached, by its name's number.
fn reached(caller: &Caller, flags: u32) -> Vec<(u32, Option<Ipv4Addr>)> {
    let (endpoints, _) = caller.resolve("web.alice", flags).unwrap();
    let address = |it: &PrEndpoint| {
        let ip: [u8; 4] = it.ip[..4].try_into().unwrap();
        (it.family == 4).then(|| Ipv4Addr::from(ip))
    };
    endpoints.iter().map(|it| (it.name, address(it))).collect()
}

#[test]
fn a_port_in_a_network_is_reached_at_the_best_address_there() {
    let caller = Caller::new();
    assert_eq!(caller.networks(&[network("ib", [10, 2, 0, 0], 16)]), PR_OK);
    let list = [([10, 1, 0, 7], 0), ([10, 2, 0, 7], 9), ([10, 2, 0, 8], 5)];
    assert_eq!(caller.addresses(0, 1, &list), PR_OK);
    let web = caller.profile("web.alice", &[any("http"), inside("rpc", "ib")]);
    let (id, ports) = caller.hold(want(1, 0, web, 0));
    assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    let usual = Some(Ipv4Addr::new(10, 1, 0, 7));
    let fast = Some(Ipv4Addr::new(10, 2, 0, 8));
    assert_eq!(reached(&caller, 0), [(0, usual), (1, fast)]);
    let env = caller.env(id);
    let has = |line: String| assert!(env.contains(&line), "{line} not in {env:?}");
    has(format!("PORTREEVE_ADDR_HTTP=10.1.0.7:{}", ports[0]));
    has(format!("PORTREEVE_ADDR_RPC=10.2.0.8:{}", ports[1]));
    has("PORTREEVE_HOST_ADDR=10.1.0.7".to_owned());
    // The host leaves the network: the other port is still reached.
    assert_eq!(caller.addresses(0, 2, &list[..1]), PR_OK);
    assert_eq!(reached(&caller, 0), [(0, usual)]);
    assert_eq!(reached(&caller, PR_RESOLVE_ALL), [(0, usual), (1, None)]);
    let env = caller.env(id);
    assert!(!env.iter().any(|line| line.contains("ADDR_RPC")), "{env:?}");
    assert!(env.iter().any(|line| line.contains("ADDR_HTTP")), "{env:?}");
}

#[test]
fn a_host_without_an_address_in_the_network_does_not_fit_and_says_why() {
    let caller = Caller::new();
    assert_eq!(caller.networks(&[network("ib", [10, 2, 0, 0], 16)]), PR_OK);
    let web = caller.profile("web.alice", &[any("http"), inside("rpc", "ib")]);
    let plain = caller.profile("db.alice", &[any("sql")]);
    let txn = caller.begin(0);
    assert_eq!(caller.fitting(txn, web, 0), 0);
    assert_eq!(caller.fitting(txn, plain, 0), 3);
    let silent = [(PR_R_NOT_REPORTED, PR_ANY)];
    assert_eq!(caller.reasons(txn, web, 0), silent);
    let (code, grant, _) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!((code, grant.reason), (PR_ENOPORT, PR_R_NOT_REPORTED));
    // What hosts report meanwhile counts from the next transaction on: the view is pinned.
    assert_eq!(caller.addresses(0, 1, &[([10, 2, 0, 7], 0)]), PR_OK);
    assert_eq!(caller.addresses(1, 1, &[([10, 1, 0, 8], 0)]), PR_OK);
    assert_eq!(caller.reasons(txn, web, 0), silent);
    assert_eq!(caller.abort(txn), PR_OK);
    let txn = caller.begin(0);
    assert_eq!(caller.fitting(txn, web, 0), 1);
    assert_eq!(caller.reasons(txn, web, 0), []);
    assert_eq!(caller.reasons(txn, web, 1), [(PR_R_NO_ADDRESS, 1)]);
    let summary: [u32; 16] = caller.summary(txn, need(web), None);
    assert_eq!(summary[PR_R_NO_ADDRESS as usize], 1);
    assert_eq!(summary.iter().sum::<u32>(), 1);
    let wants = [want(1, 0, web, 0), want(1, 1, web, 1)];
    for flags in [PR_RESERVE_ALL, PR_RESERVE_ALL | PR_RESERVE_SAME] {
        let (code, grants, _) = caller.reserve_all(txn, flags, &wants);
        assert_eq!(code, PR_ENOPORT);
        assert_eq!(grants[1].reason, PR_R_NO_ADDRESS);
        assert_eq!(grants[0].rc, PR_EAGAIN);
    }
    let (code, ..) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!(code, PR_OK, "{}", last_error());
    assert_eq!(caller.commit(txn), PR_OK);
    // A what-if sees the same.
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    let (code, grant, _) = caller.reserve(txn, want(2, 0, web, 1));
    assert_eq!((code, grant.reason), (PR_ENOPORT, PR_R_NO_ADDRESS));
    assert_eq!(caller.fitting(txn, web, 0), 1);
}

#[test]
fn a_network_that_is_put_again_means_something_else_at_once() {
    let caller = Caller::new();
    assert_eq!(caller.networks(&[network("ib", [10, 2, 0, 0], 16)]), PR_OK);
    let list = [([10, 1, 0, 7], 0), ([10, 2, 0, 7], 0)];
    assert_eq!(caller.addresses(0, 1, &list), PR_OK);
    assert_eq!(caller.addresses(1, 1, &list[..1]), PR_OK);
    let web = caller.profile("web.alice", &[inside("rpc", "ib")]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    assert_eq!(caller.networks(&[network("ib", [10, 1, 0, 0], 16)]), PR_OK);
    assert_eq!(reached(&caller, 0), [(0, Some(Ipv4Addr::new(10, 1, 0, 7)))]);
    let txn = caller.begin(0);
    assert_eq!(caller.fitting(txn, web, 0), 3);
    assert_eq!(
        caller.networks(&[network("ib", [10, 1, 0, 0], 16)]),
        PR_EBUSY
    );
    assert_eq!(caller.abort(txn), PR_OK);
    // Nobody is left there: what is held stays held, and nobody is sent there.
    assert_eq!(caller.networks(&[network("ib", [10, 3, 0, 0], 16)]), PR_OK);
    assert_eq!(caller.listed("web.alice"), 0);
    let txn = caller.begin(0);
    assert_eq!(caller.fitting(txn, web, 0), 0);
    let (code, grant, _) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!((code, grant.id), (PR_EEXIST, id));
}

#[test]
fn a_malformed_network_is_refused_and_none_of_its_call_is_known() {
    let caller = Caller::new();
    let good = network("good", [10, 0, 0, 0], 8);
    let bad = |change: fn(&mut PrNetwork)| {
        let mut network = network("bad", [10, 0, 0, 0], 8);
        change(&mut network);
        network
    };
    for (network, expected) in [
        (bad(|it| it.flags = 1), PR_EINVAL),
        (bad(|it| it.name = ABSENT), PR_EINVAL),
        (bad(|it| it.name = text("No Name")), PR_EINVAL),
        (bad(|it| it.name = text("good")), PR_EINVAL),
        (bad(|it| it.family = 5), PR_EINVAL),
        (bad(|it| it.prefix = 33), PR_EINVAL),
        (bad(|it| it.prefix = 1 << 16), PR_EINVAL),
        // Bits behind the prefix, and bytes behind a short address.
        (bad(|it| it.ip[3] = 1), PR_EINVAL),
        (bad(|it| it.ip[9] = 1), PR_EINVAL),
        (bad(|it| it.size = 8), PR_EINVAL),
    ] {
        assert_eq!(caller.networks(&[good, network]), expected);
        let refused = caller.try_profile("web.alice", &[inside("rpc", "good")]);
        assert_eq!(refused, Err(PR_ENOENT));
    }
    assert_eq!(caller.networks(&[]), PR_OK);
    assert_eq!(
        caller.networks(&[network("everywhere", [0; 4], 0), good]),
        PR_OK
    );
    caller.profile(
        "web.alice",
        &[inside("rpc", "good"), inside("x", "everywhere")],
    );
    assert_eq!(
        caller.try_profile("web.alice", &[inside("rpc", "Bad!")]),
        Err(PR_EINVAL)
    );
}

#[test]
fn there_are_64_networks_at_most_and_those_known_can_still_be_put() {
    let caller = Caller::new();
    let names: Vec<String> = (0..=64).map(|number| format!("n{number}")).collect();
    let all: Vec<PrNetwork> = names
        .iter()
        .map(|name| PrNetwork {
            name: text(name),
            ..network("", [10, 0, 0, 0], 8)
        })
        .collect();
    assert_eq!(caller.networks(&all), PR_ELIMIT);
    assert_eq!(caller.networks(&all[..60]), PR_OK);
    assert_eq!(caller.networks(&all[50..]), PR_ELIMIT);
    let unknown = [inside("a", "n60")];
    assert_eq!(caller.try_profile("web.alice", &unknown), Err(PR_ENOENT));
    assert_eq!(caller.networks(&all[40..64]), PR_OK);
    assert_eq!(caller.networks(&all[..64]), PR_OK);
    assert_eq!(caller.addresses(0, 1, &[([10, 0, 0, 1], 0)]), PR_OK);
    let web = caller.profile("web.alice", &[inside("a", "n0"), inside("b", "n63")]);
    caller.hold(want(1, 0, web, 0));
}

#[test]
fn a_host_that_moves_keeps_its_networks_and_a_new_one_has_not_reported() {
    let caller = Caller::new();
    assert_eq!(caller.networks(&[network("ib", [10, 2, 0, 0], 16)]), PR_OK);
    assert_eq!(caller.addresses(0, 1, &[([10, 2, 0, 7], 0)]), PR_OK);
    let web = caller.profile("web.alice", &[inside("rpc", "ib")]);
    assert_eq!(caller.put(&[host(5, "n1"), host(0, "n3")]), PR_OK);
    let txn = caller.begin(0);
    assert_eq!(caller.fitting(txn, web, 0), 1 << 5);
    assert_eq!(
        caller.reasons(txn, web, 0),
        [(PR_R_NOT_REPORTED, PR_ANY)],
        "another host stands there"
    );
}

/// What decides whether a host fits, told plainly.
#[derive(Debug, Default)]
struct Model {
    networks: BTreeMap<usize, u8>,
    hosts: BTreeMap<u32, Vec<u8>>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Feasible, explain and explain_all agree with a plain look at addresses after any reports and networks.
    #[test]
    fn feasible_is_where_every_network_of_the_profile_has_an_address(
        steps in proptest::collection::vec((0..4_u32, 0..3_usize, 0..3_u8, any_list()), 1..40),
    ) {
        let caller = Caller::new();
        let all: Vec<PrNetwork> = NAMES.iter().map(|name| network(name, [10, 9, 0, 0], 16)).collect();
        prop_assert_eq!(caller.networks(&all), PR_OK);
        prop_assert_eq!(caller.put(&[host(2, "n3"), host(3, "n4")]), PR_OK);
        let profiles: Vec<(u32, Vec<usize>)> = (0..8_usize)
            .map(|set| {
                let wanted: Vec<usize> = (0..3).filter(|place| set & 1 << place != 0).collect();
                let ports: Vec<PrPort> = wanted.iter().map(|at| inside(NAMES[*at], NAMES[*at])).collect();
                (caller.profile("web.alice", &ports), wanted)
            })
            .collect();
        let mut model = Model { networks: (0..3).map(|place| (place, 9)).collect(), ..Model::default() };
        for (seq, (at, place, octet, list)) in (1..).zip(steps) {
            if list.is_empty() {
                prop_assert_eq!(caller.networks(&[network(NAMES[place], [10, octet, 0, 0], 16)]), PR_OK);
                model.networks.insert(place, octet);
            } else {
                let reported: Vec<_> = list.iter().map(|octet| ([10, *octet, 0, 1], 0)).collect();
                prop_assert_eq!(caller.addresses(at, seq, &reported), PR_OK);
                model.hosts.insert(at, list);
            }
            let txn = caller.begin(0);
            for (profile, wanted) in &profiles {
                let fits = |host: u32| wanted.iter().all(|place| {
                    let there = model.hosts.get(&host);
                    there.is_some_and(|there| there.contains(&model.networks[place]))
                });
                let expected: u64 = (0..4).filter(|host| fits(*host)).map(|host| 1 << host).sum();
                prop_assert_eq!(caller.fitting(txn, *profile, 0), expected);
                for host in 0..4 {
                    prop_assert_eq!(caller.reasons(txn, *profile, host).is_empty(), fits(host));
                }
                let summary: [u32; 16] = caller.summary(txn, need(*profile), None);
                prop_assert_eq!(summary.iter().sum::<u32>(), 4 - expected.count_ones());
            }
            prop_assert_eq!(caller.abort(txn), PR_OK);
        }
    }
}

/// Second octets of reported addresses; none: a network changes instead.
fn any_list() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..3_u8, 0..3)
}
