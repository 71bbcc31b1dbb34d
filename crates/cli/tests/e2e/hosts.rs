//! Several hosts, each a network of its own: conflicts are per host, never global.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::namespace::Namespace;
use crate::stranger::Stranger;
use crate::world::{USUAL, eventually, hello};

fn fixed(name: &str, replicas: u32, ports: &str, more: &str) -> String {
    let ports = USUAL
        .replace("http = \"any\"\n", &format!("{ports}\n"))
        .replace("{ path", "{ port = \"http\", path");
    hello(name, replicas, "", &format!("{ports}{more}"))
}

#[test]
fn equal_fixed_ports_land_on_different_hosts_and_any_lives_beside_them() {
    // P05 on two hosts
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    let ports = "http = 8888\nside = { fixed = 65480, publish = false }\n\
                 back = { fixed = 65481, publish = false }";
    cluster.submit("first", &fixed("first", 1, ports, ""));
    cluster.submit("second", &fixed("second", 1, ports, ""));
    cluster.ready("first", "1");
    cluster.ready("second", "1");
    let both = [cluster.hosts_of("first"), cluster.hosts_of("second")].concat();
    assert_ne!(both[0], both[1]);

    // A third has no host left: every port on every host is named with its holder.
    cluster.submit("third", &fixed("third", 1, ports, ""));
    let pending = cluster
        .world
        .replica_when("third", 0, "pended with its reasons", |replica| {
            replica["reasons"]
                .as_array()
                .is_some_and(|all| all.len() == 6)
        });
    assert_eq!(pending["pid"], Value::Null);
    let processes = cluster.networks().flat_map(Namespace::processes);
    let of_third: Vec<_> = processes
        .filter(|(_, line)| line.contains("third"))
        .collect();
    assert!(of_third.is_empty(), "started while it pends: {of_third:?}");
    for (reason, number) in pending["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .zip([8888, 65480, 65481].repeat(2))
    {
        assert_eq!(reason["code"], "HELD", "{reason:#}");
        assert_eq!(reason["number"], number, "{reason:#}");
        assert_eq!(reason["protocol"], "tcp", "{reason:#}");
        let holder = reason["holder"]["service"].as_str().unwrap();
        assert!(holder.starts_with("first.") || holder.starts_with("second."));
    }
    // With "any" instead it runs beside them.
    let any = ports
        .replace("8888", "\"any\"")
        .replace("fixed = 65480", "any = 1");
    let any = any.replace("fixed = 65481", "any = 1");
    let file = cluster
        .world
        .profile("third.toml", &fixed("third", 1, &any, ""));
    cluster.world.ok(&["submit", "--replace", &file]);
    cluster.ready("third", "1");
}

#[test]
fn pinned_to_two_hosts_two_services_have_the_same_number_at_once() {
    // P39, in both orders
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    for (a, b) in [("a", "b"), ("d", "c")] {
        let number = if a == "a" { 4443 } else { 4444 };
        let port = format!("http = {number}");
        let on = |host: &str| format!("[placement]\nhosts = \"{host}\"\n");
        let mut both = [(a, "n1"), (b, "n2")];
        if a == "d" {
            both.reverse();
        }
        for (name, host) in both {
            cluster.submit(name, &fixed(name, 1, &port, &on(host)));
        }
        cluster.ready(a, "1");
        cluster.ready(b, "1");
        assert_eq!(cluster.hosts_of(a), ["n1"]);
        assert_eq!(cluster.hosts_of(b), ["n2"]);
        for host in cluster.networks() {
            assert!(host.listens(number));
        }
    }
}

#[test]
fn scaled_past_the_hosts_the_last_says_why_at_once_and_scaling_back_clears_it() {
    // P37
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    cluster.submit("web", &fixed("web", 2, "http = 8080", ""));
    cluster.ready("web", "2");
    let note = "fixed port 8080/tcp: at most one replica per host; 2 hosts eligible";
    let told = cluster.world.ok(&["scale", "web", "3"]);
    assert!(told.contains(note), "{told}");
    let third = cluster.world.replica_when("web", 2, "pended", |replica| {
        replica["job_state"] == "PEND" && replica["reason"].is_string()
    });
    let reason = third["reason"].as_str().unwrap();
    assert!(reason.starts_with(note), "{reason}");
    assert_eq!(third["reason_sums"]["causes"][0]["hosts"], 2, "{third:#}");
    let listed = cluster.world.ok(&["services"]);
    assert!(
        listed.contains("1 replica waits: 8080/tcp HELD by web.")
            && listed.contains("; 0 of 2 hosts fit; 2 HELD"),
        "{listed}"
    );
    // The same causes for who asks before.
    let fit = cluster.world.run(&["explain", "--service", "web"]);
    assert_eq!(fit.code, Some(1), "{fit:?}");
    assert!(fit.stderr.contains("0 of 2 hosts fit; 2 HELD"), "{fit:?}");
    cluster.world.ok(&["scale", "web", "2"]);
    let services = cluster.world.json(&["services"]);
    assert_eq!(services["services"][0]["waits_for"], Value::Null);
    cluster.ready("web", "2");
}

#[test]
fn what_gave_up_rests_and_is_tried_on_another_host_before_it_ends_for_good() {
    // P33: the variant that does it by itself.
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    let world = &cluster.world;
    cluster.submit(
        "broken",
        "kind = \"service\"\nname = \"broken\"\ncommand = \"exit 7\"\n[ports]\nhttp = \"any\"\n[restart]\n\
         backoff = { initial = \"100ms\", max = \"100ms\" }\n\
         give_up = { max_restarts = 1, window = \"10m\", then = \"requeue\", rest = \"1s\", max_requeues = 1 }\n",
    );
    let ended = world.replica_when("broken", 0, "gave up twice", |it| it["job_state"] == "EXIT");
    let reason = ended["reason"].as_str().unwrap();
    assert!(
        reason.contains("exit 7") && reason.contains("it was placed again"),
        "{reason}"
    );
    let events = world.json(&["events", "broken"]);
    let events = events["events"].as_array().unwrap();
    let places: Vec<&Value> = events
        .iter()
        .filter(|it| it["kind"] == "placed")
        .map(|it| &it["host"])
        .collect();
    assert_eq!(places.len(), 2, "{events:#?}");
    assert_ne!(places[0], places[1], "{events:#?}");
    for host in ["n1", "n2"] {
        let freed = || world.json(&["ports", host])["counts"]["held"] == 0;
        assert!(eventually(freed), "{host}");
    }
}

#[test]
fn a_pool_that_is_widened_at_run_time_takes_who_waits_and_touches_nobody() {
    // P04: three pend, each with the count; a kill wakes one, a wider pool the others.
    let Some(mut cluster) = Cluster::of(1) else {
        return;
    };
    let small = ["--ports", "40000-40004"];
    cluster.start_agent(1, &small);
    let narrowed = || {
        cluster
            .world
            .ok(&["ports", "n1", "--counts"])
            .contains("40000-40004")
    };
    assert!(eventually(narrowed), "the new range never arrived");
    cluster.submit("web", &fixed("web", 8, "http = \"any\"", ""));
    cluster.ready("web", "5");
    let full = "no free port in 40000-40004 on host n1 (5 of 5 held)";
    let mut pending = Vec::new();
    for index in 0..8 {
        let replica = cluster.world.replica("web", index);
        if replica["job_state"] == "PEND" {
            assert_eq!(replica["reason"], full);
            assert_eq!(replica["reasons"][0]["code"], "TOO FEW FREE");
            pending.push(index);
        }
    }
    assert_eq!(pending.len(), 3);
    cluster.world.ok(&["kill", "web/0"]);
    let next = |replica: &Value| replica["ready"] == true;
    cluster
        .world
        .replica_when("web", pending[0], "took the freed number", next);
    let standing = |cluster: &Cluster| -> Vec<Value> {
        (1..5)
            .map(|index| {
                let replica = cluster.world.replica("web", index);
                let fields = ["incarnation", "ports", "restarts", "pid"];
                fields.iter().map(|it| replica[*it].clone()).collect()
            })
            .collect()
    };
    let before = standing(&cluster);
    cluster.start_agent(1, &["--ports", "40000-40009"]);
    for index in &pending[1..] {
        cluster
            .world
            .replica_when("web", *index, "found room in the wider pool", next);
    }
    assert_eq!(standing(&cluster), before);
    // Narrowed again below what is held, everybody keeps what they have.
    cluster.start_agent(1, &["--ports", "40008-40009"]);
    let narrowed = || {
        cluster
            .world
            .ok(&["ports", "n1", "--counts"])
            .contains("40008-40009")
    };
    assert!(eventually(narrowed), "the new range never arrived");
    assert_eq!(standing(&cluster), before);
}

#[test]
fn numbers_come_from_the_host_where_the_replica_is_and_not_from_where_it_is_asked_for() {
    // P01: the first fifty numbers of the pool are taken on the second host alone.
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    let taken: Vec<(&str, u16)> = (20000..20050).map(|port| ("0.0.0.0", port)).collect();
    let _stranger = Stranger::on_host(&cluster.world, cluster.network(2), &taken);
    let foreign = || cluster.host(2)["counts"]["foreign"] == 50;
    assert!(eventually(foreign), "{:#}", cluster.host(2));
    let on = "[placement]\nhosts = \"n2\"\n";
    cluster.submit("web", &fixed("web", 20, "http = \"any\"", on));
    cluster.ready("web", "20");
    let mut numbers = BTreeSet::new();
    for replica in cluster.replicas("web") {
        assert_eq!(replica["host"], "n2");
        // At the first try: neither a restart nor another placement.
        assert_eq!(replica["restarts_total"], 0, "{replica:#}");
        assert_eq!(replica["run"], 1, "{replica:#}");
        let number = replica["ports"]["http"].as_u64().unwrap();
        assert!(cluster.network(2).listens(number) && !cluster.network(1).listens(number));
        numbers.insert(number);
    }
    assert_eq!(numbers.len(), 20);
    assert!(
        numbers
            .iter()
            .all(|number| !(20000..20050).contains(number)),
        "{numbers:?}"
    );
    let events = cluster.world.ok(&["events", "web"]);
    assert!(!events.contains("is taken by"), "{events}");
    // Nobody forwards anything: a client elsewhere reaches each by what it resolves to.
    let resolved = cluster.world.ok(&["endpoints", "web", "--one"]);
    cluster
        .world
        .curl(&[&format!("http://{}/", resolved.trim())]);
}

// design/README: one owner per host's pool.
#[test]
fn the_host_of_another_schedulers_plugin_is_given_nothing_until_it_is_ours_again() {
    let Some(mut cluster) = Cluster::bare(1) else {
        return;
    };
    cluster.start_controller(&[]);
    cluster.start_agent(1, &["--owner", "plugin"]);
    cluster.wait_until_up(1);
    cluster.submit("web", &hello("web", 1, "", USUAL));
    let waits = |it: &Value| {
        let reason = it["reason"].as_str().unwrap_or_default();
        reason.contains("belongs to another scheduler's plugin")
    };
    let waiting = cluster.world.replica_when("web", 0, "waited", waits);
    assert_eq!(waiting["job_state"], "PEND");
    let why = cluster.world.run(&["why", "web/0"]);
    let told = format!("{}{}", why.stdout, why.stderr);
    assert!(told.contains("agent --owner controller"), "{why:?}");
    assert_eq!(cluster.host(1)["owner"], "plugin");
    cluster.start_agent(1, &[]);
    cluster.ready("web", "1");
}
