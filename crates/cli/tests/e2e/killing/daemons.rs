//! Agents and workers killed at random: what they watch over runs on, and nobody is told anything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::controller::{held, json, owned};
use super::{Asked, Dice, ask, doze, place, sized};
use crate::daemons::{agent, controller};
use crate::endpoints::wire::Place;
use crate::world::{Running, USUAL, World, eventually, hello, kill};

fn reports(world: &World) -> u64 {
    let counters = json(&place(world), "counters");
    counters["reports"].as_u64().unwrap()
}

/// Starts the agent again and waits until it has told everything.
fn agent_again(world: &World) -> Running {
    let before = reports(world);
    let agent = agent(world);
    assert!(eventually(|| reports(world) > before), "{}", agent.output());
    agent
}

fn workers(world: &World) -> Vec<i32> {
    let processes = world.processes().into_iter();
    let workers = processes.filter(|(_, line)| line.contains(" worker --folder "));
    workers.map(|(pid, _)| pid).collect()
}

/// The processes of services by their command line, which ends with the port: each is there once.
fn servers(world: &World) -> BTreeMap<String, usize> {
    let mut servers = BTreeMap::new();
    for (_, line) in world.processes() {
        if line.contains("hello --port") && !line.contains(" shim ") && !line.starts_with("/bin/sh")
        {
            *servers.entry(line).or_default() += 1;
        }
    }
    servers
}

/// What must not change of a service that nobody asked anything of.
fn standing(world: &World, service: &str) -> Vec<Value> {
    let shown = world.json(&["service", service]);
    let replicas = shown["replicas"].as_array().unwrap();
    let fields = ["pid", "run", "restarts", "incarnation", "ports", "since"];
    let kept = |it: &Value| fields.map(|field| it[field].clone()).into_iter().collect();
    replicas.iter().map(kept).collect()
}

#[test]
fn an_agent_that_is_killed_again_and_again_changes_nothing_that_anybody_is_told() {
    // P20
    let Some(world) = World::new() else { return };
    let mut dice = Dice::of_this_run();
    let _controller = controller(&world);
    let mut running = agent(&world);
    world.ok(&[
        "submit",
        &world.profile("hello.toml", &hello("hello", 3, "", USUAL)),
    ]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    let watch = world.start_alone(
        "watch",
        &["--controller", &world.socket(), "watch", "hello"],
    );
    assert!(eventually(|| watch.output().contains("hello")));
    let shown = || {
        (
            world.json(&["service", "hello"]),
            world.ok(&["events", "hello"]),
            watch.output(),
        )
    };
    let before = shown();
    for round in 0..sized(20, 100) {
        doze(Duration::from_millis(dice.below(200).into()));
        assert_eq!(running.end("KILL"), None);
        assert_eq!(shown(), before, "round {round}, without an agent");
        running = agent_again(&world);
        assert_eq!(shown(), before, "round {round}");
    }
}

/// Scales a service up and down, restarts it, stops and starts it.
fn keep_busy(place: &Place, mut dice: Dice, ended: &AtomicBool) -> u32 {
    let mut done = 0;
    while !ended.load(Ordering::Relaxed) {
        let body = format!("{{\"replicas\":{}}}", dice.below(4));
        let (what, body) = match dice.below(5) {
            0 => ("restart", ""),
            1 => ("stop", ""),
            2 => ("start", ""),
            _ => ("scale", body.as_str()),
        };
        let path = format!("services/busy/{what}");
        let form = "application/json";
        if let Asked::Answered(answer) = ask(place, "POST", &path, body.as_bytes(), form) {
            done += u32::from(answer.head.status < 300);
        }
        doze(Duration::from_millis(dice.below(400).into()));
    }
    done
}

#[test]
fn agents_and_workers_killed_at_random_cost_no_service_its_life_and_none_runs_twice() {
    // P20, P14; promises 1 and 2
    let Some(world) = World::new() else { return };
    let mut dice = Dice::of_this_run();
    let mut controller_runs = controller(&world);
    let mut running = agent(&world);
    for (name, replicas) in [("steady", 3), ("busy", 2)] {
        let text = hello(name, replicas, "", USUAL);
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
        world.ok(&["wait", name, "--timeout", "60s"]);
    }
    let before = standing(&world, "steady");
    let place = place(&world);
    let (ended, killed) = (AtomicBool::new(false), AtomicU32::new(0));
    let rounds = sized(20, 100);
    let (commands, _running, _controller) = std::thread::scope(|scope| {
        let theirs = dice.split();
        let busy = scope.spawn(|| keep_busy(&place, theirs, &ended));
        let ends = super::controller::EndsThem(&ended);
        for round in 0..rounds {
            doze(Duration::from_millis(dice.below(300).into()));
            let all = workers(&world);
            for worker in all {
                if dice.below(3) == 0 {
                    kill(worker, "KILL");
                    killed.fetch_add(1, Ordering::Relaxed);
                }
            }
            if dice.below(2) == 0 {
                running.end("KILL");
                if dice.below(3) == 0 {
                    controller_runs.end("KILL");
                    controller_runs = controller(&world);
                }
                running = agent_again(&world);
            }
            let twice: Vec<_> = servers(&world).into_iter().filter(|it| it.1 > 1).collect();
            assert!(twice.is_empty(), "round {round}: {twice:?}");
            assert_eq!(standing(&world, "steady"), before, "round {round}");
        }
        drop(ends);
        (busy.join().unwrap(), running, controller_runs)
    });
    world.ok(&["start", "busy"]);
    world.ok(&["scale", "busy", "2"]);
    world.ok(&["wait", "busy", "--timeout", "120s"]);
    let agree = || held(&place) == owned(&place) && servers(&world).len() == 5;
    assert!(
        eventually(agree),
        "{:?} {:?} {:?}",
        held(&place),
        owned(&place),
        servers(&world)
    );
    // Each has a worker again, although nobody asked for one.
    assert!(
        eventually(|| workers(&world).len() == 5),
        "{:?}",
        world.processes()
    );
    assert_eq!(standing(&world, "steady"), before);
    eprintln!(
        "{rounds} rounds: {} workers killed among {commands} acknowledged commands",
        killed.into_inner()
    );
    for name in ["steady", "busy"] {
        world.ok(&["stop", name]);
        world.ok(&["wait", name, "--gone", "--timeout", "60s"]);
    }
    assert!(eventually(|| held(&place).is_empty()), "{:?}", held(&place));
    assert!(
        eventually(|| servers(&world).is_empty()),
        "{:?}",
        servers(&world)
    );
}
