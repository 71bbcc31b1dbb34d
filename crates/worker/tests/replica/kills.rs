//! `kill -9` of the worker and of the shim in each state of a run: afterwards there is exactly one living run, it is
//! counted right, has the same ports, and nothing of an earlier one is left.

use std::fs;

use nix::sys::signal::Signal;
use portreeve::registry::Want;
use portreeve::supervision::{Final, State, Status};
use portreeve_api::containment::{Hierarchy, Rung};

use crate::rungs::{Group, on_each_rung};
use crate::world::{World, is_gone, signal, until};

on_each_rung!(
    killed_while_pre_exec_runs,
    killed_while_it_starts_up,
    killed_while_it_is_up,
    killed_while_it_stops,
    killed_while_it_waits_for_the_last_process,
    killed_while_it_waits_to_start_again,
);

const STOPPED: State = State::Final(Final::Stopped);
const PORT: &str = "[ports]\nhttp = { any = 1, publish = false }\n[restart]\nbackoff = { initial = \"100ms\", max = \"100ms\" }\n";

/// Whom the signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Worker,
    Shim,
    Both,
}

const VICTIMS: [Victim; 3] = [Victim::Worker, Victim::Shim, Victim::Both];

impl World {
    /// Kills, and lets the agent's part be done: a worker that is gone is replaced.
    fn strike(&mut self, victim: Victim, run: u32) {
        let shim = self.shim(run);
        if victim != Victim::Shim {
            self.kill_worker();
        }
        if victim != Victim::Worker {
            signal(shim, Signal::SIGKILL);
            until("the shim is gone", || is_gone(shim));
        }
        if victim != Victim::Shim {
            self.start_worker();
        }
    }

    /// Waits until run `run` is ready, alone, on its port, and `restarts` were counted.
    fn is_alone(&self, run: u32, restarts: u32) -> Status {
        let status = self.controller.until(&format!("run {run}"), |status| {
            status.ready && status.run.0 == run
        });
        assert_eq!(status.restarts, restarts);
        let living = self.living();
        assert_eq!(living.keys().collect::<Vec<_>>(), [&run], "{living:?}");
        assert!(living[&run].contains(&status.pid.unwrap()));
        let port = self.assignment.desired.grant.ports[0].numbers.first();
        let env = fs::read(format!("/proc/{}/environ", status.pid.unwrap())).unwrap();
        let given = format!("PORTREEVE_PORT_HTTP={port}");
        assert!(
            env.split(|byte| *byte == 0)
                .any(|one| one == given.as_bytes())
        );
        status
    }
}

fn killed_while_pre_exec_runs(rung: Rung) {
    for victim in VICTIMS {
        let pre_exec = "pre_exec = \"echo x >> tries; while [ ! -e go ]; do sleep 0.02; done\"\n";
        let mut world = World::held(rung, "exec sleep 1000", &format!("{pre_exec}{PORT}"));
        world.start_worker();
        until("pre_exec runs", || world.path("tries").exists());
        world.strike(victim, 1);
        fs::write(world.path("go"), "").unwrap();
        let (run, tries) = match victim {
            Victim::Worker => (1, "x\n"),
            // It did not succeed, so it is done again; that start failed and is counted.
            Victim::Shim | Victim::Both => (2, "x\nx\n"),
        };
        world.is_alone(run, run - 1);
        assert_eq!(world.text("tries"), tries, "{victim:?}");
    }
}

fn killed_while_it_starts_up(rung: Rung) {
    for victim in VICTIMS {
        let startup = "[startup]\ncommand = [\"test\", \"-e\", \"go\"]\ninterval = \"100ms\"\nfailure_threshold = 600\n";
        let mut world = World::held(rung, "exec sleep 1000", &format!("{PORT}{startup}"));
        world.start_worker();
        world
            .controller
            .until("startup", |status| status.state == State::Startup);
        world.strike(victim, 1);
        fs::write(world.path("go"), "").unwrap();
        let run = if victim == Victim::Worker { 1 } else { 2 };
        world.is_alone(run, run - 1);
    }
}

