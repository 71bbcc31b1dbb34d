//! A worker that dies, and the one that follows it.

use nix::sys::signal::Signal;
use portreeve::registry::Want;
use portreeve::supervision::{Final, State};

use crate::world::{World, is_gone, signal, until};

#[test]
fn a_new_worker_takes_over_without_a_restart() {
    let mut world = World::running("exec sleep 1000", "");
    let first = world.ready();
    world.kill_worker();
    assert!(!is_gone(first.pid.unwrap()));
    world.start_worker();
    let told = world.controller.until("told again", |_| true);
    assert_eq!(
        (told.run, told.pid, told.ready, told.restarts),
        (first.run, first.pid, true, 0)
    );
    // It is really in command.
    world.want(Want::Stop, 0);
    let stopped = State::Final(Final::Stopped);
    world
        .controller
        .until("stopped", |status| status.state == stopped);
    assert!(is_gone(first.pid.unwrap()));
}

#[test]
fn an_exit_without_a_worker_is_learned_by_the_next() {
    let mut world = World::running("while [ ! -f go ]; do sleep 0.02; done; exit 7", "");
    let first = world.ready();
    world.kill_worker();
    std::fs::write(world.path("go"), "").unwrap();
    until("it exits", || is_gone(first.pid.unwrap()));
    until("the shim ends", || is_gone(world.shim(1)));
    std::fs::remove_file(world.path("go")).unwrap();
    world.start_worker();
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(second.restarts, 1);
    assert_eq!(
        second.last_failure.as_ref().unwrap().reason.to_string(),
        "exit 7"
    );
    assert!(second.seq > first.seq);
    // The failures are the next worker's too, each as it was told first.
    signal(second.pid.unwrap(), Signal::SIGKILL);
    let third = world
        .controller
        .until("run 3", |status| status.run.0 == 3 && status.ready);
    world.kill_worker();
    world.start_worker();
    let told = world.controller.until("told again", |_| true);
    assert_eq!(told.first_failure, second.last_failure);
    assert_eq!(told.last_failure, third.last_failure);
    assert_eq!(told.last_failure.unwrap().run.0, 2);
    assert_eq!((told.run, told.restarts), (third.run, 2));
}

/// On a full disk the end of a replica was told and could not be written. Its worker and the agent died, and the next
/// ones had it begin again, with numbers that were somebody else's by then.
#[test]
fn what_ended_and_could_not_be_written_down_does_not_begin_again() {
    let mut world = World::running("exec sleep 1000", "");
    let first = world.ready();
    // As on a full disk nothing can be put in its place.
    let record = std::fs::read(world.path("machine.json")).unwrap();
    std::fs::remove_file(world.path("machine.json")).unwrap();
    std::fs::create_dir_all(world.path("machine.json/full")).unwrap();
    world.want(Want::Stop, 0);
    let stopped = State::Final(Final::Stopped);
    world
        .controller
        .until("stopped", |status| status.state == stopped);
    assert!(is_gone(first.pid.unwrap()));
    world.kill_worker();
    std::fs::remove_dir_all(world.path("machine.json")).unwrap();
    std::fs::write(world.path("machine.json"), record).unwrap();
    world.start_worker();
    let told = world.controller.until("told again", |_| true);
    assert!(told.has_ended() && told.run == first.run, "{told:?}");
    world.want(Want::Forget, 0);
    assert!(world.worker_ends());
}

#[test]
fn a_worker_and_a_shim_that_die_together_leave_nothing_running_twice() {
    let mut world = World::running("exec sleep 1000", "");
    let first = world.ready();
    world.kill_worker();
    signal(world.shim(1), Signal::SIGKILL);
    world.start_worker();
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(second.restarts, 1);
    assert!(is_gone(first.pid.unwrap()));
}

#[test]
fn what_a_killed_shim_held_is_ended_although_it_hides_its_environment() {
    let child =
        "env -i setsid sh -c 'read me rest < /proc/self/stat; echo $me > child; exec sleep 1000' &";
    let command =
        format!("{child} while [ ! -s child ]; do sleep 0.02; done; exec env -i sleep 1000");
    let world = World::running(&command, "");
    let first = world.ready();
    let child: u32 = world.text_once_there("child").trim().parse().unwrap();
    std::fs::remove_file(world.path("child")).unwrap();
    signal(world.shim(1), Signal::SIGKILL);
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(second.restarts, 1);
    assert!(is_gone(first.pid.unwrap()));
    assert!(is_gone(child));
}

#[test]
fn a_shim_whose_folder_was_removed_ends_with_its_run() {
    let mut world = World::running("exec sleep 1000", "");
    let first = world.ready();
    let shim = world.shim(1);
    world.kill_worker();
    std::fs::remove_dir_all(world.path("run-1")).unwrap();
    signal(first.pid.unwrap(), Signal::SIGKILL);
    until("the shim ends", || is_gone(shim));
}

#[test]
fn a_backoff_goes_on_under_the_next_worker() {
    let mut world = World::running(
        "echo run; exit 1",
        "[restart]\nbackoff = { initial = \"1500ms\", max = \"3s\", jitter = 0 }",
    );
    world
        .controller
        .until("backoff", |status| status.state == State::Backoff);
    world.kill_worker();
    world.start_worker();
    world.controller.until("run 2", |status| status.run.0 == 2);
    assert_eq!(
        world.log(portreeve_api::local::LogStream::Stdout),
        "run\nrun\n"
    );
}

#[test]
fn a_second_worker_of_one_folder_is_refused() {
    let world = World::running("exec sleep 1000", "");
    let ready = world.ready();
    let other = std::process::Command::new(env!("CARGO_BIN_EXE_portreeve-worker-harness"))
        .args(["worker", "--folder"])
        .arg(world.folder.path())
        .output()
        .unwrap();
    assert!(!other.status.success());
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(said.contains("another worker (pid "), "{said}");
    assert!(!is_gone(ready.pid.unwrap()));
}
