//! The first tour of a newcomer: dev, endpoints, the verbs, the end.

use crate::world::{PORTREEVE, USUAL, World, eventually, hello, kill, names_in};

#[test]
fn dev_shows_services_and_leaves_nothing_behind() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 2, "", USUAL));
    let dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--ready", "2", "--timeout", "30s"]);

    let lines = world.ok(&["endpoints", "hello"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    for line in lines.lines() {
        assert!(
            world
                .curl(&[&format!("http://{line}/")])
                .starts_with("hello from hello replica")
        );
    }
    assert_eq!(
        world.ok(&["endpoints", "hello", "--one"]).lines().count(),
        1
    );
    let json = world.json(&["endpoints", "hello"]);
    assert_eq!(json["ready"], 2);
    assert_eq!(json["endpoints"][0]["ports"][0]["name"], "http");
    let urls = world.ok(&["endpoints", "hello", "-o", "url"]);
    assert!(
        urls.lines()
            .all(|line| line.starts_with("http://127.0.0.1:")),
        "{urls}"
    );
    let variables = world.ok(&["endpoints", "hello:http", "-o", "env"]);
    assert!(variables.starts_with("HELLO_ENDPOINTS="), "{variables}");
    assert!(
        world
            .ok(&["endpoints", "hello", "-o", "table"])
            .contains("ready")
    );

    assert!(world.ok(&["services"]).contains("2/2"));
    assert!(world.ok(&["service", "hello"]).contains("ready"));
    assert!(world.ok(&["events", "hello"]).contains("ready"));
    assert!(eventually(|| world
        .ok(&["logs", "hello/0"])
        .contains("hello listens on")));
    assert!(dev.output().contains("hello."), "{}", dev.output());
    assert!(dev.output().contains(" ready "), "{}", dev.output());

    assert_eq!(dev.end("INT"), Some(0));
    assert!(
        eventually(|| world.processes().is_empty()),
        "left: {:?}",
        world.processes()
    );
    assert_eq!(
        names_in(&world.path("run")),
        Vec::<String>::new(),
        "sockets or locks are left"
    );
    let left = names_in(&world.path(""));
    assert!(
        !left.iter().any(|name| name.starts_with("portreeve")),
        "left: {left:?}"
    );
}

#[test]
fn the_verbs_do_what_they_say() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("web.toml", &hello("web", 2, "", USUAL));
    let empty = world.profile("other.toml", &hello("other", 1, "", USUAL));
    let _dev = world.dev(&[&empty]);
    world.ok(&["check", &profile]);
    assert_eq!(
        world.run(&["service", "web"]).code,
        Some(4),
        "check must store nothing"
    );
    world.ok(&["submit", &profile]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    assert!(
        world.ok(&["submit", &profile]).contains("nothing"),
        "the same profile again changes nothing"
    );

    let before = world.replica("web", 0);
    world.ok(&["restart", "web/0"]);
    let after = world.replica_when("web", 0, "came back after a restart", |replica| {
        replica["ready"] == true && replica["user_restarts"] == 1
    });
    assert_eq!(after["ports"], before["ports"], "a restart keeps the ports");
    assert_eq!(after["restarts"], 0, "a user's restart is not charged");

    world.ok(&["scale", "web", "3"]);
    world.ok(&["wait", "web", "--ready", "3", "--timeout", "30s"]);
    world.ok(&["scale", "web", "1"]);
    assert!(eventually(|| world
        .ok(&["endpoints", "web"])
        .lines()
        .count()
        == 1));

    world.ok(&["stop", "web"]);
    world.ok(&["wait", "web", "--gone", "--timeout", "30s"]);
    let outcome = world.run(&["endpoints", "web"]);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(3), ""),
        "{outcome:?}"
    );
    world.ok(&["start", "web"]);
    world.ok(&["wait", "web", "--ready", "1", "--timeout", "30s"]);
    let running = world.run(&["delete", "web"]);
    assert_eq!(running.code, Some(1), "{running:?}");
    assert!(running.stderr.contains("stop"), "{running:?}");
    world.ok(&["stop", "web"]);
    world.ok(&["wait", "web", "--gone", "--timeout", "30s"]);
    world.ok(&["delete", "web"]);
    assert_eq!(world.run(&["service", "web"]).code, Some(4));
}

#[test]
fn wait_after_a_restart_waits_until_the_restart_is_through() {
    // It used to return at once: until its turn comes a replica is ready as before.
    let Some(world) = World::new() else { return };
    let profile = world.profile("web.toml", &hello("web", 3, "", USUAL));
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    let told = world.ok(&["restart", "web"]);
    assert!(told.contains("restarting 3 replicas"), "{told}");
    world.ok(&["wait", "web", "--timeout", "30s"]);
    let service = world.json(&["service", "web"]);
    let through =
        |replica: &serde_json::Value| replica["ready"] == true && replica["user_restarts"] == 1;
    let replicas = service["replicas"].as_array().unwrap();
    assert!(replicas.iter().all(through), "{service:#}");
    assert!(service["under_way"].is_null(), "{service:#}");
}

