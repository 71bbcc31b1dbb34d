//! What was: who had a port, what happened, and why something stands as it does.

use serde_json::Value;

use crate::users::{BIN, DAEMON, Site};
use crate::world::{USUAL, World, hello, quiet_dev};

#[test]
fn who_had_a_port_is_known_after_its_service_is_deleted_and_the_controller_started_anew() {
    // P36, later: who was it?
    let Some(world) = World::new() else { return };
    let data = world.path("data");
    let data = data.to_str().unwrap();
    let dev = quiet_dev(&world, &["--data", data, "--cooling", "1s"]);
    let fixed = |name| hello(name, 1, "", &USUAL.replace("\"any\"", "8888"));
    let host = world.json(&["hosts"])["hosts"][0]["host"]
        .as_str()
        .unwrap()
        .to_owned();
    for name in ["first", "second"] {
        world.ok(&["submit", &world.profile("profile.toml", &fixed(name))]);
        world.ok(&["wait", name, "--timeout", "60s"]);
        world.ok(&["stop", name]);
        world.ok(&["wait", name, "--gone", "--timeout", "60s"]);
        world.ok(&["delete", name]);
    }
    let told = world.json(&["ports", &host, "--port", "8888"]);
    let tenures = told["tenures"].as_array().unwrap().clone();
    assert_eq!(tenures.len(), 2, "{told:#}");
    let at = |moment: &Value| {
        let asked = [
            "ports",
            &host,
            "--port",
            "8888",
            "--at",
            &moment.to_string(),
        ];
        world.ok(&asked)
    };
    assert!(at(&tenures[0]["from"]).contains("first."), "{told:#}");
    assert!(at(&tenures[1]["until"]).contains("second."), "{told:#}");
    let line = at(&tenures[0]["from"]);
    let columns: Vec<_> = line.trim_end().split('\t').collect();
    assert_eq!((columns[0], columns[4]), ("8888/tcp", "http"), "{line}");
    assert!(columns[6].starts_with("stopped by "), "{line}");
    // What it prints is what it takes.
    assert!(
        world
            .ok(&["ports", &host, "--at", columns[1]])
            .contains("first.")
    );
    let nobody = world.run(&["ports", &host, "--port", "8888", "--at", "-1d"]);
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(0), ""));
    assert!(
        nobody.stderr.contains("no replica had 8888"),
        "{}",
        nobody.stderr
    );
    assert_eq!(
        world.run(&["ports", &host, "--at", "yesterday"]).code,
        Some(2)
    );
    assert_eq!(
        world.run(&["ports", "nowhere", "--since", "-1h"]).code,
        Some(4)
    );
    assert_eq!(dev.end("TERM"), Some(0));
    let _dev = quiet_dev(&world, &["--data", data]);
    let again = world.json(&["ports", &host, "--port", "8888"]);
    assert_eq!(again["tenures"], told["tenures"]);
}

#[test]
fn a_holder_that_one_may_not_see_is_somebody() {
    let Some(site) = Site::new() else { return };
    let mine = site.submit(DAEMON, "mine", "exec sleep 1000", "[ports]\nhttp = \"any\"");
    let placed = |replica: &Value| replica["host"].is_string();
    site.world.replica_when(&mine, 0, "was placed", placed);
    let hosts = site.world.json(&["hosts"]);
    let host = hosts["hosts"][0]["host"].as_str().unwrap();
    let program = site.program.display().to_string();
    let asked = ["ports", host, "--since", "-1h"];
    let own = site.as_user(DAEMON, &program, &asked);
    assert!(own.stdout.contains("mine.daemon/0"), "{own:?}");
    let others = site.as_user(BIN, &program, &asked);
    assert!(others.stdout.contains("\tsomebody\t"), "{others:?}");
    assert!(!others.stdout.contains("daemon"), "{others:?}");
    site.end(&mine);
    // Of what is deleted only its owner knows.
    assert!(
        site.as_user(DAEMON, &program, &asked)
            .stdout
            .contains("mine.daemon/0")
    );
    assert!(!site.as_user(BIN, &program, &asked).stdout.contains("mine"));
}

#[test]
fn a_crash_loop_is_told_in_a_few_lines_and_a_week_of_it_in_no_more() {
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "broken.toml",
        "name = \"broken\"\ncommand = \"exit 3\"\n[ports]\nhttp = \"any\"\n[restart]\n\
         backoff = { initial = \"100ms\", max = \"100ms\", jitter = 0.0 }\ngive_up = \"never\"\n",
    );
    let _dev = world.dev(&[&profile]);
    world.replica_when("broken", 0, "crashed often", |replica| {
        replica["restarts"].as_u64() > Some(20)
    });
    let told = world.json(&["events", "broken/0", "--since", "-1h"]);
    let events = told["events"].as_array().unwrap();
    assert!(events.len() < 15, "{told:#}");
    let times = |it: &Value| it["times"].as_u64().unwrap_or(1);
    assert!(
        events
            .iter()
            .any(|it| times(it) > 5 && it["first"].is_u64()),
        "{told:#}"
    );
    assert!(events.iter().all(|it| it["host"].is_string()), "{told:#}");
    let line = world.ok(&["events", "broken", "--limit", "3"]);
    assert!(line.contains(" times since "), "{line}");
    let host = events[0]["host"].as_str().unwrap();
    let joined = world.ok(&["events", "--host", host]);
    assert!(joined.contains("joined"), "{joined}");
    assert_eq!(world.run(&["events", "--host", "nowhere"]).code, Some(4));
    assert_eq!(world.run(&["events", "nothing"]).code, Some(4));
}

#[test]
fn why_tells_of_every_replica_of_a_service_and_what_to_do() {
    // P36, P37
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    let fixed = hello("web", 2, "", &USUAL.replace("\"any\"", "8888"));
    world.ok(&["submit", &world.profile("web.toml", &fixed)]);
    world.replica_when("web", 0, "was ready", |replica| replica["ready"] == true);
    let said = world.ok(&["why", "web"]);
    assert!(said.contains(": running, 1 of 2 ready\n"), "{said}");
    assert!(said.contains("/1: pending: "), "{said}");
    assert!(said.contains("8888/tcp"), "{said}");
    assert!(said.contains("next: it gets "), "{said}");
    let told = world.json(&["why", "web"]);
    assert_eq!(told["replicas"][0]["state"], "ready");
    assert_eq!(told["replicas"][1]["state"], "pending");
    let one = world.ok(&["why", "web/1"]);
    assert!(one.starts_with("web/1: pending: "), "{one}");
    world.ok(&["stop", "web"]);
    world.ok(&["wait", "web", "--gone", "--timeout", "60s"]);
    let said = world.ok(&["why", "web"]);
    assert!(said.contains("kept until it is deleted"), "{said}");
    assert!(said.contains("portreeve start web."), "{said}");
    let unknown = world.run(&["why", "web/7"]);
    assert_eq!(unknown.code, Some(4));
}
