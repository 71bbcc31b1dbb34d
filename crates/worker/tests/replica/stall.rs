//! A worker that stands still itself.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use portreeve::supervision::record::replay;
use portreeve_api::local::LogStream;

use crate::world::{World, until};

#[test]
fn a_pause_of_the_worker_never_costs_the_service_its_life() {
    // supervision 1.3 rule 14: the one failure that would end the run is a timeout that began before the pause.
    let world = World::prepared(
        "exec sleep 1000",
        "[liveness]\ncommand = [\"sh\", \"-c\", \"echo x >> probing; while [ -f hold ]; do sleep 0.02; done\"]\n\
         interval = \"1s\"\ntimeout = \"1s\"\nfailure_threshold = 1",
    );
    let mut world = world;
    world.start_worker();
    let first = world.ready();
    std::fs::write(world.path("hold"), "").unwrap();
    let probes = || world.text("probing").len();
    let before = probes();
    until("a probe is held", || probes() > before);
    world.signal_worker(Signal::SIGSTOP);
    let paused = Instant::now();
    until("longer than the probe may take, twice", || {
        paused.elapsed() > Duration::from_millis(2200)
    });
    world.signal_worker(Signal::SIGCONT);
    std::fs::remove_file(world.path("hold")).unwrap();
    let before = probes();
    until("it is probed again, twice", || probes() > before + 2);
    let status = world
        .order(&portreeve_api::local::WorkerCommand::Tell)
        .status;
    let status = status.unwrap();
    assert_eq!((status.run, status.restarts), (first.run, 0));
    assert_eq!(status.pid, first.pid);
    let record = world.log(LogStream::Events);
    assert!(record.contains("\"outcome\":\"Inconclusive\""), "{record}");
    assert_eq!(replay(&record).unwrap().differences, []);
}
