//! The record of a real run, played again.

use nix::sys::signal::Signal;
use portreeve::registry::Want;
use portreeve::supervision::record::{replay, why};
use portreeve::supervision::{Final, State};
use portreeve_api::local::LogStream;

use crate::world::{World, signal};

/// What a worker's own log says it reported.
fn reported(world: &World) -> Vec<String> {
    let log = world.text("worker.log");
    let report = |line: &str| Some(line.strip_prefix("INFO run ")?.to_owned());
    log.lines().filter_map(report).collect()
}

#[test]
fn the_record_of_a_real_run_gives_byte_equal_reports() {
    // supervision 2.1: crashes, a liveness kill, a worker that is killed, a restart by the user, and the end.
    let mut world = World::running(
        "echo $PORTREEVE_RUN >> runs; touch alive; [ $PORTREEVE_RUN = 2 ] && exit 3; exec sleep 1000",
        "[liveness]\ncommand = [\"test\", \"-f\", \"alive\"]\ninterval = \"100ms\"\nfailure_threshold = 2\n\
         [readiness]\ncommand = [\"true\"]\ninterval = \"100ms\"",
    );
    let first = world.ready();
    signal(first.pid.unwrap(), Signal::SIGKILL);
    let third = world
        .controller
        .until("run 3", |status| status.run.0 == 3 && status.ready);
    std::fs::remove_file(world.path("alive")).unwrap();
    let fourth = world
        .controller
        .until("run 4", |status| status.run.0 > third.run.0 && status.ready);
    world.kill_worker();
    world.start_worker();
    world.controller.until("told again", |_| true);
    world.want(Want::Run, 1);
    world
        .controller
        .until("run 5", |status| status.run > fourth.run && status.ready);
    world.want(Want::Stop, 1);
    let stopped = State::Final(Final::Stopped);
    world
        .controller
        .until("stopped", |status| status.state == stopped);
    world.want(Want::Forget, 1);
    assert!(world.worker_ends());

    let record = world.log(LogStream::Events);
    let replayed = replay(&record).unwrap();
    assert_eq!(replayed.differences, []);
    assert_eq!(replayed.unread, 0);
    let again: Vec<_> = replayed
        .told
        .iter()
        .map(|told| format!("{}: {}", told.run, told.report))
        .collect();
    let really = reported(&world);
    assert!(really.len() >= 12, "{really:#?}");
    assert_eq!(again.join("\n"), really.join("\n"));

    let turns = why(&record).unwrap();
    let said: Vec<_> = turns.iter().map(|turn| turn.sentence.as_str()).collect();
    let has = |begin: &str| said.iter().any(|sentence| sentence.starts_with(begin));
    assert!(
        has("liveness: 2 consecutive failures (failure_threshold 2) at "),
        "{said:#?}"
    );
    assert!(has("backoff: restart 2 in a row, delay "), "{said:#?}");
    assert!(has("restarted: ordered by the user"), "{said:#?}");
    assert_eq!(
        said.last(),
        Some(&"stopped: ordered, and the last process is gone")
    );
}

#[test]
fn a_steady_service_writes_nothing_into_its_record() {
    let world = World::running(
        "exec sleep 1000",
        "[liveness]\ncommand = [\"sh\", \"-c\", \"echo x >> probes\"]\ninterval = \"100ms\"",
    );
    world.ready();
    crate::world::until("a first probe", || world.path("probes").exists());
    let before = world.log(LogStream::Events);
    crate::world::until("20 more probes", || world.text("probes").len() > 50);
    let after = world.log(LogStream::Events);
    // The first result may have come in between; nothing after it.
    assert!(
        after.lines().count() <= before.lines().count() + 1,
        "{after}"
    );
}
