//! The commands of a client beside real daemons and real replicas.

use std::fs;

use crate::daemons::{agent, controller};
use crate::world::{Running, USUAL, World, eventually, hello, kill};

fn says(running: &Running, text: &str) {
    let met = eventually(|| running.output().contains(text));
    assert!(met, "it never said {text:?}: {}", running.output());
}

/// Has all that is known written now: news is a second later at most, with the next truth at once.
fn written(world: &World) {
    let quiet = "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n";
    world.ok(&["submit", &world.profile("quiet.toml", quiet)]);
}

#[test]
fn a_file_and_a_command_follow_replicas_through_a_restart_of_the_controller() {
    let Some(world) = World::new() else { return };
    let mut serving = controller(&world);
    let _agent = agent(&world);
    let (file, log) = (world.path("hello.conf"), world.path("log"));
    let (name, script) = (
        file.display().to_string(),
        format!("wc -l < $PORTREEVE_FILE >> {}", log.display()),
    );
    let watch = world.start_alone(
        "watch",
        &[
            "--controller",
            &world.socket(),
            "watch",
            "hello",
            "--output",
            &name,
            "--exec",
            &script,
        ],
    );
    says(&watch, "hello is not there, or not visible to you; waiting");
    let text = || fs::read_to_string(&file).unwrap_or_default();
    let profile = world.profile("hello.toml", &hello("hello", 2, "", USUAL));
    world.ok(&["submit", &profile]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    let both = world.ok(&["endpoints", "hello"]);
    assert!(
        eventually(|| text() == both),
        "{}: {}",
        text(),
        watch.output()
    );

    written(&world);
    kill(serving.pid(), "KILL");
    let _ = serving.code();
    says(&watch, "trying again");
    assert_eq!(text(), both);
    let _serving = controller(&world);
    says(&watch, "the controller answers again");
    assert_eq!(text(), both);

    let victim = world.replica("hello", 1)["pid"].as_i64().unwrap();
    kill(i32::try_from(victim).unwrap(), "KILL");
    let came_back = eventually(|| {
        let replica = world.replica("hello", 1);
        replica["ready"] == true && replica["restarts"] == 1
    });
    assert!(came_back, "{:#}", world.replica("hello", 1));
    assert!(
        eventually(|| text() == both),
        "{}: {}",
        text(),
        watch.output()
    );
    let counts = || -> Vec<String> {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).collect()
    };
    let met = eventually(|| counts().last().is_some_and(|last| last == "2"));
    assert!(met, "{:?}", counts());
    // From nothing to both, then to one and back; never to nothing while replicas run.
    let shown = counts();
    let first = shown.iter().position(|count| count != "0").unwrap();
    assert!(shown[first..].iter().all(|count| count != "0"), "{shown:?}");

    world.ok(&["scale", "hello", "0"]);
    assert!(eventually(|| text().is_empty()), "{}", watch.output());
    assert_eq!(watch.end("TERM"), Some(0));
}

#[test]
fn who_follows_a_prefix_sees_services_come_and_go() {
    let Some(world) = World::new() else { return };
    let quiet = |name: &str| {
        let text = format!(
            "kind = \"service\"\nname = \"{name}\"\ncommand = \"exec sleep 1000000\"\nmin_up = \"100ms\"\n"
        );
        world.profile(&format!("{name}.toml"), &text)
    };
    let _dev = world.dev(&[&quiet("quiet")]);
    let watch = world.start_alone(
        "watch",
        &[
            "--controller",
            &world.socket(),
            "watch",
            "--prefix",
            "la",
            "-o",
            "json",
        ],
    );
    world.ok(&["submit", &quiet("late")]);
    world.ok(&["wait", "late", "--timeout", "60s"]);
    world.ok(&["submit", &quiet("other")]);
    says(&watch, "\"ready\":1");
    world.ok(&["stop", "late"]);
    world.ok(&["wait", "late", "--gone", "--timeout", "60s"]);
    world.ok(&["delete", "late"]);
    says(&watch, "\"event\":\"removed\"");
    let output = watch.output();
    let services: Vec<_> = output
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["data"]["service"].clone()
        })
        .collect();
    let late = world.run(&["whoami"]);
    assert!(
        services
            .iter()
            .all(|it| it.as_str().unwrap().starts_with("late.")),
        "{late:?}: {output}"
    );
}

