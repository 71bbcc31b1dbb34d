//! Many at once on one host: crashes together, and workers that stand still together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{World, eventually, hello, pause};

/// So many in `make test`, and so many in `make long`.
fn sized(usual: u32, long: u32) -> u32 {
    if std::env::var("PORTREEVE_LONG").is_ok_and(|value| value == "1") {
        long
    } else {
        usual
    }
}

fn replicas(world: &World, service: &str) -> Vec<Value> {
    let service = world.json(&["service", service]);
    service["replicas"].as_array().unwrap().clone()
}

fn numbers(replicas: &[Value], what: &str) -> Vec<u64> {
    let number = |replica: &Value| replica[what].as_u64().unwrap();
    replicas.iter().map(number).collect()
}

fn signal(pids: &[i32], signal: &str) {
    for pids in pids.chunks(50) {
        let pids = pids.iter().map(i32::to_string);
        let mut command = std::process::Command::new("kill");
        command.arg(format!("-{signal}")).args(pids);
        assert!(command.status().unwrap().success());
    }
}

/// The first wait of the profile below, less its jitter.
const SHORTEST_BACKOFF_MS: u64 = 450;

/// Holds the starts of these processes against the limit of the host, from when the first of them could be: 41 at once
/// and then one each 50 ms, in whatever order. A start may be later than that, but never earlier.
fn assert_spread(pids: &[u64], from_ms: u64) {
    /// A start is told in whole ticks, and so is the moment it is held against.
    const TICKS_MS: u64 = 20;
    let mut starts: Vec<u64> = pids.iter().map(|pid| started_ms(*pid)).collect();
    starts.sort_unstable();
    for (nth, start) in (0_u64..).zip(&starts) {
        let earliest = from_ms + (nth * 50).saturating_sub(2_000);
        assert!(
            start + TICKS_MS >= earliest,
            "start {nth} came {} ms early: {starts:?}",
            earliest - start
        );
    }
}

fn since_boot_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    u64::try_from(Duration::from_secs_f64(seconds).as_millis()).unwrap()
}

/// When the process began, since the boot.
fn started_ms(pid: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    let ticks: u64 = fields
        .split_ascii_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap();
    ticks * 10
}

#[test]
fn tasks_that_crash_together_all_come_back_and_no_restart_is_lost() {
    // Point 8: 500 tasks crashing together
    let Some(world) = World::new() else { return };
    let count = sized(80, 500);
    let more = "[ports]\nhttp = \"any\"\n[restart]\nbackoff = { initial = \"500ms\", max = \"1s\" }\n\
                [readiness]\ntcp = {}\ninterval = \"500ms\"\n";
    let profile = world.profile("herd.toml", &hello("herd", count, "", more));
    let _dev = world.dev(&[&profile]);
    world.ok(&[
        "wait",
        "herd",
        "--timeout",
        "300s",
        "--ready",
        &count.to_string(),
    ]);
    let ports = |replicas: &[Value]| -> BTreeMap<u64, Value> {
        let ports = replicas.iter().map(|one| one["ports"].clone());
        numbers(replicas, "replica")
            .into_iter()
            .zip(ports)
            .collect()
    };
    let before = replicas(&world, "herd");
    for round in 1..=2 {
        let pids = numbers(&replicas(&world, "herd"), "pid");
        let pids: Vec<i32> = pids
            .iter()
            .map(|pid| i32::try_from(*pid).unwrap())
            .collect();
        let killed = since_boot_ms();
        signal(&pids, "KILL");
        let mut now = Vec::new();
        let back = eventually(|| {
            now = replicas(&world, "herd");
            let is_back = |one: &Value| one["ready"] == true && one["restarts"] == round;
            now.iter().all(is_back)
        });
        let missing: Vec<_> = now.iter().filter(|one| one["restarts"] != round).collect();
        assert!(back, "round {round}: {missing:#?}");
        assert_spread(&numbers(&now, "pid"), killed + SHORTEST_BACKOFF_MS);
        assert_eq!(ports(&now), ports(&before));
        assert_eq!(
            numbers(&now, "incarnation"),
            numbers(&before, "incarnation")
        );
    }
}

/// Answers each request after 300 ms, so that a probe is in flight most of the time.
const SLOW: &str = r#"
import os, socket, threading, time
def answer(connection):
    try:
        connection.recv(4096)
        time.sleep(0.3)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    except OSError:
        pass
    connection.close()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", int(os.environ["PORT"])))
listener.listen(64)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=answer, args=(connection,), daemon=True).start()
"#;

#[test]
fn workers_that_stand_still_while_they_probe_cost_no_service_its_life() {
    // Point 8: SIGSTOP of the worker with 100 probing tasks
    let Some(world) = World::new() else { return };
    let count = sized(30, 100);
    let program = world.profile("slow.py", SLOW);
    // One failure would restart the run, and one would take it out of the endpoints.
    let probe =
        "http = { path = \"/\" }\ninterval = \"1s\"\ntimeout = \"1s\"\nfailure_threshold = 1\n";
    let profile = world.profile(
        "slow.toml",
        &format!(
            "kind = \"service\"\nname = \"slow\"\nreplicas = {count}\ncommand = \"exec python3 {program}\"\n\
             [ports]\nhttp = \"any\"\n[liveness]\n{probe}[readiness]\n{probe}\
             [startup]\nhttp = {{ path = \"/\" }}\ninterval = \"1s\"\ntimeout = \"30s\"\n"
        ),
    );
    let _dev = world.dev(&[&profile]);
    world.ok(&[
        "wait",
        "slow",
        "--timeout",
        "300s",
        "--ready",
        &count.to_string(),
    ]);
    let processes = world.processes();
    let workers = processes
        .iter()
        .filter(|(_, line)| line.contains(" worker --folder "));
    let workers: Vec<i32> = workers.map(|(pid, _)| *pid).collect();
    assert_eq!(workers.len(), count as usize);
    let before = replicas(&world, "slow");
    for _ in 0..2 {
        signal(&workers, "STOP");
        let stopped = Instant::now();
        // More than twice what a probe may take.
        while stopped.elapsed() < Duration::from_millis(2500) {
            pause();
        }
        signal(&workers, "CONT");
        let resumed = Instant::now();
        while resumed.elapsed() < Duration::from_millis(1500) {
            pause();
        }
    }
    let after = replicas(&world, "slow");
    for what in ["pid", "run", "restarts", "incarnation"] {
        assert_eq!(numbers(&after, what), numbers(&before, what), "{what}");
    }
    // Since when it is ready: it never was anything else.
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            (&after["ready"], &after["since"]),
            (&before["ready"], &before["since"])
        );
    }
}
