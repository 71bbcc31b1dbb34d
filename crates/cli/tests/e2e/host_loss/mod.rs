//! Hosts that are really gone: without power, cut off, booted anew. Each is a network of its own.
//!
//! A cut is a pulled cable, power loss is a pulled cable and a KILL for everything that runs there, and another boot is
//! an agent that reads another boot id. The controller forgives silence for a few seconds here, with
//! `PORTREEVE_LONG=1` for as long as it does by default.

mod cuts;
mod fences;
mod operators;
mod power;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::Cluster;
use crate::world::{Running, eventually};

/// How long silence is forgiven in these tests.
fn patience() -> (Duration, Duration) {
    if std::env::var_os("PORTREEVE_LONG").is_some() {
        (Duration::from_secs(20), Duration::from_secs(90))
    } else {
        (Duration::from_secs(2), Duration::from_secs(8))
    }
}

/// The arguments of a controller that forgives so long.
fn forgiving((suspect, grace): (Duration, Duration)) -> [String; 4] {
    let text = |time: Duration| format!("{}s", time.as_secs());
    [
        "--suspect-after".to_owned(),
        text(suspect),
        "--host-grace".to_owned(),
        text(grace),
    ]
}

fn start_controller(cluster: &mut Cluster) {
    let arguments = forgiving(patience());
    cluster.start_controller(&arguments.each_ref().map(String::as_str));
}

/// A cluster of hosts `n1`, `n2`, … whose controller forgives a few seconds of silence.
fn cluster(hosts: usize) -> Option<Cluster> {
    cluster_that_forgives(hosts, patience())
}

/// The same for other times: a machine under load may take seconds for what is to happen within the grace.
fn cluster_that_forgives(hosts: usize, patience: (Duration, Duration)) -> Option<Cluster> {
    let mut cluster = Cluster::bare(hosts)?;
    let arguments = forgiving(patience);
    cluster.start_controller(&arguments.each_ref().map(String::as_str));
    for number in 1..=hosts {
        cluster.start_agent(number, &[]);
    }
    cluster.wait_until_up(hosts);
    Some(cluster)
}

/// What the view of a host says of its state.
fn state(cluster: &Cluster, number: usize) -> Value {
    cluster.host(number)["state"].clone()
}

/// Waits until the host is what the word says.
fn until_host_is(cluster: &Cluster, number: usize, word: &str) {
    let met = eventually(|| state(cluster, number) == word);
    assert!(
        met,
        "n{number} never was {word}: {:#}",
        cluster.host(number)
    );
}

/// How many processes of `portreeve hello` live on each host.
fn living(cluster: &Cluster) -> Vec<usize> {
    let of = |lines: Vec<(i32, String)>| {
        let lines = lines.into_iter();
        // Not the shell, worker or shim that name it too.
        let own = |line: &String| line.contains("portreeve hello ") && !line.contains("sh -c");
        lines.filter(|(_, line)| own(line)).count()
    };
    let networks = cluster.networks();
    networks.map(|network| of(network.processes())).collect()
}

/// The number of the snapshot, and how many are listed.
fn snapshot(cluster: &Cluster, service: &str) -> (u64, usize) {
    let read = read(cluster, service);
    let listed = read["endpoints"].as_array().unwrap().len();
    (read["revision"].as_u64().unwrap(), listed)
}

/// The snapshot, which may list nobody: an exit code of its own.
fn read(cluster: &Cluster, service: &str) -> Value {
    let outcome = cluster.world.run(&["endpoints", service, "-o", "json"]);
    assert!(matches!(outcome.code, Some(0 | 3)), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Lets news be written: what a KILL of the controller may take along is a second of it.
fn written() {
    last(Duration::from_millis(1500));
}

/// A replica by its index.
fn replica(cluster: &Cluster, service: &str, index: usize) -> Value {
    cluster.replicas(service)[index].clone()
}

/// What must not change of a replica when nothing happens to it.
fn standing(cluster: &Cluster, service: &str) -> Vec<Value> {
    const FIELDS: [&str; 7] = [
        "host",
        "incarnation",
        "ports",
        "pid",
        "run",
        "restarts_total",
        "ready",
    ];
    let replicas = cluster.replicas(service);
    let fields = |one: &Value| FIELDS.iter().map(|field| one[*field].clone()).collect();
    replicas.iter().map(fields).collect()
}

/// `portreeve watch` of a service; each change is one line.
fn watch(cluster: &Cluster, service: &str) -> Running {
    let socket = cluster.world.socket();
    let arguments = ["--controller", &socket, "watch", service];
    cluster.world.start_alone("watch", &arguments)
}

/// How many replicas each line of the watch lists.
fn seen(watch: &Running) -> Vec<usize> {
    let output = watch.output();
    let counts = output.lines().filter_map(|line| {
        let count = line.split('\t').nth(1)?;
        count.split_once('/')?.0.parse().ok()
    });
    counts.collect()
}

/// Lets so much time pass.
fn last(time: Duration) {
    let begun = Instant::now();
    eventually(|| begun.elapsed() >= time);
}

/// The events of a service as text.
fn events(cluster: &Cluster, service: &str) -> String {
    cluster.world.ok(&["events", service])
}
