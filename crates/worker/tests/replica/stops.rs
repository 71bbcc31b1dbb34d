//! Stopping, and what is left afterwards.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use portreeve::registry::Want;
use portreeve::supervision::{Final, Reason, StartFailure, State};
use portreeve_api::local::{LogStream, ProcessIdentity, WorkerCommand};

use crate::world::{World, is_gone, signal};

const STOPPED: State = State::Final(Final::Stopped);

#[test]
fn a_service_that_ignores_term_is_killed_after_the_grace() {
    let world = World::running(
        "trap 'echo ignored' TERM; echo up; while :; do sleep 0.05; done",
        "[stop]\ngrace = \"300ms\"",
    );
    let ready = world.ready();
    world.text_once_there("stdout.log");
    world.want(Want::Stop, 0);
    let left = world.controller.until("not ready", |status| !status.ready);
    assert_eq!((left.state, left.serving), (State::Stopping, false));
    let ended = world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    assert_eq!(ended.restarts, 0);
    assert!(is_gone(ready.pid.unwrap()));
    assert_eq!(world.log(LogStream::Stdout), "up\nignored\n");
}

#[test]
fn a_stop_is_unpublished_at_once_and_signalled_only_after_its_drain() {
    let drain = Duration::from_millis(700);
    let world = World::running(
        "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done",
        "[stop]\ndrain = \"700ms\"",
    );
    let ready = world.ready();
    world.text_once_there("stdout.log");
    let begun = Instant::now();
    world.want(Want::Stop, 0);
    let left = world.controller.until("not ready", |status| !status.ready);
    assert_eq!((left.state, left.serving), (State::Stopping, true));
    assert_eq!(left.pid, ready.pid);
    if begun.elapsed() < drain / 2 {
        // Nobody is sent there any more, and who still is there is served.
        assert!(!is_gone(ready.pid.unwrap()));
        assert_eq!(world.log(LogStream::Stdout), "up\n");
    }
    world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    assert!(begun.elapsed() >= drain);
    assert_eq!(world.log(LogStream::Stdout), "up\ntold\n");
}

#[test]
fn a_stop_during_pre_exec_ends_it_and_starts_nothing() {
    let world = World::running(
        "touch started",
        "pre_exec = \"read me rest < /proc/self/stat; echo $me > pid; exec sleep 1000\"",
    );
    let pid: u32 = world.text_once_there("pid").trim().parse().unwrap();
    world.want(Want::Stop, 0);
    world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    assert!(is_gone(pid));
    assert!(!world.path("started").exists());
}

#[test]
fn a_forgotten_replica_ends_its_worker_and_keeps_its_logs() {
    let mut world = World::running("echo said; exec sleep 1000", "");
    let ready = world.ready();
    let answer = world.order(&WorkerCommand::Tell).status.unwrap();
    assert!(answer.ready);
    world.text_once_there("stdout.log");
    world.want(Want::Stop, 0);
    world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    let answer = world.want(Want::Forget, 0).status.unwrap();
    assert_eq!(answer.state, STOPPED);
    assert!(world.worker_ends());
    assert!(is_gone(ready.pid.unwrap()));
    assert_eq!(world.log(LogStream::Stdout), "said\n");
}

#[test]
fn a_replica_that_is_not_wanted_any_more_never_begins() {
    let mut world = World::prepared("touch started", "");
    world.assignment.desired.want = Want::Stop;
    world.start_worker();
    let told = world.controller.next().status;
    assert_eq!(told.state, STOPPED);
    assert!(!world.path("started").exists());
}

#[test]
fn the_end_of_the_lifeline_ends_the_service_and_removes_the_folder() {
    let mut dev = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let mut world = World::prepared("exec sleep 1000", "");
    world.assignment.lifeline = Some(ProcessIdentity::of(dev.id()).unwrap());
    world.start_worker();
    let ready = world.ready();
    dev.kill().unwrap();
    dev.wait().unwrap();
    assert!(world.worker_ends());
    assert!(is_gone(ready.pid.unwrap()));
    assert!(!world.folder.path().exists());
}

#[test]
fn a_replica_of_another_user_is_refused_with_the_reason() {
    let mut world = World::prepared("touch started", "");
    world.assignment.desired.uid += 1;
    world.start_worker();
    let ended = world
        .controller
        .until("final", |status| matches!(status.state, State::Final(_)));
    let State::Final(Final::Failed(Reason::StartFailed(StartFailure::Prepare(why)))) = ended.state
    else {
        panic!("{ended:?}");
    };
    assert!(why.contains("only an agent that runs as root"), "{why}");
    world.want(Want::Forget, 0);
    assert!(world.worker_ends());
    assert!(!world.path("started").exists());
}

#[test]
fn a_stopped_process_is_stopped_too() {
    let world = World::running("exec sleep 1000", "");
    let ready = world.ready();
    signal(ready.pid.unwrap(), Signal::SIGSTOP);
    world.want(Want::Stop, 0);
    world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    assert!(is_gone(ready.pid.unwrap()));
}

#[test]
fn garbage_on_the_socket_is_refused_and_changes_nothing() {
    let world = World::running("exec sleep 1000", "");
    let ready = world.ready();
    let answer = world.converse(b"{\"want\":\n");
    assert!(answer.refused.unwrap().contains("nothing changed"));
    let long = vec![b'x'; 1 << 20];
    assert!(
        world
            .converse(&[&long[..65536], b"\n"].concat())
            .refused
            .is_some()
    );
    let answer = world.order(&WorkerCommand::Tell).status.unwrap();
    assert_eq!((answer.pid, answer.ready), (ready.pid, true));
}