fn killed_while_it_is_up(rung: Rung) {
    for victim in VICTIMS {
        let mut world = World::held(rung, "exec sleep 1000", PORT);
        world.start_worker();
        let first = world.is_alone(1, 0);
        world.strike(victim, 1);
        let run = if victim == Victim::Worker { 1 } else { 2 };
        let now = world.is_alone(run, run - 1);
        assert_eq!(now.pid == first.pid, victim == Victim::Worker);
    }
}

fn killed_while_it_stops(rung: Rung) {
    for victim in VICTIMS {
        let stop = "[stop]\ngrace = \"1s\"\n";
        let command = "trap '' TERM; while :; do sleep 0.05; done";
        let mut world = World::held(rung, command, &format!("{PORT}{stop}"));
        world.start_worker();
        let pid = world.is_alone(1, 0).pid.unwrap();
        world.want(Want::Stop, 0);
        world
            .controller
            .until("stopping", |status| status.state == State::Stopping);
        // As the agent writes it for every worker from now on.
        world.assignment.desired.want = Want::Stop;
        world.strike(victim, 1);
        let ended = world
            .controller
            .until("stopped", |status| status.state == STOPPED);
        assert_eq!((ended.restarts, ended.run.0), (0, 1), "{victim:?}");
        assert!(
            is_gone(pid) && world.living().is_empty(),
            "{:?}",
            world.living()
        );
    }
}

fn killed_while_it_waits_for_the_last_process(rung: Rung) {
    // One that cannot die for now: frozen, a kill takes effect only when it is thawed.
    for victim in VICTIMS {
        let Some(ice) = Group::new(Hierarchy::Freezer) else {
            return;
        };
        let command = format!(
            "sh -c 'echo 0 > {}/cgroup.procs; read me rest < /proc/self/stat; echo $me >> child; exec sleep 1000' & \
             while [ ! -s child ]; do sleep 0.02; done; exec sleep 1000",
            ice.0.display()
        );
        let mut world = World::held(rung, &command, PORT);
        world.start_worker();
        let first = world.is_or_becomes_ready();
        let child: u32 = world.text_once_there("child").trim().parse().unwrap();
        ice.set("freezer.state", "FROZEN");
        let frozen = || fs::read_to_string(ice.0.join("freezer.state")).unwrap() == "FROZEN\n";
        until("it is frozen", frozen);
        signal(first.pid.unwrap(), Signal::SIGKILL);
        // Its last process is not gone, so nothing may start.
        world
            .controller
            .until("reaping", |status| status.state == State::Reaping);
        world.strike(victim, 1);
        assert!(!is_gone(child) && !world.path("run-2").exists());
        ice.set("freezer.state", "THAWED");
        let second = world
            .controller
            .until("run 2", |status| status.ready && status.run.0 == 2);
        assert_eq!(second.restarts, 1, "{victim:?}");
        assert!(is_gone(child));
        let living = world.living();
        assert_eq!(living.keys().collect::<Vec<_>>(), [&2], "{living:?}");
        // Before the group goes.
        world.want(Want::Stop, 0);
        world
            .controller
            .until("stopped", |status| status.state == STOPPED);
        drop(world);
        drop(ice);
    }
}

impl World {
    fn is_or_becomes_ready(&self) -> Status {
        self.controller.until("ready", |status| status.ready)
    }
}

fn killed_while_it_waits_to_start_again(rung: Rung) {
    // No shim lives then: the worker is all there is to kill.
    let backoff = "[ports]\nhttp = { any = 1, publish = false }\n[restart]\nbackoff = { initial = \"1s\", max = \"1s\", jitter = 0 }\n";
    let command = "[ -e failed ] && exec sleep 1000; touch failed; exit 1";
    let mut world = World::held(rung, command, backoff);
    world.start_worker();
    world
        .controller
        .until("backoff", |status| status.state == State::Backoff);
    assert!(world.living().is_empty());
    world.kill_worker();
    world.start_worker();
    world.is_alone(2, 1);
}
