//! What a network does to a host costs no replica: addresses that go and come back, links that flap, a family that is
//! missing.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, address};
use crate::world::{USUAL, eventually, hello};

/// Everything of the replicas of a service but for its revision.
fn standing(cluster: &Cluster, services: &[&str]) -> Vec<Value> {
    let all = services.iter().flat_map(|name| cluster.replicas(name));
    let fields = [
        "incarnation",
        "ports",
        "restarts",
        "restarts_total",
        "pid",
        "run",
        "ready",
        "not_ready_reason",
        "address",
    ];
    all.map(|one| fields.iter().map(|field| one[*field].clone()).collect())
        .collect()
}

/// The reports that the workers of a host wrote down, one line each.
fn reports(cluster: &Cluster, number: usize) -> Vec<String> {
    let folder = cluster.world.path(&format!("n{number}/agent/replicas"));
    let mut found = Vec::new();
    for name in crate::world::names_in(&folder) {
        let log = std::fs::read_to_string(folder.join(&name).join("worker.log"));
        let log = log.unwrap_or_else(|cause| panic!("{name}: {cause}"));
        let lines = log.lines().filter_map(|line| line.split_once(" run "));
        found.extend(lines.map(|(_, report)| format!("{name} run {report}")));
    }
    found
}

/// Lets so much time pass.
fn last(time: Duration) {
    let begun = Instant::now();
    eventually(|| begun.elapsed() >= time);
}

const PROBED: &str =
    "[liveness]\ntcp = {}\ninterval = \"200ms\"\n[startup]\ntcp = {}\ninterval = \"200ms\"\n";

/// A service on the wildcard, one that asks the published address itself, and one that listens on that alone.
fn three_services(cluster: &Cluster) -> [&'static str; 3] {
    let http = PROBED.replace("tcp = {}", "http = { path = \"/\" }");
    cluster.submit("web", &hello("web", 2, "", &format!("{USUAL}{PROBED}")));
    cluster.submit("api", &hello("api", 1, "", &format!("{USUAL}{http}")));
    let bound = "--bind \\\"${host.address}\\\"";
    cluster.submit("own", &hello("own", 1, bound, &format!("{USUAL}{PROBED}")));
    for (name, replicas) in [("web", "2"), ("api", "1"), ("own", "1")] {
        cluster.ready(name, replicas);
    }
    ["web", "api", "own"]
}

const ROUTE: &str = "ip route replace default via 10.99.0.254";

#[test]
fn an_address_that_is_gone_for_seconds_makes_no_replica_flap_or_restart() {
    // P22's kind: with three failures in 600 ms a liveness probe of the lost address would restart everything.
    let Some(cluster) = Cluster::of(1) else {
        return;
    };
    let services = three_services(&cluster);
    let before = standing(&cluster, &services);
    let told = reports(&cluster, 1);
    assert!(told.len() >= 4, "{told:?}");
    let own = address(1);
    let listed = || {
        let all = cluster.world.json(&["endpoints", "web"]);
        all["endpoints"]
            .as_array()
            .is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["address"] == own))
    };
    assert!(listed());
    cluster.on(1, &format!("ip addr del {own}/24 dev eth0"));
    let none = || cluster.agent_log(1).contains("published address: none");
    assert!(eventually(none), "{}", cluster.agent_log(1));
    last(Duration::from_secs(4));
    cluster.on(1, &format!("ip addr add {own}/24 dev eth0 && {ROUTE}"));
    let back = || cluster.host(1)["address"] == own && listed();
    assert!(eventually(back), "{:#}", cluster.host(1));
    // And a link and an address that come and go all the time.
    for turn in 0..6 {
        cluster.on(1, &format!("ip addr del {own}/24 dev eth0"));
        last(Duration::from_millis(100 * turn));
        cluster.on(1, &format!("ip addr add {own}/24 dev eth0 && {ROUTE}"));
        cluster.link_down(1);
        last(Duration::from_millis(50 * turn));
        cluster.link_up(1);
    }
    assert!(eventually(back), "{:#}", cluster.host(1));
    last(Duration::from_secs(1));
    assert_eq!(standing(&cluster, &services), before);
    assert_eq!(reports(&cluster, 1), told);
}

