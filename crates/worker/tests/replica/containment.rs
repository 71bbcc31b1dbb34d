//! What a run starts ends with the run, however it hides, on each rung of the ladder.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use portreeve::registry::Want;
use portreeve::supervision::{ExitStatus, Final, State};
use portreeve_api::containment::{Hierarchy, Rung};

use crate::rungs::{Group, namespace, on_each_rung};
use crate::world::{World, is_gone, signal, until};

on_each_rung!(
    a_run_is_held_as_told_and_its_shim_is_outside,
    a_double_fork_into_a_session_of_its_own_ends_with_its_run,
    a_chain_of_forks_and_exits_ends_with_its_run,
    what_a_killed_shim_held_ends_before_the_next_start,
    what_no_sign_tells_of_is_held_all_the_same,
    a_new_worker_takes_over_what_is_held,
    how_it_ended_is_told_as_it_was,
    want_of_memory_is_told_apart_from_a_kill,
    what_cannot_be_executed_is_told_with_its_errno,
    leftovers_whose_records_are_lost_end_before_the_next_start,
);

const STOPPED: State = State::Final(Final::Stopped);

fn a_run_is_held_as_told_and_its_shim_is_outside(rung: Rung) {
    let mut world = World::held(rung, "exec sleep 1000", "");
    world.start_worker();
    let pid = world.ready().pid.unwrap();
    let shim = world.shim(1);
    let groups = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let of_run = |pid: u32, kind: &str| {
        let groups = groups(pid);
        let mut lines = groups.lines();
        lines.any(|line| line.contains(kind) && line.ends_with("/web.alice~0~1/run-1"))
    };
    assert_eq!(of_run(pid, "0::"), rung == Rung::Cgroup, "{}", groups(pid));
    assert_eq!(
        of_run(pid, ":freezer:"),
        rung == Rung::Freezer,
        "{}",
        groups(pid)
    );
    assert!(!groups(shim).contains("run-1"), "{}", groups(shim));
    let apart = namespace(pid, "pid") != namespace(shim, "pid");
    assert_eq!(apart, rung == Rung::PidNamespace);
    assert_eq!(namespace(shim, "pid"), namespace(std::process::id(), "pid"));
}

fn a_double_fork_into_a_session_of_its_own_ends_with_its_run(rung: Rung) {
    // D8 double fork: two generations away, a session of its own, an empty environment and TERM ignored.
    let child = "env -i setsid sh -c 'trap \"\" TERM; (trap \"\" TERM; read me rest < /proc/self/stat; \
                 echo $me > child; while :; do sleep 0.1; done) & exit' &";
    let command =
        format!("{child} wait; while [ ! -s child ]; do sleep 0.02; done; exec sleep 1000");
    let mut world = World::held(rung, &command, "");
    world.start_worker();
    world.ready();
    let child: u32 = world.text_once_there("child").trim().parse().unwrap();
    assert!(!is_gone(child));
    world.want(Want::Stop, 0);
    world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    assert!(is_gone(child));
}

fn a_chain_of_forks_and_exits_ends_with_its_run(rung: Rung) {
    // D8 fork-and-exit chain: about two hundred generations a second, each in a session of its own.
    let code = "import os, time\n\
                os.environ.clear()\n\
                if os.fork(): time.sleep(1000)\n\
                while True:\n \
                os.setsid()\n \
                open('link', 'w').write(str(os.getpid()))\n \
                time.sleep(0.005)\n \
                if os.fork(): os._exit(0)\n";
    let mut world = World::held(rung, "exec python3 chain.py", "");
    fs::write(world.path("chain.py"), code).unwrap();
    world.start_worker();
    world.ready();
    let link = || fs::read_to_string(world.path("link")).unwrap_or_default();
    let first = link();
    until("the chain goes on", || {
        !link().is_empty() && link() != first
    });
    world.want(Want::Stop, 0);
    world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    // Nobody is left to write it again.
    fs::remove_file(world.path("link")).unwrap();
    let by_its_name = || {
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        processes.any(|process| {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let place = fs::read_link(process.path().join("cwd")).unwrap_or_default();
            line.starts_with(b"python3\0chain.py") && place == world.folder.path()
        })
    };
    assert!(!by_its_name());
    assert!(!world.path("link").exists());
}

