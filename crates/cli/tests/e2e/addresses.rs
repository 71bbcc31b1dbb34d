//! Which address of a host clients are sent to: by what rule, shown to whom, and what a change of it moves.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, address, sh};
use crate::namespace::Namespace;
use crate::world::{PORTREEVE, USUAL, World, eventually, hello};

/// Four links as a host of a cluster has them, made in this order; their addresses come in another one.
fn four_links(network: &Namespace, order: [usize; 4]) {
    let links = [
        "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up",
        "ip link add vpn0 type veth peer name vpn1 && ip link set vpn1 up && ip addr add 10.8.0.5/24 dev vpn0 \
         && ip link set vpn0 up",
        "ip link add ib0 type veth peer name ib1 && ip link set ib1 up && ip addr add 10.20.0.7/16 dev ib0 && ip link set ib0 up \
         && ip route add default via 10.20.0.1",
        "ip link add old0 type veth peer name old1 && ip addr add 10.1.0.9/16 dev old0",
    ];
    for link in order {
        sh(network, links[link]);
    }
    // The bridge has a port that is up, or the kernel says that it hears nobody.
    sh(
        network,
        "ip link add port0 type veth peer name port1 && ip link set port1 up && ip link set port0 master docker0 up",
    );
    let carrier = || {
        let mut show = network.command("ip");
        let shown = show.args(["link", "show", "docker0"]).output();
        let shown = shown.unwrap().stdout;
        !String::from_utf8_lossy(&shown).contains("NO-CARRIER")
    };
    assert!(eventually(carrier), "the bridge never heard anybody");
}

/// What `agent --check-address` finds there.
fn check(world: &World, network: &Namespace, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = world
        .command_in(network, PORTREEVE)
        .args([&["agent", "--check-address", "-o", "json"], arguments].concat())
        .output()
        .unwrap();
    let found = serde_json::from_slice(&output.stdout);
    let found = found.unwrap_or_else(|cause| panic!("{cause}: {output:?}"));
    (output.status.code(), found)
}

#[test]
fn the_choice_is_the_same_at_every_start_whatever_the_order_of_the_links() {
    // P17: lo, a bridge, a VPN and the cluster's network, and a link that is down, made in any order.
    let Some(world) = World::new() else { return };
    let mut first = None;
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        let network = Namespace::new().unwrap();
        four_links(&network, order);
        for _ in 0..5 {
            let (code, mut found) = check(&world, &network, &[]);
            // Link-local ones are made of random numbers.
            let candidates = found["candidates"].as_array_mut().unwrap();
            candidates.retain(|one| one["scope"] != "link");
            assert_eq!((code, &found["published"]), (Some(0), &"10.20.0.7".into()));
            assert_eq!(found, *first.get_or_insert_with(|| found.clone()));
        }
    }
    let found = first.unwrap();
    assert_eq!(found["rule"], "default: ib0 carries the default route");
    let why = |address: &str| -> Value {
        let mut all = found["candidates"].as_array().unwrap().iter();
        let one = all.find(|one| one["address"] == address);
        one.unwrap_or_else(|| panic!("{address} is missing: {found:#}"))["unusable"].clone()
    };
    assert_eq!(why("172.17.0.1"), Value::Null);
    assert_eq!(why("10.8.0.5"), Value::Null);
    assert_eq!(why("10.1.0.9"), "its interface is down");
    assert_eq!(
        why("127.0.0.1"),
        "loopback is reachable from this host only"
    );
}

