//! Which numbers a replica gets: blocks, protocols, what others have, and what is taken at the last moment.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::stranger::Stranger;
use crate::world::{USUAL, World, binder, eventually, hello, quiet_dev};

const QUICK: &str = "[restart]\nbackoff = { initial = \"500ms\", max = \"1s\" }\n";

fn service(name: &str, replicas: u32, command: &str, ports: &str) -> String {
    format!(
        "kind = \"service\"\nname = \"{name}\"\nreplicas = {replicas}\ncommand = \"{command}\"\n\
         [ports]\n{ports}\n{QUICK}"
    )
}

/// Every number of a replica, as many as it has.
fn numbers(replica: &Value) -> Vec<u64> {
    let ports = replica["ports"].as_object().unwrap().values();
    ports
        .flat_map(|numbers| match numbers.as_u64() {
            Some(number) => number..=number,
            None => numbers["first"].as_u64().unwrap()..=numbers["last"].as_u64().unwrap(),
        })
        .collect()
}

fn host(world: &World) -> String {
    let hosts = world.json(&["hosts"]);
    hosts["hosts"][0]["host"].as_str().unwrap().to_owned()
}

#[test]
fn a_local_end_of_an_outgoing_connection_is_skipped_without_spending_restarts() {
    // P03: the pool lies in the ephemeral range, and five numbers of it are ends of connections.
    let Some(world) = World::new() else { return };
    let range = "echo 40000 40009 > /proc/sys/net/ipv4/ip_local_port_range";
    let set = world.command("sh").args(["-c", range]).status().unwrap();
    if !set.success() {
        eprintln!("skipped: the ephemeral range of a namespace cannot be set here");
        return;
    }
    let connected = world.path("connected");
    let code = format!(
        "import socket,time\ns=socket.socket()\ns.bind(('127.0.0.1', 9999))\ns.listen(9)\nkept=[]\n\
         for p in range(40000, 40005):\n\tc=socket.socket()\n\tc.bind(('127.0.0.1', p))\n\tc.connect(('127.0.0.1', 9999))\n\
         \tkept.append((c, s.accept()))\nopen('{}', 'w').close()\ntime.sleep(100000)",
        connected.display()
    );
    let _stranger = Stranger::running(&world, &code);
    assert!(eventually(|| connected.exists()), "it never connected");
    // Ready by its listener alone: a probe that connects would take numbers of the same ten.
    let text = service("hello", 5, &binder(&world), "http = \"any\"");
    let profile = world.profile("hello.toml", &text);
    let _dev = world.dev(&["--ports", "40000-40009", &profile]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    let mut got = BTreeSet::new();
    for index in 0..5 {
        let replica = world.replica("hello", index);
        assert_eq!(replica["restarts_total"], 0, "{replica:#}");
        got.extend(numbers(&replica));
    }
    assert_eq!(got, (40005..=40009).collect());
    // Said at join, with both ranges and the cure.
    let told = world.ok(&["host", &host(&world)]);
    for word in ["40000-40009", "ephemeral", "ip_local_reserved_ports"] {
        assert!(told.contains(word), "{word} is missing: {told}");
    }
    // The cure is seen at the next look.
    let cure = "echo 40000-40009 > /proc/sys/net/ipv4/ip_local_reserved_ports";
    let set = world.command("sh").args(["-c", cure]).status().unwrap();
    assert!(set.success());
    let cured = || !world.ok(&["host", &host(&world)]).contains("ephemeral");
    assert!(eventually(cured), "{}", world.ok(&["host", &host(&world)]));
}

/// Stands for `ray`: binds and keeps every number its arguments tell, one of each named one, the whole block of
/// workers, and the one for serving, of which Ray hears by its configuration; then answers its own health checks.
const RAY: &str = r#"#!/usr/bin/env python3
import http.server, os, socket, sys, threading, time
told = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
assert sys.argv[1] == "start", sys.argv
asked = ["agent", "dashboard"]
name = {"port": "gcs", "ray-client-server-port": "client", "dashboard-port": "dashboard",
        "metrics-export-port": "metrics", "dashboard-agent-listen-port": "agent",
        "node-manager-port": "nodemgr", "object-manager-port": "objmgr"}
numbers = {ours: int(told[theirs]) for theirs, ours in name.items()}
numbers["serve"] = int(os.environ["PORTREEVE_PORT_SERVE"])
for ours, number in numbers.items():
    assert os.environ["PORTREEVE_PORT_" + ours.upper()] == str(number), (ours, number)
class Health(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"success")
kept = []
for ours, number in numbers.items():
    if ours in asked:
        threading.Thread(target=http.server.ThreadingHTTPServer(("0.0.0.0", number), Health).serve_forever).start()
        continue
    kept.append(socket.socket())
    kept[-1].bind(("0.0.0.0", number))
    kept[-1].listen()
for number in range(int(told["min-worker-port"]), int(told["max-worker-port"]) + 1):
    kept.append(socket.socket())
    kept[-1].bind(("0.0.0.0", number))
    kept[-1].listen()
print("bound", len(kept) + len(asked), flush=True)
time.sleep(1000000)
"#;

#[test]
fn named_ports_and_a_block_of_two_neighbours_are_all_different_and_reach_them_by_name() {
    // P10: the shipped profile, eight named ports and a block of 50, twice on one host and at the same moment.
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    std::fs::create_dir(world.path("bin")).unwrap();
    let ray = world.path("bin/ray");
    std::fs::write(&ray, RAY).unwrap();
    let mut rights = std::fs::metadata(&ray).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o755);
    std::fs::set_permissions(&ray, rights).unwrap();
    let shipped = include_str!("../../../../profiles/ray-head.toml");
    let path = format!(
        "env.PATH={}:{}",
        world.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let submits: Vec<_> = ["ray-head", "neighbour"]
        .iter()
        .map(|name| {
            let text = shipped.replace("name = \"ray-head\"", &format!("name = \"{name}\""));
            let file = world.profile(&format!("{name}.toml"), &text);
            let mut submit = world.portreeve(&["submit", &file, "--set", &path]);
            // Its own checks, sooner.
            submit.args(["--set", "readiness.initial_delay=0s"]);
            submit.args(["--set", "readiness.interval=1s"]);
            submit.args(["--set", "readiness.timeout=1s"]);
            submit.spawn().unwrap()
        })
        .collect();
    for mut submit in submits {
        assert!(submit.wait().unwrap().success());
    }
    let mut all = BTreeSet::new();
    for name in ["ray-head", "neighbour"] {
        world.ok(&["wait", name, "--timeout", "60s"]);
        let replica = world.replica(name, 0);
        assert_eq!(
            (&replica["restarts_total"], &replica["run"]),
            (&0.into(), &1.into()),
            "{replica:#}"
        );
        let block = &replica["ports"]["workers"];
        let (first, last) = (block["first"].as_u64(), block["last"].as_u64());
        assert_eq!(last.unwrap() - first.unwrap(), 49);
        assert_eq!(world.ok(&["logs", name]), "bound 58\n");
        for number in numbers(&replica) {
            assert!(world.listens(number), "{name}: {number}");
            all.insert(number);
        }
    }
    assert_eq!(all.len(), 2 * 58);
}

#[test]
fn a_block_never_straddles_a_taken_number() {
    // P11: every tenth number is a stranger's, so that there is room for nine in a row and not for ten.
    let Some(world) = World::new() else { return };
    let tenth: Vec<(&str, u16)> = (0..10).map(|at| ("0.0.0.0", 20000 + 10 * at)).collect();
    let _stranger = Stranger::on_all(&world, &tenth);
    let _dev = quiet_dev(&world, &["--ports", "20000-20099"]);
    let binder = binder(&world);
    let ten = world.profile(
        "ten.toml",
        &service("ten", 1, &binder, "block = { any = 10 }"),
    );
    let fit = world.run(&["explain", &ten]);
    assert_eq!(fit.code, Some(1), "{fit:?}");
    assert!(fit.stdout.contains("\tNO BLOCK\tblock\t"), "{fit:?}");
    world.ok(&["submit", &ten]);
    let pending = world.replica_when("ten", 0, "pended", |replica| replica["reason"].is_string());
    let reason = pending["reason"].as_str().unwrap();
    assert!(
        reason.contains("no 10 consecutive free ports in 20000-20099"),
        "{reason}"
    );
    let nine = world.profile(
        "nine.toml",
        &service("nine", 2, &binder, "block = { any = 9 }"),
    );
    world.ok(&["submit", &nine]);
    world.ok(&["wait", "nine", "--timeout", "60s"]);
    for index in 0..2 {
        let first = world.replica("nine", index)["ports"]["block"]["first"].clone();
        assert_eq!(first.as_u64().unwrap() % 10, 1, "{first}");
    }
}

#[test]
fn one_number_serves_two_services_on_two_protocols_and_a_third_waits() {
    // P12
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    let binder = binder(&world);
    let udp = "udp = { fixed = 8125, protocol = \"udp\" }";
    for (name, port) in [("a", udp), ("b", "http = 8125"), ("c", udp)] {
        let text = service(name, 1, &binder, port);
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
    }
    world.ok(&["wait", "a", "--timeout", "30s"]);
    world.ok(&["wait", "b", "--timeout", "30s"]);
    let third = world.replica_when("c", 0, "pended", |replica| replica["reason"].is_string());
    let reason = third["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("port 8125/udp ") && reason.contains(" held by a."),
        "{reason}"
    );
    let listed = world.ok(&["ports", &host(&world)]);
    for line in ["8125/udp\theld\ta.", "8125/tcp\theld\tb."] {
        assert!(listed.contains(line), "{line} is missing: {listed}");
    }
    // One number on both sides waits for both holders.
    let both = "both = { fixed = 8125, protocol = \"tcp+udp\" }";
    let both = world.profile("d.toml", &service("d", 1, &binder, both));
    let fit = world.run(&["explain", &both]);
    for line in ["8125/tcp\tb.", "8125/udp\ta."] {
        assert!(fit.stdout.contains(line), "{line} is missing: {fit:?}");
    }
}

#[test]
fn a_fixed_number_is_taken_wherever_a_stranger_listens_on_it() {
    // P13: on one address of loopback only, of either family.
    let Some(world) = World::new() else { return };
    let strangers = Stranger::on_all(
        &world,
        &[("127.0.0.1", 8001), ("127.0.0.2", 8002), ("::1", 8003)],
    );
    let _dev = quiet_dev(&world, &[]);
    for port in 8001..=8003 {
        let name = format!("on-{port}");
        let text = hello(&name, 1, "", &USUAL.replace("\"any\"", &port.to_string()));
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
        let pending = world.replica_when(&name, 0, "pended", |replica| {
            replica["reasons"][0]["code"] == "FOREIGN"
        });
        let reason = &pending["reasons"][0];
        assert_eq!(reason["number"], port, "{reason:#}");
        assert_eq!(reason["pid"], strangers.pid(), "{reason:#}");
        let words = pending["reason"].as_str().unwrap();
        assert!(words.contains(&format!("{port}/tcp")), "{words}");
        assert_eq!(pending["pid"], Value::Null);
    }
    strangers.leave();
    for port in 8001..=8003 {
        let name = format!("on-{port}");
        world.ok(&["wait", &name, "--timeout", "60s"]);
        assert_eq!(world.replica(&name, 0)["restarts_total"], 0);
    }
}

#[test]
fn a_replacement_with_a_fixed_port_never_waits_for_its_predecessor() {
    // P07
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    let version = |arguments: &str| {
        let text = hello("web", 1, arguments, &USUAL.replace("\"any\"", "8080"));
        world.profile("web.toml", &text)
    };
    world.ok(&["submit", &version("")]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    let first = world.replica("web", 0);
    world.ok(&["submit", "--replace", &version("--bind 0.0.0.0")]);
    world.ok(&["wait", "web", "--timeout", "60s"]);
    let second = world.replica("web", 0);
    assert_eq!(second["ports"]["http"], 8080);
    assert_eq!(second["restarts_total"], 0, "{second:#}");
    assert_ne!(second["pid"], first["pid"]);
    let events = world.ok(&["events", "web"]);
    assert!(!events.contains("held by"), "{events}");
}