#[test]
fn a_worker_that_takes_over_hears_of_the_address_that_came_meanwhile() {
    // The new worker went by what its predecessor had written down, and asked the old address for ever.
    let Some(mut cluster) = Cluster::of(1) else {
        return;
    };
    cluster.submit("web", &hello("web", 1, "", USUAL));
    cluster.ready("web", "1");
    let before = standing(&cluster, &["web"]);
    let known = |cluster: &Cluster, address: &str| {
        let folder = cluster.world.path("n1/agent/replicas");
        let name = &crate::world::names_in(&folder)[0];
        let record = std::fs::read_to_string(folder.join(name).join("machine.json"));
        let record: Value = serde_json::from_str(&record.unwrap()).unwrap();
        record["host_address"] == address
    };
    let worker = |cluster: &Cluster| -> i32 {
        let all = cluster.network(1).processes();
        let worker = all.iter().find(|(_, line)| line.contains(" worker "));
        worker.map_or_else(|| panic!("{all:?}"), |(pid, _)| *pid)
    };
    cluster.on(
        1,
        "echo 1 > /proc/sys/net/ipv4/conf/all/promote_secondaries",
    );
    let change = |cluster: &Cluster, from: &str, to: &str| {
        let line =
            format!("ip addr add {to}/24 dev eth0 && ip addr del {from}/24 dev eth0 && {ROUTE}");
        cluster.on(1, &line);
    };
    // Neither lives while the address changes; the worker is the second's to start.
    cluster.kill_agent(1);
    let first = worker(&cluster);
    crate::world::kill(first, "KILL");
    change(&cluster, "10.99.0.1", "10.99.0.101");
    cluster.start_agent(1, &[]);
    assert!(
        eventually(|| known(&cluster, "10.99.0.101")),
        "{}",
        cluster.agent_log(1)
    );
    assert_ne!(worker(&cluster), first);
    // The worker lives on, and was told of a change that no assignment tells.
    cluster.kill_agent(1);
    change(&cluster, "10.99.0.101", "10.99.0.1");
    cluster.start_agent(1, &[]);
    assert!(
        eventually(|| known(&cluster, "10.99.0.1")),
        "{}",
        cluster.agent_log(1)
    );
    let moved =
        || cluster.world.json(&["endpoints", "web"])["endpoints"][0]["address"] == address(1);
    assert!(eventually(moved), "{:#}", cluster.host(1));
    assert_eq!(standing(&cluster, &["web"]), before);
}

#[test]
fn a_host_without_an_address_waits_for_one_and_an_ipv6_one_will_do() {
    let Some(mut cluster) = Cluster::bare(1) else {
        return;
    };
    // The way to the controller is over addresses that are published to nobody.
    crate::cluster::sh(
        cluster.world.network(),
        "ip addr add 169.254.9.254/16 dev br0 && ip -6 addr add fd00:99::254/64 dev br0 nodad",
    );
    cluster.on(
        1,
        "ip addr flush dev eth0 scope global && ip addr add 169.254.9.1/16 dev eth0 \
         && ip route add 10.99.0.254/32 dev eth0 src 169.254.9.1",
    );
    cluster.start_agent(1, &[]);
    cluster.wait_until_up(1);
    assert_eq!(cluster.host(1)["address"], Value::Null);
    cluster.submit("web", &hello("web", 1, "--bind ::", USUAL));
    let waits = |replica: &Value| {
        let reasons = replica["reasons"].as_array();
        reasons.is_some_and(|all| all.iter().any(|reason| reason["code"] == "NO ADDRESS"))
    };
    let pending = cluster.world.replica_when("web", 0, "waited", waits);
    assert_eq!(pending["job_state"], "PEND", "{pending:#}");
    cluster.on(1, "ip -6 addr add fd00:99::1/64 dev eth0 nodad");
    cluster.ready("web", "1");
    let resolved = cluster.world.ok(&["endpoints", "web", "--one"]);
    assert!(resolved.starts_with("[fd00:99::1]:"), "{resolved}");
    cluster
        .world
        .curl(&["-g", &format!("http://{}/", resolved.trim())]);
}