#[test]
fn a_wait_goes_through_a_restart_of_the_controller() {
    let Some(world) = World::new() else { return };
    let mut serving = controller(&world);
    let _agent = agent(&world);
    let more = USUAL.replace("path = \"/\"", "path = \"/ready\"");
    let profile = world.profile("slow.toml", &hello("slow", 1, "--ready-after 6s", &more));
    world.ok(&["submit", &profile]);
    let mut wait = world.start_alone(
        "wait",
        &[
            "--controller",
            &world.socket(),
            "wait",
            "slow",
            "--timeout",
            "60s",
        ],
    );
    let started = eventually(|| world.replica("slow", 0)["pid"].is_number());
    assert!(started, "{}", wait.output());
    kill(serving.pid(), "KILL");
    let _ = serving.code();
    says(&wait, "trying again");
    let _serving = controller(&world);
    assert_eq!(wait.code(), Some(0), "{}", wait.output());
    assert!(wait.output().contains("answers again"), "{}", wait.output());
    assert!(
        wait.output().contains(": 1 of 1 ready\n"),
        "{}",
        wait.output()
    );
}

// Point 5: what is old is told from what is fresh, on wish by the exit code.
#[test]
fn what_the_hosts_have_not_confirmed_is_told_and_refused_on_wish() {
    let Some(world) = World::new() else { return };
    let serving = controller(&world);
    let hosting = agent(&world);
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    world.ok(&["submit", &profile]);
    let line = world.ok(&["wait", "hello", "--print", "lines"]);
    let fresh = world.run(&["endpoints", "hello", "--fresh"]);
    assert_eq!((fresh.code, &fresh.stdout), (Some(0), &line), "{fresh:?}");
    written(&world);
    // The agent goes first, so that nobody tells the next controller anything.
    hosting.end("TERM");
    serving.end("TERM");
    let _serving = controller(&world);
    let stale = world.run(&["endpoints", "hello"]);
    assert_eq!((stale.code, &stale.stdout), (Some(0), &line), "{stale:?}");
    assert!(
        stale
            .stderr
            .contains("as it was before the controller started"),
        "{stale:?}"
    );
    let refused = world.run(&["endpoints", "hello", "--fresh"]);
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (Some(8), ""),
        "{refused:?}"
    );
    let _hosting = agent(&world);
    let met = eventually(|| world.run(&["endpoints", "hello", "--fresh"]).code == Some(0));
    assert!(met, "{:?}", world.run(&["endpoints", "hello", "--fresh"]));
    assert_eq!(world.run(&["endpoints", "hello"]).stderr, "");
}

#[test]
fn a_mistyped_name_is_answered_with_the_one_that_is_like_it() {
    let Some(world) = World::new() else { return };
    let _serving = controller(&world);
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    world.ok(&["submit", &profile]);
    for arguments in [
        &["endpoints", "helo"] as &[&str],
        &["endpoints", "hello.nobody-s"],
        &["wait", "hullo"],
        &["stop", "hello-1"],
        &["watch", "helo", "--once"],
    ] {
        let outcome = world.run(arguments);
        let hints = outcome.stderr.contains("; did you mean hello.");
        assert!(
            outcome.code == Some(4) && hints,
            "{arguments:?}: {outcome:?}"
        );
    }
    let outcome = world.run(&["endpoints", "postgres"]);
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert!(!outcome.stderr.contains("did you mean"), "{outcome:?}");
    let address = world.socket();
    let watch = world.start_alone("watch", &["--controller", &address, "watch", "helo"]);
    says(&watch, "did you mean hello.");
}
