//! A service that ends, in every way, and what follows.

use std::net::TcpListener;

use nix::sys::signal::Signal;
use portreeve::registry::Want;
use portreeve::supervision::{ExitStatus, Final, Reason, StartFailure, State};

use crate::world::{World, is_gone, signal, until};

#[test]
fn a_killed_service_is_restarted_in_place_with_the_same_variables() {
    let world = World::running(
        "env | sort > new; mv new env-$PORTREEVE_RUN; exec sleep 1000",
        "[ports]\nhttp = \"any\"\n[readiness]\ncommand = [\"true\"]\ninterval = \"200ms\"",
    );
    let first = world.ready();
    assert_eq!((first.run.0, first.restarts), (1, 0));
    world.text_once_there("env-1");
    signal(first.pid.unwrap(), Signal::SIGKILL);
    let left = world.controller.until("not ready", |status| !status.ready);
    assert!(left.seq > first.seq);
    let second = world.ready();
    assert_eq!((second.run.0, second.restarts), (2, 1));
    assert_ne!(second.pid, first.pid);
    let failure = second.last_failure.unwrap();
    assert_eq!(failure.reason.to_string(), "signal 9 (KILL)");
    assert_eq!(failure.run.0, 1);

    let variables = |run: u32| {
        let text = world.text_once_there(&format!("env-{run}"));
        let varies = |line: &&str| {
            !line.starts_with("PORTREEVE_RUN=") && !line.starts_with("PORTREEVE_SCRATCH=")
        };
        let lines = text.lines().filter(varies).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    assert_eq!(variables(1), variables(2));
    let port = world.assignment.desired.grant.ports[0].numbers;
    assert!(variables(2).contains(&format!("PORTREEVE_PORT_HTTP={port}")));
    assert!(variables(2).contains(&format!("PORT={port}")));
}

#[test]
fn a_shells_children_are_gone_before_the_next_start() {
    // P34: depth 1, TERM ignored; and one that made a session of its own.
    let world = World::running(
        "if [ -f children ]; then
            for pid in $(cat children); do
                if kill -0 $pid 2>/dev/null; then echo alive; else echo gone; fi
            done > verdict.new; mv verdict.new verdict
         fi
         sh -c 'trap \"\" TERM; echo $$ >> children; sleep 1000; :' &
         setsid sh -c 'trap \"\" TERM; echo $$ >> children; sleep 1000; :' &
         wait",
        "",
    );
    let first = world.ready();
    until("both children run", || {
        std::fs::read_to_string(world.path("children")).is_ok_and(|text| text.lines().count() == 2)
    });
    signal(first.pid.unwrap(), Signal::SIGTERM);
    world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(world.text_once_there("verdict"), "gone\ngone\n");
}

#[test]
fn a_command_that_does_not_exist_gives_up_with_reason_and_count() {
    let world = World::of_profile(
        "command = [\"no-such-program\"]\n[restart]\nbackoff = { initial = \"100ms\", max = \"100ms\" }\ngive_up = { max_restarts = 2, window = \"1m\" }",
    );
    let mut world = world;
    world.start_worker();
    let ended = world
        .controller
        .until("final", |status| matches!(status.state, State::Final(_)));
    let enoent = Reason::StartFailed(StartFailure::Exec {
        program: "no-such-program".into(),
        errno: 2,
    });
    assert_eq!(
        ended.state,
        State::Final(Final::GaveUp {
            reason: enoent,
            count: 2
        })
    );
    assert_eq!(ended.run.0, 3);
    assert!(!ended.ready);
}

#[test]
fn a_service_that_always_exits_gives_up() {
    let world = World::running(
        "echo again; exit 3",
        "[restart]\nbackoff = { initial = \"100ms\", max = \"100ms\" }\ngive_up = { max_restarts = 1, window = \"1m\" }",
    );
    let ended = world
        .controller
        .until("final", |status| matches!(status.state, State::Final(_)));
    let State::Final(end) = ended.state else {
        unreachable!()
    };
    assert_eq!(end.to_string(), "gave up after 1 restart: exit 3");
    // The output of both runs is kept.
    let log = world.log(portreeve_api::local::LogStream::Stdout);
    assert_eq!(log, "again\nagain\n");
}

#[test]
fn a_users_restart_is_done_once_and_charged_to_nothing() {
    let world = World::running("exec sleep 1000", "");
    let first = world.ready();
    world.want(Want::Run, 1);
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(
        (second.restarts, second.user_restarts, second.restart_no),
        (0, 1, 1)
    );
    assert!(second.last_failure.is_none());
    assert!(is_gone(first.pid.unwrap()));
    // The same number again is the same wish.
    let answer = world.want(Want::Run, 1).status.unwrap();
    assert_eq!((answer.run.0, answer.ready), (2, true));
}

#[test]
fn a_port_held_by_a_stranger_is_a_conflict_and_nothing_is_started() {
    let mut world = World::prepared("touch started; exec sleep 1000", "[ports]\nhttp = \"any\"");
    let port = world.assignment.desired.grant.ports[0].numbers.first();
    let _stranger = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    world.start_worker();
    let ended = world
        .controller
        .until("final", |status| matches!(status.state, State::Final(_)));
    let State::Final(Final::PortConflict {
        port: found, pid, ..
    }) = ended.state
    else {
        panic!("{ended:?}");
    };
    assert_eq!((found, pid), (port, Some(std::process::id())));
    assert_eq!(ended.restarts, 0);
    assert!(!world.path("started").exists());
}

#[test]
fn a_port_taken_after_the_start_is_a_conflict_at_the_exit() {
    // P38
    let world = World::running(
        "while [ ! -f go ]; do sleep 0.02; done; exit 1",
        "[ports]\nhttp = \"any\"",
    );
    let up = world
        .controller
        .until("up", |status| status.state == State::Up);
    assert!(!up.ready, "nothing listens yet");
    let port = world.assignment.desired.grant.ports[0].numbers.first();
    let _stranger = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    std::fs::write(world.path("go"), "").unwrap();
    let ended = world
        .controller
        .until("final", |status| matches!(status.state, State::Final(_)));
    let State::Final(Final::PortConflict {
        port: found, pid, ..
    }) = ended.state
    else {
        panic!("{ended:?}");
    };
    assert_eq!((found, pid), (port, Some(std::process::id())));
    assert_eq!(ended.restarts, 0);
}

#[test]
fn a_failed_liveness_probe_restarts_with_its_own_reason_and_output() {
    let world = World::running(
        "rm -f sick; exec sleep 1000",
        "[liveness]\ncommand = \"[ ! -f sick ] || { echo $PORTREEVE_PROBE says no; exit 9; }\"\ninterval = \"100ms\"\ntimeout = \"5s\"\nfailure_threshold = 2",
    );
    world.ready();
    std::fs::write(world.path("sick"), "").unwrap();
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    let failure = second.last_failure.unwrap();
    assert_eq!(failure.reason.to_string(), "liveness probe failed 2 times");
    let output = failure.probe_output.unwrap();
    assert_eq!(output, "exit 9: liveness says no");
}

#[test]
fn pre_exec_runs_once_per_placement_and_its_failure_is_a_start_failure() {
    let world = World::running(
        "exec sleep 1000",
        "pre_exec = \"echo x >> tries; [ $(wc -l < tries) -ge 2 ]\"",
    );
    let ready = world.ready();
    assert_eq!((ready.run.0, ready.restarts), (2, 1));
    let failure = ready.last_failure.unwrap();
    assert_eq!(failure.reason.to_string(), "pre-exec: exit 1");
    signal(ready.pid.unwrap(), Signal::SIGKILL);
    world
        .controller
        .until("run 3", |status| status.run.0 == 3 && status.ready);
    assert_eq!(world.text("tries"), "x\nx\n");
}

#[test]
fn a_lost_shim_is_an_unknown_exit_and_leaves_no_process() {
    let world = World::running("echo $$ > pid; exec sleep 1000", "");
    let first = world.ready();
    signal(world.shim(1), Signal::SIGKILL);
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    let failure = second.last_failure.unwrap();
    assert_eq!(failure.reason, Reason::Exit(ExitStatus::Unknown));
    assert!(is_gone(first.pid.unwrap()));
}
