//! Controller, agent and workers as processes of their own: each may be killed, and nothing restarts.

use serde_json::Value;

use crate::world::{Running, USUAL, World, eventually, hello, kill, pause};

fn controller(world: &World) -> Running {
    let data = world.path("controller").display().to_string();
    let run = world.path("run").display().to_string();
    world.start(
        "controller",
        &[
            "controller",
            "--data",
            &data,
            "--run-dir",
            &run,
            "--single-host",
        ],
    )
}

fn agent(world: &World) -> Running {
    let data = world.path("host").display().to_string();
    let socket = world.socket();
    world.start(
        "agent",
        &[
            "agent",
            "--data",
            &data,
            "--controller",
            &socket,
            "--single-host",
        ],
    )
}

/// What must not change: places, ports, counts and processes.
fn standing(world: &World) -> Vec<Value> {
    (0..3)
        .map(|index| {
            let replica = world.replica("hello", index);
            let fields = [
                "incarnation",
                "host",
                "ports",
                "restarts",
                "restarts_total",
                "pid",
                "ready",
            ];
            fields.iter().map(|field| replica[*field].clone()).collect()
        })
        .collect()
}

fn three_ready(world: &World) -> Vec<Value> {
    world.ok(&[
        "submit",
        &world.profile("hello.toml", &hello("hello", 3, "", USUAL)),
    ]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    // One restart, so that a count is there to be kept.
    let pid = world.replica("hello", 0)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("hello", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    // News is written with the next truth: what follows may kill the controller at once.
    let quiet = "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n";
    world.ok(&["submit", &world.profile("quiet.toml", quiet)]);
    standing(world)
}

#[test]
fn a_killed_controller_comes_back_with_the_same_endpoints_ports_and_counts() {
    let Some(world) = World::new() else { return };
    let first = controller(&world);
    let _agent = agent(&world);
    let before = three_ready(&world);
    let lines = world.ok(&["endpoints", "hello"]);
    assert_eq!(first.end("KILL"), None);
    let away = world.run(&["endpoints", "hello"]);
    assert_eq!((away.code, away.stdout.as_str()), (Some(6), ""), "{away:?}");
    let _second = controller(&world);
    // At once, before any host has spoken.
    assert_eq!(world.ok(&["endpoints", "hello"]), lines);
    assert_eq!(standing(&world), before);
    // And still so after the agent has reported to the new one.
    assert!(eventually(
        || world.json(&["hosts"])["hosts"][0]["state"] == "up"
    ));
    assert_eq!(standing(&world), before);
    let pid = before[1][5].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("hello", 1, "was still supervised", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
}

#[test]
fn a_killed_agent_adopts_what_runs() {
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let first = agent(&world);
    let before = three_ready(&world);
    assert_eq!(first.end("KILL"), None);
    assert_eq!(
        standing(&world),
        before,
        "the services need no agent to go on"
    );
    let second = agent(&world);
    assert!(eventually(
        || world.json(&["hosts"])["hosts"][0]["state"] == "up"
    ));
    assert_eq!(standing(&world), before);
    assert_eq!(second.end("TERM"), Some(0));
    assert_eq!(
        standing(&world),
        before,
        "a mere stop of the agent touches nothing"
    );
    let _third = agent(&world);
    world.ok(&["stop", "hello"]);
    world.ok(&["wait", "hello", "--gone", "--timeout", "60s"]);
}

#[test]
fn a_killed_worker_is_replaced_under_the_living_service() {
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let _agent = agent(&world);
    let before = three_ready(&world);
    for (pid, line) in world.processes() {
        if line.contains(" worker --folder") {
            kill(pid, "KILL");
        }
    }
    let workers = || {
        world
            .processes()
            .iter()
            .filter(|(_, line)| line.contains(" worker --folder"))
            .count()
    };
    assert!(eventually(|| workers() == 4), "{:?}", world.processes());
    assert_eq!(standing(&world), before);
    let pid = before[2][5].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("hello", 2, "was still supervised", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
}

#[test]
fn a_reader_never_sees_an_empty_success_while_the_controller_restarts() {
    // P25, native reads
    let Some(world) = World::new() else { return };
    let mut running = controller(&world);
    let _agent = agent(&world);
    three_ready(&world);
    let (rounds, reads) = if std::env::var_os("PORTREEVE_LONG").is_some() {
        (50, 40)
    } else {
        (8, 15)
    };
    let mut answered = 0;
    for _ in 0..rounds {
        kill(running.pid(), "KILL");
        let poll = |answered: &mut u32| {
            let outcome = world.run(&["endpoints", "hello"]);
            match outcome.code {
                Some(0) => {
                    assert_eq!(outcome.stdout.lines().count(), 3, "{outcome:?}");
                    *answered += 1;
                }
                Some(6) => assert_eq!(outcome.stdout, "", "{outcome:?}"),
                _ => panic!("neither the endpoints nor unreachable: {outcome:?}"),
            }
        };
        poll(&mut answered);
        running = controller(&world);
        for _ in 0..reads {
            poll(&mut answered);
            pause();
        }
    }
    assert!(answered >= rounds, "only {answered} answers");
}