fn what_a_killed_shim_held_ends_before_the_next_start(rung: Rung) {
    let child =
        "env -i setsid sh -c 'read me rest < /proc/self/stat; echo $me > child; exec sleep 1000' &";
    let command =
        format!("{child} while [ ! -s child ]; do sleep 0.02; done; exec env -i sleep 1000");
    let mut world = World::held(rung, &command, "");
    world.start_worker();
    let first = world.ready();
    let child: u32 = world.text_once_there("child").trim().parse().unwrap();
    fs::remove_file(world.path("child")).unwrap();
    signal(world.shim(1), Signal::SIGKILL);
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(second.restarts, 1);
    assert!(is_gone(first.pid.unwrap()) && is_gone(child));
}

fn what_no_sign_tells_of_is_held_all_the_same(rung: Rung) {
    // Neither parent nor session nor environment, and the shim is dead: only what holds the run knows it.
    if rung == Rung::ProcessTree {
        return;
    }
    let orphan = "env -i setsid sh -c '(read me rest < /proc/self/stat; echo $me > child; exec sleep 1000) &'";
    let command = format!("{orphan}; while [ ! -s child ]; do sleep 0.02; done; exec sleep 1000");
    let mut world = World::held(rung, &command, "");
    world.start_worker();
    let first = world.ready();
    let child: u32 = world.text_once_there("child").trim().parse().unwrap();
    let parent = || {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields
            .split_ascii_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    until("it is an orphan", || Some(parent()) != first.pid);
    fs::remove_file(world.path("child")).unwrap();
    signal(world.shim(1), Signal::SIGKILL);
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(second.restarts, 1);
    assert!(is_gone(child) && is_gone(first.pid.unwrap()));
}

fn a_new_worker_takes_over_what_is_held(rung: Rung) {
    let mut world = World::held(rung, "exec sleep 1000", "");
    world.start_worker();
    let first = world.ready();
    world.kill_worker();
    world.start_worker();
    let told = world.controller.until("told again", |_| true);
    assert_eq!(
        (told.run, told.pid, told.restarts),
        (first.run, first.pid, 0)
    );
    world.want(Want::Stop, 0);
    world
        .controller
        .until("stopped", |status| status.state == STOPPED);
    assert!(is_gone(first.pid.unwrap()));
}

fn how_it_ended_is_told_as_it_was(rung: Rung) {
    let command = "echo x >> tries; case $(wc -l < tries) in 1) exit 7;; 2) kill -SEGV $$;; esac; exec sleep 1000";
    let mut world = World::held(rung, command, "");
    world.start_worker();
    let failure = |run: u32| {
        let failed = |status: &portreeve::supervision::Status| {
            status
                .last_failure
                .as_ref()
                .is_some_and(|one| one.run.0 == run)
        };
        let status = world.controller.until("a failure", failed);
        status.last_failure.unwrap().exit.unwrap()
    };
    assert_eq!(failure(1), ExitStatus::Code(7));
    // The first process of a namespace would have ignored it; the service is not that one.
    assert!(matches!(failure(2), ExitStatus::Signal { signal: 11, .. }));
}

fn want_of_memory_is_told_apart_from_a_kill(rung: Rung) {
    // D8 out of memory
    let Some(group) = Group::new(Hierarchy::Memory) else {
        return;
    };
    group.set("memory.limit_in_bytes", "64M");
    let command = "[ -e fed ] && exec sleep 1000; touch fed; \
                   exec python3 -c 'kept = [bytearray(b\"x\" * (1 << 22)) for _ in range(1000)]'";
    let mut world = World::held(rung, command, "");
    let mut limited = Command::new("/bin/sh");
    limited
        .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
        .arg(group.0.join("cgroup.procs"))
        .arg(env!("CARGO_BIN_EXE_portreeve-worker-harness"))
        .args(["worker", "--folder"])
        .arg(world.folder.path());
    world.start_worker_by(limited);
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    let killed = |oom| ExitStatus::Signal {
        signal: Signal::SIGKILL as i32,
        core: false,
        oom,
    };
    assert_eq!(second.last_failure.unwrap().exit, Some(killed(true)));
    signal(second.pid.unwrap(), Signal::SIGKILL);
    let third = world.controller.until("run 3", |status| status.run.0 == 3);
    assert_eq!(third.last_failure.unwrap().exit, Some(killed(false)));
}

fn what_cannot_be_executed_is_told_with_its_errno(rung: Rung) {
    // D8 missing interpreter, directory as command, not executable
    for (program, errno) in [
        ("./headless", "ENOENT"),
        ("./folder", "EACCES"),
        ("./plain", "EACCES"),
    ] {
        let mut world = World::of_profile(&format!("command = [\"{program}\"]"));
        world.hold_by(rung);
        fs::create_dir(world.path("folder")).unwrap();
        crate::world::write_private(&world.path("headless"), "#!/nowhere/interpreter\n", 0o700);
        crate::world::write_private(&world.path("plain"), "#!/bin/sh\n", 0o600);
        world.start_worker();
        let status = world
            .controller
            .until("a failure", |status| status.last_failure.is_some());
        let reason = status.last_failure.unwrap().reason.to_string();
        assert!(reason.contains(errno), "{program}: {reason}");
        assert_eq!(world.living().len(), 0, "{:?}", world.living());
    }
}

fn leftovers_whose_records_are_lost_end_before_the_next_start(rung: Rung) {
    // Never two for one replica: the whole folder was lost while worker and shim were dead.
    // Where something holds it, it need not be known by its environment.
    let command = match rung {
        Rung::ProcessTree => "exec sleep 1000",
        _ => "[ -e hides ] && exec env -i sleep 1000; exec sleep 1000",
    };
    let mut world = World::held(rung, command, "");
    fs::write(world.path("hides"), "").unwrap();
    world.start_worker();
    let first = world.ready().pid.unwrap();
    world.kill_worker();
    signal(world.shim(1), Signal::SIGKILL);
    until("the shim is gone", || is_gone(world.shim(1)));
    assert!(!is_gone(first), "the service goes on by itself");
    fs::remove_dir_all(world.folder.path()).unwrap();
    fs::create_dir(world.folder.path()).unwrap();
    world.start_worker();
    let second = world.controller.until("it runs again", |status| {
        status.ready && status.pid != Some(first)
    });
    assert_eq!(second.run.0, 1, "nothing is known of an earlier one");
    assert!(is_gone(first));
    let living = world.living();
    let pids: Vec<u32> = living.into_values().flatten().collect();
    assert!(pids.contains(&second.pid.unwrap()) && !pids.contains(&first));
}

#[test]
fn a_listener_of_the_run_is_known_by_its_control_group_alone() {
    // The inode walk is not needed, and a socket that a member was handed still counts by it.
    let rung = Rung::Cgroup;
    if !crate::rungs::is_there(rung) {
        return;
    }
    let code = "import os, socket, time\n\
                s = socket.create_server(('127.0.0.1', int(os.environ['PORTREEVE_PORT_HTTP'])))\n\
                time.sleep(1000)\n";
    let mut world = World::held(
        rung,
        "exec python3 listen.py",
        "[ports]\nhttp = \"any\"\n[readiness]\nlistening = true\ninterval = \"100ms\"",
    );
    fs::write(world.path("listen.py"), code).unwrap();
    world.start_worker();
    let ready = world.ready();
    assert!(ready.ready);
    let port = world.assignment.desired.grant.ports[0].numbers.first();
    let listeners =
        portreeve_api::sockets::listeners(portreeve_api::sockets::Side::Tcp, port).unwrap();
    let run = world
        .assignment
        .containment
        .group
        .clone()
        .unwrap()
        .join("run-1");
    let id = std::os::unix::fs::MetadataExt::ino(&fs::metadata(run).unwrap());
    assert_eq!(listeners[0].cgroup, Some(id));
}