#[test]
fn exit_codes_tell_outcomes_apart() {
    let Some(world) = World::new() else { return };
    let away = world.run(&["endpoints", "hello"]);
    assert_eq!((away.code, away.stdout.as_str()), (Some(6), ""), "{away:?}");
    let profile = world.profile("slow.toml", &hello("slow", 1, "--listen-after 1h", USUAL));
    let _dev = world.dev(&[&profile]);
    assert!(eventually(
        || world.run(&["endpoints", "slow"]).code == Some(3)
    ));
    let unknown = world.run(&["endpoints", "nothing"]);
    assert_eq!(
        (unknown.code, unknown.stdout.as_str()),
        (Some(4), ""),
        "{unknown:?}"
    );
    assert_eq!(
        world.run(&["wait", "nothing", "--timeout", "10s"]).code,
        Some(4)
    );
    let late = world.run(&["wait", "slow", "--timeout", "1s"]);
    assert_eq!(late.code, Some(7), "{late:?}");
    assert!(late.stderr.contains("slow"), "{late:?}");
    let live = world.run(&["wait", "slow", "--gone", "--timeout", "1s"]);
    assert!(live.stderr.contains("not gone"), "{live:?}");
    let env = world.run(&["endpoints", "slow", "-o", "env"]);
    assert_eq!((env.code, env.stdout.as_str()), (Some(3), ""), "{env:?}");
    let all = world.run(&["endpoints", "slow", "--all", "-o", "lines"]);
    assert_eq!(all.code, Some(2), "{all:?}");

    let portless = world.profile(
        "clock.toml",
        "name = \"clock\"\ncommand = [\"sleep\", \"1000\"]\n",
    );
    world.ok(&["submit", &portless]);
    world.ok(&["wait", "clock", "--timeout", "30s"]);
    let none = world.run(&["endpoints", "clock"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(4), ""), "{none:?}");
    assert!(none.stderr.contains("publishes no port"), "{none:?}");

    world.ok(&["stop", "slow"]);
    let stopped = world.run(&["wait", "slow", "--timeout", "10s"]);
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert!(stopped.stderr.contains("portreeve start"), "{stopped:?}");
    assert_eq!(world.run(&["endpoints"]).code, Some(2));
    assert_eq!(world.run(&["endpoints", "NOT A NAME"]).code, Some(2));
}

#[test]
fn a_second_dev_says_what_is_in_the_way_and_how_to_go_around_it() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&[&profile]);
    let run = world.path("run").display().to_string();
    let second = world.run(&["dev", "--run-dir", &run, &profile]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("controller.sock"), "{second:?}");
    assert!(second.stderr.contains("--run-dir"), "{second:?}");
    // Another folder alone is not enough: the address is taken too, and said so.
    let other = world.path("run2").display().to_string();
    let second = world.run(&["dev", "--run-dir", &other, &profile]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("127.0.0.1:7373"), "{second:?}");
    assert!(second.stderr.contains("--listen"), "{second:?}");
}

#[test]
fn dev_with_data_is_continued_without_a_profile() {
    let Some(world) = World::new() else { return };
    let data = world.path("kept").display().to_string();
    let profile = world.profile("hello.toml", &hello("hello", 2, "", USUAL));
    let dev = world.dev(&["--data", &data, &profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    assert_eq!(dev.end("TERM"), Some(0));
    assert!(
        eventually(|| world.processes().is_empty()),
        "left: {:?}",
        world.processes()
    );
    let dev = world.dev(&["--data", &data]);
    world.ok(&["wait", "hello", "--ready", "2", "--timeout", "30s"]);
    assert_eq!(dev.end("TERM"), Some(0));
}

#[test]
fn a_killed_dev_without_data_takes_its_services_along() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 2, "", USUAL));
    let dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    kill(dev.pid(), "KILL");
    assert!(
        eventually(|| world.processes().is_empty()),
        "left: {:?}",
        world.processes()
    );
    drop(dev);
    let dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    assert_eq!(dev.end("INT"), Some(0));
    let left = names_in(&world.path(""));
    assert!(
        !left.iter().any(|name| name.starts_with("portreeve")),
        "left: {left:?}"
    );
}

#[test]
fn the_rest_api_answers_over_socket_and_loopback() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let socket = world.path("run/controller.sock").display().to_string();
    let line = world.ok(&["endpoints", "hello"]);
    for base in [
        vec!["--unix-socket", socket.as_str(), "http://x"],
        vec!["http://127.0.0.1:7373"],
    ] {
        let (options, root) = base.split_at(base.len() - 1);
        let get = |path: &str| world.curl(&[options, &[&format!("{}{path}", root[0])]].concat());
        assert_eq!(get("/api/v1/resolve/hello"), line);
        let endpoints: serde_json::Value =
            serde_json::from_str(&get("/api/v1/services/hello/endpoints")).unwrap();
        assert_eq!(endpoints["ready"], 1);
        let problem: serde_json::Value =
            serde_json::from_str(&get("/api/v1/services/nothing")).unwrap();
        assert_eq!(problem["status"], 404);
        assert_eq!(problem["code"], "service_not_found");
        let nowhere: serde_json::Value = serde_json::from_str(&get("/api/v1/nowhere")).unwrap();
        assert_eq!(nowhere["status"], 404);
    }
    let head = world.curl(&[
        "-D",
        "-",
        "-o",
        "/dev/null",
        "http://127.0.0.1:7373/api/v1/services/nothing",
    ]);
    assert!(
        head.to_ascii_lowercase()
            .contains("content-type: application/problem+json"),
        "{head}"
    );
}

#[test]
fn every_command_explains_itself() {
    let help = std::process::Command::new(PORTREEVE)
        .arg("--help")
        .output()
        .unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    for name in [
        "dev",
        "check",
        "submit",
        "services",
        "endpoints",
        "wait",
        "logs",
        "controller",
        "agent",
    ] {
        assert!(text.contains(name), "{name} is missing: {text}");
        let page = std::process::Command::new(PORTREEVE)
            .args([name, "--help"])
            .output()
            .unwrap();
        assert!(
            page.status.success() && page.stdout.len() > 200,
            "{name} --help"
        );
        if name == "dev" {
            let page = String::from_utf8(page.stdout).unwrap();
            assert!(
                page.contains("continues them"),
                "more than one line: {page}"
            );
        }
    }
}
