//! Named networks: a port that names one is placed, probed, told to the job and listed at the host's address there.

use serde_json::Value;

use crate::cluster::{Cluster, address};
use crate::world::{eventually, hello};

/// A port in the network `data`, and one beside it.
const IN_DATA: &str = "[ports]\nhttp = { any = 1, network = \"data\" }\nadmin = \"any\"\n\
    [restart]\nbackoff = { initial = \"500ms\", max = \"1s\" }\n";
/// Its readiness: whoever answers clients of `http` must be the replica.
const TCP: &str = "[readiness]\ntcp = { port = \"http\" }\ninterval = \"200ms\"\n";

/// Two hosts under a controller with a network, of which only `n2` has an address in it.
fn two_hosts() -> Option<Cluster> {
    let mut cluster = Cluster::bare(2)?;
    cluster.start_controller(&[
        "--network",
        "data=10.20.0.0/16",
        "--network",
        "store=fd00:20::/64",
    ]);
    data_link(&cluster, 2);
    for number in 1..=2 {
        cluster.start_agent(number, &[]);
    }
    cluster.wait_until_up(2);
    Some(cluster)
}

/// Gives a host an address in the network.
fn data_link(cluster: &Cluster, number: usize) {
    let line = format!(
        "ip link add data0 type veth peer name data1 && ip link set data1 up \
         && ip addr add 10.20.0.{number}/16 dev data0 && ip link set data0 up"
    );
    cluster.on(number, &line);
}

fn endpoint(cluster: &Cluster, service: &str) -> String {
    cluster.world.ok(&["endpoints", service]).trim().to_owned()
}

/// The address of the replica's port `http` in the environment of its process.
fn seen_by_the_job(replica: &Value) -> String {
    let path = format!("/proc/{}/environ", replica["pid"]);
    let environment = std::fs::read(path).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let mut all = environment.split('\0');
    let found = all.find_map(|one| one.strip_prefix("PORTREEVE_ADDR_HTTP="));
    found.unwrap_or_default().to_owned()
}

