//! `wait` through what happens to a controller meanwhile.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{Running, World, eventually};

use super::scripted::{Scripted, set};

/// A service of one replica in this state.
fn service(revision: u64, state: &str) -> Value {
    let ready = u32::from(state == "ready");
    let job = if state == "failed" { "EXIT" } else { "RUN" };
    json!({
        "service": "web.alice", "owner": "alice", "state": "running", "desired": 1, "ready": ready,
        "submitted": 0, "changed": 0, "revision": revision, "id": 1,
        "profile": { "kind": "service", "name": "web", "command": "true" },
        "replicas": [{
            "replica": 0, "incarnation": 1, "run": 1, "job_state": job, "state": state, "ready": ready == 1,
            "reason": "exit 7", "restarts": 0, "restarts_total": 0, "user_restarts": 0, "ports": {}, "since": 0,
        }],
    })
}

fn wait(world: &World, controller: &Scripted, arguments: &[&str]) -> Running {
    let address = controller.address();
    let all = [&["--controller", &address, "wait", "web"], arguments].concat();
    world.start_alone("wait", &all)
}

#[test]
fn a_controller_that_restarts_is_waited_for_and_that_is_said() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let mut wait = wait(&world, &controller, &["--timeout", "60s"]);
    controller.answer("200 OK", &service(5, "starting"));
    let held = controller.taken();
    assert!(
        held.head.contains("revision=5&wait=30000ms "),
        "{}",
        held.head
    );
    drop(held);
    let met = eventually(|| wait.output().contains("trying again"));
    assert!(met, "{}", wait.output());
    drop(controller.taken());
    controller.answer("200 OK", &service(9, "starting"));
    controller.answer("200 OK", &service(10, "ready"));
    assert_eq!(wait.code(), Some(0), "{}", wait.output());
    let output = wait.output();
    assert!(
        output.contains("the controller answers again\n"),
        "{output}"
    );
    assert!(output.ends_with("web.alice: 1 of 1 ready\n"), "{output}");
    assert_eq!(output.lines().count(), 3, "{output}");
}

#[test]
fn a_controller_that_stays_away_is_no_timeout_of_the_service() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let mut wait = wait(&world, &controller, &["--timeout", "2s"]);
    controller.answer("200 OK", &service(5, "starting"));
    let begun = Instant::now();
    let mut refused = 0;
    while begun.elapsed() < Duration::from_secs(2) && refused < 3 {
        drop(controller.taken());
        refused += 1;
    }
    drop(controller);
    assert_eq!(wait.code(), Some(6), "{}", wait.output());
    let output = wait.output();
    assert!(
        output.contains("web.alice was last 0 of 1 ready"),
        "{output}"
    );
}

// P25: a script that asks nobody gets to know it soon.
#[test]
fn a_controller_that_never_answered_is_not_waited_for_to_the_end() {
    let Some(world) = World::new() else { return };
    let outcome = world.run(&["wait", "web", "--timeout", "1h"]);
    assert_eq!(outcome.code, Some(6), "{outcome:?}");
    assert!(outcome.stdout.is_empty(), "{outcome:?}");
}

// P40: what cannot become ready ends the wait, with its reason.
#[test]
fn an_end_is_told_with_its_reason() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let mut wait = wait(&world, &controller, &["--timeout", "1h"]);
    controller.answer("200 OK", &service(5, "backoff"));
    controller.answer("200 OK", &service(6, "failed"));
    assert_eq!(wait.code(), Some(1), "{}", wait.output());
    let output = wait.output();
    assert!(
        output.contains("web.alice/0 ended: exit 7; 0 of 1 wanted replicas ready"),
        "{output}"
    );
}

#[test]
fn the_endpoints_are_printed_when_they_are_there() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let mut wait = wait(&world, &controller, &["--print", "url"]);
    controller.answer("200 OK", &service(5, "ready"));
    let head = controller.answer("200 OK", &set("web.alice", 6, &[]));
    assert!(
        head.starts_with("GET /api/v1/services/web/endpoints HTTP"),
        "{head}"
    );
    // It was ready and is not any more.
    let head = controller.answer("200 OK", &service(7, "ready"));
    assert!(head.contains("revision=5&wait="), "{head}");
    controller.answer("200 OK", &set("web.alice", 7, &[31007]));
    assert_eq!(wait.code(), Some(0), "{}", wait.output());
    assert_eq!(wait.output(), "http://10.0.0.1:31007/\n");
    let outcome = world.run(&["wait", "web:http"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
}
