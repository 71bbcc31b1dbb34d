//! What the controller hears: each change until it has it, and nothing else.

use std::time::Duration;

use crate::world::{World, is_gone};

#[test]
fn a_status_is_repeated_until_it_is_acknowledged_and_then_there_is_silence() {
    let mut world = World::prepared(
        "exec sleep 1000",
        "[readiness]\ncommand = [\"true\"]\ninterval = \"100ms\"",
    );
    world.controller.answer(503);
    world.start_worker();
    // Whatever is told is told again, and never an older one after a newer.
    let mut before = world.controller.next();
    assert_eq!(before.token.as_deref(), Some("Bearer token-of-web"));
    assert_eq!(
        before.line,
        "PUT /api/v1/replicas/web.alice/0/1/status HTTP/1.1"
    );
    loop {
        let again = world.controller.next();
        assert!(again.status.seq >= before.status.seq);
        if again.status.ready && again.status == before.status {
            break;
        }
        before = again;
    }
    world.controller.answer(204);
    let last = world.controller.next();
    assert_eq!(last.status, before.status);
    // Ten probes and more pass meanwhile.
    if let Some(told) = world.controller.next_within(Duration::from_millis(1500)) {
        panic!("told in the steady state: {told:#?}");
    }
}

#[test]
fn a_controller_that_does_not_know_the_replica_does_not_end_it() {
    let mut world = World::prepared("exec sleep 1000", "");
    world.controller.answer(404);
    world.start_worker();
    let ready = world.ready();
    if let Some(told) = world.controller.next_within(Duration::from_millis(700)) {
        panic!("told again: {told:#?}");
    }
    assert!(!is_gone(ready.pid.unwrap()));
}
