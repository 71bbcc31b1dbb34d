//! What readers get: formats, states and the same answer for unknown and hidden.

use crate::world::{USUAL, World, eventually, hello};

#[test]
fn a_replica_that_is_not_ready_is_shown_only_on_wish_and_with_its_reason() {
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "warm.toml",
        &hello(
            "warm",
            1,
            "--ready-after 1h",
            &USUAL.replace("path = \"/\"", "path = \"/ready\""),
        ),
    );
    let _dev = world.dev(&[&profile]);
    let met = eventually(|| {
        world
            .run(&["endpoints", "warm", "--all", "-o", "table"])
            .stdout
            .contains("503")
    });
    let all = world.run(&["endpoints", "warm", "--all", "-o", "table"]);
    assert!(met, "{all:?}");
    assert!(all.stdout.contains("not ready"), "{all:?}");
    let listed = world.run(&["endpoints", "warm"]);
    assert_eq!(
        (listed.code, listed.stdout.as_str()),
        (Some(3), ""),
        "{listed:?}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&world.run(&["endpoints", "warm", "-o", "json"]).stdout).unwrap();
    assert_eq!(
        (json["ready"].as_u64(), json["desired"].as_u64()),
        (Some(0), Some(1))
    );
    assert_eq!(json["endpoints"].as_array().unwrap().len(), 0);
}

#[test]
fn only_published_ports_are_listed() {
    let Some(world) = World::new() else { return };
    let more = USUAL.replace(
        "http = \"any\"\n",
        "http = \"any\"\ninternal = { any = 3, publish = false }\n",
    );
    let more = more.replace("{ path = \"/\" }", "{ port = \"http\", path = \"/\" }");
    let profile = world.profile("hello.toml", &hello("hello", 1, "", &more));
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let json = world.json(&["endpoints", "hello"]);
    let ports = json["endpoints"][0]["ports"].as_array().unwrap().clone();
    assert_eq!(ports.len(), 1, "{json:#}");
    assert_eq!(
        world.replica("hello", 0)["ports"]
            .as_object()
            .unwrap()
            .len(),
        2
    );
    assert_ne!(world.run(&["endpoints", "hello:internal"]).code, Some(0));
}

#[test]
fn a_service_without_ports_runs_and_is_ready_after_its_minimum_uptime() {
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "beat.toml",
        "kind = \"service\"\nname = \"beat\"\ncommand = [\"sleep\", \"1000000\"]\nmin_up = \"200ms\"\n",
    );
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "beat", "--timeout", "30s"]);
    assert_eq!(
        world.replica("beat", 0)["ports"].as_object().unwrap().len(),
        0
    );
}

#[test]
fn readiness_without_a_probe_means_that_the_replica_itself_listens() {
    let Some(world) = World::new() else { return };
    let more = "[ports]\nhttp = \"any\"\n";
    let profile = world.profile(
        "late.toml",
        &hello("late", 1, "--listen-after 1500ms", more),
    );
    let _dev = world.dev(&[&profile]);
    let before = world.replica_when("late", 0, "was started", |replica| {
        replica["pid"].is_number()
    });
    assert_eq!(before["ready"], false);
    world.ok(&["wait", "late", "--timeout", "60s"]);
    let line = world.ok(&["endpoints", "late"]);
    assert!(
        world
            .curl(&[&format!("http://{}/", line.trim())])
            .starts_with("hello")
    );
}