#[test]
fn a_port_in_a_network_is_served_there_follows_its_address_and_nothing_restarts() {
    let Some(cluster) = two_hosts() else { return };
    let text = hello("web", 1, "", &format!("{IN_DATA}{TCP}"));
    cluster.submit("web", &text);
    cluster.ready("web", "1");
    assert_eq!(cluster.hosts_of("web"), ["n2"]);
    let before = &cluster.replicas("web")[0];
    let port = before["ports"]["http"]["first"]
        .as_u64()
        .unwrap_or_default();
    let port = if port == 0 {
        before["ports"]["http"].to_string()
    } else {
        port.to_string()
    };
    let port = port.trim_matches('"');
    let here = format!("10.20.0.2:{port}");
    assert_eq!(endpoint(&cluster, "web"), here);
    assert_eq!(endpoint(&cluster, "web:http"), here);
    let admin = endpoint(&cluster, "web:admin");
    assert!(admin.starts_with(&format!("{}:", address(2))), "{admin}");
    assert_eq!(seen_by_the_job(before), here);
    let shown = cluster.world.json(&["endpoints", "web"]);
    let shown = &shown["endpoints"][0];
    assert_eq!(
        (&shown["address"], &shown["ports"][0]["address"]),
        (&address(2).into(), &"10.20.0.2".into())
    );
    let host = cluster.world.ok(&["host", "n2"]);
    assert!(
        host.contains("network data (10.20.0.0/16): 10.20.0.2\n"),
        "{host}"
    );
    assert!(
        host.contains("network store (fd00:20::/64): no address here"),
        "{host}"
    );

    // P22: a cable of that network that is out for seconds changes nothing.
    let snapshot = cluster.world.json(&["endpoints", "web"]);
    cluster.on(2, "ip link set data1 down");
    let last_seen = || cluster.host(2)["last_seen"].as_u64().unwrap();
    let cut = last_seen();
    // Two leases: whatever the agent had found out it has told by then.
    assert!(
        eventually(|| last_seen() > cut + 6_000),
        "{}",
        cluster.agent_log(2)
    );
    assert_eq!(cluster.world.json(&["endpoints", "web"]), snapshot);
    cluster.on(2, "ip link set data1 up");

    // A change of the address in the network: the endpoint moves, and only that.
    cluster.on(2, "ip addr add 10.20.0.9/16 dev data0 && echo 1 > /proc/sys/net/ipv4/conf/all/promote_secondaries \
                   && ip addr del 10.20.0.2/16 dev data0");
    let there = format!("10.20.0.9:{port}");
    let moved = || endpoint(&cluster, "web") == there;
    assert!(eventually(moved), "{:#}", cluster.host(2));
    let after = &cluster.replicas("web")[0];
    for same in ["pid", "run", "incarnation", "restarts", "ports", "address"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    // The next start sees it.
    cluster.world.ok(&["restart", "web"]);
    let again = || {
        let replica = &cluster.replicas("web")[0];
        replica["ready"] == true && seen_by_the_job(replica) == there
    };
    assert!(eventually(again), "{:#}", cluster.replicas("web")[0]);
    // Gone altogether it is not listed, and it runs on.
    cluster.on(2, "ip addr del 10.20.0.9/16 dev data0");
    let reason = || {
        cluster.replicas("web")[0]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let gone = || reason() == "its host has no address in network data for port http";
    assert!(eventually(gone), "{}", reason());
    let without = &cluster.replicas("web")[0];
    assert_eq!(
        (&without["job_state"], &without["restarts"]),
        (&"RUN".into(), &before["restarts"])
    );
}

#[test]
fn an_unknown_network_and_a_host_without_one_are_told_by_name() {
    let Some(cluster) = two_hosts() else { return };
    let unknown = hello(
        "lost",
        1,
        "",
        "[ports]\nhttp = { any = 1, network = \"dta\" }\n",
    );
    let file = cluster.world.profile("lost.toml", &unknown);
    let refused = cluster.world.run(&["submit", &file]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let words = "port http names the network \"dta\", which is unknown; there are: data, store";
    assert!(refused.stderr.contains(words), "{}", refused.stderr);

    // On n1 there is no such address, whatever else is free there.
    let pinned = hello(
        "web",
        1,
        "",
        &format!("{IN_DATA}{TCP}[placement]\nhosts = [\"n1\"]\n"),
    );
    cluster.submit("web", &pinned);
    let words = "host n1 has no address in network data (10.20.0.0/16) for port http; \
                 `portreeve host n1` shows those it has";
    let reason = || {
        cluster.replicas("web")[0]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(eventually(|| reason() == words), "{}", reason());
    let code = &cluster.replicas("web")[0]["reasons"][0];
    assert_eq!(
        (&code["code"], &code["network"]),
        (&"NO ADDRESS".into(), &"data".into())
    );
    let why = cluster.world.run(&["why", "web"]);
    assert!(why.stdout.contains(words), "{why:?}");
    let explained = cluster.world.run(&["explain", "--service", "web"]);
    assert!(explained.stdout.contains("NO ADDRESS"), "{explained:?}");
    // Given one, it is taken at once.
    data_link(&cluster, 1);
    cluster.ready("web", "1");
    assert!(endpoint(&cluster, "web").starts_with("10.20.0.1:"));

    // One that binds the published address only serves nobody in the network, and is told what to bind.
    let astray = hello(
        "astray",
        1,
        "--bind ${host.address}",
        &format!("{IN_DATA}{TCP}"),
    );
    cluster.submit("astray", &astray);
    let replica = || cluster.replicas("astray")[0].clone();
    let told = || {
        let replica = replica();
        let reason = replica["reason"].as_str().unwrap_or_default();
        reason.contains("only; clients use 10.20.0.") && reason.contains("bind ${addr.http}")
    };
    assert!(eventually(told), "{:#}", replica());
}
