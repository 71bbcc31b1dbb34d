//! Numbers of processes that come to mean others: forced in a namespace of process numbers.

use std::fs;
use std::process::{Child, Command, Stdio};

use portreeve::registry::Want;
use portreeve::supervision::{Final, State};
use portreeve_api::containment::Rung;
use portreeve_api::local::ProcessIdentity;

use crate::rungs::on_each_rung;
use crate::world::{World, is_gone, until};

on_each_rung!(a_stranger_with_the_number_of_a_dead_one_is_neither_adopted_nor_killed);

/// A namespace of process numbers with a `/proc` of its own; everything in it ends with it.
struct Numbers {
    holder: Child,
    /// Its first process, as the host calls it.
    first: u32,
}

impl Numbers {
    fn new() -> Option<Self> {
        let mut holder = Command::new("unshare")
            .args([
                "--pid",
                "--mount-proc",
                "--fork",
                "--kill-child",
                // A first process that buries what ends in the namespace, as `sleep` would not.
                "sh",
                "-c",
                "while :; do sleep 0.05; done",
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", holder.id());
        let mut first = None;
        until("the namespace is there", || {
            let text = fs::read_to_string(&children).unwrap_or_default();
            first = text.trim().parse().ok();
            let is_it = |pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sh\n")
            };
            first.as_ref().is_some_and(is_it) || holder.try_wait().unwrap().is_some()
        });
        if let (Some(first), None) = (first, holder.try_wait().unwrap()) {
            return Some(Self { holder, first });
        }
        let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
        assert!(!required, "a namespace of process numbers is required here");
        eprintln!("skipped: needs a namespace of process numbers (unshare --pid)");
        None
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args([
                "--pid",
                "--mount",
                "--target",
                &self.first.to_string(),
                "--",
            ])
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    fn shell(&self, line: &str) -> String {
        let output = self.command("sh").args(["-c", line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Kills a process by its number in here, and waits until nothing has that number.
    fn kill(&self, number: u32) {
        self.shell(&format!(
            "kill -9 {number}; for try in $(seq 500); do [ -e /proc/{number} ] || exit; sleep 0.01; done"
        ));
    }

    /// Starts a stranger that has this number.
    fn take(&self, number: u32) {
        let before = number - 1;
        // Something else may be faster, and then has it for a while.
        let line = format!(
            "for try in $(seq 2000); do [ -e /proc/{number} ] && sleep 0.01; \
             echo {before} > /proc/sys/kernel/ns_last_pid; \
             setsid sleep 12345 > /dev/null 2>&1 & \
             [ $! = {number} ] && echo taken && exit; kill $!; wait $!; done"
        );
        assert_eq!(
            self.shell(&line),
            "taken\n",
            "{number} could not be given away"
        );
    }

    /// Whether the stranger still has it.
    fn stranger_lives(&self, number: u32) -> bool {
        self.shell(&format!("tr '\\0' ' ' < /proc/{number}/cmdline")) == "sleep 12345 "
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        _ = self.holder.kill();
        _ = self.holder.wait();
        let first = self.first;
        until("the namespace is gone", || is_gone(first));
    }
}

fn a_stranger_with_the_number_of_a_dead_one_is_neither_adopted_nor_killed(rung: Rung) {
    // D8 pid reuse
    let Some(numbers) = Numbers::new() else {
        return;
    };
    let mut world = World::held(rung, "exec sleep 1000", "");
    let worker = |world: &World| {
        let mut command = numbers.command(env!("CARGO_BIN_EXE_portreeve-worker-harness"));
        command
            .args(["worker", "--folder"])
            .arg(world.folder.path());
        command
    };
    world.start_worker_by(worker(&world));
    let first = world.ready();
    let identity = |name: &str| serde_json::from_str::<ProcessIdentity>(&world.text(name)).unwrap();
    let (supervisor, shim) = (identity("worker.json").pid, identity("run-1/shim.json").pid);
    let service = first.pid.unwrap();
    let mut taken = vec![service, supervisor];
    // The first process of a run's namespace lives on in the shim's session, whose number the kernel keeps so long.
    if rung != Rung::PidNamespace {
        taken.push(shim);
    }
    // The highest first: the shell that gives one away has the next number itself.
    taken.sort_unstable_by(|one, other| other.cmp(one));
    for number in [supervisor, shim, service] {
        numbers.kill(number);
    }
    world.worker_ends();
    for number in taken.clone() {
        numbers.take(number);
    }
    world.start_worker_by(worker(&world));
    let second = world
        .controller
        .until("run 2", |status| status.run.0 == 2 && status.ready);
    assert_eq!(second.restarts, 1);
    assert_ne!(second.pid, Some(service));
    for number in taken.clone() {
        assert!(numbers.stranger_lives(number), "{number} was killed");
    }
    world.want(Want::Stop, 0);
    world.controller.until("stopped", |status| {
        status.state == State::Final(Final::Stopped)
    });
    for number in taken.clone() {
        assert!(numbers.stranger_lives(number), "{number} was killed");
    }
    world.want(Want::Forget, 0);
    world.worker_ends();
}