#[test]
fn a_rule_overrides_the_choice_and_one_that_finds_nothing_says_what_there_is() {
    // P17, P16
    let Some(world) = World::new() else { return };
    let network = Namespace::new().unwrap();
    four_links(&network, [1, 0, 2, 3]);
    for (rule, published) in [
        ("10.8.0.0/16", "10.8.0.5"),
        ("docker0", "172.17.0.1"),
        ("nope0,vpn*", "10.8.0.5"),
        ("!ib0,!docker*", "10.8.0.5"),
        ("!10.0.0.0/8", "172.17.0.1"),
        ("192.0.2.1", "192.0.2.1"),
    ] {
        let (code, found) = check(&world, &network, &["--address", rule]);
        assert_eq!(
            (code, &found["published"]),
            (Some(0), &published.into()),
            "{rule}"
        );
    }
    let command = ["--address-command", "echo 10.8.0.5"];
    let (_, found) = check(&world, &network, &command);
    assert_eq!(found["published"], "10.8.0.5");
    assert_eq!(found["rule"], "command \"echo 10.8.0.5\" 10.8.0.5: vpn0");

    // Nothing else in its place, which would send clients to the wrong network.
    for rule in ["old0", "127.0.0.1", "224.0.0.1", "nope0"] {
        let (code, found) = check(&world, &network, &["--address", rule]);
        assert_eq!(
            (code, &found["published"]),
            (Some(1), &Value::Null),
            "{rule}"
        );
    }
    let told = world
        .command_in(&network, PORTREEVE)
        .args(["agent", "--check-address", "--address", "old0"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&told.stderr);
    assert!(
        words.contains("no usable address on interface old0") && words.contains("10.8.0.5 (vpn0)"),
        "{words}"
    );
    let refused = world
        .command_in(&network, PORTREEVE)
        .args(["agent", "--check-address", "--address", "10.0.0.0/33"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_host_with_a_short_name_is_resolved_by_the_address_of_its_rule() {
    // P16: `hostname` says n17, which no client knows.
    let Some(mut cluster) = Cluster::bare(1) else {
        return;
    };
    cluster.on(1, "ip addr add 10.98.0.17/24 dev eth0");
    let uts = [
        "unshare",
        "--uts",
        "sh",
        "-c",
        "hostname n17 && exec \"$@\"",
        "sh",
    ];
    let rule = ["--address", "10.98.0.0/16"];
    cluster.start_agent_through(1, &uts, &[], &rule);
    cluster.wait_until_up(1);
    let text = hello("web", 1, "", USUAL);
    cluster.submit("web", &text);
    cluster.ready("web", "1");
    let resolved = cluster.world.ok(&["endpoints", "web"]);
    assert!(resolved.starts_with("10.98.0.17:"), "{resolved}");
    let replica = &cluster.replicas("web")[0];
    assert_eq!(replica["host"], "n17");
    let told = cluster.world.ok(&["host", "n17"]);
    for line in [
        "address: 10.98.0.17 (network 10.98.0.0/16: eth0)",
        "  eth0 10.98.0.17/24: published",
        "  eth0 10.99.0.1/24: usable",
        "  lo 127.0.0.1/8: not published, loopback",
    ] {
        assert!(told.contains(line), "{line} is missing: {told}");
    }
}

#[test]
fn a_change_of_address_moves_all_endpoints_at_once_and_restarts_nothing() {
    let Some(cluster) = Cluster::of(1) else {
        return;
    };
    for name in ["web", "api"] {
        cluster.submit(name, &hello(name, 2, "", USUAL));
        cluster.ready(name, "2");
    }
    let standing = || -> Vec<Value> {
        let all = ["web", "api"].map(|name| cluster.replicas(name)).concat();
        let fields = ["incarnation", "ports", "restarts", "pid", "run", "ready"];
        let of = |one: &Value| fields.iter().map(|it| one[*it].clone()).collect();
        all.iter().map(of).collect()
    };
    let endpoints = |name: &str| cluster.world.json(&["endpoints", name]);
    let before = standing();
    let revision = |name: &str| endpoints(name)["revision"].as_u64().unwrap();
    let mut at = ["web", "api"].map(revision);
    // Told by the kernel: by looks alone, half a minute apart, this would take most of a minute.
    let mut slowest = Duration::ZERO;
    cluster.on(
        1,
        "echo 1 > /proc/sys/net/ipv4/conf/all/promote_secondaries",
    );
    for (add, remove, now) in [
        ("10.99.0.101/24", address(1), "10.99.0.101"),
        ("10.99.0.1/24", "10.99.0.101".to_owned(), "10.99.0.1"),
    ] {
        let begun = Instant::now();
        cluster.on(
            1,
            &format!(
                "ip addr add {add} dev eth0 && ip addr del {remove}/24 dev eth0 \
                 && ip route replace default via 10.99.0.254"
            ),
        );
        let moved = || endpoints("web")["endpoints"][0]["address"] == now;
        assert!(eventually(moved), "{:#}", cluster.host(1));
        slowest = slowest.max(begun.elapsed());
        for (name, at) in ["web", "api"].iter().zip(&mut at) {
            let all = endpoints(name);
            let list = all["endpoints"].as_array().unwrap();
            assert!(list.iter().all(|one| one["address"] == now), "{all:#}");
            let revision = all["revision"].as_u64().unwrap();
            assert!(revision > *at, "{all:#}");
            *at = revision;
        }
        // One revision for every service: nobody sees a part of it.
        assert_eq!(at[0], at[1]);
    }
    assert!(slowest < Duration::from_secs(10), "it took {slowest:?}");
    assert_eq!(standing(), before);
    let resolved = cluster.world.ok(&["endpoints", "web", "--one"]);
    cluster
        .world
        .curl(&[&format!("http://{}/", resolved.trim())]);
}

#[test]
fn a_cable_that_is_out_for_seconds_changes_nothing() {
    // P22
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    let before = cluster.world.json(&["service", "web"]);
    let snapshot = cluster.world.json(&["endpoints", "web"]);
    let last_seen = || cluster.host(1)["last_seen"].as_u64().unwrap();
    cluster.link_down(1);
    let cut = last_seen();
    // Longer than a lease: the other host has told of itself twice since, this one could not.
    let other = || cluster.host(2)["last_seen"].as_u64().unwrap();
    let begun = other();
    assert!(
        eventually(|| other() > begun + 6_000),
        "the other host is silent too"
    );
    assert!(last_seen() <= cut + 1_000, "the cut host was heard");
    cluster.link_up(1);
    assert!(
        eventually(|| last_seen() > cut + 6_000),
        "{}",
        cluster.agent_log(1)
    );
    let again = last_seen();
    assert!(eventually(|| last_seen() > again));
    let records = || cluster.records(1);
    assert_eq!(
        cluster.world.json(&["service", "web"]),
        before,
        "{}",
        records()
    );
    assert_eq!(
        cluster.world.json(&["endpoints", "web"]),
        snapshot,
        "{}",
        records()
    );
    assert_eq!(cluster.host(1)["address"], address(1));
    let none = || cluster.agent_log(1).contains("published address: none");
    assert!(!none(), "{}", cluster.agent_log(1));
    // Switched off on purpose it is no address at once.
    cluster.on(1, "ip link set eth0 down");
    assert!(eventually(none), "{}", cluster.agent_log(1));
}
