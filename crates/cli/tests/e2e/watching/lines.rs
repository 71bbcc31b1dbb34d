//! `watch` without a file or a command: what it prints, and how it ends.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::world::{Outcome, Running, World, eventually, kill};

use super::scripted::Scripted;

/// `portreeve watch` with these arguments; its output is standard output and error.
fn watch(world: &World, controller: &Scripted, arguments: &[&str]) -> Running {
    let address = controller.address();
    let all = [&["--controller", &address, "watch"], arguments].concat();
    world.start_alone("watch", &all)
}

fn says(running: &Running, text: &str) {
    let met = eventually(|| running.output().contains(text));
    assert!(met, "it never said {text:?}: {}", running.output());
}

#[test]
fn each_change_is_one_line_and_what_shows_nothing_new_is_none() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let watch = watch(&world, &controller, &["web", "db.bio"]);
    let asked = controller.watched();
    let line = "GET /api/v1/watch?service=web&service=db.bio&state=ready HTTP/1.1\r\n";
    assert!(asked.head.starts_with(line), "{}", asked.head);
    asked.set("web.alice", 5, &[]);
    asked.set("web.alice", 6, &[31007, 31009]);
    asked.bookmark(6);
    asked.say(": hb 6\n\n");
    asked.set("web.alice", 7, &[31007, 31009]);
    asked.say("id: e.8\nevent: removed\ndata: {\"service\":\"web.alice\"}\n\n");
    says(&watch, "removed");
    assert_eq!(
        watch.output(),
        "web.alice\t0/2\t\n\
         web.alice\t2/2\t10.0.0.1:31007 10.0.0.1:31009\n\
         portreeve: db.bio is not there, or not visible to you; waiting\n\
         web.alice\tremoved\t\n"
    );
    assert_eq!(watch.end("INT"), Some(130));
}

#[test]
fn a_controller_that_goes_is_told_once_and_what_it_says_then_is_what_counts() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let watch = watch(&world, &controller, &["web", "-o", "json"]);
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    asked.bookmark(5);
    says(&watch, "31007");
    drop(asked);
    // A connection that says nothing counts as none.
    for _ in 0..2 {
        drop(controller.taken());
    }
    says(&watch, "trying again");
    let asked = controller.watched();
    assert!(
        asked.head.contains("last-event-id: e.5\r\n"),
        "{}",
        asked.head
    );
    asked.set("web.alice", 9, &[31009]);
    says(&watch, "31009");
    let output = watch.output();
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), 4, "{output}");
    let first: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(
        (&first["event"], &first["id"], &first["data"]["ready"]),
        (&"endpoints".into(), &"e.5".into(), &1.into())
    );
    assert!(
        lines[1].contains("no controller answers at unix:"),
        "{output}"
    );
    assert_eq!(lines[2], "portreeve: the controller answers again");
    assert_eq!(watch.end("TERM"), Some(0));
}

#[test]
fn a_connection_that_died_without_a_word_is_noticed() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let watch = watch(&world, &controller, &["web", "--dead-after", "1s"]);
    let dead = controller.watched();
    dead.set("web.alice", 5, &[31007]);
    dead.bookmark(5);
    says(&watch, "no sign from unix:");
    let asked = controller.watched();
    asked.set("web.alice", 6, &[31009]);
    says(&watch, "answers again");
    says(&watch, "10.0.0.1:31009");
}

#[test]
fn who_stops_reading_ends_the_watch_before_the_next_change() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let mut child = world
        .portreeve(&["--controller", &controller.address(), "watch", "web"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "web.alice\t1/2\t10.0.0.1:31007\n");
    drop(reader);
    let mut code = None;
    let ended = eventually(|| match child.try_wait().unwrap() {
        Some(status) => {
            code = status.code();
            true
        }
        None => false,
    });
    if !ended {
        kill(child.id().cast_signed(), "KILL");
    }
    let _ = child.wait();
    assert_eq!(code, Some(0));
    drop(asked);
}

#[test]
fn a_port_that_is_not_there_is_told() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let watch = watch(&world, &controller, &["web:admin", "-o", "lines"]);
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    asked.bookmark(5);
    says(
        &watch,
        "web.alice is ready, but publishes no port admin; it publishes http",
    );
    asked.set("web.alice", 6, &[]);
    says(&watch, "\n\n");
}

// P25: whoever asks once is told apart what is not there, not ready, or not known.
#[test]
fn once_ends_as_endpoints_would() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let once = |name: &str, arguments: &[&str], play: &dyn Fn()| {
        let address = controller.address();
        let all = [
            &["--controller", &address, "watch", name, "--once"],
            arguments,
        ]
        .concat();
        let mut command = world.portreeve(&all);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.unwrap();
        play();
        Outcome::of(child.wait_with_output().unwrap())
    };
    let one = |ports: &[u16]| {
        let asked = controller.watched();
        asked.set("web.alice", 5, ports);
        asked.bookmark(5);
        // Cut only when the watcher goes.
        asked.outlived();
    };
    let outcome = once("web", &["-o", "url"], &|| one(&[31007]));
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), "http://10.0.0.1:31007/\n"),
        "{outcome:?}"
    );
    let outcome = once("web", &[], &|| one(&[]));
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    // One of several says whose it is.
    let outcome = once("web", &["--prefix", "w", "-o", "table"], &|| one(&[31007]));
    assert!(
        outcome.stdout.starts_with("web.alice\t0\tn1\thttp\t"),
        "{outcome:?}"
    );
    let outcome = once("other", &[], &|| one(&[31007]));
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    let outcome = once("web", &[], &|| drop(controller.taken()));
    assert_eq!(outcome.code, Some(6), "{outcome:?}");
    assert!(outcome.stdout.is_empty(), "{outcome:?}");
    let problem = serde_json::json!({
        "type": "urn:portreeve:problem:forbidden", "title": "Forbidden", "status": 403, "code": "forbidden",
        "detail": "bob may not read this",
    });
    let outcome = once("web", &[], &|| {
        controller.answer("403 Forbidden", &problem);
    });
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    assert!(
        outcome.stderr.contains("bob may not read this"),
        "{outcome:?}"
    );
}

#[test]
fn arguments_that_contradict_each_other_are_refused_with_the_reason() {
    let Some(world) = World::new() else { return };
    for (arguments, reason) in [
        (&["watch"] as &[&str], "required"),
        (
            &["watch", "web", "-o", "env", "--all"],
            "add -o table or -o json",
        ),
        (
            &["watch", "web", "--exec", "true", "-o", "url"],
            "the command is told JSON",
        ),
        (&["watch", "web", "--exec-timeout", "1s"], "--exec"),
        (&["watch", "web", "--output", "/proc"], "not a file"),
        // Elsewhere `--output` is the form: a file of that name would be made without a word.
        (&["watch", "web", "--output", "json"], "write -o json"),
        (&["watch", "web:http", "web:admin"], "web is named with two"),
        (
            &["watch", "web", "--template", "{% for"],
            "--template line 1",
        ),
        (
            &["watch", "web", "--template", "x", "-o", "url"],
            "cannot be used with",
        ),
    ] {
        let outcome = world.run(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        assert!(
            outcome.stderr.contains(reason),
            "{arguments:?}: {outcome:?}"
        );
    }
}
