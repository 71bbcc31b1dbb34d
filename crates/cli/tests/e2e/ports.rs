//! Ports as a resource: one holder a number, reasons with names, and strangers respected.

use crate::stranger::Stranger;
use crate::world::{USUAL, World, hello, quiet_dev};

/// A fixed port in the usual profile.
fn fixed(name: &str, port: u16) -> String {
    hello(name, 1, "", &USUAL.replace("\"any\"", &port.to_string()))
}

#[test]
fn of_two_services_fixing_one_port_the_second_pends_with_the_holders_name() {
    // P05 on one host, P36 held
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &["--cooling", "1s"]);
    world.ok(&[
        "submit",
        &world.profile("first.toml", &fixed("first", 8888)),
    ]);
    world.ok(&["wait", "first", "--timeout", "30s"]);
    world.ok(&[
        "submit",
        &world.profile("second.toml", &fixed("second", 8888)),
    ]);
    let pending = world.replica_when("second", 0, "pended with a reason", |replica| {
        replica["job_state"] == "PEND" && replica["reason"].is_string()
    });
    let reason = pending["reason"].as_str().unwrap();
    let host = world.replica("first", 0)["host"]
        .as_str()
        .unwrap()
        .to_owned();
    for word in ["8888", "tcp", host.as_str(), "first."] {
        assert!(reason.contains(word), "{word} is missing: {reason}");
    }
    assert_eq!(
        pending["pid"],
        serde_json::Value::Null,
        "no process may be started while it pends"
    );
    assert!(world.ok(&["services"]).contains("8888"));

    world.ok(&["stop", "first"]);
    world.ok(&["wait", "second", "--timeout", "60s"]);
    assert_eq!(world.replica("second", 0)["restarts"], 0);
}

#[test]
fn a_strangers_fixed_port_is_waited_for_without_spending_restarts() {
    // P08, P36 outside process
    let Some(world) = World::new() else { return };
    let stranger = Stranger::new(&world, "0.0.0.0", 5236);
    let _dev = quiet_dev(&world, &[]);
    world.ok(&["submit", &world.profile("ray.toml", &fixed("ray", 5236))]);
    let pending = world.replica_when("ray", 0, "pended with a reason", |replica| {
        replica["job_state"] == "PEND"
            && replica["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("5236"))
    });
    let reason = pending["reason"].as_str().unwrap();
    for word in [
        "5236/tcp",
        "outside",
        &stranger.pid().to_string(),
        "python3",
    ] {
        assert!(reason.contains(word), "{word} is missing: {reason}");
    }
    let host = world.json(&["hosts"])["hosts"][0]["host"]
        .as_str()
        .unwrap()
        .to_owned();
    let ports = world.ok(&["ports", &host]);
    assert!(
        ports.contains("5236/tcp") && ports.contains("foreign"),
        "{ports}"
    );
    stranger.leave();
    world.ok(&["wait", "ray", "--timeout", "60s"]);
    let replica = world.replica("ray", 0);
    assert_eq!(
        (
            replica["restarts"].as_u64(),
            replica["last_failure"].as_str()
        ),
        (Some(0), None)
    );
}

#[test]
fn a_strangers_number_is_never_given_to_any() {
    // P13: loopback of either family counts too.
    let Some(world) = World::new() else { return };
    let taken = [
        ("127.0.0.1", 20000),
        ("127.0.0.2", 20001),
        ("::1", 20002),
        ("0.0.0.0", 20003),
    ];
    let strangers: Vec<_> = taken
        .map(|(address, port)| Stranger::new(&world, address, port))
        .into();
    let profile = world.profile("hello.toml", &hello("hello", 2, "", USUAL));
    let _dev = world.dev(&["--ports", "20000-20005", &profile]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    let mut numbers: Vec<_> = (0..2)
        .map(|index| {
            world.replica("hello", index)["ports"]["http"]
                .as_u64()
                .unwrap()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [20004, 20005]);
    drop(strangers);
}

#[test]
fn a_stranger_that_comes_between_placement_and_start_costs_no_restart() {
    // P38: the port is taken after it was given, while the process is down.
    let Some(world) = World::new() else { return };
    let slow = USUAL.replace(
        "initial = \"500ms\", max = \"1s\"",
        "initial = \"3s\", max = \"3s\"",
    );
    let profile = world.profile("hello.toml", &hello("hello", 1, "", &slow));
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let before = world.replica("hello", 0);
    let port = before["ports"]["http"].as_u64().unwrap();
    crate::world::kill(
        i32::try_from(before["pid"].as_i64().unwrap()).unwrap(),
        "KILL",
    );
    world.replica_when("hello", 0, "waited", |replica| {
        replica["state"] == "backoff"
    });
    let _stranger = Stranger::new(&world, "0.0.0.0", u16::try_from(port).unwrap());
    let after = world.replica_when("hello", 0, "moved to another number", |replica| {
        replica["ready"] == true && replica["ports"] != before["ports"]
    });
    assert!(
        after["incarnation"].as_u64() > before["incarnation"].as_u64(),
        "{after:#}"
    );
    let events = world.ok(&["events", "hello"]);
    assert!(events.contains(&port.to_string()), "{events}");
}

#[test]
fn a_full_pool_pends_with_the_count_and_goes_on_when_one_leaves() {
    // P04 on one host
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 4, "", USUAL));
    let _dev = world.dev(&["--ports", "20000-20002", "--cooling", "1s", &profile]);
    world.ok(&["wait", "hello", "--ready", "3", "--timeout", "60s"]);
    let pending = world.replica_when("hello", 3, "pended", |replica| {
        replica["reason"].is_string()
    });
    let reason = pending["reason"].as_str().unwrap();
    assert!(
        reason.contains("20000-20002") && reason.contains("3 of 3"),
        "{reason}"
    );
    world.ok(&["kill", "hello/0"]);
    world.replica_when("hello", 3, "took the freed number", |replica| {
        replica["ready"] == true
    });
}
