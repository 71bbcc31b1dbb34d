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

#[test]
fn named_ports_and_a_block_of_two_neighbours_are_all_different_and_reach_them_by_name() {
    // P10: six named ports and a block of 50, twice on one host.
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    let six = ["gcs", "dashboard", "client", "node", "object", "metrics"];
    let mut ports: String = six
        .iter()
        .map(|name| format!("{name} = \"any\"\n"))
        .collect();
    ports.push_str("workers = { any = 50 }\n");
    let binder = binder(&world);
    let mut all = BTreeSet::new();
    for name in ["head", "other"] {
        let text = service(name, 1, &binder, &ports);
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
    }
    for name in ["head", "other"] {
        // Ready is: a listener of its own on every one of them.
        world.ok(&["wait", name, "--timeout", "60s"]);
        let replica = world.replica(name, 0);
        assert_eq!(replica["restarts_total"], 0, "{replica:#}");
        let block = &replica["ports"]["workers"];
        let (first, last) = (block["first"].as_u64(), block["last"].as_u64());
        assert_eq!(last.unwrap() - first.unwrap(), 49);
        all.extend(numbers(&replica));
    }
    assert_eq!(all.len(), 112);
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
        assert_eq!(pending["pid"], Value::Null);
    }
    strangers.leave();
    for port in 8001..=8003 {
        world.ok(&["wait", &format!("on-{port}"), "--timeout", "60s"]);
    }
}

#[test]
fn a_number_that_is_grabbed_before_the_bind_gives_all_four_back_and_the_next_start_has_others() {
    // P38: the program ends with "address already in use", as MPI programs do.
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    let go = world.path("go");
    let binder = binder(&world);
    let waits = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; {binder}",
        go.display()
    );
    let ports = "a = \"any\"\nb = \"any\"\nc = \"any\"\nd = \"any\"";
    world.ok(&[
        "submit",
        &world.profile("mpi.toml", &service("mpi", 1, &waits, ports)),
    ]);
    let before = world.replica_when("mpi", 0, "ran", |replica| replica["pid"].is_u64());
    let grabbed = before["ports"]["b"].as_u64().unwrap();
    let _stranger = Stranger::new(&world, "0.0.0.0", u16::try_from(grabbed).unwrap());
    std::fs::write(&go, "").unwrap();
    let after = world.replica_when("mpi", 0, "became ready elsewhere", |replica| {
        replica["ready"] == true
    });
    assert_eq!(after["restarts_total"], 0, "{after:#}");
    assert!(after["incarnation"].as_u64() > before["incarnation"].as_u64());
    assert!(!numbers(&after).contains(&grabbed), "{after:#}");
    let listed = world.ok(&["ports", &host(&world)]);
    assert!(
        !listed.contains(&format!("{grabbed}/tcp\theld")),
        "{listed}"
    );
    let events = world.ok(&["events", "mpi"]);
    let told = format!("port {grabbed}/tcp is taken by python3");
    assert!(events.contains(&told), "{events}");
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
