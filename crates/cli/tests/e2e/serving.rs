//! Real clients before hosts that do not exist: `portreeve sim FILE --serve`.

use crate::world::{World, eventually, names_in};

/// Three hosts, and a service that is whole.
pub(crate) const SCENARIO: &str = r#"
until = "1m"
[[host]]
name = "n[1-3]"

[[service]]
kind = "service"
name = "web"
command = ["./web"]
replicas = 4

[service.ports]
http = "any"
"#;

const OTHER: &str = r#"
kind = "service"
name = "other"
command = ["./other"]
replicas = 2
[ports]
http = "any"
"#;

#[test]
fn real_clients_use_hosts_that_do_not_exist_as_they_use_those_that_do() {
    let Some(world) = World::new() else { return };
    let scenario = world.profile("cluster.toml", SCENARIO);
    let run = world.path("run").display().to_string();
    let serving = world.start("sim", &["sim", &scenario, "--serve", "--run-dir", &run]);
    // Its owner submits it a moment after the controller answers.
    assert!(eventually(
        || world.run(&["service", "web.me"]).code == Some(0)
    ));
    world.ok(&["wait", "web.me", "--ready", "4", "--timeout", "60s"]);
    let lines = world.ok(&["endpoints", "web.me"]);
    let mut addresses: Vec<_> = lines.lines().collect();
    assert!(
        addresses.iter().all(|line| line.starts_with("10.")),
        "{lines}"
    );
    addresses.dedup();
    assert_eq!(addresses.len(), 4);
    assert_eq!(world.ok(&["hosts"]).lines().count(), 3);

    world.ok(&["scale", "web.me", "6"]);
    world.ok(&["wait", "web.me", "--ready", "6", "--timeout", "60s"]);
    // One that the scenario does not know.
    let other = world.profile("other.toml", OTHER);
    world.ok(&["submit", &other]);
    world.ok(&["wait", "other", "--ready", "2", "--timeout", "60s"]);
    assert_eq!(world.ok(&["logs", "other/0"]), "", "it writes nothing");
    world.ok(&["stop", "web.me"]);
    // The code of a service of which nothing is ready.
    assert!(eventually(
        || world.run(&["endpoints", "web.me"]).code == Some(3)
    ));
    let told = serving.output();
    assert!(told.contains("web.me: submit: done"), "{told}");

    assert_eq!(serving.end("INT"), Some(0));
    assert!(names_in(&world.path("run")).is_empty());
    let left = names_in(&world.path(""));
    assert!(
        !left.iter().any(|name| name.starts_with("portreeve")),
        "left: {left:?}"
    );
}
